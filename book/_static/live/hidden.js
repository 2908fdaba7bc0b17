/* Hidden iterates (chapter 24): what the last iterate leaks after T steps, against publishing all of them. */
(function () {
  "use strict";

  const live = window.dpteachLive, number = live.number;
  const MU_1 = 0.1;
  const composed = (T) => MU_1 * Math.sqrt(T);
  /* μ₁ √((1-c^T)/(1+c^T) · (1+c)/(1-c)): equal steps, attained (Corollary of chapter 24). */
  const last = (c, T) => c === 1 ? composed(T) : MU_1 * Math.sqrt(-Math.expm1(T * Math.log(c)) / (1 + c ** T) * (1 + c) / (1 - c));
  const limit = (c) => c === 1 ? Infinity : MU_1 * Math.sqrt((1 + c) / (1 - c));

  function draw(v, width) {
    const T = v.steps, size = live.panelSize(width), times = Array.from({ length: 121 }, (_, i) => 1 + (T - 1) * i / 120);
    const high = Math.max(composed(T), 2 * MU_1);
    const growth = live.plot(size, {
      x: [0, T], y: [0, 1.05 * high], xLabel: "steps T", yLabel: "μ", title: "Leakage against steps",
      description: `By composition μ grows to ${number(composed(T), 3)} at T = ${T}; the last iterate's reaches ${number(last(v.c, T), 3)}.`,
    });
    growth.line(times.map((t) => [t, composed(t)]), "live-2").line(times.map((t) => [t, last(v.c, t)]), "live-1");
    if (v.c < 1) growth.line([[0, limit(v.c)], [T, limit(v.c)]], "live-thin");
    const alphas = Array.from({ length: 101 }, (_, i) => (i / 100) ** 2);
    const errors = live.plot(size, {
      x: [0, 1], y: [0, 1], xLabel: "type I error α", yLabel: "type II error β", title: "Trade-off functions",
      description: `The curve of the last iterate lies above that of all iterates: at α = 0.01 type II errors of ${number(live.gaussianTradeoff(last(v.c, T), 0.01), 3)} and ${number(live.gaussianTradeoff(composed(T), 0.01), 3)}.`,
    });
    errors.line([[0, 1], [1, 0]], "live-thin").line(alphas.map((a) => [a, live.gaussianTradeoff(composed(T), a)]), "live-2");
    errors.line(alphas.map((a) => [a, live.gaussianTradeoff(last(v.c, T), a)]), "live-1");
    return {
      panels: [growth.svg(), errors.svg()],
      summary: `Contraction c = ${number(v.c)}, one step is ${MU_1}-GDP. After ${number(T)} steps the last iterate alone is ${number(last(v.c, T))}-GDP ` +
        `(upper bound, attained by equal contractions), all iterates together ${number(composed(T))}-GDP (exact). ` +
        (v.c < 1 ? `However long the run, the last iterate stays below ${number(limit(v.c))}.` : "At c = 1 hiding the iterates gains nothing.") +
        " Full batches, strongly convex losses, no clipping.",
    };
  }

  live.hidden = { last: last, composed: composed };
  live.define("hidden", {
    label: "Hidden iterates: choose the contraction and the number of steps",
    controls: [
      { key: "c", label: "contraction c", value: 0.98, values: [0, 0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1] },
      { key: "steps", label: "steps T", value: 400, values: [10, 20, 50, 100, 200, 400, 1000, 2000, 5000, 10000] },
    ],
    key: [["live-1", "the last iterate alone"], ["live-2", "all iterates (composition)"], ["live-thin", "limit; blind guess"]],
    draw: draw,
  });
})();
