"""The moments accountant (chapters 2, 3 and 7): log moments, Theorem 2 of Abadi16, conversions.

The log moment of a one-step law at order λ > 0 is log E_P exp(λL) = log E_Q exp((λ+1)L), where L is
the privacy loss. Moments of independent (and adaptively composed) steps add up (Theorem 2.1), and a
moment bounds a tail (Theorem 2.2):

    δ(ε) ≤ min_λ exp(T·log_moment(λ) - λ ε),     ε(δ) ≤ min_λ (T·log_moment(λ) + log(1/δ)) / λ.

In the language of Rényi divergence log_moment(λ) = λ·D_{λ+1}(P‖Q), so the same moments give RDP
with order a = λ + 1, and the sharper conversion of Canonne, Kamath and Steinke 2020.

Three routes to the log moment of the sampled Gaussian, which agree and are tested against each
other: a closed form at whole orders, quadrature at real orders (any law), and a two-sided series at
real orders.

Orders: λ in (0, 1e4·sigma). `integer` searches λ = 1, 2, 3, …; `real` all λ; both up to 2^20.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, log_ndtr, logsumexp

from dpteach import domain
from dpteach.guarantees import Guarantee, Kind
from dpteach.laws import LAW_EXAMPLE, Law, Nodes, PoissonLaw
from dpteach.numerics.roots import least_real, least_whole

__all__ = [
    "ORDERS", "MomentsGuarantee", "Orders", "PhasedMoments", "log_e1", "log_e2",
    "log_e2_integer", "log_e2_series",
    "log_moment", "renyi_delta", "renyi_divergence", "renyi_epsilon", "tail_bound_delta",
    "tail_bound_epsilon",
]  # fmt: skip

Orders = Literal["integer", "real"]
ORDERS = ("integer", "real")
_CHUNK = 4_000_000  # numbers held at once
_LARGEST_ORDER = 2**20
_MOMENTS, _LAM = "[0, 1e30]", "(0, 1e10]"


def log_e2_integer(rate: float, sigma: float, lam: int) -> float:
    """log E2 at a whole order λ ≥ 1, Eq. 4 of Abadi16 in closed form, Poisson, add/remove.

    E2 = Σ_{k=0}^{λ+1} binom(λ+1, k) (1-q)^{λ+1-k} q^k exp(k(k-1)/(2σ²)), summed in log space. The
    binomial weights sum to 1, so E2 - 1 is the same sum with exp(..) - 1: at rate 1e-6 after 1e9
    steps the sum as it stands would leave no digit. Relative accuracy 1e-13·(1 + λ/10).

    >>> log_e2_integer(0.01, 4.0, 1) / math.log1p(1e-4 * math.expm1(1 / 16)) - 1 < 1e-13
    True
    """
    rate, sigma = domain.rate(rate), domain.sigma(sigma)
    a = domain.whole_number("lam", lam, "[1, 1e7]", "log_e2 takes real orders") + 1
    if rate == 1:
        return a * (a - 1) / (2 * sigma**2)
    k = np.arange(2, a + 1)
    exponent = k * (k - 1) / (2 * sigma**2)
    log_weight = _log_binomial(a, k) + (a - k) * math.log1p(-rate) + k * math.log(rate)
    log_terms = log_weight + exponent + np.log(-np.expm1(-exponent))
    return float(np.logaddexp(0.0, logsumexp(log_terms)))


def _log_binomial(a: float, k: np.ndarray) -> np.ndarray:
    """log |binom(a, k)|, real a."""
    return gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)


def log_e2_series(
    rate: float, sigma: float, lam: float, tolerance: float = 1e-13
) -> tuple[float, float]:
    """log E2 at a real order by Mironov, Talwar and Zhang's two-sided series (2019), and its error.

    The line is split at z0, where (1-q) μ0 = q μ1. On each side x, the smaller part over the larger
    one, is at most 1, and the binomial series of (1 + x)^a converges, a = λ + 1. Beyond term a the
    signs alternate and the sizes fall. Half of the last term is counted, so that cutting here
    changes E2 by at most half that term: the second value returned, relative to E2, at most
    `tolerance`, in [1e-15, 1). Rounding adds an absolute 1e-13·(1 + λ/100) to log E2: small moments
    lose digits that `log_e2` keeps.

    Poisson sampling, add/remove, λ in (0, 1e5]. Raises `ValueError` for a tolerance that 2^21 terms
    don't reach.

    >>> value, error = log_e2_series(0.01, 4.0, 2.5)
    >>> abs(value - float(log_e2(0.01, 4.0, 2.5))) < 1e-12 and error <= 1e-13
    True
    """
    rate, sigma = domain.rate(rate), domain.sigma(sigma)
    a = domain.number("lam", lam, "(0, 1e5]", "log_e2 takes larger orders") + 1
    tolerance = domain.number("tolerance", tolerance, "[1e-15, 1)")
    if rate == 1:
        return a * (a - 1) / (2 * sigma**2), 0.0
    count, error = max(64, 2 * math.ceil(a)), math.inf
    while error > tolerance and count < 2**21:
        value, error = _cut_series(rate, sigma, a, count)
        count *= 4
    reached = error <= tolerance
    domain.require("tolerance", tolerance, reached, f"at least {error:.1e} here", "use log_e2")
    return max(0.0, value), error


def _cut_series(rate: float, sigma: float, a: float, count: int) -> tuple[float, float]:
    """log E2 by `count` terms, and half of the last term relative to it."""
    log_q, log_1q = math.log(rate), math.log1p(-rate)
    z0 = sigma**2 * (log_1q - log_q) + 0.5
    i = np.arange(count + 1.0)
    sign = np.where((i > math.ceil(a)) & ((i - math.ceil(a)) % 2 == 1), -1.0, 1.0)
    left, right = (  # E_μ0[(q r)^k (1-q)^(a-k)] on z < z0 with k = i, on z > z0 with k = a-i
        k * log_q + (a - k) * log_1q + k * (k - 1) / (2 * sigma**2)
        + log_ndtr(side * (z0 - k) / sigma)
        for k, side in ((i, 1), (a - i, -1))
    )  # fmt: skip
    terms = _log_binomial(a, i) + np.logaddexp(left, right)
    sign[-1] /= 2
    value = float(logsumexp(terms, b=sign))
    return value, math.exp(min(terms[-1] - value, 0.0)) / 2


def log_moment(law: Law, lam: ArrayLike) -> np.ndarray:
    """log E_P exp(λL) of one step, for real λ in (0, 1e4·sigma), by quadrature.

    Shape of the result: that of `lam`. Relative accuracy 1e-11, plus an absolute 1e-15·λ·rate/sigma
    that counts for moments below 1e-10 only.

    >>> from dpteach.laws import GaussianLaw
    >>> round(float(log_moment(GaussianLaw(2.0), 3.0)), 12)  # λ(λ+1)/(2σ²)
    1.5
    """
    largest = domain.instance("law", law, Law, LAW_EXAMPLE).largest_order - 1
    lam = domain.numbers("lam", lam, f"(0, {largest!r}]", "it's an order, below 1e4·sigma")
    orders = lam.ravel()
    nodes = law.nodes(float(orders.max()) + 1)
    rows = max(1, _CHUNK // nodes.loss.size)
    starts = range(0, orders.size, rows)
    parts = [_log_moments(nodes, orders[start : start + rows]) for start in starts]
    return np.concatenate(parts).reshape(lam.shape)


def _log_moments(nodes: Nodes, lam: np.ndarray) -> np.ndarray:
    exponent = np.multiply.outer(lam, nodes.loss)
    moment = logsumexp(nodes.log_p + exponent, axis=1)
    small = moment < 0.1
    moment[small] = np.log1p(_excess(nodes.log_p, exponent[small]))
    return np.maximum(moment, 0.0)


def _excess(log_p: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """E_P[e^{λL} - 1]: at rate 1e-6 after 1e9 steps the 1 in log E_P[e^{λL}] would cost all."""
    near = np.exp(log_p) * np.expm1(np.minimum(exponent, 1.0))
    far = np.exp(np.minimum(log_p + exponent, 1.0)) - np.exp(log_p)  # e^{λL} may overflow
    return np.sum(np.where(exponent < 1, near, far), axis=1)


def log_e1(rate: float, sigma: float, lam: ArrayLike) -> np.ndarray:
    """log E1, Eq. 3 of Abadi16: z ~ N(0, σ²), ratio of base to mixture ('add'), λ > 0.

    Accuracy that of `log_moment`.

    >>> bool(log_e1(0.01, 4.0, 19.0) <= log_e2(0.01, 4.0, 19.0))
    True
    """
    return log_moment(PoissonLaw(rate, sigma, "add"), lam)


def log_e2(rate: float, sigma: float, lam: ArrayLike) -> np.ndarray:
    """log E2, Eq. 4 of Abadi16: z ~ mixture, ratio of mixture to base ('remove'), λ > 0.

    E2 ≥ E1 for every λ, so the log moment under add/remove and Poisson sampling is log E2. Accuracy
    that of `log_moment`.

    >>> abs(float(log_e2(0.01, 4.0, 19)) - log_e2_integer(0.01, 4.0, 19)) < 1e-14
    True
    """
    return log_moment(PoissonLaw(rate, sigma, "remove"), lam)


def renyi_divergence(law: Law, order: ArrayLike) -> np.ndarray:
    """D_a(P‖Q) = log_moment(a-1)/(a-1), for order a in (1, 1e4·sigma] (Mironov 2017), one step.

    Accuracy that of `log_moment`, divided by a-1.

    >>> from dpteach.laws import GaussianLaw
    >>> round(float(renyi_divergence(GaussianLaw(1.0), 3.0)), 12)
    1.5
    """
    order = domain.numbers("order", order, "(1, 1e7]")
    return log_moment(law, order - 1) / (order - 1)


def tail_bound_epsilon(log_moment: ArrayLike, lam: ArrayLike, delta: float) -> np.ndarray:
    """(log_moment + log(1/δ))/λ, Theorem 2.2 at each order: upper bounds on ε.

    `log_moment` is the whole run's.

    >>> float(tail_bound_epsilon(1.0, 2.0, math.exp(-3)))
    2.0
    """
    moment, lam, delta = *_moments(log_moment, lam), domain.delta(delta)
    return (moment - math.log(delta)) / lam


def tail_bound_delta(log_moment: ArrayLike, lam: ArrayLike, epsilon: float) -> np.ndarray:
    """min(1, exp(log_moment - λε)), Theorem 2.2 at each order: upper bounds on δ and on P(L ≥ ε).

    >>> round(float(tail_bound_delta(1.0, 2.0, 2.0)), 6) == round(math.exp(-3), 6)
    True
    """
    moment, lam, epsilon = *_moments(log_moment, lam), domain.epsilon(epsilon)
    return np.exp(np.minimum(moment - lam * epsilon, 0.0))


def renyi_epsilon(log_moment: ArrayLike, lam: ArrayLike, delta: float) -> np.ndarray:
    """ε = D_a + log((a-1)/a) - (log δ + log a)/(a-1), a = λ + 1, at least 0: upper bounds.

    Canonne, Kamath and Steinke 2020, Proposition 12; below the tail bound.

    >>> bool(renyi_epsilon(1.0, 2.0, 1e-5) < tail_bound_epsilon(1.0, 2.0, 1e-5))
    True
    """
    moment, lam, delta = *_moments(log_moment, lam), domain.delta(delta)
    return np.maximum(0.0, (moment - _renyi_gain(lam) - math.log(delta)) / lam)


def renyi_delta(log_moment: ArrayLike, lam: ArrayLike, epsilon: float) -> np.ndarray:
    """δ = exp(log_moment - λε)·(1 - 1/a)^{a-1}/a, a = λ + 1: upper bounds.

    Canonne, Kamath and Steinke 2020, Proposition 12.

    >>> bool(renyi_delta(1.0, 2.0, 2.0) < tail_bound_delta(1.0, 2.0, 2.0))
    True
    """
    moment, lam, epsilon = *_moments(log_moment, lam), domain.epsilon(epsilon)
    return np.exp(np.minimum(moment - _renyi_gain(lam) - lam * epsilon, 0.0))


def _moments(log_moment: ArrayLike, lam: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    return domain.numbers("log_moment", log_moment, _MOMENTS), domain.numbers("lam", lam, _LAM)


def _renyi_gain(lam: Any) -> Any:
    """log of how far CKS's δ is below the tail bound's: log a + (a-1) log(a/(a-1)), a = λ + 1."""
    return np.log1p(lam) + lam * np.log1p(1 / lam)


@dataclass(frozen=True, kw_only=True)
class MomentsGuarantee(Guarantee):
    """`steps` steps of `law` by log moments at the best order: an upper bound on ε and δ.

    conversion 'tail' is Theorem 2.2 (the guarantee called `moments`); 'renyi' is
    Canonne-Kamath-Steinke (`rdp`). Relative accuracy 1e-9, for the order that's found.

    >>> run = MomentsGuarantee(law=PoissonLaw(0.01, 4.0), steps=10000)
    >>> epsilon, order = run.best(1e-5)
    >>> round(epsilon, 4), order
    (1.2586, 19)
    """

    law: Law
    steps: int
    orders: Orders = "integer"
    conversion: Literal["tail", "renyi"] = "tail"
    name: str = "moments"
    kind: Kind = "upper bound"
    assumptions: str = "of the law given"

    def __post_init__(self) -> None:
        domain.instance("law", self.law, Law, LAW_EXAMPLE)
        domain.set_fields(self, steps=domain.steps(self.steps))
        domain.one_of("orders", self.orders, ORDERS)
        domain.one_of("conversion", self.conversion, ("tail", "renyi"))

    def log_moment(self, lam: float) -> float:
        """Log moment of the whole run: T times one step's, by Theorem 2.1."""
        return self.steps * float(log_moment(self.law, lam))

    def best(self, delta: float) -> tuple[float, float]:
        """Least ε over the orders at δ, and the λ that gives it (0 steps: ε = 0, λ = ∞)."""
        return self._best(domain.delta(delta))

    def _best(self, delta: float) -> tuple[float, float]:
        if self.steps == 0:
            return 0.0, math.inf

        def bound(lam: float) -> float:
            return (self._exponent(lam) - math.log(delta)) / lam

        lam = self._least(bound)
        return max(0.0, bound(lam)), lam

    def _exponent(self, lam: float) -> float:
        """The log of what bounds δ·e^{λε}."""
        gain = _renyi_gain(lam) if self.conversion == "renyi" else 0.0
        return self.log_moment(lam) - float(gain)

    @property
    def _largest(self) -> float:
        return min(_LARGEST_ORDER, self.law.largest_order - 1)

    def _least(self, objective: Callable[[float], float]) -> float:
        if self.orders == "integer":
            return least_whole(objective, math.floor(self._largest))
        return least_real(objective, self._largest)

    def least_epsilon(self, delta: float) -> float:
        return self._best(delta)[0]

    def profile(self, epsilon: float) -> float:
        if self.steps == 0:
            return 0.0

        def log_delta(lam: float) -> float:  # δ itself underflows, or is cut at 1, at most orders
            return self._exponent(lam) - lam * epsilon

        return math.exp(min(0.0, log_delta(self._least(log_delta))))

    def details(self, delta: float) -> dict[str, Any]:
        """The best order (a = λ + 1 for 'renyi'), and a note where it lies at the search's end."""
        if self.steps == 0:
            return {"orders": self.orders}
        lam = self.best(delta)[1]
        shown = lam + 1 if self.conversion == "renyi" else lam
        note = {}
        if self.orders == "integer" and lam == 1:
            note = {"note": "λ = 1 is the least whole order: real orders may give much less"}
        elif lam >= math.floor(self._largest):
            note = {"note": f"λ = {lam:g} is the largest order tried: a larger one may give less"}
        return {"order": shown, "orders": self.orders, **note}


@dataclass(frozen=True, kw_only=True)
class PhasedMoments(MomentsGuarantee):
    """`steps` steps of `law`, then those of `more`: laws and steps of later phases (chapter 21).

    >>> one = PoissonLaw(0.01, 4.0)
    >>> split = PhasedMoments(law=one, steps=4000, more=((one, 6000),))
    >>> round(split.epsilon(1e-5), 4)  # as of 10,000 steps at once
    1.2586
    """

    more: tuple[tuple[Law, int], ...]

    def log_moment(self, lam: float) -> float:
        """The sum of all steps' log moments, by Theorem 2.1."""
        later = (steps * float(log_moment(law, lam)) for law, steps in self.more)
        return super().log_moment(lam) + sum(later)

    @property
    def _largest(self) -> float:
        return min([super()._largest] + [law.largest_order - 1 for law, _ in self.more])
