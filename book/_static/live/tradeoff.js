/* Trade-off explorer: a training run, its Gaussian limit, and its tensor power. */
(function () {
  "use strict";

  const live = window.dpteachLive, number = live.number;
  const nice = (first, last) => {
    const found = [];
    for (let k = first; k < last; k++) for (const d of [1, 1.5, 2, 3, 4, 5, 6, 8]) found.push(Math.round(d * 10 ** k));
    return found.concat(10 ** last);
  };
  const steps = (low, high, by) => Array.from({ length: Math.round((high - low) / by) + 1 }, (_, i) => Number((low + i * by).toFixed(6)));

  const CONVENTIONS = {
    fixed: {
      name: "Corollary 5.4", rate: "p", neighbours: "Replace-one neighbours, uniform subsets of exactly m, noise 2σC on the clipped sum",
    },
    poisson: {
      name: "The Poisson limit", rate: "q", neighbours: "Add-or-remove neighbours, Poisson batches of mean size m, noise σC on the clipped sum",
    },
  };

  /* f at α from a profile δ(ε), ε ≥ 0, and the mirror image (DRS22, Proposition 2.12). */
  function tradeoff(profile, top) {
    const lines = [];
    for (let i = 0; i <= 150; i++) { const e = top * (i / 150) ** 2; lines.push([e, profile(e)]); }
    return (alpha) => Math.max(0, ...lines.map((l) => live.pairTradeoff(l[0], l[1], alpha)));
  }

  function run(v) {
    const p = Math.min(1, v.m / v.n), count = live.stepsOf(v.n, Math.min(v.m, v.n), v.E);
    const mu = live.limitMu(v.law, p, v.sigma, count);
    const exact = live.exactCurve(v.law, p, v.sigma, count);
    const middle = exact && exact.epsilon(v.delta);
    return {
      p: p, steps: count, mu: mu, exact: exact, limit: live.gaussianEpsilon(mu, v.delta),
      low: exact && middle * (1 - exact.error), high: exact && middle * (1 + exact.error),
    };
  }

  function draw(v, width) {
    const found = run(v), size = live.panelSize(width), convention = CONVENTIONS[v.law];
    const epsilon = found.exact ? found.high : found.limit;
    const alphas = Array.from({ length: 161 }, (_, i) => (i / 160) ** 2).flatMap((a) => [a / 2, 1 - a / 2]).sort((a, b) => a - b);
    const plane = live.plot(size, {
      x: [0, 1], y: [0, 1], xLabel: "type I error α", yLabel: "type II error β", title: "Trade-off functions",
      description: `The limit G with μ = ${number(found.mu)}` + (found.exact ? ", the tensor power beside it," : "") +
        ` and the lines of the pair ε = ${number(epsilon)}, δ = ${number(v.delta)} that lie below.`,
    });
    plane.line([[0, 1], [1, 0]], "live-thin");
    plane.line(alphas.map((a) => [a, live.pairTradeoff(epsilon, v.delta, a)]), "live-3");
    plane.line(alphas.map((a) => [a, live.gaussianTradeoff(found.mu, a)]), "live-1");
    if (found.exact) {
      const f = tradeoff(found.exact.delta, found.exact.top);
      plane.line(alphas.map((a) => [a, f(a)]), "live-exact");
    }

    const far = Math.max(found.exact ? found.exact.epsilon(1e-10) : 0, live.gaussianEpsilon(found.mu, 1e-10), 1e-3);
    const epsilons = Array.from({ length: 121 }, (_, i) => far * i / 120);
    const profile = live.plot(size, {
      x: [0, far], y: [Math.log(1e-10), 0], logY: true, xLabel: "ε", yLabel: "δ", title: "Privacy profiles",
      description: `δ falls as ε grows. At δ = ${number(v.delta)} the limit has ε = ${number(found.limit)}` +
        (found.exact ? `, the tensor power ${number(found.low)} to ${number(found.high)}.` : "."),
    });
    const level = Math.log(v.delta);
    profile.line([[0, level], [far, level]], "live-thin");
    profile.line(epsilons.map((e) => [e, Math.log(live.gaussianDelta(found.mu, e))]), "live-1");
    if (found.exact) profile.line(epsilons.map((e) => [e, Math.log(found.exact.delta(e))]), "live-exact");
    profile.dot(epsilon, level, "live-dot");

    const exact = found.exact
      ? `Tensor power, ${v.law === "fixed" ? "value of C_p(G)^⊗T" : "privacy of T steps"}: ε between ${number(found.low)} and ${number(found.high)} (interpolated, ±${number(100 * found.exact.error)} %).`
      : "No value of the tensor power is stored for this choice (σ from 0.7 to 4, m/n from 0.001 to 0.1, up to 100 epochs).";
    return {
      panels: [plane.svg(), profile.svg()],
      summary: (v.m > v.n ? "The batch is larger than the data set; all n records are taken. " : "") +
        `T = ${number(found.steps)} steps at ${convention.rate} = ${number(found.p, 3)}. ` +
        `${convention.name} (asymptotic): μ = ${number(found.mu)}, ε = ${number(found.limit)} at δ = ${number(v.delta)}. ${exact} ` +
        `${convention.neighbours}.` + (v.delta >= 1 / v.n ? " δ isn't below 1/n: it allows a record to be published." : ""),
    };
  }

  live.tradeoffRun = run;
  live.define("tradeoff", {
    label: "Trade-off explorer: choose a training run and read its privacy",
    controls: [
      { key: "law", label: "convention", value: "fixed", choices: [["fixed", "replace one; subsets of m; noise 2σC"], ["poisson", "add or remove one; Poisson; noise σC"]] },
      { key: "n", label: "records n", value: 60000, values: nice(3, 7) },
      { key: "m", label: "batch size m", value: 256, values: [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384] },
      { key: "E", label: "epochs E", value: 15, values: steps(1, 20, 1).concat(steps(25, 100, 5), [120, 150, 200]) },
      { key: "sigma", label: "noise σ", value: 1.3, values: steps(0.5, 4, 0.05) },
      { key: "delta", label: "δ", value: 1e-5, values: [1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2] },
    ],
    presets: [["A", 1.3, 15], ["B", 1.1, 60], ["C", 0.7, 45]].map((r) => ({ label: "run " + r[0], values: { n: 60000, m: 256, sigma: r[1], E: r[2] } })),
    key: [["live-1", "limit G_μ"], ["live-exact", "tensor power (interpolated)"], ["live-3", "lines of the pair (ε, δ)"], ["live-thin", "no information; level δ"]],
    draw: draw,
  });
})();
