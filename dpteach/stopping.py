"""Stopping when you like: privacy filters, and why the naive odometer is wrong (chapter 22).

Composition adds bounds that were fixed beforehand. When the noise, the batch size or the number of
steps is chosen from earlier outputs, a *filter* is needed: fix a budget first, and before each step
ask whether it still fits. What was spent then is a function of the outputs, and the budget holds
all the same, by a supermartingale.

A filter holds what has been spent. `spend` takes a step's bound and says whether the step may be
made; where it may not, nothing is spent and the run ends.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import numpy as np

from dpteach import domain
from dpteach.guarantees import GaussianGuarantee, epsilon_from_delta
from dpteach.laws import gaussian_delta
from dpteach.moments import renyi_epsilon

__all__ = [
    "GaussianFilter", "RenyiFilter", "naive_odometer_delta", "pure_filter_epsilon", "renyi_budget",
]  # fmt: skip


def renyi_budget(epsilon: float, delta: float, order: float) -> float:
    """The largest B for which (order, B)-RDP gives (ε, δ)-DP by Canonne, Kamath and Steinke 2020.

    Raises `ValueError` where even B = 0 doesn't.

    >>> round(renyi_budget(1.0, 1e-5, 16.5), 6)
    0.500613
    """
    epsilon, delta = domain.epsilon(epsilon), domain.delta(delta)
    a = domain.number("order", order, "(1, 1e6]")
    budget = epsilon - math.log1p(-1 / a) + (math.log(delta) + math.log(a)) / (a - 1)
    if budget <= 0:
        raise ValueError(f"epsilon = {epsilon} isn't reached at order = {a}: choose a larger order")
    return budget


@dataclass
class RenyiFilter:
    """Rényi filter: adaptively chosen steps are together (order, budget)-RDP. Upper bound.

    Step t, given the outputs so far, must be (order, ρ_t)-RDP in both directions; ρ_t may depend on
    them. Feldman and Zrnic 2021.

    >>> spent = RenyiFilter(order=16.5, budget=0.5)
    >>> spent.spend(0.3), spent.spend(0.3), spent.spend(0.2)
    (True, False, True)
    """

    order: float
    budget: float
    spent: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.order = domain.number("order", self.order, "(1, 1e6]")
        self.budget = domain.number("budget", self.budget, "[0, 1e6]", "a Rényi divergence")

    def spend(self, divergence: float) -> bool:
        """Whether a step of this Rényi divergence still fits; if so, it's spent."""
        step = domain.number("divergence", divergence, "[0, inf)", "a Rényi divergence")
        if self.spent + step > self.budget:
            return False
        self.spent += step
        return True

    def epsilon(self, delta: float) -> float:
        """ε of the whole run at δ, whatever was spent. Upper bound."""
        lam = self.order - 1
        return float(renyi_epsilon(lam * self.budget, lam, domain.delta(delta)))


@dataclass
class GaussianFilter:
    """GDP filter: adaptively chosen steps are together mu-GDP if Σ mu_t² ≤ mu². Exact.

    Step t, given the outputs so far, must be mu_t-GDP; mu_t may depend on them. Smith and Thakurta
    2022. Not for subsampled steps: they aren't mu-GDP with a useful mu.

    >>> spent = GaussianFilter(mu=1.0)
    >>> spent.spend(0.6), spent.spend(0.9), spent.spend(0.8)
    (True, False, True)
    """

    mu: float
    spent: float = field(default=0.0, init=False)  # Σ mu_t²

    def __post_init__(self) -> None:
        self.mu = domain.mu(self.mu)

    def spend(self, mu: float) -> bool:
        """Whether a mu-GDP step still fits; if so, it's spent."""
        step = domain.number("mu", mu, "[0, 1e4]") ** 2
        if self.spent + step > self.mu**2 * (1 + 1e-12):  # 0.6² + 0.8² is 1, but for rounding
            return False
        self.spent += step
        return True

    def guarantee(self) -> GaussianGuarantee:
        """mu-GDP of the whole run, whatever was spent."""
        return GaussianGuarantee(
            mu=self.mu, name="gdp-filter", assumptions="adaptive steps, each mu_t-GDP"
        )


def pure_filter_epsilon(budget: float, delta: float) -> float:
    """V/2 + √(2V log(1/δ)): adaptively chosen ε_t-DP steps with Σ ε_t² ≤ V. Upper bound.

    ε-DP is ε²/2-zCDP (Bun and Steinke 2016), and the Rényi filter holds at every order at once.

    >>> round(pure_filter_epsilon(1000 * 0.01**2, 1e-5), 6)
    1.567427
    """
    v = domain.number("budget", budget, "[0, 1e6]", "Σ ε_t²")
    return v / 2 + math.sqrt(2 * v * math.log(1 / domain.delta(delta)))


def naive_odometer_delta(mu: float, delta: float, horizon: int) -> float:
    """δ that "stop when you like and quote ε_τ of the τ steps made" really has. Lower bound.

    Steps are mu-GDP, ε_t is exact for t steps at δ, and the adversary stops at the first t ≤ `horizon`
    (at most 1000) where the privacy loss L_t exceeds ε_t. Returned is E[(1 - e^{ε_τ - L_τ})₊], which
    would have to be at most δ. By quadrature from step to step; 1e-6 relative.

    >>> round(naive_odometer_delta(0.1, 0.01, 10), 4)
    0.0179
    """
    mu, delta = domain.mu(mu), domain.delta(delta)
    horizon = domain.whole_number("horizon", horizon, "[1, 1000]")
    limits = [_epsilon(mu * math.sqrt(t), delta) for t in range(1, horizon + 1)]
    # y = ε_t - L_t > 0 while the run goes on; its density at the points of a composite rule
    y, weights = _panels(10 * mu * math.sqrt(horizon) + mu**2 * horizon, 4 * mu)
    total = float(gaussian_delta(mu, limits[0]))
    density = _normal(limits[0] - y, mu)
    for before, limit in itertools.pairwise(limits):
        gap = limit - before + y  # a loss this large reaches the next limit
        mass = weights * density
        total += float(mass @ gaussian_delta(mu, gap))
        density = mass @ _normal(gap[:, None] - y, mu)
    return total


def _panels(reach: float, width: float) -> tuple[np.ndarray, np.ndarray]:
    """16-point Gauss-Legendre on [0, reach], in panels of about that width."""
    points, weights = np.polynomial.legendre.leggauss(16)
    count = math.ceil(reach / width)
    half = reach / count / 2
    centres = half * (2 * np.arange(count) + 1)
    return (centres[:, None] + half * points).ravel(), np.tile(half * weights, count)


def _normal(x: np.ndarray, mu: float) -> np.ndarray:
    """Density at x of one step's loss, N(mu²/2, mu²)."""
    return np.exp(-(((x - mu**2 / 2) / mu) ** 2) / 2) / (mu * math.sqrt(2 * math.pi))


def _epsilon(mu: float, delta: float) -> float:
    return epsilon_from_delta(lambda e: float(gaussian_delta(mu, e)), delta)
