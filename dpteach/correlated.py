"""Correlated noise: a training run as one Gaussian mechanism (chapter 23).

Noisy SGD adds independent noise to each step's clipped sum. Training, though, uses *prefix sums*:
θ_t = θ_0 - (η/m)(g_1 + … + g_t). Noise that partly cancels in those sums disturbs them less. With a
lower-triangular matrix C the mechanism releases g_t + w_t, where w = C⁻¹ z and z is independent
noise. The released C g + z is one Gaussian mechanism, so the whole run is *exactly* mu-GDP with

    mu = sens(C) / sigma,    sigma = std of z / Δ,

for gradients chosen adaptively, and Δ the largest change of one step's clipped sum when a record
changes (C under zero-out, 2C under replace-one). sens(C) depends on which steps a record takes part
in: at most `participations` of them, at least `gap` apart. No sampling is used: batches are fixed
beforehand and may be public.

Here C is Toeplitz: entry (s, t) is c_{s-t}, and `coefficients` are c_0, c_1, …, shape (bands,).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpteach import domain
from dpteach.guarantees import GaussianGuarantee

__all__ = [
    "CorrelatedSGD", "inverse_coefficients", "momentum_root", "nuclear_bound", "prefix_root",
    "sensitivity", "toeplitz", "workload_error",
]  # fmt: skip

Relation = Literal["zero-out", "replace-one"]
RELATIONS = ("zero-out", "replace-one")
_CHANGE = {"zero-out": 1.0, "replace-one": 2.0}  # of one clipped sum, in units of the clipping norm
_STEPS = "[1, 2e4]"


def prefix_root(bands: int) -> np.ndarray:
    """c_k = binom(2k, k)/4^k, k < bands: the series of (1-x)^{-1/2}. Exact, 1e-14 relative.

    The square root of the prefix-sum matrix (c∗c = 1, 1, 1, …): Fichtenberger, Henzinger and
    Upadhyay 2023. `bands` of 1 is independent noise.

    >>> prefix_root(4)
    array([1.    , 0.5   , 0.375 , 0.3125])
    """
    k = np.arange(1, domain.whole_number("bands", bands, _STEPS))
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])


def momentum_root(bands: int, momentum: float) -> np.ndarray:
    """The series of ((1-x)(1-βx))^{-1/2}, β = `momentum` in [0, 1): Σ_j β^j c_j c_{k-j}.

    The square root of the matrix that SGD with momentum applies to gradients.

    >>> momentum_root(3, 0.5)
    array([1.     , 0.75   , 0.59375])
    """
    beta = domain.number("momentum", momentum, "[0, 1)")
    c = prefix_root(bands)
    return np.convolve(c, beta ** np.arange(c.size) * c)[: c.size]


def inverse_coefficients(coefficients: ArrayLike, steps: int) -> np.ndarray:
    """First column of C⁻¹ for `steps` steps: w_t = (z_t - Σ_{i≥1} c_i w_{t-i})/c_0 with z = e_1.

    >>> inverse_coefficients(prefix_root(4), 4)
    array([ 1.    , -0.5   , -0.125 , -0.0625])
    """
    c = _coefficients(coefficients)
    steps = domain.whole_number("steps", steps, _STEPS)
    w = np.zeros(steps)
    w[0] = 1 / c[0]
    for t in range(1, steps):
        reach = min(t, c.size - 1)
        w[t] = -(c[1 : reach + 1] @ w[t - reach : t][::-1]) / c[0]
    return w


def toeplitz(coefficients: ArrayLike, steps: int) -> np.ndarray:
    """The lower-triangular matrix with entry (s, t) = c_{s-t}; shape (steps, steps).

    >>> toeplitz([1.0, 0.5], 3)
    array([[1. , 0. , 0. ],
           [0.5, 1. , 0. ],
           [0. , 0.5, 1. ]])
    """
    c = _coefficients(coefficients)
    steps = domain.whole_number("steps", steps, "[1, 1e4]")
    c = np.pad(c[:steps], (0, max(0, steps - c.size)))
    gap = np.subtract.outer(np.arange(steps), np.arange(steps))
    return np.where(gap >= 0, c[gap], 0.0)


def sensitivity(coefficients: ArrayLike, steps: int, gap: int, participations: int) -> float:
    """sens(C) = max over admissible participations of the norm of the sum of C's columns. Exact.

    In units of Δ. For c_0 ≥ c_1 ≥ … ≥ 0 the worst record takes part as early and as often as it
    may: steps 1, 1 + gap, 1 + 2·gap, … (chapter 23). Raises `ValueError` for other coefficients.

    >>> round(sensitivity(prefix_root(8), steps=8, gap=3, participations=3), 8)
    2.72563112
    """
    c = _coefficients(coefficients)
    decreasing = bool(np.all(np.diff(c) <= 0) and c[-1] >= 0)
    domain.require("coefficients", coefficients, decreasing, "nonnegative and never increasing")
    steps = domain.whole_number("steps", steps, _STEPS)
    gap = domain.whole_number("gap", gap, "[1, inf)", "steps between two uses of a record")
    participations = domain.whole_number("participations", participations, "[1, inf)")
    column = np.pad(c[:steps], (0, max(0, steps - c.size)))
    total = np.zeros(steps)
    for start in range(0, min(steps, participations * gap), gap):
        total[start:] += column[: steps - start]
    return math.sqrt(total @ total)


def workload_error(
    coefficients: ArrayLike, steps: int, momentum: float = 0.0
) -> tuple[float, float]:
    """Root mean square and maximal std of the noise in θ's sums, per coordinate, for std(z) = 1.

    Row t of B = A C⁻¹, where A is the prefix-sum matrix, or SGD with momentum's. Multiply by
    sens(C)·Δ/mu for the noise that mu-GDP needs.

    >>> [round(x, 6) for x in workload_error([1.0], 1024)]  # independent noise
    [22.638463, 32.0]
    """
    beta = domain.number("momentum", momentum, "[0, 1)")
    k = np.arange(domain.whole_number("steps", steps, _STEPS))
    workload = (1 - beta ** (k + 1)) / (1 - beta)  # all 1 without momentum
    row = np.convolve(workload, inverse_coefficients(coefficients, steps))[:steps]
    variance = np.cumsum(row**2)
    return math.sqrt(variance.mean()), math.sqrt(variance[-1])


def nuclear_bound(steps: int) -> float:
    """‖A‖_*/T: no factorisation of the prefix sums has a smaller RMSE × sens. Lower bound.

    One participation. The singular values of A are 1/(2 sin((2j-1)π/(4T+2))), j = 1, …, T.

    >>> round(nuclear_bound(64), 8)
    2.04012803
    """
    steps = domain.whole_number("steps", steps, _STEPS)
    j = np.arange(1, steps + 1)
    return float(np.mean(1 / (2 * np.sin((2 * j - 1) * math.pi / (4 * steps + 2)))))


def _coefficients(coefficients: ArrayLike) -> np.ndarray:
    c = domain.numbers("coefficients", coefficients)
    domain.require("coefficients", coefficients, c.ndim == 1 and c[0] > 0, "a list with c_0 > 0")
    return c


@dataclass(frozen=True, kw_only=True)
class CorrelatedSGD:
    """One run of SGD with correlated noise on fixed batches: the facts that privacy depends on.

    Parameters
    ----------
    n : number of records, public.
    batch_size : records in each batch; an epoch has ⌈n/batch_size⌉ batches, always in one order.
    epochs : passes over the data, a whole number: a record takes part once in each.
    noise_multiplier : standard deviation of the independent noise z, divided by `clip_norm`.
    bands : coefficients of `prefix_root` that are used; 1 is independent noise.
    clip_norm : C.

    >>> run = CorrelatedSGD(n=60000, batch_size=250, epochs=15, noise_multiplier=10.0, bands=240)
    >>> run.steps, round(run.mu("zero-out"), 4)
    (3600, 0.6493)
    """

    n: int
    batch_size: int
    epochs: int
    noise_multiplier: float
    bands: int = 1
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        n = domain.whole_number("n", self.n, "[1, 1e12]")
        domain.set_fields(
            self,
            n=n,
            batch_size=domain.whole_number("batch_size", self.batch_size, f"[1, {n}]"),
            epochs=domain.whole_number("epochs", self.epochs, "[1, 1e5]"),
            noise_multiplier=domain.number("noise_multiplier", self.noise_multiplier, domain.NOISE),
            clip_norm=domain.number("clip_norm", self.clip_norm, "[1e-6, 1e6]"),
        )
        domain.whole_number("steps", self.steps, _STEPS, "choose larger batches or fewer epochs")
        bands = domain.whole_number("bands", self.bands, f"[1, {self.steps}]")
        domain.set_fields(self, bands=bands)

    @property
    def gap(self) -> int:
        """Steps between two uses of a record: the batches of one epoch."""
        return math.ceil(self.n / self.batch_size)

    @property
    def steps(self) -> int:
        """T, the number of noisy updates."""
        return self.gap * self.epochs

    @property
    def coefficients(self) -> np.ndarray:
        """c_0, …, c_{bands-1}."""
        return prefix_root(self.bands)

    def mu(self, relation: Relation) -> float:
        """mu of the whole run: sens(C)·Δ / std(z), Δ = C (zero-out) or 2C (replace-one). Exact."""
        change = _CHANGE[domain.one_of("relation", relation, RELATIONS)]
        sens = sensitivity(self.coefficients, self.steps, self.gap, self.epochs)
        return sens * change / self.noise_multiplier

    def guarantee(self, relation: Relation) -> GaussianGuarantee:
        """Exactly mu-GDP, every step's output published, gradients chosen adaptively."""
        return GaussianGuarantee(
            mu=self.mu(relation),
            name="correlated-noise",
            assumptions=(
                f"{relation} neighbours, fixed batches in a fixed order, {self.epochs} epochs, "
                f"{self.bands} bands, noise std {self.noise_multiplier:g} × clip_norm before "
                "correlation"
            ),
        )

    @classmethod
    def for_mu(cls, mu: float, relation: Relation, **facts: Any) -> CorrelatedSGD:
        """The run with the noise that makes it exactly mu-GDP under `relation`.

        >>> facts = {"n": 60000, "batch_size": 250, "epochs": 15, "bands": 16}
        >>> round(CorrelatedSGD.for_mu(1.0, "zero-out", **facts).noise_multiplier, 4)
        5.3998
        """
        one = cls(noise_multiplier=1.0, **facts)
        return cls(noise_multiplier=one.mu(relation) / domain.mu(mu), **facts)
