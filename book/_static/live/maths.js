/* The closed forms behind the live figures, in double precision. tests/test_live.py compares each with dpteach.
   A classic script: it works from file:// and shares one global, dpteachLive. */
(function () {
  "use strict";

  const SQRT2 = Math.sqrt(2), ROOT_2PI = Math.sqrt(2 * Math.PI);
  const horner = (coefficients, x) => coefficients.reduce((sum, c) => sum * x + c, 0);

  /* e^{x²} erfc(x) for x ≥ 0, and erf(x) for |x| ≤ 0.46875: rational approximations of W. J. Cody,
     Math. Comp. 23 (1969) 631-637. */
  const SMALL = [
    [1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3],
    [1, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3],
  ];
  const MIDDLE = [
    [2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1, 2.98635138197400131e2,
      8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3],
    [1, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
      3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3],
  ];
  const LARGE = [
    [1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
      1.60837851487422766e-2, 6.58749161529837803e-4],
    [1, 2.56852019228982242, 1.87295284992346047, 5.27905102951428412e-1, 6.05183413124413191e-2, 2.33520497626869185e-3],
  ];
  const ratio = (pair, x) => horner(pair[0], x) / horner(pair[1], x);

  function erfSmall(x) { return x * ratio(SMALL, x * x); }

  /* e^{-x²} with x² split, so that its rounding isn't magnified. */
  function gauss(x) {
    const head = Math.trunc(x * 16) / 16;
    return Math.exp(-head * head) * Math.exp(-(x - head) * (x + head));
  }

  function erfcx(x) {
    if (x < 0) return 2 / gauss(x) - erfcx(-x);
    if (x <= 0.46875) return (1 - erfSmall(x)) / gauss(x);
    if (x <= 4) return ratio(MIDDLE, x);
    if (x > 1e8) return 1 / (x * Math.sqrt(Math.PI));
    const inverse = 1 / (x * x);
    return (1 / Math.sqrt(Math.PI) - inverse * ratio(LARGE, inverse)) / x;
  }

  function erfc(x) {
    if (Math.abs(x) <= 0.46875) return 1 - erfSmall(x);
    if (x < 0) return 2 - erfc(-x);
    return x > 27 ? 0 : gauss(x) * erfcx(x);
  }

  function erf(x) {
    if (Math.abs(x) <= 0.46875) return erfSmall(x);
    return x > 0 ? 1 - erfc(x) : erfc(-x) - 1;
  }

  const density = (x) => gauss(x / SQRT2) / ROOT_2PI;
  const Phi = (x) => erfc(-x / SQRT2) / 2;
  function logPhi(x) {
    if (x > 0) return Math.log1p(-Phi(-x));
    return x > -1 ? Math.log(Phi(x)) : -x * x / 2 + Math.log(erfcx(-x / SQRT2) / 2);
  }
  const mills = (x) => erfcx(x / SQRT2);

  /* Φ⁻¹ by Newton's method on log Φ, which is concave: from the left it never overshoots. */
  function PhiInverse(p) {
    if (p <= 0 || p >= 1) return p <= 0 ? -Infinity : Infinity;
    if (p > 0.5) return -PhiInverse(1 - p);
    const target = Math.log(p);
    let x = -Math.sqrt(-2 * target);
    for (let i = 0; i < 50; i++) {
      const slope = Math.sqrt(2 / Math.PI) / mills(-x);
      const step = (target - logPhi(x)) / slope;
      x += step;
      if (Math.abs(step) <= 1e-15 * Math.max(1, -x)) break;
    }
    return x;
  }

  function logSumExp(values) {
    const peak = Math.max(...values);
    if (!Number.isFinite(peak)) return peak;
    return peak + Math.log(values.reduce((sum, v) => sum + Math.exp(v - peak), 0));
  }

  /* δ(ε) of N(mu, 1) against N(0, 1) (DRS22, Corollary 2.13), written so that no digits cancel. */
  function gaussianDelta(mu, epsilon) {
    const a = epsilon / mu - mu / 2, b = epsilon / mu + mu / 2;
    if (a > 0) return gauss(a / SQRT2) / 2 * (mills(a) - mills(a + mu));
    const below = Math.exp(Math.min(Math.max(epsilon, 0) + logPhi(-b), 0));
    const between = (erf(b / SQRT2) - erf(a / SQRT2)) / 2;
    const body = between + below * (epsilon < 0 ? -1 : 1) * Math.expm1(-Math.abs(epsilon));
    return Math.min(Math.max(body, 0), 1);
  }

  /* Least ε ≥ 0 at which a decreasing profile is at most δ: bisection to the last bits. */
  function epsilonOf(profile, delta) {
    if (profile(0) <= delta) return 0;
    let low = 0, high = 1;
    while (profile(high) > delta && high < 1e6) { low = high; high *= 2; }
    for (let i = 0; i < 60 && high - low > 1e-15 * high; i++) {
      const middle = (low + high) / 2;
      if (profile(middle) > delta) low = middle; else high = middle;
    }
    return high;
  }
  const gaussianEpsilon = (mu, delta) => epsilonOf((e) => gaussianDelta(mu, e), delta);

  const gaussianTradeoff = (mu, alpha) => Phi(-PhiInverse(alpha) - mu);

  function pairTradeoff(epsilon, delta, alpha) {
    return Math.max(0, 1 - delta - Math.exp(epsilon) * alpha, Math.exp(-epsilon) * (1 - delta - alpha));
  }

  /* χ²₊(G_mu), DRS22's Lemma 5.3; its Taylor series near 0. */
  function chi2Plus(mu) {
    if (mu < 1e-3) return mu * mu / 2 + mu ** 3 / ROOT_2PI + mu ** 4 / 4;
    return Math.expm1(mu * mu) * Phi(1.5 * mu) + erf(1.5 * mu / SQRT2) / 2 - 1.5 * erf(mu / 2 / SQRT2);
  }
  const fixedMu = (p, sigma, steps) => p * Math.sqrt(2 * steps * chi2Plus(1 / sigma));
  const poissonMu = (q, sigma, steps) => q * Math.sqrt(steps * Math.expm1(1 / sigma ** 2));
  const limitMu = (law, p, sigma, steps) => (law === "fixed" ? fixedMu : poissonMu)(p, sigma, steps);

  /* T = ⌈E·n/m⌉; the product is a whole number up to rounding where it should be. */
  const stepsOf = (n, m, epochs) => Math.max(1, Math.ceil(epochs * n / m * (1 - 1e-14)));

  /* ---- one step's privacy loss ------------------------------------------------------------------ */

  /* log(1 - q + q e^x) */
  function mixtureLoss(q, x) {
    if (q === 1) return x;
    if (Math.abs(x) < 1) return Math.log1p(q * Math.expm1(x));
    return logSumExp([Math.log1p(-q), Math.log(q) + x]);
  }

  /* The t at which log(1 - q + q e^{mu t - mu²/2}) is the given loss; -∞ where every loss is larger. */
  function whereLoss(q, mu, loss) {
    const inner = loss < 1 ? Math.log1p(Math.max(Math.expm1(loss) / q, -1))
      : loss - Math.log(q) + Math.log1p(-(1 - q) * Math.exp(-loss));
    return inner / mu + mu / 2;
  }

  const upper = (q, mu, t) => (1 - q) * Phi(-t) + q * Phi(mu - t);
  const lower = (q, mu, t) => (1 - q) * Phi(t) + q * Phi(t - mu);
  const atom = (p, mu) => (1 - p) * erf(mu / 2 / SQRT2);

  /* P(L > z), where L is the loss of one step drawn under P. */
  const TAILS = {
    gaussian: (q, mu, z) => Phi(mu / 2 - z / mu),
    remove: (q, mu, z) => upper(q, mu, whereLoss(q, mu, z)),
    add: (q, mu, z) => Phi(whereLoss(q, mu, -z)),
    replace: (q, mu, z) => z >= 0 ? upper(q, mu, whereLoss(q, mu, z)) : 1 - Phi(-whereLoss(q, mu, -z)),
  };
  const lossTail = (law, q, sigma, z) => TAILS[law](q, 1 / sigma, z);

  /* Q(L > z), of the other law of the pair. */
  const TAILS_UNDER_Q = {
    gaussian: (q, mu, z) => Phi(-mu / 2 - z / mu),
    remove: (q, mu, z) => Phi(-whereLoss(q, mu, z)),
    add: (q, mu, z) => lower(q, mu, whereLoss(q, mu, -z)),
    replace: (q, mu, z) => z >= 0 ? Phi(-whereLoss(q, mu, z)) : 1 - upper(q, mu, whereLoss(q, mu, -z)),
  };
  const lossTailUnderQ = (law, q, sigma, z) => TAILS_UNDER_Q[law](q, 1 / sigma, z);

  /* δ(ε) of one step, ε ≥ 0. */
  function mixtureDelta(q, mu, epsilon) {
    const shifted = epsilon < 1 ? Math.log1p(Math.expm1(epsilon) / q)
      : epsilon - Math.log(q) + Math.log1p(-(1 - q) * Math.exp(-epsilon));
    return q * gaussianDelta(mu, shifted);
  }
  function swappedDelta(q, mu, epsilon) {
    if (q === 1) return gaussianDelta(mu, epsilon);
    const weight = -Math.expm1(epsilon + Math.log1p(-q));
    return weight > 0 ? weight * gaussianDelta(mu, epsilon + Math.log(q) - Math.log(weight)) : 0;
  }
  const DELTAS = {
    gaussian: (q, mu, epsilon) => gaussianDelta(mu, epsilon), remove: mixtureDelta, add: swappedDelta,
    replace: mixtureDelta,
  };
  const lossDelta = (law, q, sigma, epsilon) => DELTAS[law](q, 1 / sigma, epsilon);

  /* The density of L under P along t: points [loss, density], in order of the loss. The atom at 0 of `replace` isn't
     among them. */
  function lossDensity(law, q, sigma, points) {
    const mu = 1 / sigma, rate = law === "gaussian" ? 1 : q;
    const up = [], down = [];
    const start = law === "replace" ? mu / 2 : -8.5;
    for (let i = 0; i <= points; i++) {
      const t = start + (mu + 8.5 - start) * i / points;
      const x = mu * t - mu * mu / 2, loss = mixtureLoss(rate, x);
      const base = density(t), mixed = (1 - rate) * base + rate * density(t - mu);
      const slope = mu * rate * Math.exp(x - loss);
      up.push([loss, mixed / slope]);
      down.push([-loss, base / slope]);
    }
    if (law === "add") return down.reverse();
    return law === "replace" ? down.reverse().concat(up) : up;
  }

  /* ---- moments ---------------------------------------------------------------------------------- */

  /* α(λ) = log E2 of the sampled Gaussian at a whole λ (Abadi16, Eq. 4): the binomial weights sum to 1, so 1 is
     subtracted inside the sum, and small moments keep their digits. */
  function logMoment(q, sigma, lambda) {
    const a = lambda + 1;
    if (q === 1) return a * lambda / (2 * sigma * sigma);
    const logs = [];
    let weight = a * Math.log1p(-q);
    for (let k = 0; k <= a; k++) {
      const x = k * (k - 1) / (2 * sigma * sigma);
      if (k > 1) logs.push(weight + (x < 40 ? Math.log(Math.expm1(x)) : x));
      weight += Math.log((a - k) / (k + 1)) + Math.log(q) - Math.log1p(-q);
    }
    const excess = logSumExp(logs);
    return excess < 30 ? Math.log1p(Math.exp(excess)) : excess;
  }

  /* ε = min over λ = 1 … most of (T α(λ) + log(1/δ))/λ (Theorem 2.2). */
  function momentsEpsilon(q, sigma, steps, delta, most) {
    const alpha = [];
    let best = { epsilon: Infinity, order: 1 };
    for (let lambda = 1; lambda <= most; lambda++) {
      alpha.push(steps * logMoment(q, sigma, lambda));
      const epsilon = (alpha[lambda - 1] - Math.log(delta)) / lambda;
      if (epsilon < best.epsilon) best = { epsilon: epsilon, order: lambda };
      else if (lambda > 4 * best.order + 20) break;
    }
    return { epsilon: best.epsilon, order: best.order, alpha: alpha, searched: alpha.length };
  }

  const lemma3Leading = (q, sigma, lambda) => q * q * lambda * (lambda + 1) / ((1 - q) * sigma * sigma);
  const lemma3Bound = (q, sigma, lambda) => lemma3Leading(q, sigma, lambda) + 0.8 * (q * lambda / sigma) ** 3;
  /* The largest order of Lemma 3's region; 0 where no order is in it. */
  function lemma3Largest(q, sigma) {
    return sigma >= 1 && 16 * q * sigma < 1 ? Math.floor(-sigma * sigma * Math.log(q * sigma)) : 0;
  }

  /* ---- the exact curve, from stored points ------------------------------------------------------ */

  /* Values at x in [-1, 1] of the basis polynomials of Chebyshev's points of the second kind (barycentric form). */
  function basis(count, x) {
    const weights = [];
    for (let k = 0; k < count; k++) {
      const gap = x + Math.cos(Math.PI * k / (count - 1));
      if (Math.abs(gap) < 1e-14) return Array.from({ length: count }, (_, j) => (j === k ? 1 : 0));
      weights.push((k % 2 ? -1 : 1) * (k === 0 || k === count - 1 ? 0.5 : 1) / gap);
    }
    const sum = weights.reduce((s, w) => s + w, 0);
    return weights.map((w) => w / sum);
  }

  const dot = (weights, values) => weights.reduce((sum, w, i) => sum + w * values[i], 0);

  function coordinate(range, value) {
    const x = 2 * Math.log(value / range[0]) / Math.log(range[1] / range[0]) - 1;
    return Math.abs(x) <= 1 + 1e-9 ? Math.min(Math.max(x, -1), 1) : NaN;
  }

  /* The run's exact δ(ε) and ε(δ), as interpolated; null where the grid doesn't reach. `law`: "fixed" is
     C_p(G_{1/σ})^{⊗T} (replace-one), "poisson" the sampled Gaussian (add/remove). */
  function exactCurve(law, p, sigma, steps) {
    const grid = window.dpteachGrid;
    const x = [["sigma", sigma], ["p", p], ["epochs", steps * p]].map((pair) => coordinate(grid.ranges[pair[0]], pair[1]));
    if (x.some(Number.isNaN)) return null;
    const nodes = grid.nodes, values = grid.values[law], width = nodes.u + 1;
    const sides = [basis(nodes.sigma, x[0]), basis(nodes.p, x[1]), basis(nodes.epochs, x[2])];
    const row = new Array(width).fill(0);
    let at = 0;
    for (const s of sides[0]) for (const r of sides[1]) for (const e of sides[2]) {
      const weight = s * r * e;
      for (let k = 0; k < width; k++) row[k] += weight * values[at++] / grid.scale;
    }
    const mu = limitMu(law, p, sigma, steps);
    const first = Math.max(0, mu * (mu / 2 - 3));
    const top = Math.exp(row[0]) * gaussianEpsilon(mu, grid.leastDelta);
    const delta = (epsilon) => {
      const u = (epsilon - first) / (top - first);
      return gaussianDelta(mu * Math.exp(dot(basis(nodes.u, 2 * Math.min(Math.max(u, 0), 1) - 1), row.slice(1))), epsilon);
    };
    const error = grid.error.find((level) => p * p * steps >= level[0])[1]; // relative, of ε
    return { mu: mu, top: top, error: error, delta: delta, epsilon: (d) => epsilonOf(delta, d) };
  }

  window.dpteachLive = {
    erf, erfc, erfcx, Phi, logPhi, PhiInverse, density, logSumExp, gaussianDelta, gaussianEpsilon, gaussianTradeoff,
    pairTradeoff, chi2Plus, fixedMu, poissonMu, limitMu, stepsOf, mixtureLoss, lossTail, lossTailUnderQ, lossDelta, lossDensity, atom,
    logMoment, momentsEpsilon, lemma3Leading, lemma3Bound, lemma3Largest, exactCurve, epsilonOf,
  };
})();
