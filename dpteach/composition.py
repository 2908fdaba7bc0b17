"""Composition before moments: strong and optimal; sampling; classical Gaussian (chapter 6).

Here a step of training is known by one pair (ε0, δ0) only. Three theorems turn T pairs into one:

======================  ==========================================================================
basic                   ε = T ε0, δ = T δ0
strong, or "advanced"   ε = √(2T log(1/δ')) ε0 + T ε0 (e^{ε0} - 1), δ = T δ0 + δ'
(DRV)                   (Dwork, Rothblum and Vadhan 2010, Theorem III.3)
optimal (KOV)           the exact privacy profile of T worst-case steps
                        (Kairouz, Oh and Viswanath 2015, Theorem 3.3)
======================  ==========================================================================

All of them allow steps chosen adaptively. A pair must hold in both directions of the neighbouring
relation, and δ0 < 1.

Not for: the last word on a run of noisy SGD. A step's whole curve says more than any one pair of
it, and `dpteach.moments` uses more of the curve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, expit

from dpteach import domain
from dpteach.guarantees import Guarantee, Kind, epsilon_from_delta
from dpteach.laws import LAWS_EXAMPLE, Law, mixture_loss
from dpteach.numerics.roots import refine

__all__ = [
    "OptimalComposition", "StrongComposition", "amplify_by_sampling", "classical_gaussian_sigma",
    "optimal_composition_delta", "optimal_composition_epsilon", "pure_dp_moment",
    "pure_dp_moment_bound", "strong_composition_epsilon",
]  # fmt: skip

_CLASSICAL = "√(2 log(1.25/δ))/ε is proved for ε ≤ 1 only; gaussian_mu is exact at every ε"
_DEEP = 1e-290  # tails below this are left out: betainc loses its digits there (ε0 = 20, T = 40)
_NEGLIGIBLE = 1e-42  # times 1e9 steps: far below any δ of the domain


def classical_gaussian_sigma(epsilon: float, delta: float) -> float:
    """σ = √(2 log(1.25/δ))/ε makes N(0, σ²) on a statistic of sensitivity 1 (ε, δ)-DP, for ε ≤ 1.

    Dwork and Roth 2014, Theorem A.1. Sufficient, not necessary. Relative accuracy 1e-15. Raises
    `ValueError` for ε > 1, where the formula isn't a theorem and fails for large ε.

    >>> round(classical_gaussian_sigma(1.0, 1e-5), 4)
    4.8448
    """
    epsilon = domain.number("epsilon", epsilon, "(0, 1]", _CLASSICAL)
    return math.sqrt(2 * math.log(1.25 / domain.delta(delta))) / epsilon


def amplify_by_sampling(rate: float, epsilon_0: ArrayLike, delta_0: ArrayLike) -> tuple[Any, Any]:
    """(log(1 + q(e^{ε0} - 1)), qδ0): the pair of an (ε0, δ0)-DP step run on a random sample.

    rate: q, the probability that a record is in the sample, m/n. Poisson samples with add/remove
    neighbours, or uniform subsets of exactly m of n with replace-one neighbours (Li, Qardaji and Su
    2012, Theorem 1; Balle, Barthe and Gaboardi 2018, Theorems 8 and 9). Least possible from a pair.
    Accuracy that of `mixture_loss`.

    >>> epsilon, delta = amplify_by_sampling(0.01, 1.0, 1e-5)
    >>> round(float(epsilon), 6), round(float(delta), 12)
    (0.017037, 1e-07)
    """
    epsilon_0, delta_0 = _pair(epsilon_0, delta_0)
    return mixture_loss(rate, epsilon_0), rate * delta_0


def _pair(epsilon_0: ArrayLike, delta_0: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    advice = "at delta_0 = 1 a step may publish everything"
    delta_0 = domain.numbers("delta_0", delta_0, "[0, 1)", advice)
    return domain.numbers("epsilon_0", epsilon_0, domain.EPSILON), delta_0


def strong_composition_epsilon(epsilon_0: ArrayLike, steps: int, delta_slack: ArrayLike) -> Any:
    """ε = √(2T log(1/δ')) ε0 + T ε0 (e^{ε0} - 1): T steps are (ε, T δ0 + δ')-DP. Upper bound.

    Dwork, Rothblum and Vadhan 2010, Theorem III.3, also called advanced composition; δ' in (0, 1).
    Any shape; infinite where e^{ε0} is. Relative accuracy 1e-14.

    >>> round(float(strong_composition_epsilon(0.1, 100, 1e-5)), 4)
    5.8502
    """
    epsilon_0, steps = domain.numbers("epsilon_0", epsilon_0, domain.EPSILON), domain.steps(steps)
    slack = domain.numbers("delta_slack", delta_slack, "(0, 1)", "δ', what is added to T δ0")
    return np.sqrt(-2 * steps * np.log(slack)) * epsilon_0 + _drift(epsilon_0, steps)


def _drift(epsilon_0: np.ndarray, steps: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        return steps * epsilon_0 * np.expm1(epsilon_0)


def optimal_composition_delta(
    epsilon: ArrayLike, epsilon_0: ArrayLike, steps: int, delta_0: ArrayLike = 0.0
) -> np.ndarray:
    """δ(ε) of T adaptively composed (ε0, δ0)-DP mechanisms in the worst case; exact.

    Kairouz, Oh and Viswanath 2015, Theorem 3.3, at every real ε ≥ 0, not at their grid only: the
    loss is (2K - T) ε0 with K ~ Bin(T, e^{ε0}/(1 + e^{ε0})), or infinite with probability
    1 - (1-δ0)^T.

        δ(ε) = 1 - (1-δ0)^T (1 - [P(K ≥ k) - e^ε P(T-K ≥ k)]),   k = ⌊(T + ε/ε0)/2⌋ + 1.

    Arguments broadcast; δ0 in [0, 1). Absolute accuracy 1e-10: at 1e9 steps the rounding of
    e^{ε0}/(1 + e^{ε0}) moves a tail by 1e-11 of it. For ε above 600 the subtracted tail may be too
    small for a double; it's left out, which only enlarges δ.

    >>> float(optimal_composition_delta(0.0, math.log(3), 1)).__round__(12)  # (3 - 1)/(3 + 1)
    0.5
    """
    epsilon_0, delta_0 = _pair(epsilon_0, delta_0)
    return _optimal_delta(domain.epsilons(epsilon), epsilon_0, domain.steps(steps), delta_0)


def _optimal_delta(
    epsilon: np.ndarray, epsilon_0: np.ndarray, steps: int, delta_0: np.ndarray
) -> np.ndarray:
    whole = steps * np.log1p(-delta_0)  # log (1-δ0)^T
    return -np.expm1(whole) + np.exp(whole) * _response_delta(epsilon, epsilon_0, steps)


def _response_delta(epsilon: np.ndarray, epsilon_0: np.ndarray, steps: int) -> np.ndarray:
    """δ(ε) of T randomised responses: P(K ≥ k) - e^ε P(T-K ≥ k), the tails as beta integrals."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        k = np.floor((steps + epsilon / epsilon_0) / 2) + 1
    inside = (k <= steps) & (epsilon_0 > 0)
    k = np.where(inside, k, 1.0)
    above = betainc(k, steps - k + 1, expit(epsilon_0))
    below = betainc(k, steps - k + 1, expit(-epsilon_0))
    below = np.where(below < _DEEP, 0.0, below)
    delta = above - np.exp(np.minimum(epsilon, 700.0)) * below
    return np.where(inside, np.maximum(delta, 0.0), 0.0)


def optimal_composition_epsilon(
    epsilon_0: float, steps: int, delta: float, delta_0: float = 0.0
) -> float:
    """Least ε ≥ 0 with `optimal_composition_delta` ≤ δ; inf where δ < 1 - (1-δ0)^T.

    >>> round(optimal_composition_epsilon(0.1, 100, 1e-5), 4)  # DRV: 5.8502
    4.3068
    """
    profile = lambda e: float(optimal_composition_delta(e, epsilon_0, steps, delta_0))  # noqa: E731
    return epsilon_from_delta(profile, delta)


def pure_dp_moment_bound(lam: ArrayLike, epsilon: ArrayLike) -> np.ndarray:
    """λε(e^ε - 1) + λ²ε²e^{2ε}/2: Lemma C.1 of Abadi16, a bound on the log moment under ε-DP.

    λ in [0, 1e9], ε in [0, 300] (beyond, e^{2ε} overflows). Relative accuracy 1e-13.

    >>> bool(pure_dp_moment_bound(3.0, 0.5) > pure_dp_moment(3.0, 0.5))
    True
    """
    lam, epsilon = _lam(lam), domain.numbers("epsilon", epsilon, "[0, 300]")
    return lam * epsilon * np.expm1(epsilon) + lam**2 * epsilon**2 * np.exp(2 * epsilon) / 2


def pure_dp_moment(lam: ArrayLike, epsilon: ArrayLike) -> np.ndarray:
    """log((e^{(λ+1)ε} + e^{-λε})/(1 + e^ε)): the largest log moment of any ε-DP mechanism.

    Attained by randomised response. λ in [0, 1e9]. Absolute accuracy 1e-15·(1 + (λ+1)ε).

    >>> round(float(pure_dp_moment(1.0, math.log(3))), 12) == round(math.log((9 + 1 / 3) / 4), 12)
    True
    """
    lam, epsilon = _lam(lam), domain.epsilons(epsilon)
    return np.logaddexp((lam + 1) * epsilon, -lam * epsilon) - np.logaddexp(0.0, epsilon)


def _lam(lam: ArrayLike) -> np.ndarray:
    return domain.numbers("lam", lam, "[0, 1e9]", "λ is the order of the moment")


@dataclass(frozen=True, kw_only=True)
class _PairComposition(Guarantee):
    """`steps` steps, each known by one pair (ε0, δ0) of its laws' exact profile: the best one.

    `laws` must hold both directions of the relation (`NoisySGD.laws` does): a pair is valid when
    every law's δ(ε0) is at most δ0. Sampling is inside the laws: for Poisson batches the pair at ε0
    is the Gaussian's pair amplified by sampling (`amplify_by_sampling`).
    """

    laws: tuple[Law, ...]
    steps: int
    kind: Kind = "upper bound"
    assumptions: str = "of the laws given"

    def __post_init__(self) -> None:
        laws = domain.instances("laws", self.laws, Law, LAWS_EXAMPLE)
        domain.set_fields(self, laws=laws, steps=domain.steps(self.steps))

    def _step_delta(self, epsilon_0: ArrayLike) -> np.ndarray:
        return np.max([law.delta(epsilon_0) for law in self.laws], axis=0)

    def _total(self, epsilon: float, epsilon_0: np.ndarray, delta_0: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _best(self, epsilon: float) -> tuple[float, float]:
        """Least total δ at ε and the ε0 that gives it."""
        low, high = self._range(epsilon)
        one_step_and_basic = [0.0, epsilon, epsilon / self.steps]
        total = lambda grid: self._total(epsilon, grid, self._step_delta(grid))  # noqa: E731
        return refine(total, low, high, one_step_and_basic)

    def _range(self, epsilon: float) -> tuple[float, float]:
        """Where the best ε0 can lie: from well below ε/T to where T δ0 no longer counts."""
        high = max(epsilon, *(law.loss_range(_NEGLIGIBLE)[1] for law in self.laws))
        return max(epsilon / (40 * self.steps), high * 1e-6 / math.sqrt(self.steps)), high

    def profile(self, epsilon: float) -> float:
        return min(1.0, self._best(epsilon)[0]) if self.steps else 0.0

    def details(self, delta: float) -> dict[str, Any]:
        """The split of δ: the pair of one step, and what the T steps' δ0 take of δ."""
        epsilon = self.epsilon(delta)
        if not self.steps or math.isinf(epsilon):
            return {}
        epsilon_0 = self._best(epsilon)[1]
        delta_0 = float(self._step_delta(epsilon_0))
        return {"epsilon_0": epsilon_0, "delta_0": delta_0, "share": self.steps * delta_0 / delta}


@dataclass(frozen=True, kw_only=True)
class StrongComposition(_PairComposition):
    """DRV's strong composition of the best pair, or basic where that is better. Upper bound.

    Relative accuracy of ε 1e-4: the pair is found on a grid, and every pair on it is a bound.

    >>> from dpteach.laws import PoissonLaw
    >>> laws = (PoissonLaw(0.01, 4.0, "remove"), PoissonLaw(0.01, 4.0, "add"))
    >>> round(StrongComposition(laws=laws, steps=10000).epsilon(1e-5), 2)
    16.84
    """

    name: str = "strong-composition"
    reason: str = "strong composition of single pairs proves no epsilon below 1e5"

    def _total(self, epsilon: float, epsilon_0: np.ndarray, delta_0: np.ndarray) -> np.ndarray:
        # δ' from ε = √(2T log(1/δ')) ε0 + T ε0 (e^{ε0} - 1); basic composition needs none
        excess = np.maximum(0.0, epsilon - _drift(epsilon_0, self.steps))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            slack = np.exp(-(excess**2) / (2 * self.steps * epsilon_0**2))
        slack = np.where(epsilon >= self.steps * epsilon_0, 0.0, slack)
        return self.steps * delta_0 + slack


@dataclass(frozen=True, kw_only=True)
class OptimalComposition(_PairComposition):
    """KOV's optimal composition of the best pair: no use of a single pair gives less. Upper bound.

    Relative accuracy of ε 1e-4: the pair is found on a grid, and every pair on it is a bound.

    >>> from dpteach.laws import GaussianLaw
    >>> one = OptimalComposition(laws=(GaussianLaw(1.0),), steps=1)
    >>> round(one.epsilon(1e-5), 5)  # one step: its own curve
    4.37718
    """

    name: str = "optimal-composition"
    reason: str = "optimal composition of single pairs proves no epsilon below 1e5"

    def _total(self, epsilon: float, epsilon_0: np.ndarray, delta_0: np.ndarray) -> np.ndarray:
        return _optimal_delta(np.asarray(epsilon), epsilon_0, self.steps, delta_0)
