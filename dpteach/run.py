"""What was run: the facts of one noisy SGD training, and nothing about what is asked of it.

`NoisySGD` holds what a log file could hold: how many records, how batches were drawn, how many
noisy updates were made, how much noise stood on the sum of clipped gradients. Who counts as a
neighbour (the conventions page) is not a fact about the run but a part of the question, so it's
an argument: the same run has sensitivity C when a record is added or removed and 2C when one is
replaced, and so two values of sigma.

The trainer and all accountants take this one object. What was trained and what is accounted for
can't differ.

How batches were drawn is part of the mechanism (chapter 21): each way has its own analysis, and a
combination of sampling and neighbours for which nothing is proved is refused with the reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from dpteach import domain
from dpteach.laws import Law, PoissonLaw, ReplacedLaw, SubsampledLaw

__all__ = [
    "BY_EPOCHS", "RELATIONS", "SAMPLINGS", "SENSITIVITY", "NoisySGD", "Phases", "Relation",
    "Sampling", "steps_for_epochs",
]  # fmt: skip

Relation = Literal["add-remove", "replace-one", "zero-out"]
Sampling = Literal["poisson", "fixed-size", "random-allocation", "shuffled", "truncated-poisson"]
RELATIONS = ("add-remove", "replace-one", "zero-out")
SAMPLINGS = ("poisson", "fixed-size", "random-allocation", "shuffled", "truncated-poisson")
BY_EPOCHS = ("random-allocation", "shuffled")  # each record enters one batch of each epoch

RUN_EXAMPLE = "NoisySGD(n=60000, batch_size=256, steps=3516, noise_multiplier=1.3)"
_NO_BOUND = {
    ("fixed-size", "add-remove"): "a subset of exactly m records can't be compared when n itself "
    "changes by one: ask replace-one or zero-out, or draw Poisson batches",
    ("shuffled", "add-remove"): "one record less shifts the batches of all that follow, and nothing "
    "is proved of that here: ask zero-out or replace-one, or draw by 'random-allocation'",
    ("random-allocation", "replace-one"): "no dominating pair is proved in this book: ask "
    "add-remove or zero-out, or draw Poisson batches",
    ("truncated-poisson", "replace-one"): "the bound is proved for add-remove only: ask that, or "
    "draw Poisson batches",
    ("truncated-poisson", "zero-out"): "a blank record still takes a place in a full batch, and "
    "nothing is proved of that here: ask add-remove, or draw Poisson batches",
}
_NO_STEP = {
    ("random-allocation", "add-remove"): "its unit is the epoch",
    ("random-allocation", "zero-out"): "its unit is the epoch",
    ("shuffled", "zero-out"): "its unit is the epoch",
    ("shuffled", "replace-one"): "its unit is the epoch",
    ("fixed-size", "zero-out"): "the truth lies between two pairs",
    ("truncated-poisson", "add-remove"): "the truth lies between two pairs",
}
SENSITIVITY = {"add-remove": 1, "replace-one": 2, "zero-out": 1}  # of the clipped sum, in units of C


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
    sampling : 'poisson' (each record enters each batch with probability m/n), 'fixed-size' (a
        uniform subset of exactly m records), 'truncated-poisson' (Poisson, and a uniform subset of
        `largest_batch` where more are drawn): each batch is drawn afresh. 'random-allocation' (each
        record enters one uniformly chosen batch of each epoch) and 'shuffled' (a new random order
        for each epoch, cut into batches of exactly m): whole epochs of B = ⌈n/m⌉ batches.
    largest_batch : the maximum under truncated Poisson sampling, else None.

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
    largest_batch: int | None = None

    def __post_init__(self) -> None:
        domain.one_of("sampling", self.sampling, SAMPLINGS)
        advice = "it's in units of the clipping norm"
        noise = domain.number("noise_multiplier", self.noise_multiplier, domain.NOISE, advice)
        clip_norm = domain.number("clip_norm", self.clip_norm, "[1e-9, 1e9]", "it's C")
        domain.set_fields(self, noise_multiplier=noise, clip_norm=clip_norm)
        domain.set_fields(self, steps=domain.steps(self.steps))
        self._check_sizes()
        self._check_epochs()
        self._check_largest()

    def _check_sizes(self) -> None:
        if self.n is None and self.batch_size is None:
            advice = "it's m/n; or give n and batch_size"
            domain.set_fields(self, rate=domain.number("rate", self.rate, domain.RATE, advice))
            return
        n, m = _sizes(self.n, self.batch_size)  # type: ignore[arg-type]
        given = self.rate is None
        domain.require("rate", self.rate, given, "left out", "it follows from n and batch_size")
        domain.number("batch_size/n", m / n, domain.RATE, "it's the sampling rate")
        domain.set_fields(self, n=n, batch_size=m)

    def _check_epochs(self) -> None:
        if self.sampling not in BY_EPOCHS:
            return
        batches = self.batches_per_epoch
        advice = f"{self.sampling} batches come in whole epochs of {batches}"
        whole = self.steps % batches == 0
        domain.require("steps", self.steps, whole, f"a multiple of {batches}", advice)
        if self.n is None:
            fits = abs(1 / self.rate - batches) < 1e-6 * batches  # type: ignore[operator]
            domain.require("rate", self.rate, fits, "1/B", "B is the number of batches in an epoch")
        elif self.sampling == "shuffled":
            m, advice = self.batch_size, "batches of exactly m records must use all of them"
            domain.require("n", self.n, self.n % m == 0, f"a multiple of {m}", advice)  # type: ignore[operator]

    def _check_largest(self) -> None:
        if self.sampling != "truncated-poisson":
            advice = "it belongs to sampling='truncated-poisson'"
            left_out = self.largest_batch is None
            return domain.require("largest_batch", self.largest_batch, left_out, "left out", advice)
        domain.require("n", self.n, self.n is not None, "known", "what's cut off depends on it")
        below = self.batch_size < self.n  # type: ignore[operator]
        domain.require("batch_size", self.batch_size, below, "below n", "at rate 1 all are drawn")
        largest = domain.whole_number("largest_batch", self.largest_batch, f"[1, {self.n}]")
        return domain.set_fields(self, largest_batch=largest)

    @property
    def batches_per_epoch(self) -> int:
        """B = ⌈n/m⌉, of random allocation and of shuffled passes.

        >>> NoisySGD.at_rate(1 / 235, steps=0, noise_multiplier=1.3).batches_per_epoch
        235
        """
        return round(1 / self.rate) if self.rate else -(-self.n // self.batch_size)  # type: ignore

    @property
    def sampling_rate(self) -> float:
        """m/n, the probability that a record enters a batch."""
        return self.rate or self.batch_size / self.n  # type: ignore[operator]

    @classmethod
    def for_epochs(cls, *, n: int, batch_size: int, epochs: float, **facts: Any) -> NoisySGD:
        """The run of T = ⌈E·n/m⌉ steps, or of E·B where batches come by epochs; `facts` are the
        other fields.

        >>> NoisySGD.for_epochs(n=60000, batch_size=256, epochs=15, noise_multiplier=1.3).steps
        3516
        """
        steps = steps_for_epochs(n, batch_size, epochs)
        domain.require("epochs", epochs, "steps" not in facts, "left out", "steps are given")
        if facts.get("sampling") in BY_EPOCHS:
            advice = f"{facts['sampling']} batches come in whole epochs"
            steps = domain.whole_number("epochs", epochs, "[0, 1e9]", advice) * -(-n // batch_size)
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

        add-remove and zero-out: sensitivity C. replace-one: 2C, so half the value for the same
        physical noise.

        >>> run = NoisySGD.at_rate(0.01, steps=1, noise_multiplier=4.0)
        >>> run.sigma("add-remove"), run.sigma("replace-one")
        (4.0, 2.0)
        """
        return self.noise_multiplier / SENSITIVITY[domain.one_of("relation", relation, RELATIONS)]

    def check_covered(self, relation: Relation) -> None:
        """Refuse a relation under which nothing is proved of the run's sampling, with the reason.

        >>> NoisySGD.at_rate(0.01, steps=1, noise_multiplier=4.0).check_covered("zero-out")
        """
        domain.one_of("relation", relation, RELATIONS)
        if reason := _NO_BOUND.get((self.sampling, relation)):
            pair = f"relation = {relation!r} with sampling = {self.sampling!r}"
            raise ValueError(f"{pair} isn't covered: {reason}")

    def has_laws(self, relation: Relation) -> bool:
        """Whether one step has a dominating pair, so that `laws` answers."""
        return not {(self.sampling, relation)} & (_NO_BOUND.keys() | _NO_STEP.keys())

    def laws(self, relation: Relation) -> tuple[Law, ...]:
        """One-step privacy-loss laws whose worst T-fold composition bounds the run.

        Poisson, add-remove or zero-out: the sampled Gaussian pair, remove then add.
        Poisson, replace-one: the symmetric pair of chapter 21. These are attained.
        Fixed-size, replace-one: the one symmetric law of C_p(G_{1/sigma}) (DRS22, Theorem 5.1).

        Raises `ValueError` with the reason for the combinations without such a law.

        >>> laws = NoisySGD.abadi16(rate=0.01, sigma=4.0, steps=1).laws("add-remove")
        >>> [law.direction for law in laws]
        ['remove', 'add']
        """
        self.check_covered(relation)
        if reason := _NO_STEP.get((self.sampling, relation)):
            raise ValueError(f"{self.sampling} batches have no law of one step: {reason}")
        sigma, rate = self.sigma(relation), self.sampling_rate
        if self.sampling == "fixed-size":
            return (SubsampledLaw(rate, sigma),)
        if relation == "replace-one":
            return (ReplacedLaw(rate, sigma),)
        return (PoissonLaw(rate, sigma, "remove"), PoissonLaw(rate, sigma, "add"))


@dataclass(frozen=True)
class Phases:
    """Runs one after the other on the same n records, all fixed in advance (chapter 21).

    The noise, rate, length and clipping norm of a phase may differ from the others'. A phase that's
    chosen by what the earlier ones put out isn't covered: chapter 22.

    >>> first = NoisySGD.at_rate(0.01, steps=100, noise_multiplier=1.0)
    >>> plan = Phases((first, NoisySGD.at_rate(0.02, steps=50, noise_multiplier=2.0)))
    >>> plan.steps, plan.at(100).noise_multiplier
    (150, 2.0)
    """

    runs: tuple[NoisySGD, ...]

    def __post_init__(self) -> None:
        runs = domain.instances("runs", self.runs, NoisySGD, f"({RUN_EXAMPLE}, …)")
        sizes = {run.n for run in runs}
        domain.require("n", sorted(map(str, sizes)), len(sizes) == 1, "the same in all phases")
        domain.set_fields(self, runs=runs)

    @property
    def n(self) -> int | None:
        """The number of records, or None where it isn't known."""
        return self.runs[0].n

    @property
    def steps(self) -> int:
        """The number of noisy updates in all."""
        return sum(run.steps for run in self.runs)

    @property
    def sampling_rate(self) -> float:
        """The expected share of the records in a batch, on average over the steps."""
        parts = sum(run.steps * run.sampling_rate for run in self.runs)
        return parts / self.steps if self.steps else self.runs[0].sampling_rate

    def at(self, step: int) -> NoisySGD:
        """The phase that step 0, 1, … belongs to."""
        return self.runs[self.place(step)[0]]

    def place(self, step: int) -> tuple[int, int]:
        """The number of a step's phase, and the step's number in it; both from 0."""
        step = domain.whole_number("step", step, f"[0, {self.steps - 1}]")
        phase = 0
        while step >= self.runs[phase].steps:
            step, phase = step - self.runs[phase].steps, phase + 1
        return phase, step
