/* The tensor power of one step's law, computed in the page: both ends of ε and δ (chapter 11).
   One step is known by its profile H(y) = P(L > log y) - y Q(L > log y), convex and falling in y = e^ε. On a lattice of
   losses, chords of H lie above it, and chords between values of its tangents lie below it. A piecewise linear profile
   is that of a law on the lattice: its mass under Q at y_i is the change of slope there, under P it's y_i times that.
   T steps are the T-fold convolution, by one FFT of the exponentially tilted masses.
   Needs maths.js; tests/test_calculator.py compares it with dpteach. */
(function () {
  "use strict";

  const live = window.dpteachLive;
  const RESOLUTION = 24;        // lattice points in one standard deviation of one step's loss, and
  const FINER = 8;              // so many times as many where the ends are farther apart than
  const WIDE = 5e-4;            // this, relative
  const WINDOW = 13;            // standard deviations of the sum on either side of where it's asked
  const LARGEST = 2 ** 18;      // points of the FFT; beyond it the lattice gets coarser and the bracket wider

  /* ---- one step: H at every real ε, and the tails that give its tangents --------------------------- */

  const OTHER = { remove: "add", add: "remove", replace: "replace", gaussian: "gaussian" };

  function profile(law, q, sigma, epsilon) {
    if (epsilon >= 0) return live.lossDelta(law, q, sigma, epsilon);
    const size = -epsilon;  // δ(-ε) = 1 - e^{-ε} (1 - δ'(ε)), δ' the profile of the other direction
    return 1 - Math.exp(-size) * (1 - live.lossDelta(OTHER[law], q, sigma, size));
  }

  /* The value at y = e^ε of the tangent to H at e^at, whose slope is -Q(L > at). */
  function tangent(law, q, sigma, at, epsilon) {
    const rise = Math.exp(at) * Math.expm1(epsilon - at);
    return profile(law, q, sigma, at) - rise * live.lossTailUnderQ(law, q, sigma, at);
  }

  /* The losses between which all but `cut` of P and Q lies. */
  function range(law, q, sigma, cut) {
    const z = -live.PhiInverse(cut), mu = 1 / sigma;
    const up = live.mixtureLoss(law === "gaussian" ? 1 : q, mu * (z + mu) - mu * mu / 2);
    const down = live.mixtureLoss(law === "gaussian" ? 1 : q, -mu * (z + mu) - mu * mu / 2);
    return { remove: [down, up], add: [-up, -down], replace: [-up, up], gaussian: [down - mu * mu, up] }[law];
  }

  /* Greatest convex function below the points: indices of those that it touches. */
  function hull(y, v) {
    const kept = [];
    for (let i = 0; i < y.length; i++) {
      while (kept.length > 1) {
        const b = kept[kept.length - 1], a = kept[kept.length - 2];
        if ((v[b] - v[a]) * (y[i] - y[b]) <= (v[i] - v[b]) * (y[b] - y[a])) break;
        kept.pop();
      }
      kept.push(i);
    }
    return kept;
  }

  /* P's masses at the losses first + i·step, and its mass at +∞, from values of a piecewise linear profile. */
  function masses(y, v, infinite) {
    const touched = hull(y, v), p = new Float64Array(y.length);
    let before = (v[touched[0]] - 1) / y[touched[0]];  // the chord from H(0) = 1
    touched.forEach((i, k) => {
      const j = touched[k + 1];
      const after = j === undefined ? 0 : (v[j] - v[i]) / (y[j] - y[i]);
      p[i] = Math.max(y[i] * (after - before), 0);
      before = after;
    });
    return { p: p, infinite: infinite };
  }

  function discretise(law, q, sigma, first, step, count, side) {
    const y = new Float64Array(count), v = new Float64Array(count);
    for (let i = 0; i < count; i++) {
      const epsilon = first + i * step;
      y[i] = Math.exp(epsilon);
      v[i] = side === "upper" ? profile(law, q, sigma, epsilon)
        : Math.max(1 - y[i], 0, Math.min(tangent(law, q, sigma, epsilon - step / 2, epsilon),
          tangent(law, q, sigma, epsilon + step / 2, epsilon)));
    }
    if (side === "lower") v[count - 1] = 0;
    return masses(y, v, v[count - 1]);
  }

  /* ---- T steps -------------------------------------------------------------------------------------- */

  /* In place, radix 2; sign -1 is the transform, +1 its inverse without the factor 1/n. */
  function fft(re, im, sign) {
    const n = re.length;
    for (let i = 1, j = 0; i < n; i++) {
      let bit = n >> 1;
      for (; j & bit; bit >>= 1) j ^= bit;
      j ^= bit;
      if (i < j) { [re[i], re[j]] = [re[j], re[i]]; [im[i], im[j]] = [im[j], im[i]]; }
    }
    const cos = new Float64Array(n / 2), sin = new Float64Array(n / 2);
    for (let k = 0; k < n / 2; k++) { cos[k] = Math.cos(2 * Math.PI * k / n); sin[k] = sign * Math.sin(2 * Math.PI * k / n); }
    for (let size = 2; size <= n; size *= 2) {
      const half = size / 2, stride = n / size;
      for (let start = 0; start < n; start += size) {
        for (let k = 0, t = 0; k < half; k++, t += stride) {
          const a = start + k, b = a + half;
          const x = re[b] * cos[t] - im[b] * sin[t], z = re[b] * sin[t] + im[b] * cos[t];
          re[b] = re[a] - x; im[b] = im[a] - z; re[a] += x; im[a] += z;
        }
      }
    }
  }

  /* log E e^{tL}, and mean and variance of the tilted law, on the lattice. */
  function tilted(p, first, step, t) {
    const top = t * (first + step * (t > 0 ? p.length - 1 : 0));
    let m0 = 0, m1 = 0, m2 = 0;
    for (let i = 0; i < p.length; i++) {
      const w = p[i] * Math.exp(t * (first + i * step) - top);
      m0 += w; m1 += w * i; m2 += w * i * i;
    }
    const mean = m1 / m0;
    return { cumulant: Math.log(m0) + top, mean: first + step * mean, variance: step * step * Math.max(m2 / m0 - mean * mean, 0) };
  }

  /* The tilt at which Chernoff's bound (T K(t) - log δ)/t on ε is least, by golden section in log t. */
  function bestTilt(p, first, step, steps, delta) {
    const bound = (u) => (steps * tilted(p, first, step, Math.exp(u)).cumulant - Math.log(delta)) / Math.exp(u);
    let low = Math.log(1e-2), high = Math.log(1e4);
    for (let i = 0; i < 24; i++) {
      const a = high - 0.618 * (high - low), b = low + 0.618 * (high - low);
      if (bound(a) < bound(b)) high = b; else low = a;
    }
    return Math.exp((low + high) / 2);
  }

  /* δ(ε) of T steps from one side: P's masses on the lattice in a window around where it's asked. */
  function power(one, first, step, steps, t) {
    const { cumulant, mean, variance } = tilted(one.p, first, step, t);
    const reach = Math.max(WINDOW * Math.sqrt(steps * variance), step * 64) + step * one.p.length * 0.5;
    let size = 2;
    while (size * step < 2 * reach || size < one.p.length) size *= 2;
    const re = new Float64Array(size), im = new Float64Array(size);
    one.p.forEach((mass, i) => { re[i] = mass * Math.exp(t * (first + i * step) - cumulant); });
    fft(re, im, -1);
    for (let k = 0; k < size; k++) {  // z^T by its modulus and angle
      const modulus = Math.hypot(re[k], im[k]), scale = modulus > 0 ? Math.exp(steps * Math.log(modulus)) : 0;
      const angle = steps * Math.atan2(im[k], re[k]);
      re[k] = scale * Math.cos(angle); im[k] = scale * Math.sin(angle);
    }
    fft(re, im, 1);
    // index j stands for the losses T·first + (j + multiple of size)·step: the one in the window around the mean
    const start = Math.round((steps * mean - reach - steps * first) / step);
    const count = Math.min(size, Math.ceil(2 * reach / step)), loss = new Float64Array(count);
    const tail = new Float64Array(count + 1), scaled = new Float64Array(count + 1);
    for (let j = count - 1; j >= 0; j--) {
      const index = (((start + j) % size) + size) % size;
      loss[j] = steps * first + (start + j) * step;
      const mass = Math.max(re[index] / size, 0) * Math.exp(steps * cumulant - t * loss[j]);
      tail[j] = tail[j + 1] + mass;
      scaled[j] = scaled[j + 1] + mass * Math.exp(-loss[j]);
    }
    const infinite = -Math.expm1(steps * Math.log1p(-one.infinite));
    return (epsilon) => {
      const j = Math.min(Math.max(Math.ceil((epsilon - loss[0]) / step), 0), count);
      return Math.min(Math.max(infinite + tail[j] - Math.exp(epsilon) * scaled[j], 0), 1);
    };
  }

  /* Both profiles of T steps, exact near the ε that belongs to δ (tilt "best") or everywhere above 1e-12 (tilt 0). */
  function profiles(law, q, sigma, steps, delta, untilted, finer = 1) {
    const cut = Math.max(1e-16 * delta / steps, 1e-300), [low, high] = range(law, q, sigma, cut);
    const rough = discretise(law, q, sigma, low, (high - low) / 4096, 4097, "upper");
    const t = untilted ? 0 : bestTilt(rough.p, low, (high - low) / 4096, steps, delta);
    const spread = (tilt) => Math.sqrt(tilted(rough.p, low, (high - low) / 4096, tilt).variance);
    const widest = 2 * WINDOW * Math.sqrt(steps) * spread(t) + high - low;
    const step = Math.max(Math.min(spread(t), spread(0)) / (RESOLUTION * finer), widest / (LARGEST * (finer > 1 ? 4 : 1)));
    const first = Math.floor(low / step) * step, count = Math.ceil((high - first) / step) + 2;
    return ["lower", "upper"].map((side) => power(discretise(law, q, sigma, first, step, count, side), first, step, steps, t));
  }

  const LAWS = { "add-remove": ["remove", "add"], "replace-one": ["replace"] };

  /* [low, high] of ε at δ: of each direction, and of the worse one. */
  live.tensorPower = function (relation, q, sigma, steps, delta) {
    if (q === 1) {  // every step is Gaussian, and so is the run
      const exact = live.gaussianEpsilon(Math.sqrt(steps) / sigma, delta);
      return { low: exact, high: exact, directions: { gaussian: [exact, exact] } };
    }
    const directions = {};
    for (const law of LAWS[relation]) {
      const ends = (finer) => profiles(law, q, sigma, steps, delta, false, finer).map((f) => live.epsilonOf(f, delta));
      const [low, high] = ends(1);
      directions[law] = high - low > WIDE * high ? ends(FINER) : [low, high];
    }
    const ends = Object.values(directions);
    return { low: Math.max(...ends.map((e) => e[0])), high: Math.max(...ends.map((e) => e[1])), directions: directions };
  };

  /* δ(ε) from above, for pictures: right to about 1e-12. */
  live.tensorProfile = function (relation, q, sigma, steps) {
    if (q === 1) return (epsilon) => live.gaussianDelta(Math.sqrt(steps) / sigma, epsilon);
    const each = LAWS[relation].map((law) => profiles(law, q, sigma, steps, 1e-9, true)[1]);
    return (epsilon) => Math.max(...each.map((f) => f(epsilon)));
  };

  /* ---- Rényi ------------------------------------------------------------------------------------------ */

  /* log E e^{λL} of one step of C_p(G_{1/σ}), by Simpson's rule over the two signs of the loss. */
  function replaceMoment(p, sigma, lambda) {
    const mu = 1 / sigma, n = 2000, a = mu / 2, b = a + mu * (lambda + 1) + 9;
    const terms = [Math.log(Math.max(live.atom(p, mu), 1e-300))];
    for (let i = 0; i <= n; i++) {
      const t = a + (b - a) * i / n, loss = live.mixtureLoss(p, mu * t - mu * mu / 2);
      const weight = Math.log((i === 0 || i === n ? 1 : i % 2 ? 4 : 2) * (b - a) / n / 3) - t * t / 2 - Math.log(2 * Math.PI) / 2;
      terms.push(weight + (lambda + 1) * loss, weight - lambda * loss);
    }
    return live.logSumExp(terms);
  }

  /* The moments accountant (tail bound, Abadi16, Theorem 2) and the Rényi bound (Canonne et al. 2020), whole orders.
     Each is least at one order: a search by golden section over log λ, then the whole numbers beside it. */
  live.momentBounds = function (relation, q, sigma, steps, delta) {
    const known = new Map();
    const moment = (lambda) => {
      if (!known.has(lambda)) {
        const one = relation === "replace-one" && q < 1 ? replaceMoment(q, sigma, lambda) : live.logMoment(q, sigma, lambda);
        known.set(lambda, steps * one);
      }
      return known.get(lambda);
    };
    const tail = (lambda) => (moment(lambda) - Math.log(delta)) / lambda;
    const renyi = (lambda) => (moment(lambda) - Math.log(delta) - Math.log(lambda + 1)) / lambda + Math.log(lambda / (lambda + 1));
    return { moments: leastAt(tail), rdp: Math.max(leastAt(renyi), 0) };
  };

  function leastAt(bound) {
    let best = Infinity;
    for (let lambda = 1; lambda <= 32; lambda++) best = Math.min(best, bound(lambda));
    let low = 3, high = 14;  // of log2 λ
    while (2 ** high - 2 ** low > 4) {
      const a = high - 0.618 * (high - low), b = low + 0.618 * (high - low);
      if (bound(Math.round(2 ** a)) < bound(Math.round(2 ** b))) high = b; else low = a;
    }
    for (let lambda = Math.floor(2 ** low); lambda <= Math.ceil(2 ** high); lambda++) best = Math.min(best, bound(lambda));
    return best;
  }
})();
