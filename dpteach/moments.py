"""The moments accountant (Abadi16): log moments of the privacy loss, Theorem 2, conversions.

The log moment of a one-step law at order λ > 0 is α(λ) = log E_P exp(λL) = log E_Q exp((λ+1)L).
Moments of independent (and adaptively composed) steps add up (Theorem 2.1), and a moment bounds a
tail (Theorem 2.2):

    δ(ε) ≤ min_λ exp(T α(λ) - λ ε),        ε(δ) ≤ min_λ (T α(λ) + log(1/δ)) / λ.

In the language of Rényi divergence α(λ) = λ·D_{λ+1}(P‖Q), so the same moments give RDP with order
a = λ + 1, and the sharper conversion of Canonne, Kamath and Steinke 2020.

Three routes to α of the sampled Gaussian, which agree and are tested against each other: a closed
form at whole orders, quadrature at real orders (any law), and a two-sided series at real orders.

Orders: `integer` searches λ = 1, 2, 3, …; `real` all λ > 0; both go up to 2^20.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, log_ndtr, logsumexp

from dpteach import domain
from dpteach.guarantees import Guarantee, Kind
from dpteach.laws import LAW_EXAMPLE, Law, Nodes, PoissonLaw

__all__ = [
    "ORDERS", "MomentsGuarantee", "Orders", "log_e1", "log_e2", "log_e2_integer", "log_e2_series", "log_moment",
    "renyi_divergence", "renyi_delta", "renyi_epsilon", "tail_bound_delta", "tail_bound_epsilon",
]  # fmt: skip

Orders = Literal["integer", "real"]
ORDERS = ("integer", "real")
_SMALL = 0.01  # below this log moment 1 is subtracted inside the integral: no digit is lost
_CHUNK = 4_000_000  # numbers held at once
_LONG_SUM = 4096  # beyond, quadrature is faster than the closed form's sum
_LARGEST_ORDER = 2**20
_LAM = "[1e-100, 1e100]"


def log_e2_integer(q: float, sigma: float, lam: int) -> float:
    """log E2 at a whole order, Eq. 4 of Abadi16 in closed form, Poisson, add/remove: exact up to
    the rounding of the binomials, about 1e-15·λ of it.

    E2 = Σ_{k=0}^{λ+1} binom(λ+1, k) (1-q)^{λ+1-k} q^k exp(k(k-1)/(2σ²)), summed in log space. The
    binomial weights sum to 1, so E2 - 1 is the same sum with exp(..) - 1, without cancellation.

    >>> round(log_e2_integer(0.01, 4.0, 1), 12) == round(math.log1p(1e-4 * math.expm1(1 / 16)), 12)
    True
    """
    q = domain.number("q", q, "(0, 1]")
    sigma = domain.number("sigma", sigma, "[1e-100, 1e100]")
    a = domain.whole_number("lam", lam, "[1, 1e7]", "log_e2 takes real orders") + 1
    if q == 1:
        return a * (a - 1) / (2 * sigma**2)
    k = np.arange(2, a + 1)
    log_weight = gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)
    log_weight += (a - k) * math.log1p(-q) + k * math.log(q)
    exponent = k * (k - 1) / (2 * sigma**2)
    log_terms = log_weight + exponent + np.log(-np.expm1(-exponent))
    return float(np.logaddexp(0.0, logsumexp(log_terms)))


def log_e2_series(q: float, sigma: float, lam: float, tolerance: float = 1e-13) -> tuple[float, float]:
    """log E2 at a real order by Mironov, Talwar and Zhang's two-sided series (2019), and its error.

    The line is split at z0, where (1-q) μ0 = q μ1. On each side x, the smaller part over the larger
    one, is at most 1, and the binomial series of (1 + x)^a converges, a = λ + 1. Beyond term a the
    signs alternate and the sizes fall. Half of the last term is counted, so that cutting here
    changes E2 by at most half that term: the second value returned, relative to E2, at most
    `tolerance`. Rounding adds about 1e-13, and 1e-15·λ for large orders, to log E2: small
    moments lose digits that `log_e2` keeps.

    Poisson sampling, add/remove. Raises `ValueError` for a tolerance that 2^21 terms don't reach.

    >>> value, error = log_e2_series(0.01, 4.0, 2.5)
    >>> abs(value - float(log_e2(0.01, 4.0, 2.5))) < 1e-12 and error <= 1e-13
    True
    """
    q, sigma = domain.number("q", q, "(0, 1]"), domain.number("sigma", sigma, "[1e-100, 1e100]")
    a = domain.number("lam", lam, "(0, 1e5]", "log_e2 takes larger orders") + 1
    tolerance = domain.number("tolerance", tolerance, "[1e-15, 1)")
    if q == 1:
        return a * (a - 1) / (2 * sigma**2), 0.0
    log_q, log_1q = math.log(q), math.log1p(-q)
    z0 = sigma**2 * (log_1q - log_q) + 0.5
    count, error = max(64, 2 * math.ceil(a)), math.inf
    while error > tolerance and count < 2**21:
        i = np.arange(count + 1.0)
        log_binomial = gammaln(a + 1) - gammaln(i + 1) - gammaln(a - i + 1)
        sign = np.where((i > math.ceil(a)) & ((i - math.ceil(a)) % 2 == 1), -1.0, 1.0)
        left, right = (  # E_μ0[(q r)^k (1-q)^(a-k)] on z < z0 with k = i, on z > z0 with k = a-i
            k * log_q + (a - k) * log_1q + k * (k - 1) / (2 * sigma**2) + log_ndtr(side * (z0 - k) / sigma)
            for k, side in ((i, 1), (a - i, -1))
        )
        terms = log_binomial + np.logaddexp(left, right)
        sign[-1] /= 2
        value = float(logsumexp(terms, b=sign))
        error, count = math.exp(min(terms[-1] - value, 0.0)) / 2, 4 * count
    if error > tolerance:
        raise ValueError(f"tolerance = {tolerance} isn't reached (error {error:.1e}); use log_e2 instead")
    return max(0.0, value), error


def log_moment(law: Law, lam: ArrayLike) -> np.ndarray:
    """α(λ) = log E_P exp(λL) of one step, for real λ > 0, by quadrature; about 1e-12 relative.

    Shape of the result: that of `lam`. Small moments keep their digits: since E_Q e^L = 1,
    E_Q e^{aL} - 1 = E_Q[e^{aL} - 1 - a(e^L - 1)] with a = λ + 1, whose integrand is nowhere
    negative.

    >>> from dpteach.laws import GaussianLaw
    >>> round(float(log_moment(GaussianLaw(2.0), 3.0)), 12)  # λ(λ+1)μ²/2
    1.5
    """
    lam = domain.numbers("lam", lam, "(0, 1e8]", "λ is the order of the moment")
    orders = lam.ravel()
    result = np.empty(orders.size)
    nodes = domain.instance("law", law, Law, LAW_EXAMPLE).nodes(float(orders.max()) + 1)
    rows = max(1, _CHUNK // nodes.loss.size)
    for start in range(0, orders.size, rows):
        result[start : start + rows] = _log_moments(nodes, orders[start : start + rows])
    return result.reshape(lam.shape)


def _log_moments(nodes: Nodes, lam: np.ndarray) -> np.ndarray:
    exponent = nodes.log_p + np.multiply.outer(lam, nodes.loss)
    peak = exponent.max(axis=1)
    exponent -= peak[:, None]
    alpha = peak + np.log(np.exp(exponent, out=exponent).sum(axis=1))  # logsumexp, a third of its time
    small = alpha < _SMALL
    if np.any(small):
        alpha[small] = np.log1p(np.sum(_excess(nodes, lam[small][:, None]), axis=1))
    return np.maximum(alpha, 0.0)


def _excess(nodes: Nodes, lam: np.ndarray) -> np.ndarray:
    """Weighted e^{aL} - 1 - a(e^L - 1) at each node, a = λ + 1, to full relative precision.

    It's e^L (e^{λL} - 1) - λ(e^L - 1), and its Taylor series where both exponents are small.
    """
    direct = _times_expm1(nodes.log_p, lam * nodes.loss)
    direct -= lam * _times_expm1(nodes.log_q, nodes.loss)
    near = (lam + 1) * np.abs(nodes.loss) < 0.01
    x = np.where(near, nodes.loss, 0.0)
    series, term = np.zeros(x.shape), x
    for k in range(2, 8):
        term = term * x / k
        series += (lam + 1) * np.expm1((k - 1) * np.log1p(lam)) * term  # a^k - a
    return np.where(near, np.exp(nodes.log_q) * series, direct)


def _times_expm1(log_weight: np.ndarray, x: np.ndarray) -> np.ndarray:
    """e^log_weight (e^x - 1), without overflow in e^x or cancellation near 0."""
    near = np.exp(log_weight) * np.expm1(np.clip(x, -1, 1))
    return np.where(np.abs(x) < 1, near, np.exp(log_weight + x) - np.exp(log_weight))


def log_e1(q: float, sigma: float, lam: ArrayLike) -> np.ndarray:
    """log E1, Eq. 3 of Abadi16: z ~ N(0, σ²), ratio of base to mixture ('add'). Exact, λ > 0.

    >>> bool(log_e1(0.01, 4.0, 19.0) <= log_e2(0.01, 4.0, 19.0))
    True
    """
    return log_moment(PoissonLaw(q, sigma, "add"), lam)


def log_e2(q: float, sigma: float, lam: ArrayLike) -> np.ndarray:
    """log E2, Eq. 4 of Abadi16: z ~ mixture, ratio of mixture to base ('remove'). Exact, λ > 0.

    E2 ≥ E1 for every λ, so α(λ) = log E2 under add/remove and Poisson sampling.

    >>> abs(float(log_e2(0.01, 4.0, 19)) - log_e2_integer(0.01, 4.0, 19)) < 1e-14
    True
    """
    return log_moment(PoissonLaw(q, sigma, "remove"), lam)


def tail_bound_epsilon(alpha: ArrayLike, lam: ArrayLike, delta: float) -> np.ndarray:
    """(α(λ) + log(1/δ))/λ, Theorem 2.2 at each order: upper bounds on ε.

    `alpha` is the whole run's log moment.

    >>> float(tail_bound_epsilon(1.0, 2.0, math.exp(-3)))
    2.0
    """
    delta = domain.number("delta", delta, "(0, 1)")
    alpha, lam = domain.numbers("alpha", alpha, "[0, 1e200]"), domain.numbers("lam", lam, _LAM)
    return (alpha - math.log(delta)) / lam


def tail_bound_delta(alpha: ArrayLike, lam: ArrayLike, epsilon: float) -> np.ndarray:
    """min(1, exp(α(λ) - λε)), Theorem 2.2 at each order: upper bounds on δ and on P(L ≥ ε) itself.

    >>> round(float(tail_bound_delta(1.0, 2.0, 2.0)), 6) == round(math.exp(-3), 6)
    True
    """
    epsilon = domain.number("epsilon", epsilon, domain.EPSILON)
    alpha, lam = domain.numbers("alpha", alpha, "[0, 1e200]"), domain.numbers("lam", lam, _LAM)
    return np.exp(np.minimum(alpha - lam * epsilon, 0.0))


def renyi_divergence(law: Law, order: ArrayLike) -> np.ndarray:
    """D_a(P‖Q) = α(a-1)/(a-1), for a > 1 (Mironov 2017). Exact, one step.

    >>> from dpteach.laws import GaussianLaw
    >>> round(float(renyi_divergence(GaussianLaw(1.0), 3.0)), 12)
    1.5
    """
    order = domain.numbers("order", order, "(1, 1e8]")
    return log_moment(law, order - 1) / (order - 1)


def renyi_epsilon(alpha: ArrayLike, lam: ArrayLike, delta: float) -> np.ndarray:
    """ε from the moment at λ = a - 1, below the tail bound; upper bounds, at least 0.

    ε = D_a + log((a-1)/a) - (log δ + log a)/(a-1): Canonne, Kamath and Steinke 2020, Prop. 12.

    >>> bool(renyi_epsilon(1.0, 2.0, 1e-5) < tail_bound_epsilon(1.0, 2.0, 1e-5))
    True
    """
    delta = domain.number("delta", delta, "(0, 1)")
    alpha, lam = domain.numbers("alpha", alpha, "[0, 1e200]"), domain.numbers("lam", lam, _LAM)
    return np.maximum(0.0, (alpha - math.log(delta) - _renyi_gain(lam)) / lam)


def renyi_delta(alpha: ArrayLike, lam: ArrayLike, epsilon: float) -> np.ndarray:
    """δ from the moment at λ = a - 1: exp(α - λε)·(1 - 1/a)^{a-1}/a; upper bounds.

    Canonne, Kamath and Steinke 2020, Proposition 12.

    >>> bool(renyi_delta(1.0, 2.0, 2.0) < tail_bound_delta(1.0, 2.0, 2.0))
    True
    """
    epsilon = domain.number("epsilon", epsilon, domain.EPSILON)
    alpha, lam = domain.numbers("alpha", alpha, "[0, 1e200]"), domain.numbers("lam", lam, _LAM)
    return np.exp(np.minimum(alpha - lam * epsilon - _renyi_gain(lam), 0.0))


def _renyi_gain(lam: np.ndarray | float) -> np.ndarray:
    """log of how far CKS's δ is below the tail bound's: log a + (a-1) log(a/(a-1)), a = λ + 1."""
    return np.log1p(lam) + lam * np.log1p(1 / lam)


_CONVERSIONS = {"tail": (tail_bound_epsilon, tail_bound_delta), "renyi": (renyi_epsilon, renyi_delta)}


@dataclass(frozen=True, kw_only=True)
class MomentsGuarantee(Guarantee):
    """`steps` steps of `law` by log moments at the best order: an upper bound on ε and δ.

    conversion 'tail' is Theorem 2.2 (the guarantee called `moments`); 'renyi' is
    Canonne-Kamath-Steinke (`rdp`).

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
        domain.set_fields(self, steps=domain.whole_number("steps", self.steps, "[1, 1e15]"))
        domain.one_of("orders", self.orders, ORDERS)
        domain.one_of("conversion", self.conversion, tuple(_CONVERSIONS))

    def alpha(self, lam: float) -> float:
        """Log moment of the whole run: T·α(λ), by Theorem 2.1."""
        law = self.law
        lam = lam if type(lam) is int else domain.number("lam", lam, _LAM)
        if isinstance(law, PoissonLaw) and law.direction == "remove" and isinstance(lam, int) and lam < _LONG_SUM:
            return self.steps * log_e2_integer(law.rate, law.sigma, lam)
        return self.steps * float(log_moment(law, lam))

    def best(self, delta: float) -> tuple[float, float]:
        """Least ε over the orders at δ, and the λ that gives it."""
        domain.number("delta", delta, "(0, 1)", "δ is a probability; typical values are below 1/n")
        convert = _CONVERSIONS[self.conversion][0]
        lam = _best_order(lambda x: float(convert(self.alpha(x), x, delta)), self.orders)
        return float(convert(self.alpha(lam), lam, delta)), lam

    def least_epsilon(self, delta: float) -> float:
        return self.best(delta)[0]

    def profile(self, epsilon: float) -> float:
        convert = _CONVERSIONS[self.conversion][1]
        gain = _renyi_gain if self.conversion == "renyi" else np.zeros_like
        # The search compares log δ: δ itself may underflow, or be cut at 1, at most orders.
        lam = _best_order(lambda x: float(self.alpha(x) - x * epsilon - gain(x)), self.orders)
        return float(convert(self.alpha(lam), lam, epsilon))

    def details(self, delta: float) -> dict[str, Any]:
        lam = self.best(delta)[1]
        return {"order": lam + 1 if self.conversion == "renyi" else lam, "orders": self.orders}


def _best_order(objective: Callable[[float], float], orders: Orders) -> float:
    """Order that minimises a quasi-convex objective: doubling brackets it, then a search inside."""
    if orders == "integer":
        low, high = _bracket(objective, 1, 1)
        if high > _LARGEST_ORDER:
            return _LARGEST_ORDER
        while high - low > 2:  # thirds of a whole interval
            left, right = low + (high - low) // 3, high - (high - low) // 3
            low, high = (low, right) if objective(left) <= objective(right) else (left, high)
        return min(range(low, high + 1), key=objective)
    low, high = _bracket(objective, 1.0, 2.0**-20)
    if high > _LARGEST_ORDER:
        return float(_LARGEST_ORDER)
    bounds = math.log(low), math.log(high)
    found = minimize_scalar(lambda x: objective(math.exp(x)), bounds=bounds, method="bounded", options={"xatol": 1e-7})
    return math.exp(found.x)


def _bracket(objective: Callable[[float], float], start: Any, least: Any) -> tuple[Any, Any]:
    middle, best = start, objective(start)
    while middle < _LARGEST_ORDER and (higher := objective(2 * middle)) < best:
        middle, best = 2 * middle, higher
    if middle == start:
        while middle > least and (lower := objective(middle / 2)) < best:
            middle, best = middle / 2, lower
    half = middle // 2 if isinstance(start, int) else middle / 2
    return max(least, half), 2 * middle
