"""Central limits: what T → ∞ makes of T subsampled Gaussian steps, when p√T settles.

Every mu here is *asymptotic*: at finite T the Gaussian trade-off function G_mu can lie on either side of the
truth, so none of these numbers is a guarantee.

* `subsampled_clt_mu`: fixed-size batches, replace-one (DRS22, Corollary 5.4).
* `poisson_clt_mu`: Poisson batches, add/remove (Bu, Dong, Long and Su 2020, Theorem 5).

The two formulas differ and aren't interchangeable.
"""

from __future__ import annotations

import math

from scipy.special import ndtr

from dpteach import _validate as check
from dpteach.guarantees import GaussianGuarantee
from dpteach.laws import Law, PoissonLaw, SubsampledLaw

__all__ = ["chi2_plus", "clt_guarantee", "poisson_clt_mu", "subsampled_clt_mu"]

_LARGEST_MU = 1e6


def chi2_plus(mu: float) -> float:
    """χ²₊(G_mu) = ∫₀¹ (|G_mu'(x)| - 1)₊² dx = e^{mu²} Φ(3mu/2) + 3Φ(-mu/2) - 2 (DRS22, Lemma 5.3). Exact.

    Written as expm1(mu²)·Φ(3mu/2) + (Φ(3mu/2) - 1/2) - 3(Φ(mu/2) - 1/2), so that small mu keep their digits.

    >>> round(chi2_plus(1.0), 12)
    1.462293643418
    """
    mu = check.real("mu", mu, "(0, 26]", "e^(mu²) overflows beyond: the limit says nothing useful there")
    if mu < 1e-3:
        return _chi2_plus_series(mu)
    centred = (float(ndtr(1.5 * mu)) - 0.5) - 3 * (float(ndtr(mu / 2)) - 0.5)
    return math.expm1(mu * mu) * float(ndtr(1.5 * mu)) + centred


def _chi2_plus_series(mu: float) -> float:
    """Taylor series at 0, from e^{mu²} = 1 + mu² + mu⁴/2 and Φ(x) = 1/2 + (x - x³/6)/√(2π): 1e-9 relative below 1e-3."""
    cubic = (1.5 - (1.5**3 - 3 * 0.5**3) / 6) / math.sqrt(2 * math.pi)
    return mu * mu / 2 + cubic * mu**3 + mu**4 / 4


def subsampled_clt_mu(p: float, sigma: float, steps: int) -> float:
    """Corollary 5.4: mu = √2·c·√(e^{1/σ²}Φ(3/(2σ)) + 3Φ(-1/(2σ)) - 2) with c = p√T. Asymptotic.

    Fixed-size batches, replace-one; sigma = noise std / sensitivity, as in DRS22's Algorithm 1 (noise 2σC on the sum).

    >>> round(subsampled_clt_mu(256 / 60000, 1.3, 3516), 4)
    0.2847
    """
    p, sigma = check.real("p", p, "(0, 1]"), check.real("sigma", sigma, "(0, inf)")
    steps = check.whole("steps", steps, "[1, 1e15]")
    return _moderate(p * math.sqrt(2 * steps * chi2_plus(_inverse(sigma))), sigma)


def poisson_clt_mu(q: float, sigma: float, steps: int) -> float:
    """Bu et al. 2020: mu = q√(T(e^{1/σ²} - 1)). Asymptotic.

    Poisson batches, add/remove; sigma = noise std / clipping norm (noise σC on the sum).

    >>> round(poisson_clt_mu(256 / 60000, 1.3, 3516), 4)
    0.2273
    """
    q, sigma = check.real("q", q, "(0, 1]"), check.real("sigma", sigma, "(0, inf)")
    steps = check.whole("steps", steps, "[1, 1e15]")
    return _moderate(q * math.sqrt(steps * math.expm1(_inverse(sigma) ** 2)), sigma)


def _inverse(sigma: float) -> float:
    if sigma < 1 / 26:
        raise ValueError(f"sigma = {sigma} isn't allowed here: it must be at least 1/26, since e^(1/sigma²) overflows; use another accountant")
    return 1 / sigma


def _moderate(mu: float, sigma: float) -> float:
    if mu > _LARGEST_MU:
        raise ValueError(f"sigma = {sigma} makes mu = {mu:.3g}, above {_LARGEST_MU:g}: the limit says nothing there; use a larger sigma")
    return mu


def clt_guarantee(law: Law, steps: int, convention: str = "of the law given") -> GaussianGuarantee:
    """The limit for `steps` steps of a Poisson or subsampled law, as a mu-GDP statement of kind 'asymptotic'.

    >>> clt_guarantee(SubsampledLaw(256 / 60000, 1 / 1.3), 3516).kind
    'asymptotic'
    """
    if isinstance(law, PoissonLaw):
        mu = poisson_clt_mu(law.q, law.sigma, steps)
    elif isinstance(law, SubsampledLaw):
        mu = subsampled_clt_mu(law.p, 1 / law.mu, steps)
    else:
        mu = law.mu * math.sqrt(check.whole("steps", steps, "[1, 1e15]"))
    return GaussianGuarantee(mu=mu, name="clt", kind="asymptotic", convention=convention)
