"""What was run: the facts of one noisy SGD training, and nothing about what is asked of it.

`NoisySGD` holds what a log file could hold: how many records, how batches were drawn, how many
noisy updates were made, how much noise stood on the sum of clipped gradients. Who counts as a
neighbour (the conventions page) is not a fact about the run but a part of the question, so it's
an argument: the same run has sensitivity C when a record is added or removed and 2C when one is
replaced, and so two values of sigma.

The trainer and all accountants take this one object. What was trained and what is accounted for
can't differ.

Not for: shuffled batches. An epoch over a shuffled list is a third mechanism, and neither of the
two analyses in this package applies to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from dpteach import domain
from dpteach.laws import Law, PoissonLaw, SubsampledLaw

__all__ = ["RELATIONS", "SAMPLINGS", "NoisySGD", "Relation", "Sampling", "steps_for_epochs"]

Relation = Literal["add-remove", "replace-one"]
Sampling = Literal["poisson", "fixed-size"]
RELATIONS = ("add-remove", "replace-one")
SAMPLINGS = ("poisson", "fixed-size")

RUN_EXAMPLE = "NoisySGD(n=60000, batch_size=256, steps=3516, noise_multiplier=1.3)"
_SHUFFLING = (
    "shuffled batches aren't covered by either analysis: draw batches by 'poisson' or "
    "'fixed-size' sampling"
)
_NO_BOUND = {
    ("fixed-size", "add-remove"): "a subset of exactly m records can't be compared when n itself "
    "changes by one: ask replace-one, or draw Poisson batches",
    ("poisson", "replace-one"): "no dominating pair for Poisson batches under replace-one is "
    "derived in this book: ask add-remove, or draw fixed-size batches",
}
_SENSITIVITY = {"add-remove": 1, "replace-one": 2}  # of the sum of clipped gradients, in units of C


def steps_for_epochs(n: int, batch_size: int, epochs: float) -> int:
    """Number of noisy updates in `epochs` passes: T = ⌈E·n/m⌉, computed without rounding.

    The one rule of the whole package. `epochs` in [0, 1e9] is read as the decimal number that it
    prints as, so 0.1 is one tenth.

    >>> steps_for_epochs(60000, 256, 15)
    3516
    >>> steps_for_epochs(60000, 100, 0.1)
    60
    """
    n, batch_size = _sizes(n, batch_size)
    epochs = domain.number("epochs", epochs, "[0, 1e9]", "it's the number of passes over the data")
    return math.ceil(Fraction(repr(epochs)) * n / batch_size)


def _sizes(n: int, batch_size: int) -> tuple[int, int]:
    n = domain.whole_number("n", n, "[1, 1e15]", "give n and batch_size together")
    advice = "give n and batch_size together"
    return n, domain.whole_number("batch_size", batch_size, f"[1, {n}]", advice)


@dataclass(frozen=True, kw_only=True)
class NoisySGD:
    """One run of noisy SGD: the facts that privacy depends on, each stored once.

    Parameters
    ----------
    n : number of records. Under add-remove neighbours it stands for a public number that was fixed
        beforehand, as do the rate and the steps that follow from it.
    batch_size : m, the exact size under fixed-size sampling, the expected one under Poisson
        sampling.
    rate : m/n, in [1e-9, 1], where only that is known: given instead of n and batch_size.
    steps : T, the number of noisy updates, in [0, 1e9].
    noise_multiplier : standard deviation of the noise on the *sum* of clipped gradients, divided by
        `clip_norm`, in [0.05, 2e3].
    clip_norm : C. Privacy doesn't depend on it: noise and sensitivity are both proportional to C.
    sampling : 'poisson' (each record enters each batch with probability m/n) or 'fixed-size' (a
        uniform subset of exactly m records), each batch drawn afresh.

    For a given number of epochs there's `for_epochs`. A variant of a run is made with
    `dataclasses.replace`. Raises `ValueError` when an argument is out of its range.

    >>> run = NoisySGD(n=60000, batch_size=256, steps=3516, noise_multiplier=1.3, clip_norm=1.5)
    >>> round(run.sampling_rate, 6)
    0.004267
    """

    n: int | None = None
    batch_size: int | None = None
    rate: float | None = None
    steps: int
    noise_multiplier: float
    clip_norm: float = 1.0
    sampling: Sampling = "poisson"

    def __post_init__(self) -> None:
        domain.one_of("sampling", self.sampling, SAMPLINGS, _SHUFFLING)
        advice = "it's in units of the clipping norm"
        noise = domain.number("noise_multiplier", self.noise_multiplier, domain.NOISE, advice)
        clip_norm = domain.number("clip_norm", self.clip_norm, "[1e-9, 1e9]", "it's C")
        domain.set_fields(self, noise_multiplier=noise, clip_norm=clip_norm)
        domain.set_fields(self, steps=domain.steps(self.steps))
        if self.n is None and self.batch_size is None:
            advice = "it's m/n; or give n and batch_size"
            domain.set_fields(self, rate=domain.number("rate", self.rate, domain.RATE, advice))
            return
        n, m = _sizes(self.n, self.batch_size)  # type: ignore[arg-type]
        given = self.rate is None
        domain.require("rate", self.rate, given, "left out", "it follows from n and batch_size")
        domain.number("batch_size/n", m / n, domain.RATE, "it's the sampling rate")
        domain.set_fields(self, n=n, batch_size=m)

    @property
    def sampling_rate(self) -> float:
        """m/n, the probability that a record enters a batch."""
        return self.rate or self.batch_size / self.n  # type: ignore[operator]

    @classmethod
    def for_epochs(cls, *, n: int, batch_size: int, epochs: float, **facts: Any) -> NoisySGD:
        """The run of T = ⌈E·n/m⌉ steps; `facts` are the other fields.

        >>> NoisySGD.for_epochs(n=60000, batch_size=256, epochs=15, noise_multiplier=1.3).steps
        3516
        """
        steps = steps_for_epochs(n, batch_size, epochs)
        domain.require("epochs", epochs, "steps" not in facts, "left out", "steps are given")
        return cls(n=n, batch_size=batch_size, steps=steps, **facts)

    @classmethod
    def at_rate(
        cls, rate: float, *, steps: int, noise_multiplier: float, sampling: Sampling = "poisson"
    ) -> NoisySGD:
        """A run of which only the sampling rate m/n is known; δ can't be compared with 1/n.

        >>> NoisySGD.at_rate(0.01, steps=10000, noise_multiplier=4.0).sampling_rate
        0.01
        """
        return cls(rate=rate, steps=steps, noise_multiplier=noise_multiplier, sampling=sampling)

    @classmethod
    def abadi16(cls, *, sigma: float, **facts: Any) -> NoisySGD:
        """Abadi et al. 2016, Algorithm 1: Poisson batches, noise of std sigma·C on the sum.

        `facts` are the other fields, or epochs in place of steps.

        >>> NoisySGD.abadi16(rate=0.01, sigma=4.0, steps=10000).sigma("add-remove")
        4.0
        """
        noise = domain.sigma(sigma)
        return cls._steps_or_epochs(noise_multiplier=noise, sampling="poisson", **facts)

    @classmethod
    def drs22(cls, *, sigma: float, **facts: Any) -> NoisySGD:
        """Dong, Roth and Su 2022, Algorithm 1: fixed-size batches, noise of std 2·sigma·C.

        >>> run = NoisySGD.drs22(n=60000, batch_size=256, epochs=15, sigma=1.3)
        >>> run.noise_multiplier, run.sigma("replace-one")
        (2.6, 1.3)
        """
        noise = 2 * domain.sigma(sigma)
        return cls._steps_or_epochs(noise_multiplier=noise, sampling="fixed-size", **facts)

    @classmethod
    def _steps_or_epochs(cls, *, epochs: float | None = None, **facts: Any) -> NoisySGD:
        if epochs is None:
            return cls(**{"steps": None} | facts)  # None is refused by name
        return cls.for_epochs(**{"n": None, "batch_size": None} | facts, epochs=epochs)

    def sigma(self, relation: Relation) -> float:
        """Noise standard deviation divided by the L2 sensitivity of the clipped sum.

        add-remove: sensitivity C. replace-one: 2C, so half the value for the same physical noise.

        >>> run = NoisySGD.at_rate(0.01, steps=1, noise_multiplier=4.0)
        >>> run.sigma("add-remove"), run.sigma("replace-one")
        (4.0, 2.0)
        """
        return self.noise_multiplier / _SENSITIVITY[domain.one_of("relation", relation, RELATIONS)]

    def laws(self, relation: Relation) -> tuple[Law, ...]:
        """One-step privacy-loss laws whose worst T-fold composition bounds the run.

        Poisson, add-remove: the sampled Gaussian pair in both directions, remove then add.
        Fixed-size, replace-one: the one symmetric law of C_p(G_{1/sigma}) (DRS22, Theorem 5.1).

        Raises `ValueError` with the reason for the two combinations without a bound here.

        >>> laws = NoisySGD.abadi16(rate=0.01, sigma=4.0, steps=1).laws("add-remove")
        >>> [law.direction for law in laws]
        ['remove', 'add']
        """
        sigma, rate = self.sigma(relation), self.sampling_rate
        if reason := _NO_BOUND.get((self.sampling, relation)):
            pair = f"relation = {relation!r} with sampling = {self.sampling!r}"
            raise ValueError(f"{pair} isn't covered: {reason}")
        if relation == "add-remove":
            return (PoissonLaw(rate, sigma, "remove"), PoissonLaw(rate, sigma, "add"))
        return (SubsampledLaw(rate, sigma),)
