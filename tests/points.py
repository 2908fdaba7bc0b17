"""Random points of the whole domain, and a closed form in many digits to check against."""

import mpmath
import numpy as np

from dpteach import domain

__all__ = ["gaussian_delta_mp", "points"]

_DOMAIN = {
    "sigma": domain.SIGMA, "rate": domain.RATE, "steps": "[1, 1e9]", "delta": domain.DELTA,
    "epsilon": "[1e-6, 1e5]", "mu": domain.MU, "alpha": "[1e-12, 1)",
}  # fmt: skip


def points(count, *names, seed=0):
    """`count` tuples of the named arguments, each log-uniform over its domain; 0 < for ε and α."""
    rng = np.random.default_rng(seed)
    ends = [np.log([float(end) for end in _DOMAIN[name][1:-1].split(",")]) for name in names]
    drawn = np.exp([rng.uniform(low, high, count) for low, high in ends])
    whole = [np.floor(x) if name == "steps" else x for name, x in zip(names, drawn, strict=True)]
    return [tuple(map(float, point)) for point in zip(*whole, strict=True)]


def gaussian_delta_mp(mu, epsilon):
    """Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2) (DRS22, Corollary 2.13), in the digits of the caller."""
    mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
    a, b = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    return mpmath.ncdf(a) - mpmath.exp(epsilon) * mpmath.ncdf(b)
