"""Tuning that is counted: publish the best of a random number of trainings (chapter 22).

A *trial* is one training, its hyperparameters drawn at random, with a score. Draw a number K of
trials from a public distribution, run them independently, publish the best alone and keep K, the
other trials and their scores secret. Then the Rényi divergence of what is published is bounded by
the base training's own (Liu and Talwar 2019; Papernot and Steinke 2022), at a price of a few units
of the base's ε, however large the mean of K. A fixed number of trials is not covered.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dpteach import domain
from dpteach.guarantees import Guarantee, Kind
from dpteach.laws import LAW_EXAMPLE, Law
from dpteach.moments import log_moment, renyi_delta, renyi_epsilon

__all__ = ["BestOfRandom", "Trials"]

_ORDERS = 1 + np.geomspace(0.01, 1000, 800)  # any finite list gives a valid bound


@dataclass(frozen=True)
class Trials:
    """The distribution of the number K of trials.

    ====================  =================  ====================================================
    distribution          parameters         K
    ====================  =================  ====================================================
    geometric             gamma              ≥ 1, P(K = k) = γ(1-γ)^{k-1}
    logarithmic           gamma              ≥ 1, P(K = k) ∝ (1-γ)^k/k
    negative-binomial     gamma, eta > -1    ≥ 1, truncated at 0; η = 1 and 0 are the two above
    poisson               mean ≥ 1           ≥ 0; K = 0 publishes a fixed symbol
    ====================  =================  ====================================================

    gamma in (0, 1); `eta` and `mean` where they belong.

    >>> Trials.parse("geometric 0.1").expected
    10.0
    """

    distribution: Literal["negative-binomial", "poisson"]
    gamma: float = math.nan
    eta: float = math.nan
    mean: float = math.nan

    def __post_init__(self) -> None:
        domain.one_of("distribution", self.distribution, ("negative-binomial", "poisson"))
        if self.distribution == "poisson":
            mean = domain.number("mean", self.mean, "[1, 1e6]", "below 1 the bound is false")
            domain.set_fields(self, mean=mean)
        else:
            gamma = domain.number("gamma", self.gamma, "[1e-6, 1)", "the chance to stop")
            eta = domain.number("eta", self.eta, "(-1, 100]", "1 is geometric, 0 logarithmic")
            domain.set_fields(self, gamma=gamma, eta=eta)

    @classmethod
    def geometric(cls, gamma: float) -> Trials:
        """K = k with probability γ(1-γ)^{k-1}."""
        return cls("negative-binomial", gamma=gamma, eta=1.0)

    @classmethod
    def logarithmic(cls, gamma: float) -> Trials:
        """K = k with probability proportional to (1-γ)^k/k."""
        return cls("negative-binomial", gamma=gamma, eta=0.0)

    @classmethod
    def poisson(cls, mean: float) -> Trials:
        """K Poisson; where it's 0 a fixed symbol is published."""
        return cls("poisson", mean=mean)

    @classmethod
    def parse(cls, typed: str) -> Trials:
        """From "geometric 0.1", "logarithmic 0.03", "poisson 10", "negative-binomial 0.5 0.06".

        The last is η, then γ.
        """
        name, *values = domain.text("tuning", typed).split() or [""]
        makers: dict[str, tuple[Callable[..., Trials], int]] = {
            "geometric": (cls.geometric, 1),
            "logarithmic": (cls.logarithmic, 1),
            "poisson": (cls.poisson, 1),
            "negative-binomial": (lambda eta, gamma: cls("negative-binomial", gamma, eta), 2),
        }
        make, count = makers[domain.one_of("tuning", name, tuple(makers))]
        try:
            parameters = [float(value) for value in values]
        except ValueError:
            parameters = []
        advice = 'for example "geometric 0.1" or "negative-binomial 0.5 0.06"'
        fits = len(parameters) == count
        domain.require("tuning", typed, fits, f"{name} and {count} number(s)", advice)
        return make(*parameters)

    @property
    def expected(self) -> float:
        """E[K], the trainings that it costs on average."""
        eta, gamma = self.eta, self.gamma
        if self.distribution == "poisson":
            return self.mean
        if eta == 0:
            return (1 / gamma - 1) / math.log(1 / gamma)
        if eta == 1:
            return 1 / gamma
        return eta * (1 - gamma) / (gamma * (1 - gamma**eta))

    def sample(self, rng: np.random.Generator) -> int:
        """One K, for the trainer. Never print or log it."""
        if self.distribution == "poisson":
            return int(rng.poisson(self.mean))
        k, weight, left = 1, self._first(), rng.random()
        while left >= weight:
            left -= weight
            weight *= (1 - self.gamma) * (k + self.eta) / (k + 1)
            k += 1
        return k

    def _first(self) -> float:
        """P(K = 1)."""
        eta, gamma = self.eta, self.gamma
        if eta == 0:
            return (1 - gamma) / math.log(1 / gamma)
        return eta * (1 - gamma) * gamma**eta / (1 - gamma**eta)

    def __str__(self) -> str:
        if self.distribution == "poisson":
            return f"a Poisson number of trials of mean {self.mean:g}"
        kind = {1.0: "geometric", 0.0: "logarithmic"}.get(self.eta, f"η = {self.eta:g}")
        return f"a random number of trials ({kind}, γ = {self.gamma:g}, mean {self.expected:.4g})"


@dataclass(frozen=True, kw_only=True)
class BestOfRandom(Guarantee):
    """The best of K trials, each `steps` steps of `law`: an upper bound on ε and δ.

    With D_a the base's Rényi divergence of order a, the published one's is at most

        negative binomial   D_a + (1+η)(1 - 1/b)D_b + (1+η)log(1/γ)/b + log E[K]/(a-1),  any b ≥ 1
        Poisson             D_a + mean·δ(log(1 + 1/(a-1))) + log(mean)/(a-1)

    (Papernot and Steinke 2022; proved in chapter 22), δ(ε) being the base's. The law is the one with
    the larger divergences: 'remove' under add-remove. ε by the conversion of Canonne, Kamath and
    Steinke 2020. 1e-3 relative above the best order's value, at most.

    >>> from dpteach.laws import GaussianLaw
    >>> best = BestOfRandom(law=GaussianLaw(4.0), steps=1, trials=Trials.geometric(0.1))
    >>> round(best.epsilon(1e-5), 3)
    2.153
    """

    law: Law
    steps: int
    trials: Trials
    name: str = "best-of-random"
    kind: Kind = "upper bound"
    assumptions: str = "of the law given"

    def __post_init__(self) -> None:
        domain.instance("law", self.law, Law, LAW_EXAMPLE)
        domain.instance("trials", self.trials, Trials, "Trials.geometric(0.1)")
        domain.set_fields(self, steps=domain.steps(self.steps))

    @cached_property
    def _base(self) -> np.ndarray:
        """D_a of one trial at each order."""
        return self.steps * log_moment(self.law, _ORDERS - 1) / (_ORDERS - 1)

    @cached_property
    def divergence(self) -> np.ndarray:
        """Bound on D_a of what is published, at each order."""
        a, trials = _ORDERS, self.trials
        if trials.distribution == "poisson":
            base = self._base * (a - 1)
            epsilons = np.log1p(1 / (a - 1))
            deltas = [float(np.min(renyi_delta(base, a - 1, epsilon))) for epsilon in epsilons]
            return self._base + trials.mean * np.array(deltas) + math.log(trials.mean) / (a - 1)
        eta, gamma = trials.eta, trials.gamma
        selection = (1 + eta) * np.min((1 - 1 / a) * self._base + math.log(1 / gamma) / a)
        return self._base + selection + math.log(trials.expected) / (a - 1)

    def least_epsilon(self, delta: float) -> float:
        lam = _ORDERS - 1
        return float(np.min(renyi_epsilon(lam * self.divergence, lam, delta)))

    def profile(self, epsilon: float) -> float:
        lam = _ORDERS - 1
        return float(np.min(renyi_delta(lam * self.divergence, lam, epsilon)))

    def details(self, delta: float) -> dict[str, Any]:
        return {"trials": str(self.trials), "expected_trials": self.trials.expected}
