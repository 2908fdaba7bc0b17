"""Central limits: what T → ∞ makes of T steps (chapters 9, 12 and 13), and how near it is.

Asymptotic: at finite T the Gaussian trade-off function G_mu can lie on either side of the truth,
so none of these numbers is a guarantee.

* `subsampled_clt_mu`: fixed-size batches, replace-one (DRS22, Corollary 5.4).
* `poisson_clt_mu`: Poisson batches, add/remove (Bu, Dong, Long and Su 2020, Theorem 5).
* `clt_guarantee`: the limit of any law's steps, by `law.limit_mu`.
* `EdgeworthGuarantee`: the next terms of the same limit (Zheng, Dong, Long and Su 2020).

The first two formulas differ and aren't interchangeable.

Upper bound: `BerryEsseenGuarantee` (DRS22, Theorem 3.4 and Corollary 5.6), from the `functionals`
of one step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermeval
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import comb, log_ndtr, ndtr, ndtri

from dpteach import domain
from dpteach.guarantees import (
    GaussianGuarantee,
    Guarantee,
    Kind,
    epsilon_from_delta,
    tradeoff_from_delta,
)
from dpteach.laws import LAW_EXAMPLE, LAWS_EXAMPLE, Law, chi2_plus, gaussian_profile
from dpteach.tradeoff import Functionals

__all__ = [
    "BerryEsseenGuarantee", "EdgeworthGuarantee", "central_limit", "chi2_plus", "clt_guarantee",
    "functionals", "poisson_clt_mu", "subsampled_clt_mu",
]  # fmt: skip

_LEAST_MU = 1e-6  # of the domain


def subsampled_clt_mu(rate: float, sigma: float, steps: int) -> float:
    """Corollary 5.4: mu = √2·c·√(e^{1/σ²}Φ(3/(2σ)) + 3Φ(-1/(2σ)) - 2), c = p√T. Asymptotic.

    Fixed-size batches, replace-one; sigma = noise std / sensitivity, as in DRS22's Algorithm 1
    (noise 2σC on the sum). Relative accuracy that of `chi2_plus`.

    >>> round(subsampled_clt_mu(256 / 60000, 1.3, 3516), 4)
    0.2847
    """
    rate, sigma, steps = domain.rate(rate), domain.sigma(sigma), domain.steps(steps)
    return math.sqrt(2) * rate * math.sqrt(steps) * math.sqrt(chi2_plus(1 / sigma))


def poisson_clt_mu(rate: float, sigma: float, steps: int) -> float:
    """Bu et al. 2020: mu = q√(T(e^{1/σ²} - 1)). Asymptotic.

    Poisson batches, add/remove; sigma = noise std / clipping norm (noise σC on the sum). Relative
    accuracy 1e-13.

    >>> round(poisson_clt_mu(256 / 60000, 1.3, 3516), 4)
    0.2273
    """
    rate, sigma, steps = domain.rate(rate), domain.sigma(sigma), domain.steps(steps)
    return rate * math.sqrt(steps * math.expm1(sigma**-2))


def clt_guarantee(
    law: Law, steps: int, assumptions: str = "of the law given"
) -> GaussianGuarantee:
    """The limit for `steps` ≥ 1 steps of a law, as a mu-GDP statement of kind 'asymptotic'.

    At rate 1 nothing is sampled, and mu = √T/σ is exact. A mu below 1e-6 is answered as 1e-6.
    Raises `ValueError` for a mu above 100: the limit says nothing there.

    >>> from dpteach.laws import GaussianLaw, SubsampledLaw
    >>> clt_guarantee(SubsampledLaw(256 / 60000, 1.3), 3516).kind
    'asymptotic'
    >>> exact = clt_guarantee(GaussianLaw(10.0), 100)
    >>> exact.kind, exact.mu
    ('exact', 1.0)
    """
    domain.instance("law", law, Law, LAW_EXAMPLE)
    mu = max(_LEAST_MU, law.limit_mu * math.sqrt(domain.steps(steps, least=1)))
    kind: Kind = "exact" if law.rate == 1 else "asymptotic"
    return GaussianGuarantee(mu=mu, name="clt", kind=kind, assumptions=assumptions)


def functionals(law: Law) -> Functionals:
    """kl, κ2, κ3 and κ̄3 of any one-step law, under P, by quadrature.

    DRS22, before Theorem 3.4; for C_p(G_mu) these are Lemma 5.5's integrals. Relative accuracy
    1e-11, of kl 1e-11 + 1e-15·sigma/rate: it's the small mean of a loss of both signs. |L|³ and
    |L - kl|³ have a corner, which becomes the end of a panel.

    >>> from dpteach.laws import SubsampledLaw
    >>> found = functionals(SubsampledLaw(256 / 60000, 1.3))
    >>> " ".join(f"{x:.6g}" for x in found)
    '1.14299e-05 2.28608e-05 3.90682e-07 3.90677e-07'
    """
    at_zero = domain.instance("law", law, Law, LAW_EXAMPLE).nodes(corner=0.0)
    weight = np.exp(at_zero.log_p)
    kl = float(weight @ at_zero.loss)
    second, third = (float(weight @ np.abs(at_zero.loss) ** k) for k in (2, 3))
    at_kl = law.nodes(corner=kl)
    third_bar = float(np.exp(at_kl.log_p) @ np.abs(at_kl.loss - kl) ** 3)
    return Functionals(kl, second, third, third_bar)


def central_limit(parts: Sequence[Functionals], steps: int = 1) -> tuple[float, float]:
    """(mu, gamma) of Theorem 3.4 for the mechanisms `parts`, each repeated `steps` ≥ 1 times.

    mu = 2‖kl‖₁/√(‖κ2‖₁ - ‖kl‖₂²) and gamma = 0.56‖κ̄3‖₁/(‖κ2‖₁ - ‖kl‖₂²)^{3/2}. For symmetric
    trade-off functions.

    >>> from dpteach.laws import GaussianLaw
    >>> round(central_limit([functionals(GaussianLaw(4.0))], 144)[0], 12)  # G_{1/4}^{⊗144} = G_3
    3.0
    """
    steps = domain.steps(steps, least=1)
    parts = domain.instances("parts", parts, Functionals, "[functionals(law)]")
    variance = steps * sum(part.variance for part in parts)
    positive = 0 < variance < math.inf
    domain.require("variance", variance, positive, "positive and finite", "it's κ2 - kl²")
    mu = 2 * steps * sum(part.kl for part in parts) / math.sqrt(variance)
    return mu, 0.56 * steps * sum(part.kappa3_bar for part in parts) / variance**1.5


@dataclass(frozen=True, kw_only=True)
class BerryEsseenGuarantee(Guarantee):
    """Corollary 5.6: T steps are f-DP with f(α) = max{0, G_mu(α + γ) - γ}, 0 beyond α = 1 - γ.

    Upper bound, for symmetric laws (Theorem 3.4) and at least one step. δ(ε) = γ(1 + e^ε) + δ_G(ε)
    while e^ε is less than the slope of G_mu at γ, and constant, 1 - G_mu(γ) + γ, from there on:
    below that δ nothing is proved. Relative accuracy of mu and γ that of `functionals`; absolute
    1e-11 of f and δ.

    >>> from dpteach.laws import SubsampledLaw
    >>> bound = BerryEsseenGuarantee(law=SubsampledLaw(256 / 60000, 1.3), steps=3516)
    >>> round(bound.mu, 4), round(bound.gamma, 4), round(bound.floor, 3), bound.epsilon(1e-5)
    (0.2835, 0.0338, 0.095, inf)
    """

    law: Law
    steps: int
    name: str = "berry-esseen"
    kind: Kind = "upper bound"
    assumptions: str = "of the law given"
    mu: float = field(init=False)
    gamma: float = field(init=False)

    def __post_init__(self) -> None:
        domain.instance("law", self.law, Law, "SubsampledLaw(0.01, 1.0)")
        advice = "Theorem 3.4 covers symmetric trade-off functions: use fixed-size batches"
        domain.require("law", self.law, self.law.symmetric, "symmetric", advice)
        mu, gamma = central_limit([functionals(self.law)], self.steps)
        domain.set_fields(self, mu=mu, gamma=gamma)

    @property
    def floor(self) -> float:
        """1 - G_mu(γ) + γ (at most 1): the least δ that the bound can reach, at any ε."""
        return float(1 - self.tradeoff(np.array(0.0)))

    @property
    def reason(self) -> str:  # type: ignore[override]
        floor = f"1 - G_mu(gamma) + gamma = {self.floor:.4g}"
        return f"the bound's delta never falls below {floor}, at any epsilon"

    def _limit(self, alpha: np.ndarray) -> np.ndarray:
        """G_mu(α), and 0 for α > 1, 1 for α < 0."""
        return ndtr(-ndtri(np.clip(alpha, 0.0, 1.0)) - self.mu)

    def tradeoff(self, alpha: np.ndarray) -> np.ndarray:
        return np.maximum(0.0, self._limit(alpha + self.gamma) - self.gamma)

    def optimistic(self, alpha: ArrayLike) -> np.ndarray:
        """Theorem 3.4's other half: the true f is at most G_mu(α - γ) + γ, and at most 1 - α."""
        alpha = domain.alphas(alpha)
        return np.minimum(1 - alpha, self._limit(alpha - self.gamma) + self.gamma)

    def profile(self, epsilon: float) -> float:
        """1 + f*(-e^ε), in closed form: G_mu's slope is -e^ε at α = Φ(-ε/mu - mu/2)."""
        if ndtr(-epsilon / self.mu - self.mu / 2) <= self.gamma:
            return self.floor
        shift = self.gamma * (1 + math.exp(min(epsilon, 700.0)))
        return min(shift + float(gaussian_profile(self.mu, np.asarray(epsilon))), 1.0)

    def least_epsilon(self, delta: float) -> float:
        return math.inf if delta < self.floor else epsilon_from_delta(self.profile, delta)

    def details(self, delta: float) -> dict[str, Any]:
        return {"mu": self.mu, "gamma": self.gamma}


@dataclass(frozen=True, kw_only=True)
class EdgeworthGuarantee(Guarantee):
    """The summed loss S under P by an Edgeworth series, and δ(ε) = E_P[(1 - e^{ε-S})_+] from it.

    Asymptotic. With x = (s - mean)/std the density is φ(x)(1 + κ3 He3/6 + κ4 He4/24 + κ3² He6/72),
    where κ3 and κ4 are the sum's standardised cumulants. `order` 0 keeps 1 alone, 1 adds He3, 2
    adds He4 and He6. For C_p(G) with p√T fixed, κ3 and κ4 are both of size 1/T, so order 1 isn't
    better than 0. Several laws (remove, add): the worse. Zheng, Dong, Long and Su 2020 expand the
    law under P and under Q separately; one law alone keeps δ consistent. Absolute accuracy of the
    series' δ 1e-12.

    >>> from dpteach.laws import SubsampledLaw
    >>> series = EdgeworthGuarantee(laws=(SubsampledLaw(256 / 60000, 1.3),), steps=3516)
    >>> round(series.epsilon(1e-5), 4)  # the exact tensor power: 1.06703; Corollary 5.4: 1.0685
    1.067
    """

    laws: tuple[Law, ...]
    steps: int
    order: int = 2
    name: str = "edgeworth"
    reason: str = "too few steps, or too far a tail: the series' delta doesn't fall to delta/10"
    kind: Kind = "asymptotic"
    assumptions: str = "of the laws given"
    _series: tuple[tuple[float, float, np.ndarray], ...] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        steps = domain.steps(self.steps, least=1)
        order = domain.whole_number("order", self.order, "[0, 2]")
        laws = domain.instances("laws", self.laws, Law, LAWS_EXAMPLE)
        series = tuple(_edgeworth_series(law, steps, order) for law in laws)
        domain.set_fields(self, laws=laws, steps=steps, order=order, _series=series)

    def _raw(self, epsilon: np.ndarray) -> np.ndarray:
        """The series' δ as it is: in a far tail it can be negative or rise."""
        return np.max([_edgeworth_delta(*series, epsilon) for series in self._series], axis=0)

    def _clipped(self, epsilon: np.ndarray) -> np.ndarray:
        return np.clip(self._raw(epsilon), 0.0, 1.0)

    def profile(self, epsilon: float) -> float:
        return float(self._clipped(np.asarray(epsilon)))

    def least_epsilon(self, delta: float) -> float:
        """The root; inf unless the series' δ decreases, from ε = 0 through δ, to a tenth of δ."""
        reach = max(mean + 40 * std for mean, std, _ in self._series)
        grid = np.linspace(0.0, reach, 8001)
        profile = self._raw(grid)
        end = int(np.argmax(profile <= delta / 10))
        rises = np.any(np.diff(profile[: end + 1]) > 1e-9)
        if not 0 < profile[end] <= delta / 10 or rises:
            return math.inf
        if profile[0] <= delta:
            return 0.0
        excess = lambda e: float(self._raw(np.asarray(e))) - delta  # noqa: E731
        return float(brentq(excess, 0.0, grid[end], xtol=1e-13))

    def tradeoff(self, alpha: np.ndarray) -> np.ndarray:
        reach = max(mean + 10 * std for mean, std, _ in self._series)
        return tradeoff_from_delta(
            self._clipped, alpha, np.linspace(0.0, min(reach, 690.0), 4001)
        )


def _edgeworth_series(law: Law, steps: int, order: int) -> tuple[float, float, np.ndarray]:
    """Mean and std of `steps` summed losses under P; the series' coefficients of He0 to He6."""
    nodes = law.nodes()
    weight = np.exp(nodes.log_p)
    mean = float(weight @ nodes.loss)
    second, third, fourth = (float(weight @ (nodes.loss - mean) ** k) for k in (2, 3, 4))
    skewness = third / second**1.5 / math.sqrt(steps)
    excess = (fourth / second**2 - 3) / steps
    terms = [1.0, 0.0, 0.0, skewness / 6, excess / 24, 0.0, skewness**2 / 72]
    return steps * mean, math.sqrt(steps * second), np.array(terms[: (1, 4, 7)[order]])


def _edgeworth_delta(
    mean: float, std: float, terms: np.ndarray, epsilon: np.ndarray
) -> np.ndarray:
    """∫ over s > ε of (1 - e^{ε-s}) times the series.

    Both parts are tails of Hermite functions, for which ∫ He_k φ from x on is He_{k-1}(x) φ(x). In
    the second, e^{-std·x} φ(x) is a normal density moved by -std.
    """
    x = np.clip((epsilon - mean) / std, -1e3, 1e3)  # beyond φ is 0, but He6 would overflow
    n = np.arange(terms.size)
    # He_n(u - std) = Σ_k binom(n, k) (-std)^{n-k} He_k(u)
    moved = terms @ (comb(n[:, None], n) * (-std) ** np.maximum(n[:, None] - n, 0))
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    tail = ndtr(-x) + density * hermeval(x, np.append(terms[1:], 0.0))
    log_tilted = epsilon - mean + std * std / 2 + log_ndtr(-x - std)
    shifted = density * hermeval(x + std, np.append(moved[1:], 0.0))
    return tail - moved[0] * np.exp(log_tilted) - shifted
