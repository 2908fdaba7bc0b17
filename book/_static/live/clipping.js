/* Clipping and noise on a cloud of two-dimensional gradients: what one record can move, and what hides it. */
(function () {
  "use strict";

  const live = window.dpteachLive, number = live.number;
  const add = (a, b) => [a[0] + b[0], a[1] + b[1]], times = (k, a) => [k * a[0], k * a[1]], norm = (a) => Math.hypot(a[0], a[1]);

  function release(cloud, v) {
    const clipped = cloud.map((g) => times(1 / Math.max(1, norm(g) / v.C), g));
    const sum = clipped.reduce(add, [0, 0]), one = clipped[v.record - 1];
    const direction = times(1 / norm(one), one);
    const other = add(sum, times(-1, v.relation === "replace" ? add(one, times(v.C, direction)) : one));
    const sensitivity = (v.relation === "replace" ? 2 : 1) * v.C;
    return {
      clipped: clipped, sum: sum, other: other, sensitivity: sensitivity, noise: v.sigma * sensitivity,
      moved: norm(add(sum, times(-1, other))), shortened: cloud.filter((g) => norm(g) > v.C).length,
    };
  }

  /* Axis ranges with equal units that hold every point. */
  function frame(points, size) {
    const range = (k) => [Math.min(...points.map((p) => p[k])), Math.max(...points.map((p) => p[k]))];
    const x = range(0), y = range(1), inner = (size.height - 58) / (size.width - 70);
    const half = 0.55 * Math.max(x[1] - x[0], (y[1] - y[0]) / inner, 1e-9);
    const centre = [(x[0] + x[1]) / 2, (y[0] + y[1]) / 2];
    return { x: [centre[0] - half, centre[0] + half], y: [centre[1] - half * inner, centre[1] + half * inner] };
  }
  const around = (centre, radius) => [add(centre, [radius, radius]), add(centre, [-radius, -radius])];

  function gradients(cloud, v, found, size) {
    const box = frame(cloud.concat(around([0, 0], v.C)), size);
    const plot = live.plot(size, {
      x: box.x, y: box.y, xLabel: "first coordinate", yLabel: "second coordinate", title: "Gradients before and after clipping",
      description: `${found.shortened} of ${cloud.length} gradients are longer than C = ${number(v.C)} and end on the circle. The chosen record's gradient is drawn dashed.`,
    });
    plot.circle(0, 0, v.C, "live-3");
    cloud.forEach((g, i) => { plot.line([found.clipped[i], g], "live-thin").dot(g[0], g[1], "live-hollow", 3); });
    found.clipped.forEach((g, i) => { if (i !== v.record - 1) plot.line([[0, 0], g], "live-1"); });
    return plot.line([[0, 0], found.clipped[v.record - 1]], "live-2").svg();
  }

  function sums(v, found, size) {
    const noisy = window.dpteachGrid.noise.map((z) => add(found.sum, times(found.noise, z)));
    const box = frame(noisy.concat(around(found.sum, Math.max(found.noise, found.sensitivity)), [found.other]), size);
    const plot = live.plot(size, {
      x: box.x, y: box.y, xLabel: "first coordinate", yLabel: "second coordinate", title: "The sum, and what one record can move",
      description: `The chosen record moves the sum by ${number(found.moved, 3)}; no record can move it out of the circle of radius ${number(found.sensitivity)}. ` +
        `The noise has standard deviation ${number(found.noise)} in each direction, the shaded disc; dots are possible outputs.`,
    });
    plot.circle(found.sum[0], found.sum[1], found.noise, "live-area");
    for (const z of noisy) plot.dot(z[0], z[1], "live-hollow", 2.5);
    plot.circle(found.sum[0], found.sum[1], found.sensitivity, "live-3");
    return plot.line([found.sum, found.other], "live-2").dot(found.sum[0], found.sum[1], "live-point", 4)
      .dot(found.other[0], found.other[1], "live-dot").svg();
  }

  live.clippedRelease = release;
  live.define("clipping", {
    label: "Clipping explorer: choose the clipping norm and the noise, and see what one record moves",
    controls: [
      { key: "relation", label: "neighbours", value: "add-remove", choices: [["add-remove", "add or remove one: moves at most C"], ["replace", "replace one: moves at most 2C"]] },
      { key: "C", label: "clipping norm C", value: 1, values: Array.from({ length: 40 }, (_, i) => (i + 1) / 10) },
      { key: "sigma", label: "noise σ", value: 1, values: Array.from({ length: 39 }, (_, i) => Number((0.2 + 0.1 * i).toFixed(1))) },
      { key: "record", label: "the record", value: 3, values: window.dpteachGrid.cloud.map((_, i) => i + 1) },
    ],
    key: [["live-1", "clipped gradients"], ["live-2", "the chosen record, and how it moves the sum"], ["live-3", "radius C; furthest move"], ["live-area", "one standard deviation of the noise"], ["live-thin", "cut off by clipping"]],
    draw: (v, width) => {
      const size = live.panelSize(width, 1), cloud = window.dpteachGrid.cloud, found = release(cloud, v);
      return {
        panels: [gradients(cloud, v, found, size), sums(v, found, size)],
        summary: `${found.shortened} of ${cloud.length} gradients are shortened to C = ${number(v.C)}. ` +
          `Record ${v.record} ${v.relation === "replace" ? "replaced by its worst opposite" : "left out"} moves the sum by ${number(found.moved, 3)}; ` +
          `any record moves it by at most ${v.relation === "replace" ? "2C" : "C"} = ${number(found.sensitivity)}. ` +
          `The noise has standard deviation σ·${number(found.sensitivity)} = ${number(found.noise)}, so this sum alone is ${number(1 / v.sigma)}-GDP, ` +
          `ε = ${number(live.gaussianEpsilon(1 / v.sigma, 1e-5))} at δ = 10⁻⁵.`,
      };
    },
  });
})();
