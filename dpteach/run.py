"""What was run: the physical facts of one noisy SGD training, and nothing about what is asked of it.

`NoisySGD` holds what a log file could hold: how many records, how batches were drawn, how many noisy
updates were made, how much noise stood on the sum of clipped gradients. Who counts as a neighbour is
not a fact about the run but a part of the question, so it's an argument: the same run has sensitivity C
when a record is added or removed and 2C when one is replaced, and so two values of sigma.

The trainer and all accountants take this one object. What was trained and what is accounted for can't
differ.

Not for: shuffled batches. An epoch over a shuffled list is a third mechanism, and neither of the two
analyses in this package applies to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from dpteach import domain
from dpteach.laws import Law, PoissonLaw, SubsampledLaw

__all__ = ["RELATIONS", "SAMPLINGS", "NoisySGD", "Relation", "Sampling", "steps_for_epochs"]

Relation = Literal["add-remove", "replace-one"]
Sampling = Literal["poisson", "fixed-size"]
RELATIONS = ("add-remove", "replace-one")
SAMPLINGS = ("poisson", "fixed-size")
_SIGMA = "[1e-40, 1e40]"

RUN_EXAMPLE = "NoisySGD(n=60000, batch_size=256, epochs=15, noise_multiplier=1.3)"
_SHUFFLING = "shuffled batches aren't covered by either analysis: draw batches by 'poisson' or 'fixed-size' sampling"
_NO_BOUND = {
    ("fixed-size", "add-remove"): "a subset of exactly m records can't be compared when n itself changes by one:"
    " ask replace-one, or draw Poisson batches",
    ("poisson", "replace-one"): "no dominating pair for Poisson batches under replace-one is derived in this book:"
    " ask add-remove, or draw fixed-size batches",
}
_FOLLOWS: Any = None  # default of a field that is filled in from the others
_SENSITIVITY = {"add-remove": 1, "replace-one": 2}  # of the sum of clipped gradients, in units of C


def steps_for_epochs(n: int, batch_size: int, epochs: float) -> int:
    """Number of noisy updates in `epochs` passes: T = ⌈E·n/m⌉, computed without rounding.

    The one rule of the whole package, used by the trainer and by every accountant. `epochs` is read as the
    decimal number that it prints as, so 0.1 is one tenth.

    >>> steps_for_epochs(60000, 256, 15)
    3516
    >>> steps_for_epochs(60000, 100, 0.1)
    60
    """
    n, batch_size = domain.whole_number("n", n, "[1, inf)"), domain.whole_number("batch_size", batch_size, "[1, inf)")
    epochs = domain.number("epochs", epochs, "(0, inf)")
    return math.ceil(Fraction(repr(epochs)) * n / batch_size)


@dataclass(frozen=True, kw_only=True)
class NoisySGD:
    """One run of noisy SGD: the facts that privacy depends on.

    Parameters
    ----------
    n : number of records, or None when only the rate is known (`at_rate`). Under add-remove neighbours it stands for
        a public number that was fixed beforehand, as do the rate and the steps that follow from it.
    batch_size : m, the exact size under fixed-size sampling and the expected size under Poisson sampling.
    steps, epochs : give one of them; `steps` is T, the number of noisy updates, and T = ⌈E·n/m⌉.
    noise_multiplier : standard deviation of the noise on the *sum* of clipped gradients, divided by `clip_norm`.
    clip_norm : C. Privacy doesn't depend on it: noise and sensitivity are both proportional to C.
    sampling : 'poisson' (each record enters each batch with probability m/n) or 'fixed-size' (a uniform
        subset of exactly m records), each batch drawn afresh.
    sampling_rate : m/n, called q or p; it follows from n and batch_size, and is given only when n isn't known.

    Raises `ValueError` when an argument is out of its range, or when two of them contradict each other.

    >>> run = NoisySGD(n=60000, batch_size=256, epochs=15, noise_multiplier=1.3, clip_norm=1.5)
    >>> run.steps, round(run.sampling_rate, 6)
    (3516, 0.004267)
    """

    n: int | None = None
    batch_size: int | None = None
    steps: int = _FOLLOWS
    epochs: float | None = None
    noise_multiplier: float
    clip_norm: float = 1.0
    sampling: Sampling = "poisson"
    sampling_rate: float = _FOLLOWS

    def __post_init__(self) -> None:
        domain.one_of("sampling", self.sampling, SAMPLINGS, _SHUFFLING)
        noise = domain.number("noise_multiplier", self.noise_multiplier, _SIGMA, "it's in units of the clipping norm")
        clip_norm = domain.number("clip_norm", self.clip_norm, _SIGMA, "the clipping norm C")
        domain.set_fields(self, noise_multiplier=noise, clip_norm=clip_norm)
        domain.set_fields(self, sampling_rate=self._checked_rate())
        domain.set_fields(self, steps=self._checked_steps())

    def _checked_rate(self) -> float:
        if self.n is None and self.batch_size is None:
            return domain.number("sampling_rate", self.sampling_rate, "(0, 1]", "or give n and batch_size")
        n = domain.whole_number("n", self.n, "[1, inf)", "give n and batch_size together")
        m = domain.whole_number("batch_size", self.batch_size, f"[1, {n}]", "give n and batch_size together")
        domain.set_fields(self, n=n, batch_size=m)
        if self.sampling_rate is not None and domain.number("sampling_rate", self.sampling_rate) != m / n:
            contradiction = f"sampling_rate = {self.sampling_rate} contradicts batch_size/n = {m / n}"
            raise ValueError(f"{contradiction}: leave sampling_rate out")
        return m / n

    def _checked_steps(self) -> int:
        if self.epochs is None:
            return domain.whole_number("steps", self.steps, "[1, 1e15]", "give steps, or n, batch_size and epochs")
        epochs = domain.number("epochs", self.epochs, "(0, inf)")
        if self.n is None:
            raise ValueError(f"epochs = {epochs:g} has no meaning without n and batch_size: give steps instead")
        steps = steps_for_epochs(self.n, self.batch_size or 0, epochs)
        if self.steps is not None and domain.whole_number("steps", self.steps) != steps:
            raise ValueError(f"steps = {self.steps} contradicts epochs = {epochs:g} (T = {steps}): give one of them")
        return domain.whole_number("steps", steps, "[1, 1e15]", "choose fewer epochs")

    @classmethod
    def at_rate(cls, q: float, *, steps: int, noise_multiplier: float, sampling: Sampling = "poisson") -> NoisySGD:
        """A run of which only the sampling rate q = m/n is known; nothing can be said of δ against 1/n.

        >>> NoisySGD.at_rate(0.01, steps=10000, noise_multiplier=4.0).sampling_rate
        0.01
        """
        return cls(sampling_rate=q, steps=steps, noise_multiplier=noise_multiplier, sampling=sampling)

    @classmethod
    def abadi16(cls, *, sigma: float, **facts: Any) -> NoisySGD:
        """Abadi et al. 2016, Algorithm 1: Poisson batches, noise of standard deviation sigma·C on the sum.

        >>> NoisySGD.abadi16(sampling_rate=0.01, sigma=4.0, steps=10000).sigma("add-remove")
        4.0
        """
        return cls(noise_multiplier=domain.number("sigma", sigma, _SIGMA), sampling="poisson", **facts)

    @classmethod
    def drs22(cls, *, sigma: float, **facts: Any) -> NoisySGD:
        """Dong, Roth and Su 2022, Algorithm 1: fixed-size batches, noise of 2·sigma·C on the sum.

        >>> run = NoisySGD.drs22(n=60000, batch_size=256, epochs=15, sigma=1.3)
        >>> run.noise_multiplier, run.sigma("replace-one")
        (2.6, 1.3)
        """
        return cls(noise_multiplier=2 * domain.number("sigma", sigma, _SIGMA), sampling="fixed-size", **facts)

    def but(self, **changes: Any) -> NoisySGD:
        """The same run with other values of some fields, and what follows from them computed anew.

        Only what was given is kept: the rate follows from n and batch_size, steps from epochs. New steps replace the
        epochs, and new epochs the steps.

        >>> run = NoisySGD(n=60000, batch_size=256, epochs=15, noise_multiplier=1.3)
        >>> run.but(batch_size=512).steps, run.but(steps=100).epochs
        (1758, None)
        """
        follows: dict[str, Any] = {}
        if changes.get("n", self.n) is not None:
            follows["sampling_rate"] = _FOLLOWS
        if "steps" in changes:
            follows["epochs"] = None
        elif changes.get("epochs", self.epochs) is not None:
            follows["steps"] = _FOLLOWS
        return replace(self, **follows | changes)

    def sigma(self, relation: Relation) -> float:
        """Noise standard deviation divided by the L2 sensitivity of the clipped sum under `relation`.

        add-remove: sensitivity C. replace-one: 2C, so half the value for the same physical noise.

        >>> run = NoisySGD.at_rate(0.01, steps=1, noise_multiplier=4.0)
        >>> run.sigma("add-remove"), run.sigma("replace-one")
        (4.0, 2.0)
        """
        return self.noise_multiplier / _SENSITIVITY[domain.one_of("relation", relation, RELATIONS)]

    def laws(self, relation: Relation) -> tuple[Law, ...]:
        """One-step privacy-loss laws whose worst T-fold composition bounds the run under `relation`.

        Poisson, add-remove: the sampled Gaussian pair in both directions, remove then add.
        Fixed-size, replace-one: the one symmetric law of C_p(G_{1/sigma}) (DRS22, Theorem 5.1).

        Raises `ValueError` with the reason for the two combinations without a bound here.

        >>> NoisySGD.abadi16(sampling_rate=0.01, sigma=4.0, steps=1).laws("add-remove")
        (PoissonLaw(rate=0.01, sigma=4.0, direction='remove'), PoissonLaw(rate=0.01, sigma=4.0, direction='add'))
        """
        sigma, rate = self.sigma(relation), self.sampling_rate
        reason = _NO_BOUND.get((self.sampling, relation))
        if reason:
            raise ValueError(f"relation = {relation!r} with sampling = {self.sampling!r} isn't covered: {reason}")
        if relation == "add-remove":
            return (PoissonLaw(rate, sigma, "remove"), PoissonLaw(rate, sigma, "add"))
        return (SubsampledLaw(rate, sigma),)
