/* The calculator: the facts of a run in, its guarantees out, all computed in the page (chapter 20).
   The question stands in the page's address, so that a link opens it again. Needs maths.js, power.js and draw.js. */
(function () {
  "use strict";

  const live = window.dpteachLive;
  const WHERE = {
    "add-remove": { sampling: "poisson", unit: 1, change: "is added or removed", batches: (m) => `Poisson batches of ${m} records expected` },
    "replace-one": { sampling: "fixed-size", unit: 2, change: "is replaced", batches: (m) => `uniform batches of exactly ${m} records` },
  };
  const FIELDS = [
    ["n", "records n"], ["batch_size", "batch size (expected, under add-remove)"], ["rate", "or the sampling rate"],
    ["epochs", "epochs"], ["steps", "or the number of noisy updates T"],
    ["sigma", "σ: noise standard deviation / sensitivity"], ["clip_norm", "clipping norm C"], ["delta", "δ"],
  ];
  const START = { relation: "add-remove", n: "60000", batch_size: "256", epochs: "15", sigma: "1.3", clip_norm: "1.5", delta: "1e-5" };

  /* ---- the question: each argument is refused as the command line does it ---------------------------- */

  const INTERVALS = {
    n: [1, 1e15, "[1, 1e15]"], batch_size: [1, 1e15, "[1, 1e15]"], rate: [1e-9, 1, "[1e-9, 1]"], epochs: [1e-9, 1e9, "(0, 1e9]"],
    steps: [1, 1e9, "[1, 1e9]"], sigma: [0.05, 1e3, "[0.05, 1e3]"], clip_norm: [1e-30, 1e30, "(0, inf)"], delta: [1e-30, 1 - 1e-16, "[1e-30, 1)"],
  };
  const WHOLE = new Set(["n", "batch_size", "steps"]);
  const ADVICE = {
    sigma: "it's noise standard deviation / sensitivity", steps: "it's the number of noisy updates",
    rate: "it's the probability that a record enters a batch, m/n", delta: "it's a probability; typical values are below 1/n",
  };

  function refuse(name, value, allowed, advice) {
    throw new Error(`${name} = ${value} isn't allowed: it must be ${allowed}` + (advice ? `; ${advice}` : ""));
  }

  function number(typed, name) {
    const value = Number(typed), [low, high, interval] = INTERVALS[name], whole = WHOLE.has(name);
    if (typed.trim() === "" || !(value >= low && value <= high) || (whole && !Number.isInteger(value))) {
      refuse(name, typed.trim() === "" ? "nothing" : typed, `a ${whole ? "whole " : ""}number in ${interval}`, ADVICE[name]);
    }
    return value;
  }

  /* The run that was asked about: rate, steps, σ, δ, and what the statement says of it. */
  function question(typed) {
    const given = (name) => (typed[name] || "").trim() !== "";
    const relation = typed.relation in WHERE ? typed.relation : refuse("relation", typed.relation, "add-remove or replace-one");
    const n = given("n") ? number(typed.n, "n") : null;
    if (given("rate") && given("batch_size")) refuse("rate", typed.rate, "left out", "the batch size is given");
    if (given("steps") && given("epochs")) refuse("steps", typed.steps, "left out", "epochs are given");
    const m = given("rate") ? null : number(typed.batch_size || "", "batch_size");
    if (m !== null && n === null) refuse("n", "nothing", "given with a batch size", "or give the rate");
    if (m > n && n !== null) refuse("batch_size", m, `a whole number in [1, ${n}]`, "a batch holds at most all records");
    const rate = m === null ? number(typed.rate, "rate") : number(String(m / n), "rate");
    const steps = given("steps") ? number(typed.steps, "steps") : live.stepsOf(1, rate, number(typed.epochs || "", "epochs"));
    return {
      relation: relation, n: n, m: m, rate: rate, steps: number(String(steps), "steps"), sigma: number(typed.sigma || "", "sigma"),
      clip: number(typed.clip_norm || "", "clip_norm"), delta: number(typed.delta || "", "delta"),
    };
  }

  /* ---- the answer -------------------------------------------------------------------------------------- */

  /* Rounded to the side on which it stays true, as the command line prints it. */
  function shown(value, side, digits = 6) {
    if (value === 0 || !Number.isFinite(value)) return value === 0 ? "0" : "none";
    let text = value.toPrecision(digits);
    const off = { up: 1, down: -1, nearest: 0 }[side];
    if (off * (value - Number(text)) > 0) {
      const unit = 10 ** (Math.floor(Math.log10(Math.abs(value))) - digits + 1);
      text = (Number(text) + off * unit).toPrecision(digits);
    }
    return String(Number(text));
  }

  const plain = (x) => (x < 1e-3 ? x.toExponential() : String(x));  // 1e-5, not 0.00001

  function answer(ask) {
    const { relation, rate, sigma, steps, delta } = ask;
    const power = live.tensorPower(relation, rate, sigma, steps, delta);
    const bounds = live.momentBounds(relation, rate, sigma, steps, delta);
    const mu = rate === 1 ? Math.sqrt(steps) / sigma : live.limitMu(relation === "add-remove" ? "poisson" : "fixed", rate, sigma, steps);
    const limit = live.gaussianEpsilon(mu, delta);
    const rows = [
      ["tensor-power", "bracket", `[${shown(power.low, "down")}, ${shown(power.high, "up")}]`, "the composed privacy loss distribution, from both sides"],
      ["moments", "upper bound", shown(bounds.moments, "up"), "the moments accountant (Abadi et al. 2016), whole orders"],
      ["rdp", "upper bound", shown(bounds.rdp, "up"), "the same moments as Rényi divergences, whole orders"],
      ["clt", "asymptotic", shown(limit, "nearest"), `a limit for many steps, not a guarantee: μ = ${shown(mu, "nearest", 5)}`],
    ];
    const least = Math.min(power.high, bounds.moments, bounds.rdp);
    return { rows: rows, power: power, mu: mu, limit: limit, epsilon: least, by: least === power.high ? "tensor-power" : least === bounds.rdp ? "rdp" : "moments" };
  }

  function warnings(ask) {
    const found = [];
    if (ask.n === null) found.push("n isn't known, so nothing can be said of delta against 1/n");
    else if (ask.delta >= 1 / ask.n) found.push(`delta = ${plain(ask.delta)} is at least 1/n = ${shown(1 / ask.n, "nearest")}: such a delta allows publishing a whole record`);
    found.push(`all numbers are for ${WHERE[ask.relation].sampling} batches; shuffled passes over a list are another mechanism, and none of these numbers holds for them`);
    found.push("trainings made on the same data to choose parameters aren't counted");
    return found;
  }

  function sentence(ask, found) {
    const where = WHERE[ask.relation], data = ask.n ? `${ask.n} records` : "the data";
    const size = ask.m === null ? `${Number(ask.rate.toPrecision(6))}·n` : ask.m;
    return `The model was trained on ${data} by noisy SGD: ${ask.steps} updates, ${where.batches(size)}, each record's gradient clipped to norm ` +
      `${ask.clip}, Gaussian noise of standard deviation ${Number((where.unit * ask.sigma).toPrecision(6))} times that norm on the sum. It is ` +
      `(${shown(found.epsilon, "up", 3)}, ${plain(ask.delta)})-differentially private when one record ${where.change} (epsilon: upper bound, ${found.by}, rounded up).`;
  }

  function statement(ask, found) {
    const rows = found.rows.map((row) => `${row[0]}  (${row[1]}): epsilon ${row[2]}`);
    return [sentence(ask, found), "", ...rows, "", ...warnings(ask).map((text) => `warning: ${text}`)].join("\n");
  }

  /* ---- pictures ------------------------------------------------------------------------------------------ */

  function pictures(ask, found, width) {
    const profile = live.tensorProfile(ask.relation, ask.rate, ask.sigma, ask.steps), size = live.panelSize(width);
    const top = Math.max(1.15 * found.power.high, 1e-3), least = Math.max(Math.min(ask.delta, 1e-3) / 10, 1e-12);
    const lines = Array.from({ length: 120 }, (_, i) => { const e = top * (i / 119) ** 2; return [e, profile(e)]; });
    const f = (alpha) => Math.max(0, ...lines.map(([e, d]) => live.pairTradeoff(e, d, alpha)));
    const alphas = Array.from({ length: 121 }, (_, i) => (i / 120) ** 2);
    const plane = live.plot(size, {
      x: [0, 1], y: [0, 1], xLabel: "type I error α", yLabel: "type II error β", title: "Trade-off function",
      description: `Lower bound on every attack's errors: ${shown(f(0.01), "down", 3)} at α = 0.01. The dashed lines are the pair's alone.`,
    });
    plane.line([[0, 1], [1, 0]], "live-thin").line(alphas.map((a) => [a, live.pairTradeoff(found.power.high, ask.delta, a)]), "live-3");
    plane.line(alphas.map((a) => [a, f(a)]), "live-1");
    const levels = live.plot(size, {
      x: [0, top], y: [Math.log(least), 0], logY: true, xLabel: "ε", yLabel: "δ", title: "Privacy profile",
      description: `δ falls as ε grows, from ${shown(profile(0), "up", 3)} at ε = 0 to ${plain(ask.delta)} at ε = ${shown(found.power.high, "up", 4)}.`,
    });
    levels.line(lines.map(([e, d]) => [e, Math.log(Math.max(d, 1e-300))]), "live-1").dot(found.power.high, Math.log(ask.delta), "live-dot");
    return [plane.svg(), levels.svg()];
  }

  /* ---- the page ------------------------------------------------------------------------------------------- */

  const element = (name, attributes, ...inside) => {
    const made = document.createElement(name);
    Object.entries(attributes || {}).forEach(([key, value]) => made.setAttribute(key, value));
    made.append(...inside);
    return made;
  };

  function mount(root) {
    const inputs = {}, form = element("form", { class: "live-controls", "aria-label": "the run" });
    const choose = element("select", { id: "calc-relation", name: "relation" });
    choose.append(element("option", { value: "add-remove" }, "add-remove (Poisson batches)"),
      element("option", { value: "replace-one" }, "replace-one (batches of a fixed size)"));
    inputs.relation = choose;
    form.append(element("div", { class: "live-control live-choice" }, element("label", { for: "calc-relation" }, "neighbours"), choose));
    for (const [name, label] of FIELDS) {
      inputs[name] = element("input", { id: `calc-${name}`, name: name, type: "text", inputmode: "decimal", autocomplete: "off", size: "9" });
      form.append(element("div", { class: "live-control" }, element("label", { for: `calc-${name}` }, label), inputs[name]));
    }
    const problem = element("p", { class: "calc-problem", role: "alert" });
    const table = element("table", { class: "calc-table" }), drawing = element("div", { class: "live-drawing" });
    const text = element("textarea", { class: "calc-statement", readonly: "", rows: "9", "aria-label": "statement to copy" });
    const copy = element("button", { type: "button" }, "copy"), save = element("a", { download: "statement.txt", class: "calc-save" }, "save");
    const told = element("span", { role: "status" });
    const results = element("div", {}, table, drawing, element("div", { class: "live-presets" }, copy, save, told), text);
    root.replaceChildren(element("div", { class: "live-panel" }, form, problem, results));

    const read = () => Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value]));
    function write(values) {
      Object.entries(inputs).forEach(([name, input]) => { input.value = values[name] || ""; });
    }

    function draw() {
      const typed = read();
      const kept = Object.entries(typed).filter(([, value]) => value.trim() !== "");
      history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
      told.textContent = "";
      try {
        const ask = question(typed), found = answer(ask);
        problem.textContent = "";
        results.hidden = false;
        table.replaceChildren(element("caption", {}, `ε at δ = ${plain(ask.delta)}, ${ask.steps} updates at rate ${Number(ask.rate.toPrecision(6))}`),
          element("tr", {}, ...["guarantee", "kind", "ε", "what it is"].map((head) => element("th", { scope: "col" }, head))),
          ...found.rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell)))));
        text.value = statement(ask, found);
        if (save.href) URL.revokeObjectURL(save.href);
        save.href = URL.createObjectURL(new Blob([text.value + "\n"], { type: "text/plain" }));
        drawing.innerHTML = pictures(ask, found, drawing.clientWidth || 320).join("");
      } catch (error) {
        problem.textContent = error.message;
        results.hidden = true;
      }
    }

    let timer = 0;
    const later = () => { clearTimeout(timer); timer = setTimeout(draw, 250); };
    form.addEventListener("input", later);
    form.addEventListener("submit", (event) => { event.preventDefault(); draw(); });
    copy.addEventListener("click", () => {
      text.select();
      const done = () => { told.textContent = "copied"; };
      if (navigator.clipboard) navigator.clipboard.writeText(text.value).then(done, () => { document.execCommand("copy"); done(); });
      else { document.execCommand("copy"); done(); }
    });
    function open() {
      const asked = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
      write("sigma" in asked || "relation" in asked ? { relation: "add-remove", clip_norm: "1", ...asked } : START);
      draw();
    }
    window.addEventListener("hashchange", open);
    window.addEventListener("resize", later);
    open();
  }

  live.calculator = { question: question, answer: answer, statement: statement, shown: shown };
  const root = document.getElementById("calc");
  if (root) mount(root);
})();
