// Checks of one loaded page. Each function gives a list of what is wrong, in words; empty when all is well.
// page_checks.py puts this file before a `return checks.name(...)`, so nothing of it stays in the page.
const checks = {
  // How a finding names an element: tag, id or class, and the start of its text.
  name(element) {
    const text = (element.textContent || element.outerHTML).trim().replace(/\s+/g, " ").slice(0, 50);
    const label = element.id ? "#" + element.id : [...element.classList].slice(0, 2).map((c) => "." + c).join("");
    return `${element.tagName.toLowerCase()}${label} "${text}"`;
  },

  visible(element) {
    return element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;
  },

  // Open everything that a click opens: dropdowns, hidden cells, admonitions with a button.
  open() {
    const wrong = [];
    for (const closed of document.querySelectorAll("article details, article .toggle")) {
      const handle = closed.querySelector("summary, .toggle-button");
      if (!handle) { wrong.push(`nothing opens ${checks.name(closed)}`); continue; }
      const isOpen = () => (closed.tagName === "DETAILS" ? closed.open : !closed.classList.contains("toggle-hidden"));
      if (!isOpen()) handle.click();
      const inside = [...closed.children].filter((child) => !child.contains(handle));
      if (!isOpen() || !inside.some((child) => checks.visible(child) && child.offsetHeight > 0)) {
        wrong.push(`doesn't open: ${checks.name(closed)}`);
      }
    }
    return wrong;
  },

  // The page is as wide as the window, and nothing is cut at the right.
  overflow(width) {
    const page = document.documentElement;
    if (page.scrollWidth <= width && window.innerWidth <= width) return [];
    const sticksOut = (e) => e.getBoundingClientRect().right > width + 1
      || (getComputedStyle(e).overflowX === "visible" && e.getBoundingClientRect().left + e.scrollWidth > width + 1);
    const wide = [...document.querySelectorAll("body *")].filter((element) =>
      checks.visible(element) && sticksOut(element) && !checks.scroller(element.parentElement));
    const inner = wide.filter((element) => !wide.some((other) => other !== element && element.contains(other)));
    return [`${Math.max(page.scrollWidth, window.innerWidth)} px wide in ${width}: `
      + inner.slice(0, 5).map(checks.name).join("; ")];
  },

  // The nearest element around (or the element itself) that scrolls sideways.
  scroller(element) {
    for (let e = element; e && e !== document.body; e = e.parentElement) {
      if (["auto", "scroll"].includes(getComputedStyle(e).overflowX)) return e;
    }
    return null;
  },

  // Formulas that stick out of what they stand in, or that a box without a scroll bar cuts.
  cutMaths() {
    const wrong = [];
    for (const formula of document.querySelectorAll("mjx-container")) {
      if (!checks.visible(formula)) continue;
      let block = formula.parentElement;
      while (getComputedStyle(block).display.startsWith("inline")) block = block.parentElement;
      const [box, room] = [formula.getBoundingClientRect(), block.getBoundingClientRect()];
      const math = formula.querySelector("mjx-math");
      const inner = math ? math.getBoundingClientRect() : box;
      if (Math.max(box.right, inner.right) > room.right + 1 && !checks.scroller(formula)) {
        wrong.push(`formula wider than its place by ${Math.round(Math.max(box.right, inner.right) - room.right)} px: `
          + checks.formula(formula));
      }
      const style = getComputedStyle(formula);
      if (style.overflowY === "hidden" && formula.scrollHeight > formula.clientHeight + 1) {
        wrong.push(`formula cut by ${formula.scrollHeight - formula.clientHeight} px in height: ${checks.formula(formula)}`);
      }
    }
    for (const box of document.querySelectorAll("article *:not(mjx-container *, svg *, span.math)")) {
      const style = getComputedStyle(box);
      if (style.display !== "inline" && ["hidden", "clip"].includes(style.overflowX) && checks.visible(box)
          && box.scrollWidth > box.clientWidth + 1 && box.clientWidth > 1) {
        wrong.push(`cut by ${box.scrollWidth - box.clientWidth} px without a scroll bar: ${checks.name(box)}`);
      }
    }
    return wrong;
  },

  formula(container) {
    const source = [...(window.MathJax?.startup?.document?.math || [])].find((m) => m.typesetRoot === container);
    return source ? source.math.trim().replace(/\s+/g, " ").slice(0, 80) : checks.name(container);
  },

  // Formulas that MathJax refused or never saw: in the text, and in what a screen reader reads out.
  rawTex() {
    const tex = /\\[()[\]]|\$[^$\n]*[\\^_{][^$\n]*\$|\$\$|\\[a-zA-Z]{2,}/;
    const wrong = [...document.querySelectorAll("mjx-merror, [data-mjx-error], merror")]
      .map((e) => `maths error: ${e.getAttribute("data-mjx-error") || checks.name(e)}`);
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = texts.nextNode(); node; node = texts.nextNode()) {
      const around = node.parentElement.closest("code, pre, kbd, script, style, noscript, template, mjx-container");
      if (!around && tex.test(node.data)) wrong.push(`raw TeX: ${node.data.trim().slice(0, 80)}`);
    }
    for (const element of document.querySelectorAll("[alt], [title], [aria-label], title")) {
      for (const text of [element.getAttribute("alt"), element.getAttribute("title"), element.getAttribute("aria-label"),
        element.tagName === "TITLE" ? element.textContent : ""]) {
        if (text && tex.test(text)) wrong.push(`raw TeX in a description: ${text.slice(0, 80)}`);
      }
    }
    return wrong;
  },

  // Pictures without a real description, pictures that didn't load, figures without a caption.
  pictures() {
    const wrong = [];
    for (const image of document.querySelectorAll("img, :is([role=img], article svg):not([aria-hidden=true], button *, summary *, svg *, mjx-container *)")) {
      const labelled = (image.getAttribute("aria-labelledby") || "").split(" ")
        .map((id) => document.getElementById(id)?.textContent || "").join(" ");
      const text = (image.getAttribute("alt") || image.getAttribute("aria-label") || labelled).trim();
      const least = image.closest("figure, .cell_output") ? 30 : 2;
      if (text.length < least || /\.(svg|png|jpe?g)$|^[0-9a-f]{16,}$/i.test(text)) {
        wrong.push(`description "${text}" of ${image.getAttribute("src") || checks.name(image)}`);
      }
      if (image.tagName === "IMG" && image.complete && !image.naturalWidth) wrong.push(`didn't load: ${image.src}`);
    }
    for (const figure of document.querySelectorAll("article figure")) {
      if (!figure.querySelector("figcaption")?.textContent.trim()) wrong.push(`no caption: ${checks.name(figure)}`);
    }
    return wrong;
  },

  // The way on and back, and a copy button at each piece of code that one would copy.
  tools(first, last) {
    const wrong = [];
    for (const [there, selector] of [[!first, "a.left-prev"], [!last, "a.right-next"]]) {
      if (there && !document.querySelector(selector)?.getAttribute("href")) wrong.push(`no link ${selector}`);
    }
    for (const code of document.querySelectorAll("article .cell_input div.highlight")) {
      if (!code.querySelector("button.copybtn")) wrong.push(`no copy button: ${checks.name(code)}`);
    }
    return wrong;
  },

  // Mark one element for each combination of colours and type that the page's text has: its contrast stands
  // for that of all the others. Formulas are thousands of elements in one colour: each becomes a word. (axe skips single letters.)
  sample() {
    document.querySelectorAll("mjx-container").forEach((formula) => { formula.textContent = "formula"; });
    const seen = new Set();
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = texts.nextNode(); node; node = texts.nextNode()) {
      const element = node.parentElement;
      if (!/[\p{L}\p{N}]{2}/u.test(node.data) || !checks.visible(element)) continue;
      const { color, fontSize, fontWeight, textShadow } = getComputedStyle(element);
      const look = [color, fontSize, fontWeight, textShadow, element.tagName === "A"];
      for (let e = element; e; e = e.parentElement) {
        const { backgroundColor, backgroundImage, opacity, position } = getComputedStyle(e);
        const ground = [backgroundColor, backgroundImage, opacity, /absolute|fixed|sticky/.test(position)].join();
        if (ground !== "rgba(0, 0, 0, 0),none,1,false") look.push(ground);
      }
      if (!seen.has(look.join("|"))) element.dataset.sample = "";
      seen.add(look.join("|"));
    }
  },

  // Empty every element that holds no sample; the elements themselves stay, so that rules such as "every
  // other row" still mean the same.
  prune() {
    const empty = (element) => {
      for (const child of element.children) {
        if (child.matches("[data-sample], :has([data-sample])")) empty(child);
        else if (!["SCRIPT", "STYLE", "LINK"].includes(child.tagName)) child.replaceChildren();
      }
    };
    empty(document.body);
  },

  // The rules on colours alone.
  contrast() {
    return checks.run({ runOnly: { type: "rule", values: checks.colours } });
  },

  // All the other rules with one of these tags. Formulas become words, and coloured code is one piece of text
  // meanwhile: thousands of elements less.
  async axe(tags) {
    document.querySelectorAll("mjx-container").forEach((formula) => { formula.textContent = "formula"; });
    const code = [...document.querySelectorAll(".highlight pre")].map((pre) => [pre, [...pre.childNodes]]);
    code.forEach(([pre]) => { pre.textContent = pre.textContent; });
    const off = Object.fromEntries(checks.colours.map((rule) => [rule, { enabled: false }]));
    const found = await checks.run({ runOnly: { type: "tag", values: tags }, rules: off });
    code.forEach(([pre, nodes]) => pre.replaceChildren(...nodes));
    return found;
  },

  colours: ["color-contrast", "link-in-text-block"],

  async run(options) {
    // preload would fetch the style sheets again, which a page opened from file:// may not.
    const run = await axe.run(document, { ...options, resultTypes: ["violations"], preload: false });
    return run.violations.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.target.flat().join(" ")}: `
      + [...node.any, ...node.all, ...node.none].map((check) => check.message).join("; ")));
  },
};
