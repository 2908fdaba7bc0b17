"""Closed-form bounds of Abadi16: Lemma 3 for one step (chapter 4), Theorem 1 for a run (chapter 5).

The paper's statements hide constants. Here they're explicit, and proved in the two chapters:

* Lemma 3's log moment: `lemma3_leading` (the printed term alone, *not* a bound where λ = 3),
  `lemma3_bound` (plus 0.8 q³λ³/σ³: an upper bound on the whole region), `lemma3_remainder` (the
  analytic half of the proof), `verify_lemma3` (the finite half, by bisection of boxes).
* Theorem 1's noise: `theorem1_sigma`, with constants C1 and C2 and the conditions they need.

Everywhere: add/remove neighbours, Poisson sampling at `rate` q, sigma = noise standard deviation
over sensitivity. λ is the order of a log moment. The region of Lemma 3 is

    σ ≥ 1,   q < 1/(16σ),   λ whole,   1 ≤ λ ≤ σ² log(1/(qσ)).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, logsumexp, ndtr

from dpteach import domain

__all__ = [
    "C1", "C2", "LEMMA3_CONSTANT", "lemma3_bound", "lemma3_k", "lemma3_leading",
    "lemma3_region", "lemma3_remainder", "theorem1_order", "theorem1_sigma", "verify_lemma3",
]  # fmt: skip

LEMMA3_CONSTANT = 0.8  # of q³λ³/σ³; the least that works is 0.7844, at λ = 3, σ = 1, q → e^-3
C1 = 7.14  # below 6 (e-1) log(2) = 7.1461
C2 = 2.781  # above √(9 (e-1)/2) = 2.7807, the least possible: chapter 5
_LAM = "(0, 1e9]"
_X = math.log(16) / 16  # the largest x·log(1/x) for x = qσ ≤ 1/16


def lemma3_region(rate: ArrayLike, sigma: ArrayLike, lam: ArrayLike) -> np.ndarray:
    """Whether Lemma 3's conditions hold (Abadi16): σ ≥ 1, q < 1/(16σ), whole λ ≤ σ² log(1/(qσ)).

    Arrays broadcast against each other.

    >>> lemma3_region(0.01, 4.0, [51, 52]).tolist()
    [True, False]
    """
    rate, sigma, lam = _numbers(rate, sigma, lam)
    whole = lam == np.floor(lam)
    region = (sigma >= 1) & (16 * rate * sigma < 1)
    return whole & region & (lam <= -(sigma**2) * np.log(rate * sigma))


def lemma3_leading(rate: ArrayLike, sigma: ArrayLike, lam: ArrayLike) -> np.ndarray:
    """q²λ(λ+1)/((1-q)σ²), Lemma 3's printed term (Abadi16), q < 1. Asymptotic: no bound by itself.

    On the region the exact log moment is 0.499 to 1.0835 times this; above 1 only at λ = 3.

    >>> float(lemma3_leading(0.5, 2.0, 1)) == 0.25 * 2 / (0.5 * 4)
    True
    """
    rate, sigma, lam = _numbers(rate, sigma, lam)
    domain.numbers("rate", rate, "[1e-9, 1)")
    return rate**2 * lam * (lam + 1) / ((1 - rate) * sigma**2)


def _numbers(rate: ArrayLike, sigma: ArrayLike, lam: ArrayLike) -> tuple[np.ndarray, ...]:
    sigma = domain.numbers("sigma", sigma, domain.SIGMA)
    return domain.numbers("rate", rate, domain.RATE), sigma, domain.numbers("lam", lam, _LAM)


def _admissible(rate: float, sigma: float, lam: int) -> tuple[float, float, int]:
    """The arguments, or `ValueError` with the first condition of Lemma 3 that fails."""
    sigma = domain.number("sigma", sigma, "[1, 1e3]", "Lemma 3 needs sigma >= 1")
    allowed = f"[1e-9, {1 / (16 * sigma)!r})"
    rate = domain.number("rate", rate, allowed, "Lemma 3 needs q < 1/(16 sigma)")
    largest = math.floor(-(sigma**2) * math.log(rate * sigma))
    advice = "Lemma 3 needs lam <= sigma^2 log(1/(q sigma))"
    return rate, sigma, domain.whole_number("lam", lam, f"[1, {largest}]", advice)


def lemma3_bound(rate: float, sigma: float, lam: int) -> float:
    """q²λ(λ+1)/((1-q)σ²) + 0.8 q³λ³/σ³: Lemma 3 with its O() term written out.

    Upper bound on the log moment of one step. Raises `ValueError` outside the region.

    >>> f"{lemma3_bound(0.01, 4.0, 19):.6f}"
    '0.002485'
    """
    rate, sigma, lam = _admissible(rate, sigma, lam)
    remainder = LEMMA3_CONSTANT * (rate * lam / sigma) ** 3
    return float(lemma3_leading(rate, sigma, lam)) + remainder


def lemma3_k(s: ArrayLike, xl: ArrayLike = _X) -> np.ndarray:
    """K of the third-order term C(λ+1, 3)(q/σ)³K; s = 1/σ, xl = x log(1/x) with x = qσ ≤ 1/16.

    K = e^{-s²/8} Σ_j w_j e^{β_j²} M3(√2 β_j), β_j = (j - 1/2)s + xl, w = (4, 3, 1)/2, j = 1, 2, 3,
    with M3(c) = E (Y + c)_+³ = (c³ + 3c)Φ(c) + (c² + 2)φ(c). Increasing in s and in xl.

    >>> [float(f"{k:.3g}") for k in lemma3_k([1.0, 0.5, 0.25])]
    [37100.0, 78.5, 14.2]
    """
    s, xl = domain.numbers("s", s, "[0, 1]"), domain.numbers("xl", xl, "[0, 0.174]")
    total = 0.0
    for j, weight in ((1, 2.0), (2, 1.5), (3, 0.5)):
        beta = (j - 0.5) * s + xl
        c = math.sqrt(2) * beta
        density = np.exp(-(c**2) / 2) / math.sqrt(2 * math.pi)
        m3 = (c**3 + 3 * c) * ndtr(c) + (c**2 + 2) * density
        total = total + weight * np.exp(beta**2 - s**2 / 8) * m3
    return np.asarray(total)


def lemma3_remainder(rate: float, sigma: float, lam: int) -> float:
    """C(λ+1,2)q²(e^{1/σ²}-1) + C(λ+1,3)(q/σ)³K: what the analysis of chapter 4 gives. Upper bound.

    Tight for σ ≥ 4, very loose near σ = 1. Raises `ValueError` outside the lemma's region.

    >>> lemma3_remainder(0.01, 4.0, 19) < lemma3_bound(0.01, 4.0, 19)
    True
    """
    rate, sigma, lam = _admissible(rate, sigma, lam)
    k = float(lemma3_k(1 / sigma, -rate * sigma * math.log(rate * sigma)))
    second = math.comb(lam + 1, 2) * rate**2 * math.expm1(sigma**-2)
    return second + math.comb(lam + 1, 3) * (rate / sigma) ** 3 * k


def _normalised_e2(q: np.ndarray, s: np.ndarray, lam: int) -> np.ndarray:
    """(E2 - 1)/(q²s²), whole λ, s = 1/σ: increasing in q and s; positive terms, none cancel."""
    a, k = lam + 1, np.arange(2, lam + 2)
    binomial = gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)
    log_q, exponent = np.log(np.maximum(q, 1e-300))[:, None], k * (k - 1) * s[:, None] ** 2 / 2
    terms = binomial + (a - k) * np.log1p(-q[:, None]) + (k - 2) * log_q
    total = logsumexp(terms + exponent + np.log(-np.expm1(-exponent)), axis=1)
    return np.exp(np.minimum(total, 700)) / s**2


def _corners(
    boxes: np.ndarray, lam: int, constant: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (s0, s1, q0, q1) cut to the region; the most that log_moment/(q²s²) and the least that
    its bound can be in each."""
    s0, s1, q0, q1 = boxes
    q1 = np.minimum(q1, s1 * np.minimum(1 / 16, np.exp(-lam * s0**2)))
    s0, s1, q0, q1 = boxes = np.stack([s0, s1, q0, q1])[:, q0 < q1]
    low = q0**2 * s0**2 * _normalised_e2(q0, s0, lam)
    shrink = np.where(low > 0, np.log1p(low) / np.maximum(low, 1e-300), 1.0)
    left = _normalised_e2(q1, s1, lam) * shrink * (1 + 1e-11)
    return boxes, left, lam * (lam + 1) / (1 - q0) + constant * q0 * lam**3 * s0


def verify_lemma3(
    lam: int, constant: float, s: ArrayLike = (0.25, 1.0), rate: ArrayLike = (0, 1)
) -> int:
    """Prove log_moment(λ) ≤ leading term + constant·q³λ³/σ³ where 1/σ is in `s` and q in `rate`.

    Covers the part of Lemma 3's region in that rectangle. Boxes are settled by their corners:
    log_moment/(q²s²) is at most its bound at the upper corner, the right side at least its value
    at the lower one. A box that isn't settled is cut in four. Returns how many boxes were compared.
    Double precision, with a margin of 1e-11. Raises `ValueError` where 60 rounds don't settle it.

    >>> verify_lemma3(7, 0.0) > 0  # at λ = 7 the leading term is a bound without any O() term
    True
    """
    lam = domain.whole_number("lam", lam, "[1, 1000]")
    constant = domain.number("constant", constant, "[0, 1e100]")
    s, rate = domain.numbers("s", s, "[1e-6, 1]"), domain.numbers("rate", rate, "[0, 1]")
    domain.same_shape(s=s, rate=rate, ends=np.empty(2))
    boxes, count = np.concatenate([s, rate])[:, None], 0
    for _ in range(60):
        boxes, left, right = _corners(boxes, lam, constant)
        count += left.size
        s0, s1, q0, q1 = boxes[:, left > right]
        if not 0 < s0.size < 100_000:
            break
        sm, qm = (s0 + s1) / 2, (q0 + q1) / 2
        quarters = ((s0, sm, q0, qm), (s0, sm, qm, q1), (sm, s1, q0, qm), (sm, s1, qm, q1))
        boxes = np.concatenate(quarters, axis=1)
    if s0.size:
        where = f"near sigma = {1 / s0[-1]:.4g}, q = {q1[-1]:.4g}"
        raise ValueError(f"constant = {constant:g} isn't enough at lam = {lam}, {where}: raise it")
    return count


def theorem1_order(epsilon: float, delta: float) -> int:
    """λ = ⌊3 log(1/δ)/ε⌋, the order that the proof of Theorem 1 uses, and at least 1; ε > 0.

    >>> theorem1_order(1.0, 1e-5)
    34
    """
    epsilon = domain.number("epsilon", epsilon, "[1e-9, 1e5]", "the order is 3 log(1/δ)/ε")
    return max(1, math.floor(-3 * math.log(domain.delta(delta)) / epsilon))


def theorem1_sigma(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """σ = max(1, 2.781 q√(T log(1/δ))/ε): with this noise T steps are (ε, δ)-DP.

    Theorem 1 of Abadi16 with constants that hold (chapter 5): an upper bound on the
    least σ. Add/remove, Poisson. Raises `ValueError` unless ε ≤ 7.14 q²T,
    ε ≤ 3 log(1/δ) and q < 1/(16σ).

    >>> round(theorem1_sigma(0.01, 10000, 3.2, 1e-5), 3)
    2.949
    """
    rate, steps = domain.rate(rate), domain.steps(steps, least=1)
    log_delta = -math.log(domain.delta(delta))
    largest = min(C1 * rate**2 * steps, 3 * log_delta)
    advice = "Theorem 1 needs epsilon <= 7.14 q^2 T and <= 3 log(1/delta)"
    epsilon = domain.number("epsilon", epsilon, f"(0, {largest!r}]", advice)
    sigma = max(1.0, C2 * rate * math.sqrt(steps * log_delta) / epsilon)
    advice = f"for sigma = {sigma:.4g} Lemma 3 needs q < 1/(16 sigma)"
    domain.number("rate", rate, f"(0, {1 / (16 * sigma)!r})", advice)
    return sigma
