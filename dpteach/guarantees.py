"""Guarantees: what an accountant returns, and the three questions that each answers (chapter 8).

A guarantee is a statement about the trade-off function of a whole training run. Three views of it
are equivalent by duality (DRS22, Proposition 2.12), and each is a method:

* `f(alpha)`: the least type II error of a test whose type I error is alpha;
* `delta(epsilon)`: the least δ such that the run is (ε, δ)-DP: the privacy profile, also called
  the hockey-stick divergence of the two output distributions;
* `epsilon(delta)`: the least ε ≥ 0 such that the run is (ε, δ)-DP.

The answers of an upper bound are safe to use: ε and δ are numbers, f an array. Where nothing is
proved they're ε = inf, δ = 1 and f = 0, and `reason` says why. `kind` says what they are worth:

==============  ===============================================================================
exact           closed form or a computation to double precision
bracket         two guarantees, `lower` and `upper`; asked itself it answers as its upper end
upper bound     ε and δ are at or above the truth, f at or below: safe to report
lower bound     ε and δ are at or below the truth: what an attack proves
asymptotic      the limit of T → ∞; at finite T it errs on either side, so it's *not* a guarantee
==============  ===============================================================================

Whom a guarantee protects (the neighbouring relation), how batches were drawn and what sigma is
stands in its `assumptions`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from dpteach import domain
from dpteach.laws import LAWS_EXAMPLE, Law, gaussian_delta, gaussian_profile
from dpteach.numerics.roots import bisect

__all__ = [
    "KINDS", "Bracket", "GaussianGuarantee", "Guarantee", "Kind", "NothingProved",
    "NothingReleased", "OneStep", "SIDES", "Side", "delta_from_tradeoff", "epsilon_from_delta",
    "f_epsilon_delta", "gaussian_mu", "gaussian_tradeoff", "rounded", "shown",
    "tradeoff_from_delta",
]  # fmt: skip

Kind = Literal["exact", "bracket", "upper bound", "lower bound", "asymptotic"]
KINDS = ("exact", "bracket", "upper bound", "lower bound", "asymptotic")
Profile = Callable[[Any], Any]  # ε to δ(ε), or α to f(α)
Side = Literal["up", "down", "nearest"]
_LARGEST_EPSILON = 1e5  # the domain's end


def f_epsilon_delta(epsilon: float, delta: float, alpha: ArrayLike) -> np.ndarray:
    """Trade-off function of (ε, δ)-DP: max{0, 1-δ-e^ε α, e^{-ε}(1-δ-α)} (DRS22, Eq. 4). Exact.

    δ in [0, 1]. Absolute accuracy 1e-15.

    >>> float(f_epsilon_delta(0.0, 0.1, 0.2)) == 1 - 0.1 - 0.2
    True
    """
    epsilon, delta = domain.epsilon(epsilon), domain.number("delta", delta, "[0, 1]")
    alpha = domain.alphas(alpha)
    grown = math.exp(min(epsilon, 700.0))  # e^ε overflows from ε = 710 on
    steep, flat = 1 - delta - grown * alpha, math.exp(-epsilon) * (1 - delta - alpha)
    return np.maximum(0.0, np.maximum(steep, flat))


def gaussian_tradeoff(mu: float, alpha: ArrayLike) -> np.ndarray:
    """G_mu(α) = Φ(Φ⁻¹(1-α) - mu): the trade-off function of N(0,1) against N(mu,1). Exact.

    DRS22, Eq. 6; mu in [0, 1e4]. Absolute accuracy 1e-14; Φ⁻¹(1-α) is -Φ⁻¹(α), which keeps the
    digits of α = 1e-17.

    >>> round(float(gaussian_tradeoff(1.0, 0.05)), 6)
    0.740489
    """
    mu = domain.number("mu", mu, "[0, 1e4]")
    return ndtr(-ndtri(domain.alphas(alpha)) - mu)


def epsilon_from_delta(profile: Profile, delta: float) -> float:
    """Least ε ≥ 0 with profile(ε) ≤ δ, for a decreasing privacy profile; inf if none up to 1e5.

    By bisection to the last bits; profile ≤ δ holds at the result: never too small.

    >>> epsilon_from_delta(lambda e: math.exp(-e), 0.5) - math.log(2) < 1e-12
    True
    """
    delta = domain.delta(delta)
    domain.instance("profile", profile, Callable, "law.delta")
    if profile(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while profile(high) > delta:
        if high == _LARGEST_EPSILON:
            return math.inf
        low, high = high, min(2 * high, _LARGEST_EPSILON)
    return float(bisect(lambda e: np.asarray(profile(float(e)) <= delta), low, high))


def tradeoff_from_delta(profile: Profile, alpha: ArrayLike, epsilons: ArrayLike) -> np.ndarray:
    """f(α) = max over the given ε of 1 - δ(ε) - e^ε α, and 0 (DRS22, Proposition 2.12).

    `profile` maps an array of ε to the array of δ(ε); the result has alpha's shape. `epsilons` may
    hold negative values; for a profile valid only for ε ≥ 0 (a symmetric f), pass ε ≥ 0 and the
    mirror image e^{-ε}(1 - δ(ε) - α) is added. A finite grid only loses: at most the true f.

    >>> profile = lambda e: gaussian_delta(1.0, e)
    >>> f = tradeoff_from_delta(profile, [0.05, 0.5], np.linspace(0, 8, 2001))
    >>> bool(np.max(np.abs(f - gaussian_tradeoff(1.0, [0.05, 0.5]))) < 1e-6)
    True
    """
    alpha = domain.alphas(alpha)
    grid = domain.numbers("epsilons", epsilons)
    domain.instance("profile", profile, Callable, "law.delta")
    grid = grid[grid < 700]  # e^ε overflows from ε = 710 on
    rest = 1 - np.asarray(profile(grid), dtype=float)
    lines = [(rest, np.exp(grid))]
    if np.all(grid >= 0):
        lines.append((np.exp(-grid) * rest, np.exp(-grid)))
    height, slope = map(np.concatenate, zip(*lines, strict=True))
    best = [np.max(height - slope * a, initial=0.0) for a in alpha.ravel()]
    return np.reshape(best, alpha.shape)


def delta_from_tradeoff(f: Profile, epsilon: float, grid: int = 20001) -> float:
    """δ(ε) = 1 + f*(-e^ε) = max over α of 1 - e^ε α - f(α) (DRS22, Proposition 2.12).

    On a grid of α: at most the true δ. ε in (-inf, 700).

    >>> f = lambda a: gaussian_tradeoff(1.0, a)
    >>> abs(delta_from_tradeoff(f, 1.0) - float(gaussian_delta(1.0, 1.0))) < 1e-7
    True
    """
    epsilon = domain.number("epsilon", epsilon, "(-inf, 700)")
    grid = domain.whole_number("grid", grid, "[2, 1e7]")
    domain.instance("f", f, Callable, "guarantee.f")
    alpha = np.concatenate([[0.0], np.logspace(-16, -3, grid), np.linspace(1e-3, 1, grid)])
    return float(np.clip(np.max(1 - math.exp(epsilon) * alpha - f(alpha)), 0, 1))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu for which mu-GDP implies (ε, δ)-DP: the inverse of Corollary 2.13. Exact.

    >>> round(gaussian_mu(1.0, float(gaussian_delta(0.5, 1.0))), 10)
    0.5
    """
    epsilon, delta = domain.epsilon(epsilon), domain.delta(delta)
    at = np.asarray(epsilon)

    def excess(log_mu: float) -> float:
        return float(gaussian_profile(math.exp(log_mu), at)) - delta

    low = math.log(1e-6)
    domain.require("delta", delta, excess(low) <= 0, "larger", "mu would be below 1e-6")
    high = math.log(math.sqrt(2 * epsilon) + 100)
    return math.exp(brentq(excess, low, high, xtol=1e-14))


# --- numbers that are quoted

SIDES: dict[Kind, Side] = {
    "exact": "up", "bracket": "up", "upper bound": "up", "lower bound": "down",
    "asymptotic": "nearest",
}  # fmt: skip
_ROUNDING = {"up": ROUND_CEILING, "down": ROUND_FLOOR, "nearest": ROUND_HALF_EVEN}


def rounded(value: float, digits: int, side: Side) -> float:
    """`value` with so many significant digits, never below it for 'up', never above it for 'down'.

    >>> rounded(1.19124, 4, "up"), rounded(1.19124, 4, "down")
    (1.192, 1.191)
    """
    digits = domain.whole_number("digits", digits, "[1, 17]")
    rounding = _ROUNDING[domain.one_of("side", side, tuple(_ROUNDING))]
    if not math.isfinite(value):
        return value
    return float(Context(prec=digits, rounding=rounding).create_decimal(repr(float(value))))


def shown(kind: Kind, value: float, digits: int = 6) -> str:
    """An ε or δ as it's quoted: rounded to the side on which a guarantee of this kind stays true.

    Up for what may be reported, down for a lower bound, to the nearest for a limit.

    >>> shown("upper bound", 4.377178, 3), shown("lower bound", 4.377178, 3)
    ('4.38', '4.37')
    """
    domain.one_of("kind", kind, KINDS)
    return f"{rounded(value, digits, SIDES[kind]):.15g}"


# --- the type


class Guarantee(ABC):
    """Base of all guarantees. A subclass gives `name`, `kind`, `assumptions` and `profile`.

    `epsilon`, `delta` and `f` check their argument and ask `least_epsilon`, `profile` and
    `tradeoff`, which check nothing.

    >>> guarantee = GaussianGuarantee(mu=1.0)
    >>> guarantee.kind, round(guarantee.delta(1.0), 6), round(float(guarantee.f(0.05)), 6)
    ('exact', 0.126937, 0.740489)
    """

    name: str
    kind: Kind
    assumptions: str
    reason: str = ""  # why it may answer infinity; empty where it always has a number

    def epsilon(self, delta: float) -> float:
        """Least ε ≥ 0 at δ in [1e-30, 1); inf where nothing is proved."""
        return self.least_epsilon(domain.delta(delta))

    def delta(self, epsilon: float) -> float:
        """δ at ε in [0, 1e5]; 1 where nothing is proved."""
        return self.profile(domain.epsilon(epsilon))

    def f(self, alpha: ArrayLike) -> np.ndarray:
        """Type II error at each type I error alpha, in alpha's shape; 0 where nothing is proved."""
        return self.tradeoff(domain.alphas(alpha))

    def details(self, delta: float) -> dict[str, Any]:
        """What else belongs to the answer at δ: the best order, mu."""
        return {}

    @abstractmethod
    def profile(self, epsilon: float) -> float:
        """δ(ε)."""

    def least_epsilon(self, delta: float) -> float:
        """ε(δ): by default the root of the profile."""
        return epsilon_from_delta(self.profile, delta)

    def tradeoff(self, alpha: np.ndarray) -> np.ndarray:
        """f: by default the dual of the profile at 401 values of ε; at most the true f."""
        top = min(max(1.0, self.least_epsilon(1e-10)), 700.0)
        grid = np.concatenate([[0.0], np.geomspace(1e-4, top, 400)])
        return tradeoff_from_delta(np.vectorize(self.profile, otypes=[float]), alpha, grid)


class Bracket(Guarantee):
    """A guarantee known from both sides. It answers as its upper end, the safe one."""

    kind: Kind = "bracket"

    @property
    @abstractmethod
    def lower(self) -> Guarantee:
        """A lower bound on ε and δ, an upper one on f."""

    @property
    @abstractmethod
    def upper(self) -> Guarantee:
        """An upper bound on ε and δ, a lower one on f."""

    def profile(self, epsilon: float) -> float:
        return self.upper.profile(epsilon)

    def least_epsilon(self, delta: float) -> float:
        return self.upper.least_epsilon(delta)

    def tradeoff(self, alpha: np.ndarray) -> np.ndarray:
        return self.upper.tradeoff(alpha)


@dataclass(frozen=True, kw_only=True)
class NothingProved(Guarantee):
    """In place of a guarantee that can't be given, with its name and kind, and the reason.

    >>> nothing = NothingProved(name="berry-esseen", reason="the law isn't symmetric")
    >>> nothing.epsilon(1e-5), nothing.delta(1.0), float(nothing.f(0.1))
    (inf, 1.0, 0.0)
    """

    name: str
    reason: str
    kind: Kind = "upper bound"
    assumptions: str = "none"

    def profile(self, epsilon: float) -> float:
        return 1.0

    def least_epsilon(self, delta: float) -> float:
        return math.inf

    def tradeoff(self, alpha: np.ndarray) -> np.ndarray:
        return np.zeros_like(alpha)


@dataclass(frozen=True, kw_only=True)
class NothingReleased(Guarantee):
    """A run of 0 steps: its output doesn't depend on the data, ε = 0.

    >>> nothing = NothingReleased()
    >>> nothing.epsilon(1e-5), nothing.delta(0.0), float(nothing.f(0.1))
    (0.0, 0.0, 0.9)
    """

    name: str = "no-steps"
    kind: Kind = "exact"
    assumptions: str = "none"

    def profile(self, epsilon: float) -> float:
        return 0.0

    def least_epsilon(self, delta: float) -> float:
        return 0.0

    def tradeoff(self, alpha: np.ndarray) -> np.ndarray:
        return 1 - alpha

    @property
    def lower(self) -> Guarantee:
        """Itself, as where a bracket is asked for."""
        return self

    upper = lower


@dataclass(frozen=True, kw_only=True)
class GaussianGuarantee(Guarantee):
    """mu-GDP: exactly as hard to attack as N(0,1) against N(mu,1); mu in [1e-6, 100].

    >>> round(GaussianGuarantee(mu=1.0).epsilon(1e-5), 5)
    4.37718
    """

    mu: float
    name: str = "gaussian"
    kind: Kind = "exact"
    assumptions: str = "of the mechanism that is mu-GDP"

    def __post_init__(self) -> None:
        domain.set_fields(self, mu=domain.mu(self.mu))

    def profile(self, epsilon: float) -> float:
        return float(gaussian_delta(self.mu, epsilon))

    def tradeoff(self, alpha: np.ndarray) -> np.ndarray:
        return gaussian_tradeoff(self.mu, alpha)

    def details(self, delta: float) -> dict[str, Any]:
        return {"mu": self.mu}


@dataclass(frozen=True, kw_only=True)
class OneStep(Guarantee):
    """One step of the mechanism with the given laws (T = 1): the worst law's exact profile.

    >>> from dpteach.laws import PoissonLaw
    >>> laws = (PoissonLaw(0.01, 1.0, "remove"), PoissonLaw(0.01, 1.0, "add"))
    >>> round(OneStep(laws=laws).epsilon(1e-5), 5)
    0.19945
    """

    laws: tuple[Law, ...]
    name: str = "one-step"
    kind: Kind = "exact"
    assumptions: str = "of the laws given"

    def __post_init__(self) -> None:
        domain.set_fields(self, laws=domain.instances("laws", self.laws, Law, LAWS_EXAMPLE))

    def profile(self, epsilon: float) -> float:
        return max(float(law.delta(epsilon)) for law in self.laws)
