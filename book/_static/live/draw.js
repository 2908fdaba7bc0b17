/* Controls and axes of the live figures: native sliders with labels, and SVG in the page's own colours.
   dpteachLive.define(name, figure) puts a figure into every element with data-live="name", and takes away the static
   picture that stands there. A figure has
     label      what it is, for a screen reader
     controls   [{ key, label, values | choices, value, format }]: sliders over a list, or a choice
     presets    optional: [{ label, values }], buttons that set several controls
     key        the legend: [[class, text]]
     draw       (values, width) => { panels: [svg], summary }                                                  */
(function () {
  "use strict";

  const live = window.dpteachLive;
  let count = 0; // figures on this page, for ids

  /* ---- numbers in text ---------------------------------------------------------------------------- */

  const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
  const superscript = (text) => String(text).replace(/./g, (c) => SUPERSCRIPT[c]);

  live.number = function (x, digits) {
    if (x === 0 || !Number.isFinite(x)) return x === 0 ? "0" : "∞";
    const size = Math.abs(x);
    if (Number.isInteger(x) && size < 1e15) return x.toLocaleString("en");
    if (size >= 1e-3 && size < 1e7) return String(Number(x.toPrecision(digits || 4)));
    const parts = x.toExponential((digits || 4) - 1).split("e");
    const mantissa = String(Number(parts[0]));
    return (mantissa === "1" ? "" : mantissa + "·") + "10" + superscript(Number(parts[1]));
  };

  /* ---- axes --------------------------------------------------------------------------------------- */

  function linearTicks(low, high, most) {
    const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
    const steps = [0.2, 0.5, 1, 2, 5, 10].map((k) => k * power);
    let at = steps.findIndex((s) => s >= rough * 0.999), ticks;
    do {  // of a short axis a round step may leave one number or two
      const step = steps[at--];
      ticks = [];
      for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) ticks.push([k * step, live.number(k * step, 3)]);
    } while (ticks.length < 3 && at >= 0);
    return ticks;
  }

  function logTicks(low, high, most) {
    const first = Math.ceil(low / Math.LN10 - 1e-9), last = Math.floor(high / Math.LN10 + 1e-9);
    const step = Math.max(1, Math.ceil((last - first) / most));
    const ticks = [];
    for (let k = last; k >= first; k -= step) ticks.push([k * Math.LN10, k === 0 ? "1" : "10" + superscript(k)]);
    return ticks;
  }

  const escape = (text) => String(text).replace(/[&<>"]/g, (c) => "&#" + c.charCodeAt(0) + ";");

  /* A plot of size.width × size.height pixels over x and y (each [low, high]; logY: y holds natural logarithms). */
  live.plot = function (size, options) {
    const left = 58, right = 12, top = 12, bottom = 46;
    const width = size.width - left - right, height = size.height - top - bottom;
    const round = (v) => Math.round(v * 100) / 100;
    const bound = (v) => Math.min(Math.max(v, -1e4), 1e4);
    const px = (x) => round(bound((x - options.x[0]) / (options.x[1] - options.x[0]) * width));
    const py = (y) => round(bound((options.y[1] - y) / (options.y[1] - options.y[0]) * height));
    const inside = [], axes = [];
    const xTicks = linearTicks(options.x[0], options.x[1], Math.max(3, Math.floor(width / 70)));
    const yTicks = (options.logY ? logTicks : linearTicks)(options.y[0], options.y[1], Math.max(3, Math.floor(height / 45)));
    for (const [x, text] of xTicks) {
      axes.push(`<line class="live-grid" x1="${px(x)}" x2="${px(x)}" y1="0" y2="${height}"/>`,
        `<text x="${px(x)}" y="${height + 17}" text-anchor="middle">${text}</text>`);
    }
    for (const [y, text] of yTicks) {
      axes.push(`<line class="live-grid" x1="0" x2="${width}" y1="${py(y)}" y2="${py(y)}"/>`,
        `<text x="-7" y="${py(y) + 4}" text-anchor="end">${text}</text>`);
    }
    const path = (points) => points.filter((p) => p.every(Number.isFinite))
      .map((p, i) => (i ? "L" : "M") + px(p[0]) + " " + py(p[1])).join("");
    const plot = {
      line: (points, name) => { inside.push(`<path class="${name}" d="${path(points)}"/>`); return plot; },
      area: (points, name) => { inside.push(`<path class="${name}" d="${path(points)}Z"/>`); return plot; },
      dot: (x, y, name, radius) => { inside.push(`<circle class="${name}" cx="${px(x)}" cy="${py(y)}" r="${radius || 4}"/>`); return plot; },
      circle: (x, y, r, name) => { inside.push(`<circle class="${name}" cx="${px(x)}" cy="${py(y)}" r="${round(px(options.x[0] + r))}"/>`); return plot; },
      text: (x, y, text) => { inside.push(`<text x="${px(x)}" y="${py(y)}">${escape(text)}</text>`); return plot; },
      svg: () => `<svg role="img" aria-label="${escape(options.title + ". " + options.description)}" ` +
        `width="${size.width}" height="${size.height}" viewBox="0 0 ${size.width} ${size.height}">` +
        `<g transform="translate(${left} ${top})">${axes.join("")}` +
        `<svg x="0" y="0" width="${width}" height="${height}" overflow="hidden">${inside.join("")}</svg>` +
        `<path class="live-axis" d="M0 0V${height}H${width}"/>` +
        `<text x="${width / 2}" y="${height + 38}" text-anchor="middle">${escape(options.xLabel)}</text>` +
        `<text transform="translate(-44 ${height / 2}) rotate(-90)" text-anchor="middle">${escape(options.yLabel)}</text></g></svg>`,
    };
    return plot;
  };

  /* Two panels beside each other where there's room, else one below the other. */
  live.panelSize = function (width, ratio) {
    const each = width >= 600 ? (width - 16) / 2 : width;
    return { width: Math.floor(each), height: Math.floor(Math.min(each * (ratio || 0.85), 360)) };
  };

  /* ---- controls ----------------------------------------------------------------------------------- */

  function element(name, attributes, text) {
    const made = document.createElement(name);
    for (const key of Object.keys(attributes || {})) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function slider(control, id, changed) {
    const box = element("div", { class: "live-control" });
    const input = element("input", { type: "range", id: id, min: 0, max: control.values.length - 1, step: 1, "data-key": control.key });
    const output = element("output", { for: id });
    const show = () => {
      const text = control.format ? control.format(control.values[input.value]) : live.number(control.values[input.value]);
      output.textContent = text;
      input.setAttribute("aria-valuetext", text);
    };
    const set = (value) => { input.value = String(nearest(control.values, value)); show(); };
    set(control.value);
    input.addEventListener("input", () => { show(); changed(); });
    box.append(element("label", { for: id }, control.label), output, input);
    return { box: box, get: () => control.values[input.value], set: set };
  }

  const nearest = (values, x) => values.reduce((best, v, i) => (Math.abs(v - x) < Math.abs(values[best] - x) ? i : best), 0);

  function choice(control, id, changed) {
    const box = element("div", { class: "live-control live-choice" });
    const select = element("select", { id: id, "data-key": control.key });
    for (const [value, text] of control.choices) select.append(element("option", { value: value }, text));
    select.value = control.value;
    select.addEventListener("change", changed);
    box.append(element("label", { for: id }, control.label), select);
    return { box: box, get: () => select.value, set: (value) => { select.value = value; } };
  }

  /* ---- a figure in the page ----------------------------------------------------------------------- */

  function mount(root, figure) {
    const id = "live-" + ++count;
    const panel = element("div", { class: "live-panel", role: "group", "aria-label": figure.label });
    const controls = element("div", { class: "live-controls" });
    const buttons = element("div", { class: "live-presets" });
    const drawing = element("div", { class: "live-drawing" });
    const summary = element("p", { class: "live-summary", "aria-live": "polite", "aria-atomic": "true" });
    const parts = {};
    let width = 0, frame = 0, timer = 0;

    function draw() {
      frame = 0;
      const values = {};
      for (const key of Object.keys(parts)) values[key] = parts[key].get();
      const drawn = figure.draw(values, width);
      drawing.innerHTML = drawn.panels.join("");
      clearTimeout(timer); // one sentence after the slider rests, not one at each of its steps
      timer = setTimeout(() => { summary.textContent = drawn.summary; }, summary.textContent ? 200 : 0);
    }
    const redraw = () => { frame = frame || requestAnimationFrame(draw); };

    for (const control of figure.controls) {
      const make = control.choices ? choice : slider;
      parts[control.key] = make(control, id + "-" + control.key, redraw);
      controls.append(parts[control.key].box);
    }
    for (const preset of figure.presets || []) {
      const button = element("button", { type: "button" }, preset.label);
      button.addEventListener("click", () => {
        for (const key of Object.keys(preset.values)) parts[key].set(preset.values[key]);
        redraw();
      });
      buttons.append(button);
    }
    const legend = element("ul", { class: "live-key" });
    for (const [name, text] of figure.key) {
      const item = element("li");
      item.innerHTML = `<svg aria-hidden="true" width="30" height="12">${name === "live-area" ? '<rect class="live-area" width="30" height="12"/>' : `<path class="${name}" d="M1 6H29"/>`}</svg>`;
      item.append(text);
      legend.append(item);
    }
    panel.append(controls);
    if (figure.presets) panel.append(buttons);
    panel.append(drawing, legend, summary);

    const picture = root.querySelector("img");
    picture.before(panel);
    width = drawing.clientWidth;
    draw();
    picture.remove();
    new ResizeObserver(() => {
      if (drawing.clientWidth !== width && drawing.clientWidth > 0) { width = drawing.clientWidth; redraw(); }
    }).observe(drawing);
  }

  live.define = function (name, figure) {
    live.figures = live.figures || {};
    live.figures[name] = figure;
    document.querySelectorAll('[data-live="' + name + '"]').forEach((root) => mount(root, figure));
  };
})();
