"""One-step privacy-loss laws: the distribution of L = log dP/dQ when the output is drawn from P.

Each law is a pair (P, Q) of output distributions on two neighbouring data sets, reduced to one dimension.
Everything that the book computes is a functional of (law, T): the log moments, the exact δ(ε), the central
limit's μ, the T-fold tensor power.

========================  ==========================================  =====================================
law                       pair (P, Q), noise in units of sensitivity  where it comes from
========================  ==========================================  =====================================
`GaussianLaw(sigma)`      N(1, σ²), N(0, σ²)                          DRS22, Theorem 2.7
`PoissonLaw(.., remove)`  (1-q) N(0, σ²) + q N(1, σ²), N(0, σ²)       Abadi16, Eqs. 3-4
`PoissonLaw(.., add)`     the same pair, swapped                      Abadi16, Eqs. 3-4
`SubsampledLaw(..)`       the symmetric pair of C_p(G_{1/σ})          DRS22, Theorems 4.2 and 5.1
========================  ==========================================  =====================================

Three views of a law:

* `delta(epsilon)`: the exact privacy profile sup_S P(S) - e^ε Q(S), in closed form, for every real ε.
* `nodes(...)`: weights and losses for Gauss-Legendre quadrature, from which expectations follow.
* `sample(size, rng)`: privacy losses drawn from P, shape (size,), with a numpy generator.

`epsilon` may be an array, and the result has its shape. Arguments out of range raise `ValueError`, which names the
range. Which neighbouring relation a law belongs to follows from what its noise was divided by: see `dpteach.run`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf, erfcx, log_ndtr, ndtr, ndtri

from dpteach import domain

__all__ = [
    "GaussianLaw", "Law", "Nodes", "PoissonLaw", "SubsampledLaw", "gaussian_delta", "loss_masses", "loss_range",
    "mixture_loss",
]  # fmt: skip

_TAIL = 13.0  # standard deviations kept beyond the outermost mode: the rest weighs less than 1e-37
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_MAX_PANELS = 200_000
_SIZES = "[1e-60, 1e60]"
_SIGMA_ADVICE = "noise std / sensitivity"
_RATE_ADVICE = "it's the probability that a record enters a batch, m/n"


def _mills(x: np.ndarray) -> np.ndarray:
    """Mills' ratio Φ(-x)/φ(x)."""
    return math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))


def gaussian_delta(mu: float, epsilon: ArrayLike) -> np.ndarray:
    """δ(ε) of the pair N(mu, 1), N(0, 1): Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2), exact, any real ε.

    DRS22, Corollary 2.13; Balle and Wang 2018, Theorem 8. In the upper tail the two terms nearly cancel, so they're
    written as φ(a)·(R(a) - R(b)) with Mills' ratio R.

    >>> round(float(gaussian_delta(1.0, 1.0)), 12)
    0.126936737507
    """
    mu = domain.number("mu", mu, "(0, inf)")
    epsilon = domain.numbers("epsilon", epsilon)
    scaled = np.clip(epsilon, -1e150 * mu, 1e150 * mu) / mu
    a, b = scaled - mu / 2, scaled + mu / 2
    positive = np.clip(a, 0.0, 1e100)
    density = np.exp(-positive * positive / 2) / math.sqrt(2 * math.pi)
    middle = positive + mu / 2
    gap = mu * (1 - middle * _mills(middle)) if mu < 1e-5 else _mills(positive) - _mills(positive + mu)  # R' = xR - 1
    tail = density * gap
    below = np.exp(np.minimum(np.maximum(epsilon, 0.0) + log_ndtr(-b), 0.0))  # e^ε Φ(-b), or Φ(-b) for ε < 0
    between = (erf(b / math.sqrt(2)) - erf(a / math.sqrt(2))) / 2  # Φ(b) - Φ(a): keeps its digits for small mu
    body = between + below * np.where(epsilon < 0, -1.0, 1.0) * np.expm1(-np.abs(epsilon))
    return np.clip(np.where(a > 0, tail, body), 0.0, 1.0)


def mixture_loss(q: float, x: np.ndarray) -> np.ndarray:
    """log(1 - q + q e^x) without overflow or cancellation, for q in (0, 1].

    >>> float(mixture_loss(0.5, np.array(2000.0))) == 2000 + math.log(0.5)
    True
    """
    q, x = domain.number("q", q, "(0, 1]", _RATE_ADVICE), domain.numbers("x", x)
    if q == 1:
        return x
    near = np.log1p(q * np.expm1(np.clip(x, -1, 1)))
    return np.where(np.abs(x) < 1, near, np.logaddexp(math.log1p(-q), math.log(q) + x))


@dataclass(frozen=True)
class Nodes:
    """A quadrature rule: Σ exp(log_p)·g(loss) approximates E_P[g(L)], Σ exp(log_q)·g(loss) E_Q[g(L)].

    All arrays have shape (k,). The weights contain the rule's panel widths and may hold an atom.

    >>> rule = GaussianLaw(1.0).nodes()
    >>> round(float(np.exp(rule.log_p) @ rule.loss), 9)  # E_P[L] = mu²/2
    0.5
    """

    loss: np.ndarray
    log_p: np.ndarray
    log_q: np.ndarray


def _log_normal(t: np.ndarray, mean: float = 0.0) -> np.ndarray:
    return -((t - mean) ** 2) / 2 - math.log(2 * math.pi) / 2


def _panels(
    low: float, high: float, mu: float, corner: float = math.nan, narrow: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre points and log weights on [low, high]. The loss has a singularity at distance π/mu from the real
    axis; panels of half-width 0.7 times that distance, and at most 2, keep 16 points a panel at double precision
    where the integrand's peak is as wide as φ's; `narrow` says how many times narrower it is.
    A `corner` inside [low, high] becomes the end of a panel."""
    if low < corner < high:
        parts = _panels(low, corner, mu, narrow=narrow), _panels(corner, high, mu, narrow=narrow)
        return np.concatenate([parts[0][0], parts[1][0]]), np.concatenate([parts[0][1], parts[1][1]])
    count = narrow * (high - low) / min(4.0, 1.4 * math.pi / mu)
    if count > _MAX_PANELS:
        raise ValueError(
            f"the order asks for {count:.3g} quadrature panels (at most {_MAX_PANELS}): "
            "choose a smaller order or a larger sigma"
        )
    count = max(1, math.ceil(count))
    half = (high - low) / (2 * count)
    centres = low + half * (2 * np.arange(count) + 1)
    points = (centres[:, None] + half * _POINTS).ravel()
    return points, np.tile(np.log(half * _WEIGHTS), count)


def _inverse_loss(q: float, loss: ArrayLike) -> np.ndarray:
    """The x with log(1 - q + q e^x) = loss; -inf where there's none."""
    loss = np.asarray(loss, dtype=float)
    if q == 1:
        return loss
    small = np.maximum(np.expm1(np.minimum(loss, 1.0)) / max(q, 1e-300), -1.0)
    large = np.maximum(loss, 1.0)
    with np.errstate(divide="ignore"):
        return np.where(loss < 1, np.log1p(small), large - math.log(q) + np.log1p(-(1 - q) * np.exp(-large)))


class _Mixture:
    """The pair (1-rate) N(0, 1) + rate N(mu, 1) and N(0, 1), in the direction 'remove'; swapped in 'add'.

    `rate` is q or p, and 1 for the Gaussian pair itself; `mu` = 1/sigma is the distance between the two Gaussians in
    standard deviations.
    """

    rate: float
    sigma: float
    direction: str = "remove"

    @property
    def mu(self) -> float:
        """1/sigma."""
        return 1 / self.sigma

    def _loss(self, t: np.ndarray) -> np.ndarray:
        return mixture_loss(self.rate, self.mu * t - self.mu**2 / 2)

    def _loss_at(self, t: float) -> float:
        return float(self._loss(np.array(t)))

    def _where(self, loss: float) -> float:
        """The t of a loss; infinite where there's none."""
        return self.mu / 2 + float(_inverse_loss(self.rate, loss)) / self.mu

    def delta(self, epsilon: ArrayLike) -> np.ndarray:
        """Exact δ(ε) of one step, any real ε, any shape."""
        pair_delta = _mixture_delta if self.direction == "remove" else _swapped_delta
        return pair_delta(self.rate, self.mu, domain.numbers("epsilon", epsilon))

    def nodes(self, order: float = 1.0, corner: float = math.nan) -> Nodes:
        """A rule exact to double precision for E_Q[e^{a L}·(slow)] with a up to `order`; `corner`: a loss at which
        `slow` has a corner (NaN: it has none)."""
        order, corner = _node_arguments(order, corner)
        low, high, sign, narrow = -_TAIL, order * self.mu + _TAIL, 1.0, 1.0
        if self.direction == "add":  # e^{aL} pulls to the left, until L has flattened at -log(1-q)
            flat = math.log1p(-self.rate) - math.log(self.rate) if self.rate < 1 else -math.inf
            far, bend = (max(-order * self.mu, min(0.0, self.mu / 2 + x / self.mu)) for x in (flat - 40, flat))
            low, high, sign = low + far, self.mu + _TAIL, -1.0
            # A peak at t has the curvature 1 + mu|t|(1-s), s = |t|/(a mu) the slope of L there: least near the bend.
            # Half as narrow again, since e^{aL} grows like a pole of order a towards the loss's singularity there.
            narrow = 1.5 * math.sqrt(1 - self.mu * bend) if self.rate < 1 else 1.0
        t, log_weight = _panels(low, high, self.mu, self._where(sign * corner), narrow)
        loss, base = self._loss(t), log_weight + _log_normal(t)
        mixture = log_weight + _log_normal(t, self.mu) if self.rate == 1 else base + loss
        return Nodes(loss, mixture, base) if self.direction == "remove" else Nodes(-loss, base, mixture)

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """`size` privacy losses under P."""
        t = _generator(rng).standard_normal(domain.whole_number("size", size, "[1, 1e9]"))
        if self.direction == "add":
            return -self._loss(t)
        return self._loss(t + self.mu * (self.rate == 1 or rng.random(t.size) < self.rate))


def _node_arguments(order: float, corner: float) -> tuple[float, float]:
    order = max(domain.number("order", order, "[0, 1e9]"), 1.0)
    missing = isinstance(corner, float) and math.isnan(corner)
    return order, corner if missing else domain.number("corner", corner, "(-inf, inf)", "a loss")


def _generator(rng: np.random.Generator) -> np.random.Generator:
    return domain.instance("rng", rng, np.random.Generator, "np.random.default_rng(0)")


@dataclass(frozen=True)
class GaussianLaw(_Mixture):
    """The Gaussian mechanism with noise sigma times the L2 sensitivity: N(1, σ²) against N(0, σ²). Symmetric.

    >>> float(GaussianLaw(1.0).delta(1.0)) == float(gaussian_delta(1.0, 1.0))
    True
    """

    sigma: float
    rate = 1.0

    def __post_init__(self) -> None:
        domain.set_fields(self, sigma=domain.number("sigma", self.sigma, _SIZES, _SIGMA_ADVICE))


@dataclass(frozen=True)
class PoissonLaw(_Mixture):
    """The sampled Gaussian of Abadi16: each record enters with probability q, noise sigma·C on the sum.

    direction 'remove': P is the mixture (the data set *with* the record); 'add': P is N(0, σ²).
    Neighbours: add/remove. Dominates every Poisson-sampled Gaussian sum with clipped gradients, one step.

    >>> law = PoissonLaw(0.01, 4.0, "remove")
    >>> float(law.delta(0.0)) > float(law.delta(0.1)) > 0
    True
    """

    rate: float
    sigma: float
    direction: Literal["remove", "add"] = "remove"

    def __post_init__(self) -> None:
        domain.one_of("direction", self.direction, ("remove", "add"))
        domain.set_fields(self, rate=domain.number("rate", self.rate, "(0, 1]", _RATE_ADVICE))
        domain.set_fields(self, sigma=domain.number("sigma", self.sigma, _SIZES, _SIGMA_ADVICE))


def _mixture_delta(q: float, mu: float, epsilon: np.ndarray) -> np.ndarray:
    """δ of (mixture, base). Where e^ε > 1-q it's q·δ_G(log(1 + (e^ε - 1)/q)); below, every output has L > ε."""
    inner = _inverse_loss(q, epsilon)
    inside = q * gaussian_delta(mu, np.where(np.isfinite(inner), inner, 0.0))
    return np.where(np.isfinite(inner), inside, -np.expm1(np.minimum(epsilon, 0.0)))


def _swapped_delta(q: float, mu: float, epsilon: np.ndarray) -> np.ndarray:
    """δ of (base, mixture): A·δ_G(log(q e^ε / A)) with A = 1 - (1-q) e^ε where A > 0, and 0 above."""
    if q == 1:
        return gaussian_delta(mu, epsilon)
    gap = epsilon + math.log1p(-q)  # log of (1-q) e^ε
    weight = -np.expm1(np.minimum(gap, -1e-300))
    inside = weight * gaussian_delta(mu, epsilon + math.log(q) - np.log(weight))
    return np.where(gap < 0, inside, 0.0)


@dataclass(frozen=True)
class SubsampledLaw(_Mixture):
    """The law of C_p(G_mu): one step of DRS22's Algorithm 1 with p = rate = m/n and mu = 1/sigma. Symmetric.

    Neighbours: replace one record; batches: uniform subsets of exactly m. With L(t) = log(1 - p + p e^{μt - μ²/2})
    the loss under P has density (1-p)φ(t) + pφ(t-μ) at L(t) and density φ(t) at -L(t), t > μ/2, and an atom
    (1-p)(1 - 2Φ(-μ/2)) at 0: the segment of slope -1 in C_p's graph.

    C_p(G_mu) is a guarantee for Algorithm 1 (Theorem 5.1); that some data set attains it isn't known.

    >>> round(SubsampledLaw(0.5, 1.0).atom, 6)
    0.191462
    """

    rate: float
    sigma: float

    def __post_init__(self) -> None:
        domain.set_fields(self, rate=domain.number("rate", self.rate, "(0, 1]", _RATE_ADVICE))
        domain.set_fields(self, sigma=domain.number("sigma", self.sigma, _SIZES, _SIGMA_ADVICE))

    @property
    def atom(self) -> float:
        """P(L = 0) = Q(L = 0): length of the slope -1 segment."""
        return (1 - self.rate) * float(2 * ndtr(self.mu / 2) - 1)

    def delta(self, epsilon: ArrayLike) -> np.ndarray:
        """Exact δ(ε) of one step, any real ε: p·δ_G(log(1 + (e^ε - 1)/p)) for ε ≥ 0, by symmetry below."""
        epsilon = domain.numbers("epsilon", epsilon)
        size = np.abs(epsilon)
        profile = _mixture_delta(self.rate, self.mu, size)
        return np.where(epsilon >= 0, profile, -np.expm1(-size) + np.exp(-size) * profile)

    def nodes(self, order: float = 1.0, corner: float = math.nan) -> Nodes:
        """As for the other laws: the loss's two signs, and the atom."""
        order, corner = _node_arguments(order, corner)
        t, log_weight = _panels(self.mu / 2, order * self.mu + _TAIL, self.mu, self._where(abs(corner)))
        loss, low = self._loss(t), log_weight + _log_normal(t)
        atom = np.array([math.log(self.atom)] if self.atom > 0 else [])
        joined = ((loss, -loss, np.zeros_like(atom)), (low + loss, low, atom), (low, low + loss, atom))
        return Nodes(*map(np.concatenate, joined))

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """`size` privacy losses under P: a draw of the mixture, folded into the symmetric pair."""
        size = domain.whole_number("size", size, "[1, 1e9]")
        uniform = _generator(rng).random(size)
        below = float(ndtr(-self.mu / 2))  # mass of φ on t > μ/2, the branch at -L(t)
        above = (1 - self.rate) * below + self.rate * float(ndtr(self.mu / 2))
        t = np.abs(_upper_normal(self.mu, self.rate, size, rng, uniform < below))
        loss = self._loss(t)
        return np.where(uniform < below, -loss, np.where(uniform < below + above, loss, 0.0))


def _upper_normal(mu: float, p: float, size: int, rng: np.random.Generator, base: np.ndarray) -> np.ndarray:
    """t > μ/2 from φ where `base`, else from (1-p)φ(t) + pφ(t-μ), each restricted to t > μ/2."""
    from scipy.stats import truncnorm

    heavy = p * float(ndtr(mu / 2))
    light = (1 - p) * float(ndtr(-mu / 2))
    shifted = ~base & (rng.random(size) < heavy / (heavy + light))
    mean = np.where(shifted, mu, 0.0)
    return mean + truncnorm.rvs(mu / 2 - mean, np.inf, size=size, random_state=rng)


Law = GaussianLaw | PoissonLaw | SubsampledLaw
LAWS_EXAMPLE = 'NoisySGD(...).laws("add-remove")'
LAW_EXAMPLE = "GaussianLaw(1.0)"


def loss_range(law: Law, tail: float) -> tuple[float, float]:
    """Losses (low, high) beyond each of which P has mass at most `tail`, in (0, 1/4).

    >>> low, high = loss_range(GaussianLaw(1.0), 1e-3)
    >>> round(low, 3), round(high, 3)
    (-2.791, 3.791)
    """
    reach = float(-ndtri(domain.number("tail", tail, "[1e-300, 0.25)") / 2))
    mu, rate = domain.instance("law", law, Law, LAW_EXAMPLE).mu, law.rate
    top = max(reach, mu - float(ndtri(min(0.5, tail / (2 * rate)))))
    if law.direction == "add":
        return -law._loss_at(reach), -law._loss_at(-reach)
    if isinstance(law, SubsampledLaw):
        return -law._loss_at(max(reach, mu / 2)), law._loss_at(max(top, mu / 2))
    return law._loss_at(mu - reach if rate == 1 else -reach), law._loss_at(top)


def loss_masses(law: Law, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P and Q mass of the losses between consecutive edges (increasing, ±inf allowed), in closed form; shape (k-1,).

    >>> p, q = loss_masses(GaussianLaw(1.0), np.array([-np.inf, 0.0, np.inf]))
    >>> np.round(p, 6), np.round(q, 6)
    (array([0.308538, 0.691462]), array([0.691462, 0.308538]))
    """
    edges = domain.numbers("edges", edges, "[-inf, inf]", "losses in increasing order")
    if edges.ndim != 1 or np.any(edges[1:] < edges[:-1]):
        raise ValueError("edges must be a list of losses in increasing order: sort them")
    domain.instance("law", law, Law, LAW_EXAMPLE)
    if isinstance(law, SubsampledLaw):
        up = _mixture_masses(law.rate, law.mu, np.maximum(edges, 0.0))
        down = _mixture_masses(law.rate, law.mu, np.maximum(-edges[::-1], 0.0))
        atom = np.where((edges[:-1] <= 0) & (edges[1:] > 0), law.atom, 0.0)
        return up[0] + down[1][::-1] + atom, up[1] + down[0][::-1] + atom
    if law.direction == "remove":
        return _mixture_masses(law.rate, law.mu, edges)
    mixture, base = _mixture_masses(law.rate, law.mu, -edges[::-1])
    return base[::-1], mixture[::-1]


def _mixture_masses(q: float, mu: float, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masses of (1-q)N(0,1) + qN(mu,1) and of N(0,1) between losses: intervals of t, found by inverting the loss."""
    t = _inverse_loss(q, edges) / mu + mu / 2
    base, shifted = _interval(t), _interval(t - mu)
    return (1 - q) * base + q * shifted, base


def _interval(t: np.ndarray) -> np.ndarray:
    """Normal probability between consecutive points, from the nearer tail, so that small masses keep their digits."""
    tail = ndtr(-np.abs(t))
    fall = tail[:-1] - tail[1:]
    around_0 = (t[:-1] <= 0) & (t[1:] > 0)
    return np.where(around_0, 1 - tail[:-1] - tail[1:], np.where(t[:-1] > 0, fall, -fall))
