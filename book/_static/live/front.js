/* The front page: the noise of a run, its errors' curve, and what an attacker sees of it. Needs power.js. */
(function () {
  "use strict";

  const live = window.dpteachLive, number = live.number;
  const N = 60000, M = 256, T = 3516, DELTA = 1e-5, ACCUSED = 0.01;
  const grid = (count, map) => Array.from({ length: count + 1 }, (_, i) => map(i / count));

  function draw(v, width) {
    const profile = live.tensorProfile("add-remove", M / N, v.sigma, T), size = live.panelSize(width, 0.75);
    const epsilon = live.epsilonOf(profile, DELTA);
    const lines = grid(100, (x) => { const e = 1.6 * epsilon * x * x; return [e, profile(e)]; });
    const f = (alpha) => Math.max(0, ...lines.map(([e, d]) => live.pairTradeoff(e, d, alpha)));
    const found = 1 - f(ACCUSED), percent = (x) => number(Math.ceil(1000 * x - 1e-6) / 10, 3);

    const plane = live.plot(size, {
      x: [0, 1], y: [0, 1], xLabel: "accused of the absent (α)", yLabel: "missed of the present (β)", title: "The errors of any attack",
      description: `Every attack on the training lies on or above the curve; a blind guess lies on the dotted line. At α = 0.01 at most ${percent(found)} % of the present are found.`,
    });
    plane.line([[0, 1], [1, 0]], "live-thin").line(grid(100, (x) => [x * x, f(x * x)]), "live-1").dot(ACCUSED, f(ACCUSED), "live-dot");

    const cut = -live.PhiInverse(ACCUSED), shift = cut + live.PhiInverse(found);  // the Gaussian pair with this point
    const bell = (mean, from, to) => grid(120, (x) => { const t = from + (to - from) * x; return [t, live.density(t - mean)]; });
    const seen = live.plot(size, {
      x: [-3.5, 5.5], y: [0, 0.45], xLabel: "what the attacker measures", yLabel: "density", title: "What an attacker sees",
      description: `Two bell curves, ${number(shift, 3)} apart: trainings without you and with you. The shaded part of the second, right of the threshold, is ${percent(found)} %.`,
    });
    seen.area([[cut, 0], ...bell(shift, cut, 5.5), [5.5, 0]], "live-area");
    seen.line([[cut, 0], [cut, 0.45]], "live-thin").line(bell(0, -3.5, 5.5), "live-1").line(bell(shift, -3.5, 5.5), "live-2");
    return {
      panels: [plane.svg(), seen.svg()],
      summary: `With noise σ = ${number(v.sigma)}: ε = ${number(Math.ceil(1000 * epsilon) / 1000)} at δ = 10⁻⁵ (upper bound, add-remove, Poisson batches). ` +
        `Whoever wrongly accuses 1 % of the absent finds at most ${percent(found)} % of the present.`,
    };
  }

  live.define("front", {
    label: "A training run and what an attacker sees of it",
    controls: [{ key: "sigma", label: "noise σ", value: 1.3, values: grid(35, (x) => Number((0.5 + 3.5 * x).toFixed(1))) }],
    key: [["live-1", "errors of the best attack; a training without you"], ["live-2", "a training with you"], ["live-thin", "blind guess; threshold"]],
    draw: draw,
  });
})();
