"""One step's privacy loss distributions (chapters 1, 3, 10 and 11).

The privacy loss (the privacy random variable) is L = log dP/dQ, when the output is drawn from P.
Its distribution, the privacy loss distribution (PLD), belongs to a pair (P, Q) of output
distributions on two neighbouring data sets, reduced to one dimension. Everything that the book
computes follows from a law and the number of steps.

=========================  =====================================  ============================
law                        pair (P, Q)                            where it comes from
=========================  =====================================  ============================
`GaussianLaw(sigma)`       N(1, σ²), N(0, σ²)                     DRS22, Theorem 2.7
`PoissonLaw(.., remove)`   (1-q) N(0, σ²) + q N(1, σ²), N(0, σ²)  Abadi16, Eqs. 3-4
`PoissonLaw(.., add)`      the same pair, swapped                 Abadi16, Eqs. 3-4
`SubsampledLaw(..)`        the symmetric pair of C_p(G_{1/σ})     DRS22, Theorems 4.2 and 5.1
=========================  =====================================  ============================

The same two letters everywhere: `rate` (q, p or m/n; 1 for the Gaussian itself) in [1e-9, 1], and
`sigma` (noise standard deviation / sensitivity) in [0.05, 1e3]. Which neighbours a law belongs to
follows from what its noise was divided by: see `dpteach.run`.

A law answers:

* `delta(epsilon)`: the hockey-stick divergence sup_S P(S) - e^ε Q(S), in closed form, any real ε;
* `nodes()`: weights and losses for quadrature, from which expectations follow;
* `loss_range(tail)`, `loss_masses(edges)`: where the loss lives, and how much of it in each cell;
* `sample(size, rng)`: losses drawn from P;
* `symmetric`: whether (Q, P) has the same law; `limit_mu`: what the central limit makes of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from dpteach import domain
from dpteach.numerics.quadrature import panels

__all__ = [
    "LAWS_EXAMPLE", "LAW_EXAMPLE", "GaussianLaw", "Law", "Nodes", "PoissonLaw",
    "ReplacedLaw", "SubsampledLaw",
    "chi2_plus", "gaussian_delta", "gaussian_profile", "loss_masses", "loss_range", "mixture_loss",
]  # fmt: skip

LAW_EXAMPLE = "GaussianLaw(1.0)"
LAWS_EXAMPLE = 'NoisySGD(...).laws("add-remove")'
_TAIL = 13.0  # standard deviations kept beyond the outermost mode: the rest weighs less than 1e-37
_LARGEST_LOSS = 680.0  # e^ε/q overflows beyond; one step's δ there is below 1e-100


def gaussian_delta(mu: float, epsilon: ArrayLike) -> np.ndarray:
    """δ(ε) of mu-GDP: Φ(-ε/mu + mu/2) - e^ε Φ(-ε/mu - mu/2), any real ε, any shape.

    DRS22, Corollary 2.13; Balle and Wang 2018, Theorem 8. mu in [1e-6, 100]. Absolute accuracy
    1e-14; relative 1e-12·(1 + 1/mu) where δ ≥ 1e-30, since the two terms cancel for small mu.

    >>> round(float(gaussian_delta(1.0, 1.0)), 12)
    0.126936737507
    """
    return gaussian_profile(domain.mu(mu), domain.numbers("epsilon", epsilon))


def gaussian_profile(mu: float, epsilon: np.ndarray) -> np.ndarray:
    """`gaussian_delta` without a check, for any mu > 0.

    >>> round(float(gaussian_profile(1.0, np.array(1.0))), 12)
    0.126936737507
    """
    upper, lower = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    return np.maximum(ndtr(upper) - np.exp(epsilon + log_ndtr(lower)), 0.0)


def chi2_plus(mu: float) -> float:
    """χ²₊(G_mu) = ∫₀¹ (|G_mu'(x)| - 1)₊² dx = e^{mu²} Φ(3mu/2) + 3Φ(-mu/2) - 2.

    DRS22, Lemma 5.3. mu = 1/sigma in [1e-3, 20]. Relative accuracy 1e-13·(1 + 1e-2/mu²).

    >>> round(chi2_plus(1.0), 12)
    1.462293643418
    """
    mu = domain.number("mu", mu, "[1e-3, 20]", "it's 1/sigma")
    return math.exp(mu * mu) * float(ndtr(1.5 * mu)) + 3 * float(ndtr(-mu / 2)) - 2


def mixture_loss(rate: float, x: ArrayLike) -> np.ndarray:
    """log(1 - q + q e^x), the loss of a sample at rate q where the batch's own loss is x.

    Relative accuracy 2e-15.

    >>> float(mixture_loss(0.5, 2000.0)) == 2000 + math.log(0.5)
    True
    """
    rate, x = domain.rate(rate), domain.numbers("x", x)
    if rate == 1:
        return x
    # at rate 1e-9, x = 1 the sum as it stands loses half its digits; at x = 1e3 e^x overflows
    excess = rate * np.expm1(np.minimum(x, 30.0))
    near = np.log1p(np.maximum(excess, -0.5))
    far = np.logaddexp(math.log1p(-rate), math.log(rate) + x)
    return np.where((x < 30) & (excess > -0.5), near, far)


def _inverse_loss(rate: float, loss: ArrayLike) -> np.ndarray:
    """The x with log(1 - q + q e^x) = loss: log(1 + (e^loss - 1)/q), or -inf where there's none."""
    loss = np.asarray(loss, dtype=float)
    if rate == 1:
        return loss
    grown = np.expm1(np.minimum(loss, _LARGEST_LOSS)) / rate
    with np.errstate(divide="ignore"):
        return np.where(loss < np.inf, np.log1p(np.maximum(grown, -1.0)), np.inf)


@dataclass(frozen=True)
class Nodes:
    """A quadrature rule: Σ exp(log_p)·g(loss) is E_P[g(L)], Σ exp(log_q)·g(loss) is E_Q[g(L)].

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


class Law:
    """A pair (1-rate) N(0, 1) + rate N(mu, 1) and N(0, 1), or the same swapped ('add').

    In units of the noise: `mu` = 1/sigma is the distance of the two Gaussians. The loss at the
    observation t is log(1 - q + q e^{mu t - mu²/2}).

    >>> laws = GaussianLaw(2.0), PoissonLaw(0.1, 2.0), SubsampledLaw(0.1, 2.0)
    >>> [law.rate for law in laws], [law.mu for law in laws], [law.symmetric for law in laws]
    ([1.0, 0.1, 0.1], [0.5, 0.5, 0.5], [True, False, True])
    """

    rate: float
    sigma: float
    direction: str = "remove"

    def __post_init__(self) -> None:
        domain.set_fields(self, rate=domain.rate(self.rate), sigma=domain.sigma(self.sigma))
        domain.one_of("direction", self.direction, ("remove", "add"))

    @property
    def mu(self) -> float:
        """1/sigma."""
        return 1 / self.sigma

    @property
    def symmetric(self) -> bool:
        """Whether the pair swapped has the same law."""
        return self.rate == 1

    @property
    def largest_order(self) -> float:
        """The largest order a of E_Q[e^{aL}] that `nodes` resolves: 1e4·sigma."""
        return 1e4 * self.sigma

    @property
    def limit_mu(self) -> float:
        """The mu that the central limit gives to one step; T steps tend to √T times it.

        At rate 1 nothing is sampled and the step is G_mu itself. Relative accuracy that of
        `chi2_plus`.
        """
        return self.mu if self.rate == 1 else self.rate * math.sqrt(self._chi2())

    def _chi2(self) -> float:
        """E_Q[(dN(mu,1)/dN(0,1) - 1)²] = e^{mu²} - 1."""
        return math.expm1(self.mu**2)

    def _loss(self, t: ArrayLike) -> np.ndarray:
        return mixture_loss(self.rate, self.mu * np.asarray(t) - self.mu**2 / 2)

    def _inverse(self, loss: ArrayLike) -> np.ndarray:
        """The t of a loss; -inf where there's none."""
        return self.mu / 2 + _inverse_loss(self.rate, loss) / self.mu

    @property
    def _least_loss(self) -> float:
        """log(1 - q), which the mixture's loss never falls below."""
        return math.log1p(-self.rate) if self.rate < 1 else -math.inf

    def delta(self, epsilon: ArrayLike) -> np.ndarray:
        """The hockey-stick divergence δ(ε) of one step, any real ε, any shape.

        Accuracy that of `gaussian_delta` at mu = 1/sigma, relative to the rate.
        """
        epsilon = domain.numbers("epsilon", epsilon)
        return self._swapped_delta(epsilon) if self.direction == "add" else self._delta(epsilon)

    def _delta(self, epsilon: np.ndarray) -> np.ndarray:
        """q·δ_G(log(1 + (e^ε - 1)/q)), or 1 - e^ε where every output has L > ε."""
        inside = self.rate * gaussian_profile(self.mu, _inverse_loss(self.rate, epsilon))
        return np.maximum(inside, -np.expm1(np.minimum(epsilon, 0.0)))

    def _swapped_delta(self, epsilon: np.ndarray) -> np.ndarray:
        """A·δ_G(log(q e^ε / A)) with A = 1 - (1-q) e^ε where A > 0, and 0 above."""
        share = -np.expm1(np.minimum(epsilon + self._least_loss, 0.0))
        inner = epsilon + math.log(self.rate) - np.log(np.maximum(share, 1e-300))
        return share * gaussian_profile(self.mu, inner)

    def nodes(self, order: float = 1.0, corner: float = math.nan) -> Nodes:
        """A rule for E_Q[e^{aL} g(L)], a up to `order` ≤ 1e4·sigma, g smooth but for one corner.

        `corner`: the loss at which g has a corner (NaN: it has none). Relative accuracy 1e-12.
        """
        order = self._order(order)
        low, high, narrow = -_TAIL, order * self.mu + _TAIL, 1.0
        if self.direction == "add":  # e^{aL} pulls left, until L has flattened at -log(1-q)
            flat = (self._least_loss - math.log(self.rate) - 40) / self.mu + self.mu / 2
            low, high = max(-order * self.mu, min(0.0, flat)) - _TAIL, self.mu + _TAIL
            # there e^{aL} bends like a peak of curvature 1 + a·mu²/4, near a pole of order a
            narrow = 1.5 * math.sqrt(1 + order * self.mu**2 / 4) if self.rate < 1 else 1.0
            corner = -corner
        t, log_weight = self._panels(low, high, corner, narrow)
        loss, base = self._loss(t), log_weight + _log_normal(t)
        # at rate 1 and mu = 20 the sum base + loss would lose digits to the size of its terms
        mixture = log_weight + _log_normal(t, self.mu) if self.rate == 1 else base + loss
        if self.direction == "add":
            return Nodes(-loss, base, mixture)
        return Nodes(loss, mixture, base)

    def _order(self, order: float) -> float:
        allowed = f"[0, {self.largest_order!r}]"
        return max(domain.number("order", order, allowed, "at most 1e4·sigma"), 1.0)

    def _panels(
        self, low: float, high: float, corner: float, narrow: float = 1.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Points t and log weights. The loss has a singularity at distance π/mu from the real axis:
        panels 1.4 of that distance wide, and at most 4, keep 16 points at double precision."""
        bend = float(self._inverse(corner))
        ends = [low, bend, high] if low < bend < high else [low, high]
        return panels(ends, min(4.0, 1.4 * math.pi / self.mu) / narrow)

    def loss_range(self, tail: float) -> tuple[float, float]:
        """Losses (low, high) beyond each of which P has mass at most `tail`, in [1e-300, 0.25).

        >>> low, high = GaussianLaw(1.0).loss_range(1e-3)
        >>> round(low, 3), round(high, 3)
        (-2.791, 3.791)
        """
        reach, top = self._reach(tail)
        if self.direction == "add":
            return float(-self._loss(reach)), float(-self._loss(-reach))
        bottom = self.mu - reach if self.rate == 1 else -reach
        return float(self._loss(bottom)), float(self._loss(top))

    def _reach(self, tail: float) -> tuple[float, float]:
        """How far out N(0, 1) and the mixture have mass `tail`."""
        tail = domain.number("tail", tail, "[1e-300, 0.25)")
        reach = float(-ndtri(tail / 2))
        shifted = self.mu - float(ndtri(min(0.5, tail / (2 * self.rate))))
        return reach, max(reach, shifted)

    def loss_masses(self, edges: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """P and Q mass of the losses in each cell (edge, next edge], in closed form; shape (k-1,).

        edges: shape (k,), increasing, ±inf allowed.

        >>> p, q = GaussianLaw(1.0).loss_masses([-np.inf, 0.0, np.inf])
        >>> np.round(p, 6), np.round(q, 6)
        (array([0.308538, 0.691462]), array([0.691462, 0.308538]))
        """
        edges = _edges(edges)
        if self.direction == "remove":
            return self._mixture_masses(edges)
        mixture, base = self._mixture_masses(-edges[::-1])
        return base[::-1], mixture[::-1]

    def _mixture_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Masses of the mixture and of N(0, 1) between losses: intervals of t."""
        t = self._inverse(edges)
        base, shifted = _interval(t), _interval(t - self.mu)
        return (1 - self.rate) * base + self.rate * shifted, base

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """`size` privacy losses under P, shape (size,)."""
        t = _generator(rng).standard_normal(_size(size))
        if self.direction == "add":
            return -self._loss(t)
        return self._loss(t + self.mu * (self.rate == 1 or rng.random(t.size) < self.rate))


def _size(size: int) -> int:
    return domain.whole_number("size", size, "[1, 1e9]")


def _generator(rng: np.random.Generator) -> np.random.Generator:
    return domain.instance("rng", rng, np.random.Generator, "np.random.default_rng(0)")


def _edges(edges: ArrayLike) -> np.ndarray:
    edges = domain.numbers("edges", edges, "[-inf, inf]", "losses in increasing order")
    increasing = edges.ndim == 1 and bool(np.all(edges[1:] >= edges[:-1]))
    domain.require("edges", edges, increasing, "a list of losses in increasing order", "sort them")
    return edges


def _interval(t: np.ndarray) -> np.ndarray:
    """Normal probability between consecutive points, from the nearer tail: Φ(10) - Φ(9) as it
    stands would be 0."""
    tail = ndtr(-np.abs(t))
    fall = tail[:-1] - tail[1:]
    around_0 = (t[:-1] <= 0) & (t[1:] > 0)
    return np.where(around_0, 1 - tail[:-1] - tail[1:], np.where(t[:-1] > 0, fall, -fall))


@dataclass(frozen=True)
class GaussianLaw(Law):
    """The Gaussian mechanism, noise sigma times the L2 sensitivity: N(1, σ²) against N(0, σ²).

    >>> float(GaussianLaw(2.0).delta(1.0)) == float(gaussian_delta(0.5, 1.0))
    True
    """

    sigma: float
    rate = 1.0


@dataclass(frozen=True)
class PoissonLaw(Law):
    """The sampled Gaussian of Abadi16: a record enters at `rate`, noise sigma·C on the sum.

    direction 'remove': P is the mixture (the data set *with* the record); 'add': P is N(0, σ²).
    Neighbours: add/remove. Dominates every Poisson-sampled Gaussian sum with clipped gradients,
    one step.

    >>> law = PoissonLaw(0.01, 4.0, "remove")
    >>> float(law.delta(0.0)) > float(law.delta(0.1)) > 0
    True
    """

    rate: float
    sigma: float
    direction: Literal["remove", "add"] = "remove"


@dataclass(frozen=True)
class SubsampledLaw(Law):
    """The law of C_p(G_mu): one step of DRS22's Algorithm 1, p = `rate` = m/n, mu = 1/sigma.

    Neighbours: replace one record; batches: uniform subsets of exactly m. With
    L(t) = log(1 - p + p e^{μt - μ²/2}) the loss under P has density (1-p)φ(t) + pφ(t-μ) at L(t) and
    density φ(t) at -L(t), t > μ/2, and an atom (1-p)(1 - 2Φ(-μ/2)) at 0: the segment of slope -1 in
    C_p's graph. The law is symmetric.

    C_p(G_mu) is a guarantee for Algorithm 1 (Theorem 5.1); for T ≥ 2 steps nothing attains it.

    >>> round(SubsampledLaw(0.5, 1.0).atom, 6)
    0.191462
    """

    rate: float
    sigma: float
    symmetric = True

    @property
    def atom(self) -> float:
        """P(L = 0) = Q(L = 0) = (1-p)(1 - 2Φ(-μ/2)), the length of the slope -1 segment."""
        return (1 - self.rate) * float(1 - 2 * ndtr(-self.mu / 2))

    def _chi2(self) -> float:
        return 2 * chi2_plus(self.mu)

    def _delta(self, epsilon: np.ndarray) -> np.ndarray:
        """p·δ_G(log(1 + (e^ε - 1)/p)) for ε ≥ 0; below, δ(-ε) = 1 - e^{-ε} + e^{-ε} δ(ε)."""
        size = np.abs(epsilon)
        profile = super()._delta(size)
        return np.where(epsilon >= 0, profile, -np.expm1(-size) + np.exp(-size) * profile)

    def nodes(self, order: float = 1.0, corner: float = math.nan) -> Nodes:
        """As for the other laws: the loss's two signs, and the atom."""
        t, log_weight = self._panels(self.mu / 2, self._order(order) * self.mu + _TAIL, abs(corner))
        loss, low = self._loss(t), log_weight + _log_normal(t)
        atom = np.log([self.atom] if self.rate < 1 else [])
        joined = (loss, -loss, 0 * atom), (low + loss, low, atom), (low, low + loss, atom)
        return Nodes(*map(np.concatenate, joined))

    def loss_range(self, tail: float) -> tuple[float, float]:
        reach, top = self._reach(tail)
        low, high = self._loss(max(reach, self.mu / 2)), self._loss(max(top, self.mu / 2))
        return float(-low), float(high)

    def loss_masses(self, edges: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        edges = _edges(edges)
        up = self._mixture_masses(np.maximum(edges, 0.0))
        down = self._mixture_masses(np.maximum(-edges[::-1], 0.0))
        atom = np.where((edges[:-1] <= 0) & (edges[1:] > 0), self.atom, 0.0)
        return up[0] + down[1][::-1] + atom, up[1] + down[0][::-1] + atom

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """`size` privacy losses under P: a draw t > μ/2 of the mixture counts as L(t), a draw below
        as 0 or, in a share of them, as -L of another t > μ/2, from φ."""
        size = _size(size)
        t = _generator(rng).standard_normal(size) + self.mu * (rng.random(size) < self.rate)
        steep = float(ndtr(-self.mu / 2))  # mass of φ on t > μ/2
        other = -ndtri(steep * (1 - rng.random(size)))
        negative = rng.random(size) < steep / (steep + self.atom)
        below = np.where(negative, -self._loss(other), 0.0)
        return np.where(t > self.mu / 2, self._loss(t), below)


@dataclass(frozen=True)
class ReplacedLaw(Law):
    """Poisson batches when a record is replaced: the pair (1-q) N(0, 1) + q N(±mu/2, 1).

    Neighbours: replace-one; `sigma` is the noise divided by the sensitivity 2C, `rate` is q.
    Dominates one step and is attained (chapter 21). With h = mu/2 the loss at the observation t is
    log(1 - q + q e^{ht - h²/2}) - log(1 - q + q e^{-ht - h²/2}), which is odd and grows in t.

    >>> round(float(ReplacedLaw(0.3, 0.5).delta(0.3)), 9)
    0.108069187
    """

    rate: float
    sigma: float
    symmetric = True

    def _chi2(self) -> float:
        """E[(r - r')²] = 4 sinh(mu²/4), r and r' the two Gaussian ratios in the middle."""
        return 4 * math.sinh(self.mu**2 / 4)

    def _loss(self, t: ArrayLike) -> np.ndarray:
        h, t = self.mu / 2, np.asarray(t)
        up, down = h * t - h**2 / 2, -h * t - h**2 / 2
        return mixture_loss(self.rate, up) - mixture_loss(self.rate, down)

    def _inverse(self, loss: ArrayLike) -> np.ndarray:
        """t = (l/2 + arsinh((1-q)/q e^{h²/2} sinh(l/2)))/h, a quadratic equation in e^{ht}."""
        h, half = self.mu / 2, np.asarray(loss, dtype=float) / 2
        weight = (1 - self.rate) / self.rate * math.exp(h**2 / 2)
        return (half + np.arcsinh(weight * np.sinh(np.clip(half, -600.0, 600.0)))) / h

    def _delta(self, epsilon: np.ndarray) -> np.ndarray:
        """q[Φ(h - t) - φ(t - h)R(t)] + q e^ε[φ(t + h)R(t) - Φ(-h - t)] for ε ≥ 0.

        R = Φ(-t)/φ(t) is Mills' ratio; at the threshold t the mixtures' common part,
        (1-q)(1 - e^ε)Φ(-t), is the difference of the two terms with R. All terms are positive.
        """
        h, y = self.mu / 2, np.abs(epsilon)
        t = self._inverse(y)
        near, mills, far = (_mills(t + shift) for shift in (-h, 0.0, h))
        gain = np.exp(_log_normal(t, h)) * (near - mills)
        gain += np.exp(y + _log_normal(t, -h)) * (mills - far)
        profile = self.rate * gain
        return np.where(epsilon >= 0, profile, -np.expm1(-y) + np.exp(-y) * profile)

    def type_1(self, loss: ArrayLike) -> np.ndarray:
        """Q(L > ε): the type I error of the test that accuses above the loss ε."""
        t = self._inverse(loss)
        return (1 - self.rate) * ndtr(-t) + self.rate * ndtr(-t - self.mu / 2)

    def nodes(self, order: float = 1.0, corner: float = math.nan) -> Nodes:
        """As for the other laws."""
        h = self.mu / 2
        t, log_weight = self._panels(-_TAIL - h, self._order(order) * self.mu + _TAIL, corner)
        base = log_weight + _log_normal(t)
        up, down = (base + mixture_loss(self.rate, s * h * t - h**2 / 2) for s in (1, -1))
        return Nodes(self._loss(t), up, down)

    def loss_range(self, tail: float) -> tuple[float, float]:
        reach, h = self._reach(tail)[0], self.mu / 2
        shifted = h - float(ndtri(min(0.5, tail / (2 * self.rate))))
        bottom = h - reach if self.rate == 1 else -reach
        return float(self._loss(bottom)), float(self._loss(max(reach, shifted)))

    def loss_masses(self, edges: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        t, h = self._inverse(_edges(edges)), self.mu / 2
        base, up, down = (_interval(t - shift) for shift in (0.0, h, -h))
        return tuple((1 - self.rate) * base + self.rate * moved for moved in (up, down))

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """`size` privacy losses under P, shape (size,)."""
        t = _generator(rng).standard_normal(_size(size))
        return self._loss(t + self.mu / 2 * (rng.random(t.size) < self.rate))


def _mills(t: np.ndarray) -> np.ndarray:
    """Mills' ratio Φ(-t)/φ(t)."""
    return math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2))


def loss_range(law: Law, tail: float) -> tuple[float, float]:
    """`law.loss_range(tail)`.

    >>> loss_range(GaussianLaw(1.0), 1e-3) == GaussianLaw(1.0).loss_range(1e-3)
    True
    """
    return law.loss_range(tail)


def loss_masses(law: Law, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`law.loss_masses(edges)`.

    >>> loss_masses(GaussianLaw(1.0), [-np.inf, np.inf])
    (array([1.]), array([1.]))
    """
    return law.loss_masses(edges)
