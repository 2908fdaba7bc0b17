"""Auditing a whole trade-off function in one run (chapter 18).

Many canaries, each put in by a fair coin of its own; one training; guesses of some coins from its
output. If the training is f-DP, the number of right guesses can't be large too often: Mahloujifar,
Melis and Chaudhuri 2024. The curve f may be the run's own, so a claim is tested as it is made, and
not through one (ε, δ).

All take the number of coins that were `correct`, of the `guesses` made (fixed beforehand), among so
many `canaries`. Kind: upper bounds on a probability under the claim, so lower bounds on what leaks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from dpteach import domain
from dpteach.accountants import account
from dpteach.guarantees import GaussianGuarantee, Guarantee
from dpteach.run import NoisySGD, Relation

__all__ = ["least_correct", "one_run_mu", "one_run_p_value", "one_run_sigma"]

_EPSILONS = np.concatenate([np.linspace(0, 2, 17)[:-1], np.geomspace(2, 40, 17)])
_ACCURACY = 1e-9  # of the p-value
Rate = Callable[[float], float]


class _Rates(NamedTuple):
    """F = 1 - f, the largest true positive rate, and its inverse."""

    largest: Rate  # F
    least: Rate  # G(x) = inf{y: F(y) ≥ x}


def _rates(guarantee: Guarantee) -> _Rates:
    """F and G of a Gaussian curve; else F(y) = min over ε of δ(ε) + e^ε y, on a grid.

    Fewer ε make F larger and refute less. δ bounds both directions, so δ(-ε) = 1 - e^{-ε}(1 - δ(ε))
    does for negative ε.
    """
    if isinstance(guarantee, GaussianGuarantee):
        mu = guarantee.mu
        return _Rates(
            lambda y: float(ndtr(ndtri(y) + mu)), lambda x: float(ndtr(ndtri(x) - mu))
        )
    delta = np.array([guarantee.delta(epsilon) for epsilon in _EPSILONS])
    negative = 1 - np.exp(-_EPSILONS) * (1 - delta)
    slope = np.exp(np.concatenate([_EPSILONS, -_EPSILONS]))
    delta = np.concatenate([delta, negative])
    return _Rates(
        lambda y: min(1.0, float(np.min(delta + slope * y))),
        lambda x: max(0.0, float(np.max((x - delta) / slope))),
    )


def _one_sided(rates: _Rates) -> _Rates:
    """Only "present" is guessed: no mean over the coin's two sides, so half of F(2y) instead."""
    return _Rates(
        lambda y: rates.largest(min(2 * y, 1.0)) / 2, lambda x: rates.least(min(2 * x, 1.0)) / 2
    )


def _tails_refute(rates: _Rates, p: float, c: int, r: int, m: int) -> bool:
    """Whether P(at least c right) ≥ p contradicts the tail inequalities (theorem of chapter 18)."""
    right, wrong = p * c / m, p * (r - c) / m
    for i in range(c - 1, -1, -1):
        needed = max(wrong, rates.least(min(right, 1.0)))
        if needed == wrong:
            break
        right, wrong = right + i / (r - i) * (needed - wrong), needed
    return right + wrong > r / m


def _by_tails(rates: _Rates, c: int, r: int, m: int) -> float:
    low, high = 0.0, 1.0
    if not _tails_refute(rates, high, c, r, m):
        return 1.0
    while high - low > _ACCURACY * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _tails_refute(rates, middle, c, r, m) else (middle, high)
    return high


def _by_singletons(rates: _Rates, c: int, r: int, m: int) -> float:
    """The largest P(at least c right) when each count's probability bounds its neighbours'."""

    def above(x: float) -> float:
        total, p = x, x
        for i in range(c + 1, r + 1):
            p = min(1.0, m / i * rates.largest(min((r - i + 1) / m * p, 1.0)))
            total += p
            if total > 1 or p == 0:
                break
        return total

    def below(x: float) -> float:
        total, p = 0.0, x
        for i in range(c, 0, -1):
            p = m / (r - i + 1) * rates.least(min(i / m * p, 1.0))
            total += p
            if total > 1 or p == 0:
                break
        return total

    low, high = -700.0, 0.0  # of log x; at high the probabilities add up to more than 1
    while high - low > _ACCURACY:
        middle = (low + high) / 2
        x = math.exp(middle)
        low, high = (low, middle) if above(x) + below(x) > 1 else (middle, high)
    return min(1.0, above(math.exp(high)))


def _refuted(guarantee: Guarantee, level: float, c: int, r: int, m: int, only_in: bool) -> bool:
    """Whether the p-value is at most `level`: tails first, which settle it for most curves."""
    if c == 0:
        return False
    rates = _one_sided(_rates(guarantee)) if only_in else _rates(guarantee)
    return _tails_refute(rates, level, c, r, m) or _by_singletons(rates, c, r, m) <= level


def _p_value(guarantee: Guarantee, c: int, r: int, m: int, only_in: bool) -> float:
    if c == 0:
        return 1.0
    rates = _one_sided(_rates(guarantee)) if only_in else _rates(guarantee)
    return min(_by_tails(rates, c, r, m), _by_singletons(rates, c, r, m))


def _counts(correct: int, guesses: int, canaries: int) -> tuple[int, int, int]:
    guesses = domain.whole_number("guesses", guesses, "[1, 1e5]")
    advice = "of the guesses, not of the canaries"
    correct = domain.whole_number("correct", correct, f"[0, {guesses}]", advice)
    advice = "at most one guess for each canary"
    return correct, guesses, domain.whole_number("canaries", canaries, f"[{guesses}, 1e9]", advice)


def _miss(confidence: float) -> float:
    advice = "it's the probability with which the statement holds, such as 0.95"
    return 1 - domain.number("confidence", confidence, "[0.5, 1)", advice)


def one_run_p_value(
    guarantee: Guarantee, correct: int, guesses: int, *, canaries: int, only_in: bool = False
) -> float:
    """Upper bound on P(at least `correct` of `guesses` are right), if `guarantee` holds.

    guarantee : what's claimed of adding or removing one canary, in both directions.
    only_in : whether all guesses say "present", which gives a smaller bound.

    A p-value: below 0.05 it refutes the claim at 95 %. The smaller of two bounds that follow from
    the inequality of Mahloujifar, Melis and Chaudhuri 2024; 1e-6 relative.

    >>> one_run_p_value(GaussianGuarantee(mu=0.5), 1, 1, canaries=1).__round__(6)  # Φ(1/4)
    0.598706
    """
    domain.instance("guarantee", guarantee, Guarantee, "GaussianGuarantee(mu=1.0)")
    correct, guesses, canaries = _counts(correct, guesses, canaries)
    return _p_value(guarantee, correct, guesses, canaries, only_in)


def least_correct(
    guarantee: Guarantee, guesses: int, *, canaries: int, confidence: float = 0.95
) -> int:
    """The least number of right guesses that refutes the guarantee; guesses + 1 where none does.

    >>> least_correct(GaussianGuarantee(mu=1.0), 100, canaries=1000)
    99
    """
    domain.instance("guarantee", guarantee, Guarantee, "GaussianGuarantee(mu=1.0)")
    _, r, m = _counts(0, guesses, canaries)
    miss, rates = _miss(confidence), _rates(guarantee)
    low, high = 0, r + 1  # p falls as more guesses are right
    while high - low > 1:
        c = (low + high) // 2
        refuted = _tails_refute(rates, miss, c, r, m) or _by_singletons(rates, c, r, m) <= miss
        low, high = (low, c) if refuted else (c, high)
    return high


def _least_kept(refuted: Callable[[float], bool], low: float, high: float) -> float:
    """The largest value that's refuted, where all below it are, by bisection of the logarithm."""
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def one_run_mu(
    correct: int, guesses: int, *, canaries: int, confidence: float = 0.95, only_in: bool = False
) -> float:
    """Lower bound on mu from one run: the largest mu in [1e-6, 100] that's refuted, else 0.

    >>> round(one_run_mu(167, 200, canaries=1000), 3)
    0.519
    """
    c, r, m = _counts(correct, guesses, canaries)
    miss = _miss(confidence)

    def refuted(mu: float) -> bool:
        return _refuted(GaussianGuarantee(mu=mu), miss, c, r, m, only_in)

    return _least_kept(refuted, 1e-6, 100.0) if refuted(1e-6) else 0.0


def one_run_sigma(
    run: NoisySGD, relation: Relation, correct: int, guesses: int,
    *, canaries: int, confidence: float = 0.95,
) -> float:  # fmt: skip
    """Upper bound on the training's σ: the least one that's refuted, within 1 %; else inf.

    Among runs that differ from `run` in their noise alone, each judged by the upper end of its
    tensor power. The family is a hypothesis: of another kind of training nothing follows.

    >>> lone = NoisySGD(n=10, batch_size=10, steps=1, noise_multiplier=2.0)
    >>> 0.92 < one_run_sigma(lone, "add-remove", 95, 100, canaries=100) < 0.94
    True
    """
    c, r, m = _counts(correct, guesses, canaries)
    miss, scale = _miss(confidence), run.noise_multiplier / run.sigma(relation)

    def refuted(sigma: float) -> bool:
        other = account(replace(run, noise_multiplier=sigma * scale), relation)["tensor-power"]
        return _refuted(other, miss, c, r, m, False)

    low = high = run.sigma(relation)
    while not refuted(high):
        if high == 1e3:
            return math.inf
        low, high = high, min(2 * high, 1e3)
    while low > 0.05 and refuted(low):
        low, high = max(low / 2, 0.05), low
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return high
