/* Privacy-loss explorer: the loss of one step, its tail, and the δ that is left of the tail. */
(function () {
  "use strict";

  const live = window.dpteachLive, number = live.number;

  /* The loss that is exceeded with the given probability, by bisection. */
  function lossQuantile(law, q, sigma, tail) {
    let low = -1000, high = 1000;
    for (let i = 0; i < 70; i++) {
      const middle = (low + high) / 2;
      if (live.lossTail(law, q, sigma, middle) > tail) low = middle; else high = middle;
    }
    return high;
  }

  function read(v) {
    return { tail: live.lossTail(v.law, v.q, v.sigma, v.epsilon), delta: live.lossDelta(v.law, v.q, v.sigma, v.epsilon) };
  }

  function densityPanel(v, size) {
    const low = lossQuantile(v.law, v.q, v.sigma, 0.999), high = lossQuantile(v.law, v.q, v.sigma, 1e-3);
    const points = live.lossDensity(v.law, v.q, v.sigma, 500);
    const shown = points.filter((p) => p[0] >= low && p[0] <= high && Number.isFinite(p[1]));
    const peak = 1.1 * Math.max(...shown.map((p) => p[1]));
    const beyond = points.filter((p) => p[0] > v.epsilon);
    const found = read(v);
    const plot = live.plot(size, {
      x: [low, high], y: [0, peak], xLabel: "privacy loss L", yLabel: "density under P", title: "Density of the privacy loss",
      description: `Between ${number(low, 3)} and ${number(high, 3)} lie 99.8 % of the losses. The part above ε = ${number(v.epsilon)} has probability ${number(found.tail)}.`,
    });
    if (beyond.length > 1) plot.area([[v.epsilon, 0]].concat(beyond, [[beyond[beyond.length - 1][0], 0]]), "live-area");
    plot.line([[v.epsilon, 0], [v.epsilon, peak]], "live-thin");
    plot.line(points, "live-1");
    if (v.law === "replace" && v.q < 1) {
      plot.line([[0, 0], [0, peak]], "live-3");
      plot.text(0, peak * 0.96, ` mass ${number(live.atom(v.q, 1 / v.sigma), 3)} at 0`);
    }
    return plot.svg();
  }

  function profilePanel(v, size) {
    const far = lossQuantile(v.law, v.q, v.sigma, 1e-6), found = read(v);
    const epsilons = Array.from({ length: 161 }, (_, i) => far * i / 160);
    const plot = live.plot(size, {
      x: [0, far], y: [Math.log(1e-6), 0], logY: true, xLabel: "ε", yLabel: "probability", title: "Tail and δ",
      description: `At ε = ${number(v.epsilon)} the tail is ${number(found.tail)} and δ is ${number(found.delta)}.`,
    });
    plot.line([[v.epsilon, Math.log(1e-6)], [v.epsilon, 0]], "live-thin");
    plot.line(epsilons.map((e) => [e, Math.log(live.lossTail(v.law, v.q, v.sigma, e))]), "live-1");
    plot.line(epsilons.map((e) => [e, Math.log(live.lossDelta(v.law, v.q, v.sigma, e))]), "live-2");
    if (found.delta > 0) plot.dot(v.epsilon, Math.log(found.delta), "live-dot");
    return plot.svg();
  }

  function summary(v) {
    const found = read(v), atom = v.law === "replace" && v.q < 1;
    const beyond = v.epsilon > lossQuantile(v.law, v.q, v.sigma, 1e-6) ? " ε lies beyond the right edge of the second plot." : "";
    return `The loss exceeds ε = ${number(v.epsilon)} with probability ${number(found.tail)}; the exact δ(ε) is ${number(found.delta)}. ` +
      (atom ? `With probability ${number(live.atom(v.q, 1 / v.sigma), 3)} the loss is 0. ` : "") +
      (v.law === "gaussian" ? "Nothing is sampled: q has no influence." : "One step, exact.") + beyond;
  }

  live.lossQuantile = lossQuantile;
  live.define("loss", {
    label: "Privacy-loss explorer: choose a mechanism and an ε, and read δ",
    controls: [
      { key: "law", label: "one step of", value: "gaussian", choices: [
        ["gaussian", "the Gaussian mechanism"], ["remove", "Poisson sampling, record removed"],
        ["add", "Poisson sampling, record added"], ["replace", "subsets of m, record replaced: C_p(G)"]] },
      { key: "sigma", label: "noise σ", value: 1, values: Array.from({ length: 76 }, (_, i) => Number((0.5 + 0.05 * i).toFixed(2))).concat(5, 6, 8) },
      { key: "q", label: "sampling rate q or p", value: 0.1, values: [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1] },
      { key: "epsilon", label: "ε", value: 1, values: [0.001, 0.002, 0.005, 0.01, 0.02, 0.05].concat(Array.from({ length: 100 }, (_, i) => (i + 1) / 10)) },
    ],
    key: [["live-1", "density of L; tail P(L > ε)"], ["live-2", "exact δ(ε)"], ["live-area", "losses above ε"], ["live-thin", "the chosen ε"]],
    draw: (v, width) => {
      const size = live.panelSize(width);
      return { panels: [densityPanel(v, size), profilePanel(v, size)], summary: summary(v) };
    },
  });
})();
