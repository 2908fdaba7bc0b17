"""Several records of one user under Poisson batches: the binomial mixture of shifts (chapter 20).

If a user has at most k records, each drawn with the batch's rate on its own, the number of them in
a batch is binomial, and the sum moves by at most that many clipping norms. One step is dominated by
the pair of this mixture and the noise alone (Ganesh 2024). It's a law like any other: the tensor
power composes it, and the bound is attained, where group bounds from one record's ε are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, logsumexp, ndtr, ndtri

from dpteach import domain
from dpteach.laws import GaussianLaw, Law, Nodes
from dpteach.numerics.quadrature import panels
from dpteach.run import NoisySGD, Relation

__all__ = ["UserLaw", "user_laws"]

_TAIL = 9.0  # standard deviations beyond which a normal density doesn't count
_NEWTON = 80  # steps at most; about ten are needed, more next to the least loss


@dataclass(frozen=True)
class UserLaw(Law):
    """One Poisson step for a user with `records` records: Σ_j w_j N(j, σ²) against N(0, σ²).

    w_j is the binomial probability that j of the records are drawn at `rate` < 1. direction
    'remove': P is the mixture; 'add': P is N(0, σ²). Neighbours: one user added, removed or made
    blank.
    Attained where all of the user's gradients are the same vector of norm C. records in [1, 1000].

    >>> law = UserLaw(0.1, 2.0, records=1)
    >>> from dpteach.laws import PoissonLaw
    >>> abs(float(law.delta(0.1)) - float(PoissonLaw(0.1, 2.0).delta(0.1))) < 1e-14
    True
    """

    rate: float
    sigma: float
    direction: Literal["remove", "add"] = "remove"
    records: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        advice = "without sampling it's GaussianLaw(sigma / records)"
        domain.require("rate", self.rate, self.rate < 1, "below 1", advice)
        records = domain.whole_number("records", self.records, "[1, 1000]", "those of one user")
        domain.set_fields(self, records=records)

    @cached_property
    def _log_weights(self) -> np.ndarray:
        j, k = np.arange(self.records + 1.0), self.records
        choose = gammaln(k + 1) - gammaln(j + 1) - gammaln(k - j + 1)
        return choose + j * math.log(self.rate) + (k - j) * math.log1p(-self.rate)

    @property
    def _shifts(self) -> np.ndarray:
        return self.mu * np.arange(self.records + 1.0)

    @property
    def limit_mu(self) -> float:
        """√(Σ w_i w_j e^{ijμ²} - 1), as for the other laws."""
        both = self._log_weights[:, None] + self._log_weights + np.outer(self._shifts, self._shifts)
        return math.sqrt(math.expm1(float(logsumexp(both))))

    @property
    def _least_loss(self) -> float:
        return float(self._log_weights[0])

    def _exponents(self, t: np.ndarray) -> np.ndarray:
        return self._log_weights + self._shifts * t[..., None] - self._shifts**2 / 2

    def _loss(self, t: ArrayLike) -> np.ndarray:
        return logsumexp(self._exponents(np.asarray(t, dtype=float)), axis=-1)

    def _inverse(self, loss: ArrayLike) -> np.ndarray:
        """Newton from the right, where the convex loss is too large: it never overshoots."""
        wanted = np.asarray(loss, dtype=float)
        reached = wanted > self._least_loss
        finite = reached & np.isfinite(wanted)
        target = np.where(finite, wanted, 0.0)[..., None]
        t = ((target - self._log_weights + self._shifts**2 / 2)[..., 1:] / self._shifts[1:]).min(-1)
        for _ in range(_NEWTON):
            exponents = self._exponents(t)
            value = logsumexp(exponents, axis=-1)
            slope = np.exp(exponents - value[..., None]) @ self._shifts
            step = (value - target[..., 0]) / np.maximum(slope, 1e-300)
            t = t - np.where(finite, step, 0.0)
            if np.all(np.abs(step[finite]) <= 1e-13 * (1 + np.abs(t[finite]))):
                break
        return np.where(finite, t, np.where(reached, np.inf, -np.inf))

    def _above(self, t: np.ndarray) -> np.ndarray:
        """The mixture's probability of an observation above t."""
        return ndtr(self._shifts - t[..., None]) @ np.exp(self._log_weights)

    def _delta(self, epsilon: np.ndarray) -> np.ndarray:
        t = self._inverse(epsilon)
        return np.maximum(self._above(t) - np.exp(epsilon) * ndtr(-t), 0.0)

    def _swapped_delta(self, epsilon: np.ndarray) -> np.ndarray:
        t = self._inverse(-epsilon)
        below = ndtr(t[..., None] - self._shifts) @ np.exp(self._log_weights)
        return np.maximum(ndtr(t) - np.exp(epsilon) * below, 0.0)

    def nodes(self, order: float = 1.0, corner: float = math.nan) -> Nodes:
        """As for the other laws, to about 1e-9: the tilts of the tensor power are chosen by it."""
        reach = self._order(order) * self._shifts[-1] + _TAIL
        top = float(self._shifts[-1]) + _TAIL
        low, high = (-reach, top) if self.direction == "add" else (-_TAIL, reach)
        t, log_weight = panels([low, high], min(2.0, math.pi / self._shifts[-1] / 2))
        loss = self._loss(t)
        base = log_weight - t**2 / 2 - math.log(2 * math.pi) / 2
        if self.direction == "add":
            return Nodes(-loss, base, base + loss)
        return Nodes(loss, base + loss, base)

    def _reach(self, tail: float) -> tuple[float, float]:
        tail = domain.number("tail", tail, "[1e-300, 0.25)")
        reach = float(-ndtri(tail / 2))
        return reach, reach + float(self._shifts[-1])

    def _mixture_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        t = self._inverse(edges)
        parts = [weight * _between(t - shift)
                 for weight, shift in zip(np.exp(self._log_weights), self._shifts, strict=True)]
        return np.sum(parts, axis=0), _between(t)

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """`size` privacy losses under P, shape (size,)."""
        size = domain.whole_number("size", size, "[1, 1e9]")
        t = domain.instance("rng", rng, np.random.Generator, "np.random.default_rng(0)")
        noise = t.standard_normal(size)
        if self.direction == "add":
            return -self._loss(noise)
        return self._loss(noise + self.mu * t.binomial(self.records, self.rate, size))


def _between(t: np.ndarray) -> np.ndarray:
    """Normal probability between consecutive points, from the nearer tail."""
    left, right = t[:-1], t[1:]
    return np.where(left > 0, ndtr(-left) - ndtr(-right), ndtr(right) - ndtr(left))


def user_laws(run: NoisySGD, relation: Relation, records: int) -> tuple[Law, ...]:
    """The two laws of a step for a user with at most `records` records, remove then add.

    Proved for Poisson batches when a user is added, removed or made blank. Raises `ValueError` for
    others, with the way out.

    >>> run = NoisySGD.abadi16(rate=0.01, sigma=4.0, steps=1)
    >>> [law.direction for law in user_laws(run, "add-remove", 3)]
    ['remove', 'add']
    """
    run.check_covered(relation)
    covered = run.sampling == "poisson" and relation != "replace-one"
    advice = (
        "no pair is proved for several records of one user in other batches or when they're "
        "replaced: take the group bound (report), or draw users instead of records"
    )
    domain.require("sampling", run.sampling, covered, "poisson, add-remove or zero-out", advice)
    sigma, rate = run.sigma(relation), run.sampling_rate
    if rate == 1:
        allowed = f"at least {0.05 * records:g}"
        advice = "without sampling the user's sigma is sigma / records, and the least is 0.05"
        domain.require("sigma", sigma, sigma / records >= 0.05, allowed, advice)
        return (GaussianLaw(sigma / records),)
    return UserLaw(rate, sigma, "remove", records), UserLaw(rate, sigma, "add", records)
