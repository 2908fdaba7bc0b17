"""Auditing: what an attack that was really carried out proves about a mechanism (chapter 18).

An attacker sees a mechanism's outputs and says "present" or "absent". Over independent runs its two
kinds of errors are counted, and the counts bound the true error rates with a stated confidence
(Clopper and Pearson 1934, exact). A test is a point in the trade-off plane; no valid guarantee has
its curve above that point. So an audit is a lower bound: on ε, on δ, on mu, and it bounds the
trade-off function from above.

Two designs:

* many runs, one canary each: `audit_scores` for a threshold that was fixed beforehand,
  `held_out_audit` for one that the data choose, `best_threshold` for the choice alone;
* one run with many canaries (Steinke, Nasr and Jagielski 2023): `guess`, `one_run_tail`,
  `one_run_epsilon`.

Not for: guarantees. An audit that finds nothing proves nothing; a stronger attack may find
something.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincc, betainccinv, betaincinv, expit, ndtri

from dpteach import domain
from dpteach.guarantees import Guarantee, Kind

__all__ = [
    "Audit", "audit_scores", "best_threshold", "clopper_pearson", "guess", "held_out_audit",
    "one_run_epsilon", "one_run_tail",
]  # fmt: skip

_DELTA, _RUNS = "[0, 1)", "[1, 1e9]"


def _checked_confidence(confidence: float) -> float:
    advice = "it's the probability with which the statement holds, such as 0.95"
    return domain.number("confidence", confidence, "[1e-9, 1)", advice)


def clopper_pearson(
    count: ArrayLike, trials: int, miss: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on a probability after `count` successes in `trials` independent trials.

    Each end alone is wrong with probability at most `miss`, in [1e-12, 0.5], so both hold with
    probability 1 - 2·miss. `count` may be an array, and the results have its shape. Exact at every
    sample size (Clopper and Pearson 1934); relative accuracy 1e-9.

    >>> low, high = clopper_pearson(0, 100, 0.025)
    >>> float(low), round(float(high), 6), round(1 - 0.025 ** (1 / 100), 6)
    (0.0, 0.036217, 0.036217)
    """
    trials = domain.whole_number("trials", trials, _RUNS, "the number of independent runs")
    count = domain.numbers("count", count, f"[0, {trials}]", "it's a number of runs")
    miss = domain.number("miss", miss, "[1e-12, 0.5]", "it's the probability of error of each end")
    return _clopper_pearson(count, trials, miss)


def _clopper_pearson(
    count: np.ndarray, trials: int, miss: float
) -> tuple[np.ndarray, np.ndarray]:
    low = betaincinv(np.maximum(count, 1), trials - count + 1, miss)
    high = betainccinv(count + 1, np.maximum(trials - count, 1), miss)
    return np.where(count > 0, low, 0.0), np.where(count < trials, high, 1.0)


def _epsilon(alpha: ArrayLike, beta: ArrayLike, delta: float) -> np.ndarray:
    """Least ε ≥ 0 for which (ε, δ)-DP allows errors alpha and beta, in (0, 1]."""
    a, b = np.asarray(alpha, dtype=float), np.asarray(beta, dtype=float)
    gain = np.maximum((1 - delta - a) / b, (1 - delta - b) / a)
    return np.log(np.maximum(gain, 1.0))


@dataclass(frozen=True, kw_only=True)
class Audit(Guarantee):
    """A membership test's errors over independent runs: a lower bound on ε, δ and mu.

    false_positives of `absent` runs without the record were called "present", false_negatives of
    `present` runs with it "absent". With probability `confidence` over the runs, every statement
    below is true at once, for the pair of data sets that was audited and so for every guarantee
    that covers it in both directions. The test must have been fixed before these runs were seen.

    >>> result = Audit(false_positives=3, absent=1000, false_negatives=400, present=1000)
    >>> round(result.alpha, 5), round(result.beta, 5)
    (0.00874, 0.43112)
    >>> round(result.epsilon(1e-5), 3), round(result.mu, 3)
    (4.176, 2.55)
    """

    false_positives: int
    absent: int
    false_negatives: int
    present: int
    confidence: float = 0.95
    name: str = "audit"
    kind: Kind = "lower bound"
    assumptions: str = "of the two data sets that were audited"

    def __post_init__(self) -> None:
        domain.set_fields(self, confidence=_checked_confidence(self.confidence))
        for errors, runs in (("false_positives", "absent"), ("false_negatives", "present")):
            total = domain.whole_number(runs, getattr(self, runs), _RUNS, "independent runs")
            count = domain.whole_number(errors, getattr(self, errors), f"[0, {total}]")
            domain.set_fields(self, **{runs: total, errors: count})

    def _limit(self, errors: int, runs: int) -> float:
        """Upper confidence limit; half of 1 - confidence is spent on each of the two."""
        return float(_clopper_pearson(np.asarray(errors), runs, (1 - self.confidence) / 2)[1])

    @property
    def alpha(self) -> float:
        """Upper confidence limit of the type I error."""
        return self._limit(self.false_positives, self.absent)

    @property
    def beta(self) -> float:
        """Upper confidence limit of the type II error."""
        return self._limit(self.false_negatives, self.present)

    @property
    def mu(self) -> float:
        """Lower bound on the mu of any mu-GDP guarantee: Φ⁻¹(1 - alpha) - Φ⁻¹(beta), at least 0."""
        return max(0.0, float(-ndtri(self.alpha) - ndtri(self.beta)))

    def profile(self, epsilon: float) -> float:
        """The larger of 1 - beta - e^ε alpha and 1 - alpha - e^ε beta, at least 0."""
        grown = math.exp(min(epsilon, 700.0))  # e^ε overflows from ε = 710 on
        return max(0.0, 1 - self.beta - grown * self.alpha, 1 - self.alpha - grown * self.beta)

    def epsilon(self, delta: float) -> float:
        """Log of (1-δ-alpha)/beta or (1-δ-beta)/alpha, at least 0; δ in [0, 1)."""
        delta = domain.number("delta", delta, _DELTA, "it's a probability, 0 for pure DP")
        return self.least_epsilon(delta)

    def least_epsilon(self, delta: float) -> float:
        return float(_epsilon(self.alpha, self.beta, delta))

    def tradeoff(self, alpha: np.ndarray) -> np.ndarray:
        """Upper bound on every symmetric f that holds: chords through both corners."""
        low, high = sorted((self.alpha, self.beta))
        return np.minimum(np.interp(alpha, [0.0, low, high, 1.0], [1.0, high, low, 0.0]), 1 - alpha)

    def details(self, delta: float) -> dict[str, Any]:
        limits = {"alpha": self.alpha, "beta": self.beta}
        return limits | {"mu": self.mu, "confidence": self.confidence}


def _scores(absent: ArrayLike, present: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    advice = "one score a run; for infinite scores take a monotone function of them, such as arctan"
    without = domain.numbers("absent", absent, advice=advice).ravel()
    return without, domain.numbers("present", present, advice=advice).ravel()


def audit_scores(
    absent: ArrayLike, present: ArrayLike, threshold: float, confidence: float = 0.95
) -> Audit:
    """The audit of "score > threshold means present", for a threshold fixed before the runs.

    absent, present : scores of the runs without and with the record, one number a run.

    >>> audit_scores([0.1, 0.4, 2.0], [1.5, 3.0, 0.2], threshold=1.0).false_negatives
    1
    """
    absent, present = _scores(absent, present)
    threshold = domain.number("threshold", threshold, "[-inf, inf]")
    false_positives, false_negatives = np.sum(absent > threshold), np.sum(present <= threshold)
    return Audit(
        false_positives=int(false_positives), absent=absent.size,
        false_negatives=int(false_negatives), present=present.size, confidence=confidence,
    )  # fmt: skip


def best_threshold(
    absent: ArrayLike, present: ArrayLike, delta: float, confidence: float = 0.95
) -> float:
    """The score at which these runs would give the largest lower bound on ε at δ. No bound itself.

    The bound at the chosen threshold, on the same runs, is too large too often: use other runs.

    >>> best_threshold([0.0] * 60, [1.0] * 50 + [0.0] * 10, delta=0.0)
    0.0
    """
    absent, present = _scores(absent, present)
    delta = domain.number("delta", delta, _DELTA)
    miss = (1 - _checked_confidence(confidence)) / 2
    scores = np.unique(np.concatenate([absent, present]))
    false_positives = absent.size - np.searchsorted(np.sort(absent), scores, side="right")
    false_negatives = np.searchsorted(np.sort(present), scores, side="right")
    alpha = _limits(absent.size, miss)[false_positives]
    beta = _limits(present.size, miss)[false_negatives]
    return float(scores[np.argmax(_epsilon(alpha, beta, delta))])


@lru_cache(maxsize=16)
def _limits(trials: int, miss: float) -> np.ndarray:
    """Upper limits for every count 0..trials: audits of the same size ask for them repeatedly."""
    return _clopper_pearson(np.arange(trials + 1), trials, miss)[1]


def held_out_audit(
    absent: ArrayLike, present: ArrayLike, delta: float, confidence: float = 0.95
) -> Audit:
    """An audit whose threshold is chosen on every second run and judged on the others.

    >>> rng = np.random.default_rng(0)
    >>> result = held_out_audit(rng.normal(0, 1, 2000), rng.normal(3, 1, 2000), delta=0.0)
    >>> result.absent, result.epsilon(0.0) > 3
    (1000, True)
    """
    absent, present = _scores(absent, present)
    for name, scores in (("absent", absent), ("present", present)):
        advice = "half of them choose the threshold"
        domain.require(name, scores, scores.size >= 2, "at least 2 scores", advice)
    threshold = best_threshold(absent[::2], present[::2], delta, confidence)
    return audit_scores(absent[1::2], present[1::2], threshold, confidence)


def guess(scores: ArrayLike, guesses: int) -> np.ndarray:
    """One run's guesses: 1 ("present") for the highest guesses/2 scores, -1 for the lowest, else 0.

    >>> guess([0.3, 5.0, -2.0, 0.1], 2).tolist()
    [0, 1, -1, 0]
    """
    scores = domain.numbers("scores", scores).ravel()
    advice = "there are no more canaries"
    guesses = domain.whole_number("guesses", guesses, f"[1, {scores.size}]", advice)
    order, result = np.argsort(scores, kind="stable"), np.zeros(scores.size, dtype=int)
    result[order[: guesses // 2]] = -1
    result[order[scores.size - (guesses - guesses // 2) :]] = 1
    return result


def one_run_tail(
    correct: int, guesses: int, epsilon: float, *, canaries: int, delta: float = 0.0
) -> float:
    """Upper bound on P(at least `correct` of `guesses` are right), if the run is (ε, δ)-DP.

    Each of `canaries` records was put in by a fair coin of its own; neighbours: one canary in or
    out. With W ~ Binomial(guesses, e^ε/(1 + e^ε)) it's P[W ≥ v] + 2·canaries·δ·max_i
    P[v-i ≤ W < v]/i, at most 1. For δ = 0 the bound is attained by randomised response. Source:
    Steinke, Nasr and Jagielski 2023, section 5. Relative accuracy 1e-9.

    >>> round(one_run_tail(3, 3, math.log(3), canaries=3), 6)  # (3/4)³
    0.421875
    """
    correct, guesses, canaries, delta = _one_run(correct, guesses, canaries, delta)
    return _tail(correct, guesses, domain.epsilon(epsilon), canaries, delta)


def _one_run(
    correct: int, guesses: int, canaries: int, delta: float
) -> tuple[int, int, int, float]:
    guesses = domain.whole_number("guesses", guesses, "[1, 1e7]")
    advice = "of the guesses, not of the canaries"
    correct = domain.whole_number("correct", correct, f"[0, {guesses}]", advice)
    advice = "at most one guess for each canary"
    canaries = domain.whole_number("canaries", canaries, f"[{guesses}, 1e9]", advice)
    return correct, guesses, canaries, domain.number("delta", delta, _DELTA)


def _tail(v: int, guesses: int, epsilon: float, canaries: int, delta: float) -> float:
    if v == 0:
        return 1.0
    right = float(expit(epsilon))
    tail = float(betainc(v, guesses - v + 1, right))  # P[W ≥ v]
    if delta > 0:
        i = np.arange(1, v + 1)
        less = np.append(betaincc(v - i[:-1], guesses - v + i[:-1] + 1, right), 0.0)  # P[W < v-i]
        tail += 2 * canaries * delta * float(np.max((1 - tail - less) / i))
    return min(tail, 1.0)


def one_run_epsilon(
    correct: int, guesses: int, *, canaries: int, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """Lower bound on ε at δ from one run: the largest ε ≥ 0 that `correct` guesses refute, else 0.

    (ε, δ)-DP is refuted where `one_run_tail` is at most 1 - confidence. Kind: lower bound, with
    that confidence.

    >>> round(one_run_epsilon(90, 100, canaries=1000, delta=1e-5), 3)
    1.626
    """
    correct, guesses, canaries, delta = _one_run(correct, guesses, canaries, delta)
    miss = 1 - _checked_confidence(confidence)

    def refuted(e: float) -> bool:
        return _tail(correct, guesses, e, canaries, delta) <= miss

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
