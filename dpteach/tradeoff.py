"""Trade-off functions as objects: f, f⁻¹, tensor products (chapters 8, 9) and C_p(f) (chapter 10).

A trade-off function is f = T(P, Q): the least type II error of a test of P against Q whose type I
error is alpha. `TradeOff` holds a pair with finitely many outcomes, sorted by the likelihood ratio
q/p, largest first: the order in which the best test rejects (Neyman-Pearson). Then

* f is piecewise linear: the outcome (p_i, q_i) is an edge, p_i wide, q_i high, of slope -q_i/p_i;
* f⁻¹ swaps p and q;  f_p = p f + (1-p) Id mixes p into q;  f⊗g multiplies the pairs.

A smooth f is held between two such functions. Merging outcomes can only raise f (the test sees
less); splitting one into two, with both masses kept, can only lower it. So each approximation says
its `side`, and keeps to it but for rounding, 1e-14, and for merging outcomes whose log ratios
differ by less than 1e-12:

``"pessimistic"``  at or below the truth: safe to report (ε and δ come out too large)
``"optimistic"``   at or above the truth; with the pessimistic one it states the error

Arguments out of range raise `ValueError`, which names the range.

Not for small δ after many steps: `power` holds f to the width between its two sides. The T-fold law
of noisy SGD has a module of its own.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, ndtr

from dpteach import domain
from dpteach.guarantees import epsilon_from_delta, f_epsilon_delta, gaussian_tradeoff
from dpteach.numerics.roots import bisect

__all__ = [
    "SIDES", "Functionals", "Side", "TradeOff", "distance", "subsampled_epsilon_delta",
    "subsampled_gaussian",
]  # fmt: skip

Side = Literal["pessimistic", "optimistic"]
Pair = tuple[np.ndarray, np.ndarray]
SIDES = ("pessimistic", "optimistic")
_SAME = 1e-12  # outcomes whose log ratios differ by less are one, in chains too
_LARGEST, _ONE = 20_000_000, "[0.999999999, 1.000000001]"
_EXAMPLE = "TradeOff.gaussian(1.0)"
_RATE = "it's the share of records in a batch, m/n"


class Functionals(NamedTuple):
    """The four integrals of log|f'| in DRS22's Theorem 3.4: kl, κ2, κ3 and κ̄3.

    With f = T(P, Q) and L = log dP/dQ = -log|f'| they're E_P L, E_P L², E_P|L|³ and E_P|L - kl|³.

    >>> Functionals(kl=0.5, kappa2=1.25, kappa3=2.0, kappa3_bar=1.6).variance
    1.0
    """

    kl: float
    kappa2: float
    kappa3: float
    kappa3_bar: float

    @property
    def variance(self) -> float:
        """κ2 - kl², the variance of L under P."""
        return self.kappa2 - self.kl**2


@dataclass(frozen=True, eq=False)
class TradeOff:
    """The trade-off function T(P, Q) of two distributions on finitely many outcomes.

    Parameters
    ----------
    p, q : shape (k,), probabilities of the outcomes under P (the null hypothesis) and under Q, in
        any order; stored sorted by q/p, largest first, equal ratios merged. Zeros are welcome:
        p = 0 < q is an outcome that gives Q away, and makes f(0) < 1.

    >>> coin = TradeOff([0.75, 0.25], [0.25, 0.75])
    >>> coin([0.0, 0.25, 1.0])
    array([1.  , 0.25, 0.  ])
    >>> round(coin.epsilon(1e-9), 6) == round(math.log(3), 6)
    True
    """

    p: np.ndarray
    q: np.ndarray

    def __post_init__(self) -> None:
        p, q = domain.numbers("p", self.p, "[0, inf)"), domain.numbers("q", self.q, "[0, inf)")
        domain.same_shape(p=p, q=q)
        p, q = p.ravel(), q.ravel()
        for name, total in (("p", p.sum()), ("q", q.sum())):
            domain.number(f"sum of {name}", total, _ONE, "give probabilities")
        p, q = _merged(p / p.sum(), q / q.sum())
        domain.set_fields(self, p=p, q=q)

    @classmethod
    def epsilon_delta(cls, epsilon: float, delta: float = 0.0) -> TradeOff:
        """f_{ε,δ}, exact: randomised response that with probability δ gives everything away.

        >>> f = TradeOff.epsilon_delta(1.0, 0.1)
        >>> abs(float(f(0.2) - f_epsilon_delta(1.0, 0.1, 0.2))) < 1e-15
        True
        """
        return cls.randomised_response(epsilon, 1, delta)

    @classmethod
    def randomised_response(cls, epsilon: float, steps: int, delta: float = 0.0) -> TradeOff:
        """f_{ε,δ}^{⊗T} by binomials: T answers of randomised response, of ratio e^{ε(2k-T)} for k
        truths (Kairouz, Oh and Viswanath 2015, Theorem 3.3). ε up to 700, T up to 1e6. Absolute
        accuracy 1e-15·(1 + T).

        >>> twice = TradeOff.epsilon_delta(1.0) @ TradeOff.epsilon_delta(1.0)
        >>> distance(twice, TradeOff.randomised_response(1.0, 2)) < 1e-15
        True
        """
        epsilon = domain.number("epsilon", epsilon, "[0, 700]")
        steps = domain.whole_number("steps", steps, "[1, 1e6]")
        delta = domain.number("delta", delta, "[0, 1)", "at delta = 1 f is 0")
        broken = -math.expm1(steps * math.log1p(-delta))
        k = np.arange(steps + 1)  # truths under Q, lies under P
        log_binomial = gammaln(steps + 1) - gammaln(k + 1) - gammaln(steps - k + 1)
        pmf = np.exp(log_binomial - k * epsilon - steps * math.log1p(math.exp(-epsilon)))
        p = np.concatenate([[0.0], (1 - broken) * pmf / pmf.sum(), [broken]])
        return cls(p, p[::-1])

    @classmethod
    def gaussian(cls, mu: float, side: Side = "pessimistic", points: int = 1000) -> TradeOff:
        """G_mu from one side, with `points` outcomes equally spaced in the observation t.

        >>> pessimistic, optimistic = (TradeOff.gaussian(1.0, side) for side in SIDES)
        >>> distance(pessimistic, optimistic) < 4e-5
        True
        """
        mu = domain.number("mu", mu, "[0, 100]")
        points = domain.whole_number("points", points, "[3, 1e5]")
        edges = np.concatenate([[-np.inf], np.linspace(-8.5, 8.5 + mu, points - 1), [np.inf]])
        p = _cell_mass(edges)
        q = _cell_mass(edges - mu)
        if domain.one_of("side", side, SIDES) == "pessimistic":
            with np.errstate(divide="ignore"):
                loss = np.log(q) - np.log(p)
            ends = mu * edges - mu * mu / 2 if mu else np.zeros_like(edges)
            p, q = _split(p, q, np.clip(loss, ends[:-1], ends[1:]), ends[:-1], ends[1:])
        return cls(p, q)

    @classmethod
    def from_points(cls, alpha: ArrayLike, beta: ArrayLike) -> TradeOff:
        """Greatest convex function at or below the points (alpha_i, beta_i), (0, 1) and (1, 0).

        For a function given by its vertices this is the double conjugate f**.

        >>> round(float(TradeOff.from_points([0.2, 0.5], [0.4, 0.45])(0.6)), 12)
        0.2
        """
        alpha, beta = domain.alphas(alpha), domain.numbers("beta", beta, "[0, 1]")
        domain.same_shape(alpha=alpha, beta=beta)
        x, y = _lower_hull(np.append(alpha, [0.0, 1.0]), np.append(beta, [1.0, 0.0]))
        return cls(np.diff(x), -np.diff(y))

    @functools.cached_property
    def loss(self) -> np.ndarray:
        """log(q/p) = log|f'| on each edge, decreasing; +inf where p = 0, -inf where q = 0."""
        return _log_ratio(self.p, self.q)

    @functools.cached_property
    def alpha(self) -> np.ndarray:
        """Type I errors at the vertices, from 0 to 1."""
        return np.minimum(np.concatenate([[0.0], np.cumsum(self.p)]), 1.0)

    @functools.cached_property
    def beta(self) -> np.ndarray:
        """Type II errors at the vertices, from 1 to 0."""
        return np.minimum(np.concatenate([np.cumsum(self.q[::-1])[::-1], [0.0]]), 1.0)

    def __call__(self, alpha: ArrayLike) -> np.ndarray:
        """f(alpha), any shape."""
        first = int(self.p[0] == 0)  # f(0) is the lowest point of a vertical edge
        alpha = domain.alphas(alpha)
        return np.interp(alpha, self.alpha[first:], self.beta[first:])

    f = __call__

    def conjugate(self, y: ArrayLike) -> np.ndarray:
        """f*(y) = max over 0 ≤ x ≤ 1 of xy - f(x), reached at a vertex (DRS22, before Prop. 2.12).

        >>> abs(float(TradeOff.epsilon_delta(1.0).conjugate(-1.0)) + 1 - math.tanh(0.5)) < 1e-15
        True
        """
        y = domain.numbers("y", y)
        return np.max(y[..., None] * self.alpha - self.beta, axis=-1)

    def delta(self, epsilon: ArrayLike) -> np.ndarray:
        """δ(ε) = 1 + f*(-e^ε) = Σ (q_i - e^ε p_i)₊, any real ε, any shape (DRS22, Prop. 2.12).

        >>> round(float(TradeOff.epsilon_delta(1.0, 0.1).delta(1.0)), 12)
        0.1
        """
        epsilon = domain.numbers("epsilon", epsilon)[..., None]
        share = -np.expm1(np.minimum(epsilon - self.loss, 0.0))  # of q_i that's in excess
        return np.sum(self.q * share, axis=-1)

    def epsilon(self, delta: float) -> float:
        """Least ε ≥ 0 with δ(ε) ≤ δ, up to 1e5 (beyond: inf), but for δ(ε)'s rounding, 1e-15."""
        return epsilon_from_delta(lambda e: float(self.delta(e)) * (1 - 1e-15), delta)

    def inverse(self) -> TradeOff:
        """f⁻¹(α) = inf{t: f(t) ≤ α} = T(Q, P): the graph mirrored in the diagonal.

        >>> round(float(TradeOff([0.9, 0.1], [0.5, 0.5]).inverse()(0.5)), 12)
        0.1
        """
        return TradeOff(self.q, self.p)

    def is_symmetric(self, tolerance: float = 1e-9) -> bool:
        """Whether f and f⁻¹ differ by at most `tolerance`."""
        return distance(self, self.inverse()) <= domain.number("tolerance", tolerance, "[0, inf)")

    def mixed(self, rate: float) -> TradeOff:
        """f_p = p f + (1-p) Id = T(P, (1-p)P + pQ), p = `rate` in [0, 1] (DRS22, section 4).

        >>> distance(TradeOff.epsilon_delta(1.0).mixed(0.0), TradeOff([1.0], [1.0]))
        0.0
        """
        rate = domain.number("rate", rate, "[0, 1]", _RATE)
        return TradeOff(self.p, rate * self.q + (1 - rate) * self.p)

    def subsample(self, rate: float) -> TradeOff:
        """C_p(f) = min{f_p, f_p⁻¹}**, p = `rate` (DRS22, Theorem 4.2).

        Symmetric f: f_p where it's steeper than -1, a segment of slope -1, the mirror image. Any
        other f: by a hull of the vertices of f_p and f_p⁻¹, to an absolute precision near 1e-15.

        A guarantee for the mechanism on a uniform subset of a share p of the records, replace-one,
        when f is one for the mechanism itself. Symmetric whether f is or not.

        >>> f = TradeOff.epsilon_delta(1.0).subsample(0.5)
        >>> bool(abs(f(0.4) - subsampled_epsilon_delta(0.5, 1.0, 0.0, 0.4)) < 1e-15)
        True
        """
        f = self.mixed(rate)
        p, q = f.p[f.loss > _SAME], f.q[f.loss > _SAME]
        rest = 1 - p.sum() - q.sum()
        if rest > -1e-12 and self.is_symmetric(1e-13):
            rest = max(rest, 0.0)
            return TradeOff(np.concatenate([p, [rest], q]), np.concatenate([q, [rest], p]))
        both = np.concatenate([f.alpha, f.beta]), np.concatenate([f.beta, f.alpha])
        return TradeOff.from_points(*both)

    def __matmul__(self, other: TradeOff) -> TradeOff:
        """f⊗g = T(P×P', Q×Q'), every pair of outcomes kept (DRS22, Definition 3.1)."""
        size = self.p.size * domain.instance("g", other, TradeOff, _EXAMPLE).p.size
        allowed = f"at most {_LARGEST}"
        domain.require("outcomes of f⊗g", size, size <= _LARGEST, allowed, "coarsen f and g first")
        return TradeOff(np.outer(self.p, other.p).ravel(), np.outer(self.q, other.q).ravel())

    def coarsen(self, points: int, side: Side) -> TradeOff:
        """About `points` outcomes instead of more, from one side: f itself when it's small enough.

        >>> fine = TradeOff.gaussian(1.0, points=5000)
        >>> coarse = fine.coarsen(200, "pessimistic")
        >>> coarse.p.size <= 202, bool(np.all(coarse(fine.alpha) <= fine(fine.alpha) + 1e-14))
        (True, True)
        """
        points = domain.whole_number("points", points, "[10, 1e4]")
        domain.one_of("side", side, SIDES)
        if self.p.size <= points:
            return self
        inner = np.isfinite(self.loss)
        p, q, loss = self.p[inner], self.q[inner], self.loss[inner]
        levels = _levels(loss, np.cumsum(p + q), points)
        cell = np.clip(np.searchsorted(levels, loss, side="right") - 1, 0, levels.size - 2)
        if side == "pessimistic":
            p, q = _split(p, q, loss, levels[cell], levels[cell + 1])
            cell = np.concatenate([cell, cell + 1])
        p, q = np.bincount(cell, p), np.bincount(cell, q)
        return TradeOff(np.append(p, self.p[~inner]), np.append(q, self.q[~inner]))

    def power(self, steps: int, side: Side = "pessimistic", points: int = 500) -> TradeOff:
        """f^{⊗T} from one side, T = `steps`, by repeated squaring; exact while it needs at most
        `points` outcomes. The error roughly doubles with each squaring: compare the two sides.

        >>> rr = TradeOff.epsilon_delta(0.1)
        >>> distance(rr.power(100), TradeOff.randomised_response(0.1, 100)) < 1e-12
        True
        """
        steps = domain.whole_number("steps", steps, "[1, 1e6]")
        square, result = self.coarsen(points, side), TradeOff(np.ones(1), np.ones(1))
        while steps:
            if steps & 1:
                result = (result @ square).coarsen(points, side)
            steps >>= 1
            if steps:
                square = (square @ square).coarsen(points, side)
        return result

    def functionals(self) -> Functionals:
        """kl = -∫log|f'|, κ2 = ∫log²|f'|, κ3 = ∫|log|f'||³, κ̄3 = ∫|log|f'| + kl|³ over [0, 1].

        Exact for this piecewise-linear f; infinite where f' = 0 on an interval (DRS22, section 3).

        >>> round(TradeOff.epsilon_delta(1.0).functionals().kl, 12) == round(math.tanh(0.5), 12)
        True
        """
        p, loss = self.p[self.p > 0], self.loss[self.p > 0]
        if not np.all(np.isfinite(loss)):
            return Functionals(math.inf, math.inf, math.inf, math.inf)
        kl = max(0.0, -float(p @ loss))
        size = np.abs(loss)
        centred = np.abs(loss + kl)
        return Functionals(kl, float(p @ size**2), float(p @ size**3), float(p @ centred**3))


def distance(f: TradeOff, g: TradeOff) -> float:
    """sup over α of |f(α) - g(α)|, exact: reached at a vertex of f or g.

    >>> round(distance(TradeOff.epsilon_delta(0.0), TradeOff.epsilon_delta(0.0, 0.25)), 12)
    0.25
    """
    f, g = domain.instances("f, g", (f, g), TradeOff, _EXAMPLE)
    alpha = np.union1d(f.alpha, g.alpha)
    return float(np.max(np.abs(f(alpha) - g(alpha))))


def subsampled_epsilon_delta(
    rate: float, epsilon: float, delta: float, alpha: ArrayLike
) -> np.ndarray:
    """C_p(f_{ε,δ})(α) = max{f_{ε',δ'}(α), 1 - pδ - p·tanh(ε/2)(1-δ) - α}, p = `rate`.

    ε' = log(1-p+p e^ε), δ' = pδ is what (ε,δ)-amplification gives alone; the second term is the
    segment of slope -1 that it loses (DRS22, section 4; derived in chapter 10).

    >>> float(subsampled_epsilon_delta(0.0, 1.0, 0.0, 0.3)) == 0.7
    True
    """
    rate = domain.number("rate", rate, "[0, 1]", _RATE)
    epsilon = domain.number("epsilon", epsilon, "[0, 700]")
    delta, alpha = domain.number("delta", delta, "[0, 1]"), domain.alphas(alpha)
    amplified = math.log1p(rate * math.expm1(epsilon))
    segment = 1 - rate * (delta + (1 - delta) * math.tanh(epsilon / 2)) - alpha
    return np.maximum(f_epsilon_delta(amplified, rate * delta, alpha), segment)


def subsampled_gaussian(rate: float, mu: float, alpha: ArrayLike) -> np.ndarray:
    """C_p(G_mu)(α), p = `rate` in [0, 1], by its three pieces. Absolute accuracy 1e-14.

    f_p up to x* = Φ(-mu/2), where G_mu(x*) = x*; slope -1 from there to f_p(x*); then f_p⁻¹, the
    quantile of the mixture (1-p)N(0,1) + pN(mu,1), found by bisection.

    >>> float(subsampled_gaussian(1.0, 1.0, 0.05) - gaussian_tradeoff(1.0, 0.05)) == 0
    True
    """
    rate = domain.number("rate", rate, "[0, 1]", _RATE)
    mu, alpha = domain.number("mu", mu, "[0, 100]"), domain.alphas(alpha)
    left = rate * gaussian_tradeoff(mu, alpha) + (1 - rate) * (1 - alpha)
    corner = float(ndtr(-mu / 2))
    top = rate * corner + (1 - rate) * (1 - corner)
    above = lambda t: rate * ndtr(t - mu) + (1 - rate) * ndtr(t) >= alpha  # noqa: E731
    quantile = bisect(above, np.full(alpha.shape, mu / 2), np.full(alpha.shape, 40.0 + mu))
    middle, right = corner + top - alpha, ndtr(-quantile)
    return np.where(alpha <= corner, left, np.where(alpha < top, middle, right))


def _log_ratio(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(q) - np.log(p)


def _merged(p: np.ndarray, q: np.ndarray) -> Pair:
    """The outcomes by decreasing q/p, those with the same ratio as one."""
    kept = np.maximum(p, q) > 1e-290
    p, q = p[kept], q[kept]
    loss = _log_ratio(p, q)
    order = np.argsort(-loss, kind="stable")
    p, q, loss = p[order], q[order], loss[order]
    same = np.isclose(loss[1:], loss[:-1], rtol=0, atol=_SAME)
    starts = np.concatenate([[0], 1 + np.flatnonzero(~same)])
    return np.add.reduceat(p, starts), np.add.reduceat(q, starts)


def _split(
    p: np.ndarray, q: np.ndarray, loss: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Pair:
    """Split outcomes of log ratio `loss` onto the ratios `low` ≤ loss ≤ `high`, both masses kept:
    first all lower parts, then all upper parts. This is what connect-the-dots does to a cell."""
    with np.errstate(invalid="ignore"):
        width = np.maximum(high - low, 1e-300)
    up_q = np.expm1(-(loss - low)) / np.expm1(-width)
    up_q = np.where(width > 1e-300, np.clip(up_q, 0, 1), 1.0)
    up_p = up_q * np.exp(loss - high)
    return np.concatenate([p * (1 - up_p), p * up_p]), np.concatenate([q * (1 - up_q), q * up_q])


def _levels(loss: np.ndarray, weight: np.ndarray, points: int) -> np.ndarray:
    """Log ratios to coarsen onto: half of them equally spaced in mass, half in the ratio."""
    half = points // 2 - 1
    by_mass = np.interp(np.linspace(0, weight[-1], half), weight, loss)
    ends = np.interp([1e-14, weight[-1] - 1e-14], weight, loss)
    ends = np.concatenate([np.linspace(ends[0], ends[1], half), [loss[0], loss[-1]]])
    return np.unique(np.concatenate([by_mass, ends]))


def _cell_mass(edges: np.ndarray) -> np.ndarray:
    """N(0,1) mass between consecutive edges, each from the tail that keeps its digits."""
    upper = ndtr(-edges[:-1]) - ndtr(-edges[1:])
    return np.where(edges[:-1] > 0, upper, np.diff(ndtr(edges)))


def _lower_hull(x: np.ndarray, y: np.ndarray) -> Pair:
    """Lower convex hull of points, left to right (Andrew's monotone chain), from (0, 1) on."""
    order = np.lexsort((-y, x))
    hull: list[tuple[float, float]] = []
    for point in zip(x[order].tolist(), y[order].tolist(), strict=True):
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], point) is False:
            hull.pop()
        hull.append(point)
    corners = np.array(hull)
    return corners[:, 0], corners[:, 1]


def _turns_up(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Whether a → b → c turns left, so that b is a corner of the lower hull."""
    return (b[0] - a[0]) * (c[1] - a[1]) > (b[1] - a[1]) * (c[0] - a[0])
