"""What a guarantee means to a person: tests, beliefs and reconstruction in place of ε (chapter 20).

An attacker decides from what was published whether one record was among the data. By its trade-off
function f a guarantee bounds how often that succeeds (Dong, Roth and Su 2022): whoever accuses a
share α of the absent finds at most a share 1 - f(α) of the present. The other numbers follow.
All are upper bounds on every attack's success where the guarantee is one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpteach import domain
from dpteach.guarantees import Guarantee

__all__ = [
    "FALSE_POSITIVES", "PRIORS", "advantage", "posterior", "reconstruction", "risk",
    "true_positive_rate",
]  # fmt: skip

FALSE_POSITIVES = (0.001, 0.01, 0.1)
PRIORS = (0.01, 0.1, 0.5)
_EPSILONS = np.linspace(0.1, 8, 80)
_EXAMPLE = "GaussianGuarantee(mu=1.0)"


def true_positive_rate(guarantee: Guarantee, alpha: ArrayLike) -> np.ndarray:
    """1 - f(α): the most of the present that a test finds which accuses a share α of the absent.

    alpha : false positive rates in [0, 1]. Returns an array of their shape.

    >>> from dpteach.guarantees import GaussianGuarantee
    >>> true_positive_rate(GaussianGuarantee(mu=1.0), [0.001, 0.01, 0.1]).round(5).tolist()
    [0.0183, 0.09236, 0.38914]
    """
    domain.instance("guarantee", guarantee, Guarantee, _EXAMPLE)
    return 1 - guarantee.f(alpha)


def advantage(guarantee: Guarantee) -> float:
    """δ(0) = max over α of 1 - α - f(α): the most by which true positives exceed false ones.

    It's the total variation distance. A coin decides who is present: such a guesser is right with
    probability (1 + δ(0))/2 at most. Where a guarantee says nothing at ε = 0 (moments), each other
    (ε, δ) still gives δ(0) ≤ 1 - 2(1 - δ)/(1 + e^ε), and the least of these is taken.

    >>> from dpteach.guarantees import GaussianGuarantee
    >>> round(advantage(GaussianGuarantee(mu=1.0)), 6)  # 2Φ(1/2) - 1
    0.382925
    """
    domain.instance("guarantee", guarantee, Guarantee, _EXAMPLE)
    found = guarantee.delta(0.0)
    if found < 0.99:
        return found
    return min(found, *(1 - 2 * (1 - guarantee.delta(e)) / (1 + np.exp(e)) for e in _EPSILONS))


def posterior(guarantee: Guarantee, prior: float, alpha: float) -> float:
    """How sure an accusation can be: π(1 - f(α)) / (π(1 - f(α)) + (1 - π)α).

    prior : π in (0, 1), the belief before that the record was there. alpha : in (0, 1], the test's
    false positive rate. It's an average over all outputs on which the test accuses: a single rare
    output may be surer, unless the guarantee is a pure ε.

    >>> from dpteach.guarantees import GaussianGuarantee
    >>> round(posterior(GaussianGuarantee(mu=1.0), prior=0.1, alpha=0.01), 4)
    0.5065
    """
    prior = domain.number("prior", prior, "(0, 1)", "it's the belief before")
    alpha = domain.number("alpha", alpha, "(0, 1]", "it's the test's false positive rate")
    found = prior * float(true_positive_rate(guarantee, alpha))
    return found / (found + (1 - prior) * alpha)


def reconstruction(guarantee: Guarantee, baseline: float) -> float:
    """1 - f(κ): the probability to guess a secret record that κ bounds without the training.

    baseline : κ in [0, 1], the best probability to come near enough to a record drawn from the
    attacker's prior without seeing any output.

    >>> from dpteach.guarantees import GaussianGuarantee
    >>> round(reconstruction(GaussianGuarantee(mu=1.0), 1e-6), 7)
    8.72e-05
    """
    return float(true_positive_rate(guarantee, domain.alpha(baseline)))


def risk(guarantee: Guarantee) -> dict[str, Any]:
    """All of these at the usual places, ready for JSON, with the sentence that says them in words.

    >>> from dpteach.guarantees import GaussianGuarantee
    >>> found = risk(GaussianGuarantee(mu=0.2))
    >>> print(found["sentence"])
    Whoever wrongly accuses 1 % of the absent finds at most 1.7 % of the present, and a guess \
between present and absent is right with probability at most 0.54.
    """
    rates = true_positive_rate(guarantee, FALSE_POSITIVES)
    gap = advantage(guarantee)
    found: dict[str, Any] = {"of": guarantee.name, "kind": _kind(guarantee)}
    found["true_positive_rate"] = [
        {"false_positive_rate": alpha, "at_most": float(rate)}
        for alpha, rate in zip(FALSE_POSITIVES, rates, strict=True)
    ]
    found["advantage"], found["accuracy"] = gap, (1 + gap) / 2
    found["posterior"] = [
        {"prior": pi, "false_positive_rate": alpha, "at_most": posterior(guarantee, pi, alpha)}
        for pi in PRIORS for alpha in FALSE_POSITIVES
    ]  # fmt: skip
    return found | {"sentence": _sentence(found), "warnings": _warnings(found)}


def _kind(guarantee: Guarantee) -> str:
    return "upper bound" if guarantee.kind == "bracket" else guarantee.kind


def _sentence(found: dict[str, Any]) -> str:
    rate = found["true_positive_rate"][1]["at_most"]
    return (
        f"Whoever wrongly accuses 1 % of the absent finds at most {_up(100 * rate, 1)} % of the "
        f"present, and a guess between present and absent is right with probability at most "
        f"{_up(found['accuracy'], 2)}."
    )


def _up(value: float, decimals: int) -> str:
    """Rounded up, as a bound must be."""
    scale = 10**decimals
    return f"{np.ceil(value * scale - 1e-9) / scale:g}"


def _warnings(found: dict[str, Any]) -> list[str]:
    """What must be said where the numbers protect next to nothing."""
    rate = found["true_positive_rate"][1]["at_most"]
    if rate < 0.5 and found["advantage"] < 0.9:
        return []
    return [
        f"this protects next to nothing: a test that wrongly accuses 1 % of the absent may find "
        f"{100 * rate:.3g} % of the present; more noise, a smaller rate or fewer steps are needed"
    ]
