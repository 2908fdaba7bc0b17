/* Moments explorer: the log moment of a run, the tangent that gives ε, and Lemma 3 for one step. */
(function () {
  "use strict";

  const live = window.dpteachLive, number = live.number;
  const MOST = 512; // orders searched

  function orders(last) {
    const step = Math.max(1, Math.floor(last / 100));
    const found = [];
    for (let lambda = 1; lambda <= last; lambda += step) found.push(lambda);
    return found;
  }

  function runPanel(v, found, size) {
    const last = Math.min(MOST, Math.max(8, 2 * found.order)), start = Math.log(v.delta);
    const touching = v.steps * live.logMoment(v.q, v.sigma, found.order);
    const high = Math.max(touching + 0.4 * (touching - start), 2);
    const plot = live.plot(size, {
      x: [0, last], y: [start * 1.08, high], xLabel: "order λ", yLabel: "T·α(λ)", title: "Log moment of the run",
      description: `A line from ${number(start)}, the logarithm of δ, at λ = 0 touches the curve at λ = ${found.order}. Its slope is ε = ${number(found.epsilon)}.`,
    });
    const curve = orders(last).map((lambda) => [lambda, v.steps * live.logMoment(v.q, v.sigma, lambda)]);
    plot.line([[0, 0], [last, 0]], "live-thin");
    plot.line([[0, start], [last, start + found.epsilon * last]], "live-2");
    plot.line([[0, 0]].concat(curve), "live-1");
    if (last <= 60) for (const point of curve) plot.dot(point[0], point[1], "live-point", 2.5);
    return plot.dot(found.order, touching, "live-dot").svg();
  }

  function stepPanel(v, found, size) {
    const largest = live.lemma3Largest(v.q, v.sigma);
    const last = Math.min(MOST, Math.max(8, 2 * found.order, Math.ceil(1.3 * largest)));
    const lambdas = orders(last), exact = lambdas.map((l) => Math.log(live.logMoment(v.q, v.sigma, l)));
    const low = Math.min(exact[0], Math.log(live.lemma3Leading(v.q, v.sigma, 1))) - 0.5;
    const high = Math.min(Math.max(...exact), exact[0] + 40) + 0.5;
    const plot = live.plot(size, {
      x: [0, last], y: [low, high], logY: true, xLabel: "order λ", yLabel: "α(λ), one step", title: "Log moment of one step and Lemma 3",
      description: largest ? `Lemma 3 speaks of the orders up to ${largest}, the shaded ones.` : "Lemma 3 says nothing here.",
    });
    if (largest) plot.area([[0, low], [0, high], [largest, high], [largest, low]], "live-area");
    plot.line(lambdas.map((l) => [l, Math.log(live.lemma3Leading(v.q, v.sigma, l))]), "live-3");
    plot.line(lambdas.filter((l) => l <= largest).map((l) => [l, Math.log(live.lemma3Bound(v.q, v.sigma, l))]), "live-4");
    return plot.line(lambdas.map((l, i) => [l, exact[i]]), "live-1").svg();
  }

  function lemma(v, found) {
    const largest = live.lemma3Largest(v.q, v.sigma);
    if (v.sigma < 1) return "Lemma 3 says nothing: it needs σ ≥ 1.";
    if (largest < 1) return `Lemma 3 says nothing: it needs q < 1/(16σ) = ${number(1 / (16 * v.sigma))}.`;
    return `Lemma 3 holds for λ ≤ ${largest}; the best order is ${found.order <= largest ? "inside" : "outside"}.`;
  }

  live.define("moments", {
    label: "Moments explorer: choose q, σ, T and δ, and read ε",
    controls: [
      { key: "q", label: "sampling rate q", value: 0.01, values: [0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1] },
      { key: "sigma", label: "noise σ", value: 4, values: Array.from({ length: 151 }, (_, i) => Number((0.5 + 0.05 * i).toFixed(2))) },
      { key: "steps", label: "steps T", value: 10000, values: [100, 200, 300, 500, 1000, 2000, 3000, 5000, 10000, 20000, 30000, 40000, 50000, 100000, 200000, 500000, 1000000] },
      { key: "delta", label: "δ", value: 1e-5, values: [1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2] },
    ],
    key: [["live-1", "log moment α(λ)"], ["live-2", "tangent with slope ε"], ["live-3", "Lemma 3's printed term"], ["live-4", "Lemma 3 with 0.8q³λ³/σ³"], ["live-area", "Lemma 3's orders"]],
    draw: (v, width) => {
      const size = live.panelSize(width), found = live.momentsEpsilon(v.q, v.sigma, v.steps, v.delta, MOST);
      return {
        panels: [runPanel(v, found, size), stepPanel(v, found, size)],
        summary: `The tangent touches at λ = ${found.order}: ε = ${number(found.epsilon)} at δ = ${number(v.delta)}, an upper bound. ` +
          (found.order === MOST ? `No order above ${MOST} is searched. ` : "") + lemma(v, found) +
          " Poisson sampling, add-or-remove neighbours, noise σC, whole orders.",
      };
    },
  });
})();
