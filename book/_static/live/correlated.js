/* Correlated noise (chapter 23): the noise in the sums that training uses, at equal privacy. */
(function () {
  "use strict";

  const live = window.dpteachLive, number = live.number;

  /* c_k = binom(2k, k)/4^k: the root of the prefix-sum matrix, cut after so many bands. */
  function root(bands) {
    const c = [1];
    for (let k = 1; k < bands; k++) c.push(c[k - 1] * (2 * k - 1) / (2 * k));
    return c;
  }

  /* First column of C⁻¹. */
  function inverse(c, T) {
    const w = [];
    for (let t = 0; t < T; t++) {
      let sum = t === 0 ? 1 : 0;
      for (let i = 1; i < Math.min(c.length, t + 1); i++) sum -= c[i] * w[t - i];
      w.push(sum / c[0]);
    }
    return w;
  }

  /* Standard deviation of the noise in θ_t's sum at 1-GDP, t = 1 … T: one use of a record, so sens = ‖c‖. */
  function deviations(bands, T) {
    const c = root(Math.min(bands, T)), sens = Math.hypot(...c);
    let sum = 0, variance = 0;
    return inverse(c, T).map((w) => { sum += w; variance += sum * sum; return sens * Math.sqrt(variance); });
  }

  const rms = (values) => Math.sqrt(values.reduce((sum, v) => sum + v * v, 0) / values.length);

  function draw(v, width) {
    const T = v.steps, size = live.panelSize(width), own = deviations(v.bands, T), alone = deviations(1, T);
    const points = (values) => values.map((y, i) => [i + 1, y]).filter((_, i) => i % Math.ceil(T / 300) === 0 || i === T - 1);
    const sums = live.plot(size, {
      x: [0, T], y: [0, 1.05 * alone[T - 1]], xLabel: "step t", yLabel: "noise in θ's sum (std, in C at 1-GDP)", title: "Noise in the prefix sums",
      description: `Independent noise grows to ${number(alone[T - 1], 3)}, noise with ${v.bands} bands to ${number(own[T - 1], 3)}.`,
    });
    sums.line(points(alone), "live-2").line(points(own), "live-1");
    const c = root(Math.min(v.bands, T)), w = inverse(c, Math.min(T, 40));
    const column = live.plot(size, {
      x: [0, 40], y: [-0.6, 1.05], xLabel: "steps later", yLabel: "share of z in w", title: "One draw in the steps' noise",
      description: `A draw enters its own step whole, and ${number(w[1] || 0, 3)} of it the next: later steps take back part of it.`,
    });
    column.line([[0, 0], [40, 0]], "live-thin").line(w.map((y, i) => [i, y]), "live-1");
    w.forEach((y, i) => column.dot(i, y, "live-point", 2.5));
    return {
      panels: [sums.svg(), column.svg()],
      summary: `${number(T)} steps, each record used once, ${v.bands === 1 ? "independent noise" : `${v.bands} bands of the root`}, exactly 1-GDP (zero-out): ` +
        `root mean square noise in the sums ${number(rms(own))} C, against ${number(rms(alone))} C with independent noise: ${number(100 * rms(own) / rms(alone), 3)} %.`,
    };
  }

  live.correlated = { deviations: deviations, root: root, inverse: inverse };
  live.define("correlated", {
    label: "Correlated noise: choose the bands and the number of steps",
    controls: [
      { key: "bands", label: "bands", value: 32, values: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] },
      { key: "steps", label: "steps T", value: 512, values: [16, 32, 64, 128, 256, 512, 1024] },
    ],
    key: [["live-1", "correlated noise"], ["live-2", "independent noise"], ["live-thin", "zero"]],
    draw: draw,
  });
})();
