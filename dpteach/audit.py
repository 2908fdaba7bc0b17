"""Auditing: what an attack that was really carried out proves about a mechanism.

An attacker sees a mechanism's outputs and says "present" or "absent". Over independent runs its two kinds of errors
are counted, and the counts bound the true error rates with a stated confidence (Clopper and Pearson 1934, exact). A
test is a point in the trade-off plane; no valid guarantee has its curve above that point. So an audit is a lower bound:
on ε, on δ, on mu, and it bounds the trade-off function from above.

Two designs:

* many runs, one canary each: `audit_scores` for a threshold that was fixed beforehand, `held_out_audit` for one that
  the data choose, `best_threshold` for the choice alone;
* one run with many canaries (Steinke, Nasr and Jagielski 2023): `guess`, `one_run_tail`, `one_run_epsilon`.

Not for: guarantees. An audit that finds nothing proves nothing; a stronger attack may find something.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import beta, binom

from dpteach import domain
from dpteach.guarantees import Guarantee, Kind

__all__ = [
    "Audit", "audit_scores", "best_threshold", "clopper_pearson", "guess", "held_out_audit", "one_run_epsilon",
    "one_run_tail",
]  # fmt: skip

_DELTA, _CONFIDENCE, _RUNS = "[0, 1)", "[1e-9, 1)", "[1, 1e15]"
_CONFIDENCE_ADVICE = "it's the probability with which the statement holds, such as 0.95"


def clopper_pearson(count: ArrayLike, trials: int, miss: float) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on a probability after `count` successes in `trials` independent trials, exact at every sample size.

    Each end alone is wrong with probability at most `miss`, so both hold with probability 1 - 2·miss. `count` may be
    an array, and the results have its shape. Source: Clopper and Pearson 1934.

    >>> low, high = clopper_pearson(0, 100, 0.025)
    >>> float(low), round(float(high), 6), round(1 - 0.025 ** (1 / 100), 6)
    (0.0, 0.036217, 0.036217)
    """
    trials = domain.whole_number("trials", trials, _RUNS, "the number of independent runs")
    count = domain.numbers("count", count, f"[0, {trials}]", "it's a number of runs")
    miss = domain.number("miss", miss, "[1e-100, 0.5]", "it's the probability of error of each end")
    low = np.where(count > 0, beta.ppf(miss, np.maximum(count, 1), trials - count + 1), 0.0)
    high = np.where(count < trials, beta.isf(miss, count + 1, np.maximum(trials - count, 1)), 1.0)
    return low, high


def _epsilon(alpha: ArrayLike, beta_: ArrayLike, delta: float) -> np.ndarray:
    """Least ε ≥ 0 for which (ε, δ)-DP allows errors alpha and beta, in (0, 1]."""
    a, b = np.asarray(alpha, dtype=float), np.asarray(beta_, dtype=float)
    gain = np.maximum((1 - delta - a) / b, (1 - delta - b) / a)
    return np.log(np.maximum(gain, 1.0))


@dataclass(frozen=True, kw_only=True)
class Audit(Guarantee):
    """A membership test's errors over independent runs: a lower bound on ε, δ and mu, an upper one on f.

    false_positives of `absent` runs without the record were called "present", false_negatives of `present` runs with
    it "absent". With probability `confidence` over the runs, every statement below is true at once, for the pair of
    data sets that was audited and so for every guarantee that covers it in both directions. The test must have been
    fixed before these runs were seen.

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
    convention: str = "of the two data sets that were audited"

    def __post_init__(self) -> None:
        self._keep(confidence=domain.number("confidence", self.confidence, _CONFIDENCE, _CONFIDENCE_ADVICE))
        for errors, runs in (("false_positives", "absent"), ("false_negatives", "present")):
            total = domain.whole_number(runs, getattr(self, runs), _RUNS, "the number of independent runs")
            self._keep(**{runs: total, errors: domain.whole_number(errors, getattr(self, errors), f"[0, {total}]")})

    @property
    def alpha(self) -> float:
        """Upper confidence limit of the type I error; half of 1 - confidence is spent on it."""
        return float(clopper_pearson(self.false_positives, self.absent, (1 - self.confidence) / 2)[1])

    @property
    def beta(self) -> float:
        """Upper confidence limit of the type II error; the other half is spent on it."""
        return float(clopper_pearson(self.false_negatives, self.present, (1 - self.confidence) / 2)[1])

    @property
    def mu(self) -> float:
        """Lower bound on the mu of any mu-GDP guarantee: Φ⁻¹(1 - alpha) - Φ⁻¹(beta), at least 0."""
        return max(0.0, float(-ndtri(self.alpha) - ndtri(self.beta)))

    def delta(self, epsilon: ArrayLike) -> Any:
        """Lower bound on δ(ε): the larger of 1 - beta - e^ε alpha and 1 - alpha - e^ε beta, at least 0."""
        grown = np.exp(np.minimum(domain.numbers("epsilon", epsilon, "[0, inf)"), 700.0))
        first, second = 1 - self.beta - grown * self.alpha, 1 - self.alpha - grown * self.beta
        return np.maximum(0.0, np.maximum(first, second))

    def epsilon(self, delta: float) -> float:
        """Lower bound on ε at δ in [0, 1): log of (1-δ-alpha)/beta or (1-δ-beta)/alpha, at least 0."""
        delta = domain.number("delta", delta, _DELTA, "δ is a probability; typical values are below 1/n")
        return float(_epsilon(self.alpha, self.beta, delta))

    def f(self, alpha: ArrayLike) -> np.ndarray:
        """Upper bound on every symmetric trade-off function that holds: chords through both corners, at most 1 - α."""
        at = domain.numbers("alpha", alpha, "[0, 1]")
        low, high = sorted((self.alpha, self.beta))
        corners = np.interp(at, [0.0, low, high, 1.0], [1.0, high, low, 0.0])
        return np.minimum(corners, 1 - at)

    def details(self, delta: float) -> dict[str, Any]:
        return {"alpha": self.alpha, "beta": self.beta, "mu": self.mu, "confidence": self.confidence}


def _scores(absent: ArrayLike, present: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    advice = "one score for each run; for infinite scores take a monotone function of them, such as arctan"
    scores = domain.numbers("absent", absent, advice=advice), domain.numbers("present", present, advice=advice)
    return scores[0].ravel(), scores[1].ravel()


def audit_scores(absent: ArrayLike, present: ArrayLike, threshold: float, confidence: float = 0.95) -> Audit:
    """The audit of the test "score > threshold means present", for a threshold fixed before the runs.

    absent, present : scores of the runs without and with the record, one number a run.

    >>> audit_scores([0.1, 0.4, 2.0], [1.5, 3.0, 0.2], threshold=1.0).false_negatives
    1
    """
    absent, present = _scores(absent, present)
    threshold = domain.number("threshold", threshold, "[-inf, inf]")
    false = int(np.sum(absent > threshold)), int(np.sum(present <= threshold))
    return Audit(
        false_positives=false[0], absent=absent.size, false_negatives=false[1], present=present.size,
        confidence=confidence,
    )  # fmt: skip


def best_threshold(absent: ArrayLike, present: ArrayLike, delta: float, confidence: float = 0.95) -> float:
    """The score at which these runs would give the largest lower bound on ε at δ. A choice, not a bound.

    The bound at the chosen threshold, on the same runs, is too large too often: use other runs for it.

    >>> best_threshold([0.0] * 60, [1.0] * 50 + [0.0] * 10, delta=0.0)
    0.0
    """
    absent, present = _scores(absent, present)
    delta = domain.number("delta", delta, _DELTA)
    miss = (1 - domain.number("confidence", confidence, _CONFIDENCE, _CONFIDENCE_ADVICE)) / 2
    thresholds = np.unique(np.concatenate([absent, present]))
    false_positives = absent.size - np.searchsorted(np.sort(absent), thresholds, side="right")
    false_negatives = np.searchsorted(np.sort(present), thresholds, side="right")
    alpha, beta_ = _limits(absent.size, miss)[false_positives], _limits(present.size, miss)[false_negatives]
    return float(thresholds[np.argmax(_epsilon(alpha, beta_, delta))])


@lru_cache(maxsize=16)
def _limits(trials: int, miss: float) -> np.ndarray:
    """Upper limits for every count 0..trials: audits of the same size ask for them again and again."""
    return clopper_pearson(np.arange(trials + 1), trials, miss)[1]


def held_out_audit(absent: ArrayLike, present: ArrayLike, delta: float, confidence: float = 0.95) -> Audit:
    """An audit whose threshold is chosen on every second run and judged on the others.

    >>> rng = np.random.default_rng(0)
    >>> result = held_out_audit(rng.normal(0, 1, 2000), rng.normal(3, 1, 2000), delta=0.0)
    >>> result.absent, result.epsilon(0.0) > 3
    (1000, True)
    """
    absent, present = _scores(absent, present)
    for name, scores in (("absent", absent), ("present", present)):
        domain.require(name, scores, scores.size >= 2, "at least 2 scores", "half of them choose the threshold")
    threshold = best_threshold(absent[::2], present[::2], delta, confidence)
    return audit_scores(absent[1::2], present[1::2], threshold, confidence)


def guess(scores: ArrayLike, guesses: int) -> np.ndarray:
    """One run's guesses: 1 ("present") for the highest guesses/2 scores, -1 for the lowest, 0 (abstain) between.

    >>> guess([0.3, 5.0, -2.0, 0.1], 2).tolist()
    [0, 1, -1, 0]
    """
    scores = domain.numbers("scores", scores).ravel()
    guesses = domain.whole_number("guesses", guesses, f"[1, {scores.size}]", "there are no more canaries")
    order, result = np.argsort(scores, kind="stable"), np.zeros(scores.size, dtype=int)
    result[order[: guesses // 2]] = -1
    result[order[scores.size - (guesses - guesses // 2) :]] = 1
    return result


def one_run_tail(correct: int, guesses: int, epsilon: float, *, canaries: int, delta: float = 0.0) -> float:
    """Upper bound on the probability that at least `correct` of `guesses` are right, if the run is (ε, δ)-DP.

    Each of `canaries` records was put in by a fair coin of its own; neighbours: one canary in or out. With
    W ~ Binomial(guesses, e^ε/(1 + e^ε)): P[W ≥ v] + 2·canaries·δ·max_i P[v-i ≤ W < v]/i, at most 1. For δ = 0 the bound
    is attained by randomised response. Source: Steinke, Nasr and Jagielski 2023, section 5.

    >>> round(one_run_tail(3, 3, math.log(3), canaries=3), 6)  # (3/4)³
    0.421875
    """
    guesses = domain.whole_number("guesses", guesses, "[1, 1e7]")
    correct = domain.whole_number("correct", correct, f"[0, {guesses}]", "of the guesses, not of the canaries")
    canaries = domain.whole_number("canaries", canaries, f"[{guesses}, 1e15]", "at most one guess for each canary")
    epsilon, delta = domain.number("epsilon", epsilon, domain.EPSILON), domain.number("delta", delta, _DELTA)
    right = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, right))
    if delta > 0 and correct > 0:
        below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, right))  # P[v-i ≤ W < v], i = 1, 2, ...
        tail += 2 * canaries * delta * float(np.max(below / np.arange(1, correct + 1)))
    return min(tail, 1.0)


def one_run_epsilon(
    correct: int, guesses: int, *, canaries: int, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """Lower bound on ε at δ from one run: the largest ε ≥ 0 that `correct` right guesses refute, else 0.

    (ε, δ)-DP is refuted where `one_run_tail` is at most 1 - confidence. Kind: lower bound, with that confidence.

    >>> round(one_run_epsilon(90, 100, canaries=1000, delta=1e-5), 3)
    1.626
    """
    miss = 1 - domain.number("confidence", confidence, _CONFIDENCE, _CONFIDENCE_ADVICE)

    def refuted(e: float) -> bool:
        return one_run_tail(correct, guesses, e, canaries=canaries, delta=delta) <= miss

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high and high - low > 1e-12:
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
