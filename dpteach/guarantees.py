"""Guarantees: what an accountant returns, and the three questions that every guarantee answers.

A guarantee is a statement about the trade-off function of a whole training run. Three views of it are
equivalent by duality (DRS22, Proposition 2.12), and each is a method:

* `f(alpha)`: the least type II error of a test whose type I error is alpha;
* `delta(epsilon)`: the least δ such that the run is (ε, δ)-DP;
* `epsilon(delta)`: the least ε ≥ 0 such that the run is (ε, δ)-DP.

`kind` says what the three numbers are worth:

==============  =====================================================================================
exact           closed form or a computation to double precision
bracket         every method returns (lower, upper), and the truth lies between
upper bound     ε and δ are at or above the truth, f at or below: safe to report
lower bound     ε and δ are at or below the truth: what an attack proves
asymptotic      the limit of T → ∞; at finite T it can err on either side, so it's *not* a guarantee
==============  =====================================================================================

Whom a guarantee protects (the neighbouring relation) and how batches were drawn stands in its
`convention`. `alpha` and `epsilon` may be arrays where the signature says so. Arguments out of range
raise `ValueError`, which names the range.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from dpteach import domain
from dpteach.laws import LAWS_EXAMPLE, Law, gaussian_delta

__all__ = [
    "KINDS", "GaussianGuarantee", "Guarantee", "Kind", "OneStep", "delta_from_tradeoff",
    "epsilon_from_delta", "f_epsilon_delta", "gaussian_mu", "gaussian_tradeoff", "tradeoff_from_delta",
]  # fmt: skip

Kind = Literal["exact", "bracket", "upper bound", "lower bound", "asymptotic"]
KINDS = ("exact", "bracket", "upper bound", "lower bound", "asymptotic")
Profile = Callable[[Any], Any]  # ε to δ(ε), or α to f(α)
_EPSILON_LIMIT = 1e12


def f_epsilon_delta(epsilon: float, delta: float, alpha: ArrayLike) -> np.ndarray:
    """Trade-off function of (ε, δ)-DP: max{0, 1-δ-e^ε α, e^{-ε}(1-δ-α)} (DRS22, Eq. 4). Exact.

    >>> float(f_epsilon_delta(0.0, 0.1, 0.2)) == 1 - 0.1 - 0.2
    True
    """
    epsilon, delta = domain.number("epsilon", epsilon, "[0, inf)"), domain.number("delta", delta, "[0, 1]")
    alpha = domain.numbers("alpha", alpha, "[0, 1]")
    steep = 1 - delta - np.where(alpha > 0, np.exp(np.minimum(epsilon + np.log(np.maximum(alpha, 1e-320)), 700)), 0)
    return np.maximum(0.0, np.maximum(steep, math.exp(-epsilon) * (1 - delta - alpha)))


def gaussian_tradeoff(mu: float, alpha: ArrayLike) -> np.ndarray:
    """G_mu(α) = Φ(Φ⁻¹(1-α) - mu): the trade-off function of N(0,1) against N(mu,1) (DRS22, Eq. 6). Exact.

    >>> round(float(gaussian_tradeoff(1.0, 0.05)), 6)
    0.740489
    """
    mu = domain.number("mu", mu, "[0, inf)")
    return ndtr(-ndtri(domain.numbers("alpha", alpha, "[0, 1]")) - mu)


def epsilon_from_delta(profile: Profile, delta: float) -> float:
    """Least ε ≥ 0 with profile(ε) ≤ δ, for a decreasing privacy profile; 0 where profile(0) ≤ δ.

    The bracket doubles until it holds the root, and the end returned is the one where profile ≤ δ.

    >>> epsilon_from_delta(lambda e: math.exp(-e), 0.5) - math.log(2) < 1e-12
    True
    """
    delta = domain.number("delta", delta, domain.DELTA, "δ is a probability; typical values are below 1/n")
    domain.instance("profile", profile, Callable, "law.delta")
    if domain.number("profile(0)", profile(0.0), "[0, 1.000001]", "a privacy profile is a probability") <= delta:
        return 0.0
    high = 1.0
    while profile(high) > delta:
        high *= 2
        if high > _EPSILON_LIMIT:
            reach = f"for any epsilon up to {_EPSILON_LIMIT:g}"
            raise ValueError(f"delta = {delta} isn't reached {reach}: there's no guarantee")
    excess = lambda e: math.log(max(profile(e), 1e-320)) - math.log(delta)  # noqa: E731 (log: even slopes)
    low = 0.0 if high == 1.0 else high / 2
    root = brentq(excess, low, high, xtol=1e-14, rtol=1e-14)
    step = 1e-14 * max(root, 1e-3)
    while profile(root) > delta:  # a few units in the last place, onto the safe side
        root, step = root + step, 2 * step
    level = profile(max(root - 1e-9 * root, low)) <= delta  # there the search may end anywhere: go to its left end
    while level and root - low > 2e-14 * root:
        middle = (low + root) / 2
        low, root = (low, middle) if profile(middle) <= delta else (middle, root)
    return root


def tradeoff_from_delta(profile: Profile, alpha: ArrayLike, epsilons: ArrayLike) -> np.ndarray:
    """f(α) = max over the given ε of 1 - δ(ε) - e^ε α, and 0: at most the true f (DRS22, Proposition 2.12).

    `profile` maps an array of ε to the array of δ(ε); the result has alpha's shape.
    `epsilons` may hold negative values; for a profile valid only for ε ≥ 0 (a symmetric f), pass ε ≥ 0 and the mirror
    image e^{-ε}(1 - δ(ε) - α) is added. A finite grid only loses: the result stays a valid lower bound on f.

    >>> f = tradeoff_from_delta(lambda e: gaussian_delta(1.0, e), [0.05, 0.5], np.linspace(0, 8, 2001))
    >>> bool(np.max(np.abs(f - gaussian_tradeoff(1.0, [0.05, 0.5]))) < 1e-6)
    True
    """
    alpha = domain.numbers("alpha", alpha, "[0, 1]")
    grid = domain.numbers("epsilons", epsilons)
    domain.instance("profile", profile, Callable, "law.delta")
    grid = grid[grid < 700]
    rest = 1 - np.asarray(profile(grid), dtype=float)
    lines = [(rest, np.exp(grid))] + [(np.exp(-grid) * rest, np.exp(-grid))] * bool(np.all(grid >= 0))
    height, slope = map(np.concatenate, zip(*lines, strict=True))
    best = [np.max(height - slope * a, initial=0.0) for a in alpha.ravel()]  # one α at a time: little memory
    return np.reshape(best, alpha.shape)


def delta_from_tradeoff(f: Profile, epsilon: float, grid: int = 20001) -> float:
    """δ(ε) = 1 + f*(-e^ε) = max over α of 1 - e^ε α - f(α) (DRS22, Proposition 2.12), on a grid: at most the true δ.

    >>> abs(delta_from_tradeoff(lambda a: gaussian_tradeoff(1.0, a), 1.0) - float(gaussian_delta(1.0, 1.0))) < 1e-7
    True
    """
    epsilon, grid = domain.number("epsilon", epsilon, "(-inf, 700)"), domain.whole_number("grid", grid, "[2, 1e7]")
    domain.instance("f", f, Callable, "guarantee.f")
    alpha = np.concatenate([[0.0], np.logspace(-16, -3, grid), np.linspace(1e-3, 1, grid)])
    return float(np.clip(np.max(1 - math.exp(epsilon) * alpha - f(alpha)), 0, 1))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu for which mu-GDP implies (ε, δ)-DP: the inverse of Corollary 2.13 (analytic calibration). Exact.

    >>> round(gaussian_mu(1.0, float(gaussian_delta(0.5, 1.0))), 10)
    0.5
    """
    epsilon, delta = domain.number("epsilon", epsilon, "[0, 1e12]"), domain.number("delta", delta, domain.DELTA)
    excess = lambda log_mu: float(gaussian_delta(math.exp(log_mu), epsilon)) - delta  # noqa: E731
    low = math.log(delta) - 1  # δ(0) = 2Φ(mu/2) - 1 < mu: mu is at least δ
    high = math.log(math.sqrt(2 * epsilon) + 100)
    return math.exp(brentq(excess, low, high, xtol=1e-14))


class Guarantee(ABC):
    """Base of all guarantees. `name` and `kind` are set by each accountant; `convention` says under which
    neighbouring relation and sampling the numbers hold.

    >>> guarantee = GaussianGuarantee(mu=1.0)
    >>> guarantee.kind, round(float(guarantee.delta(1.0)), 6), round(float(guarantee.f(0.05)), 6)
    ('exact', 0.126937, 0.740489)
    """

    name: str
    kind: Kind
    convention: str
    _keep = domain.set_fields

    @abstractmethod
    def delta(self, epsilon: float) -> Any:
        """δ at ε ≥ 0 (a pair for a bracket)."""

    def epsilon(self, delta: float) -> Any:
        """Least ε ≥ 0 at δ (a pair for a bracket; None where nothing is said, with the reason in `details`)."""
        return epsilon_from_delta(lambda e: float(self.delta(e)), delta)

    def f(self, alpha: ArrayLike) -> Any:
        """Type II error at type I error alpha (a pair for a bracket)."""
        top = max(1.0, self.epsilon(1e-10))
        profile = np.vectorize(lambda e: float(self.delta(e)))
        return tradeoff_from_delta(profile, alpha, np.concatenate([[0.0], np.geomspace(1e-4, top, 400)]))

    def details(self, delta: float) -> dict[str, Any]:
        """What else belongs to the answer at δ: the best order, mu, a reason."""
        return {}


@dataclass(frozen=True, kw_only=True)
class GaussianGuarantee(Guarantee):
    """mu-GDP: exactly as hard to attack as N(0,1) against N(mu,1).

    >>> round(GaussianGuarantee(mu=1.0).epsilon(1e-5), 5)
    4.37718
    """

    mu: float
    name: str = "gaussian"
    kind: Kind = "exact"
    convention: str = "of the mechanism that is mu-GDP"

    def __post_init__(self) -> None:
        self._keep(mu=domain.number("mu", self.mu, "(0, inf)"))

    def delta(self, epsilon: ArrayLike) -> Any:
        return gaussian_delta(self.mu, domain.numbers("epsilon", epsilon))

    def f(self, alpha: ArrayLike) -> np.ndarray:
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
    convention: str = "of the laws given"

    def __post_init__(self) -> None:
        self._keep(laws=domain.instances("laws", self.laws, Law, LAWS_EXAMPLE))

    def delta(self, epsilon: ArrayLike) -> Any:
        return np.max([law.delta(epsilon) for law in self.laws], axis=0)
