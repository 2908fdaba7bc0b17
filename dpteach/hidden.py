"""Hidden iterates: what noisy gradient descent leaks when only the last one is published (chapter 24).

Two runs X_k = φ_k(X_{k-1}) + Z_k and X'_k = φ'_k(X'_{k-1}) + Z'_k start at one point, with noise of
standard deviation ς per coordinate. Every map is c-Lipschitz, and step k's two maps are nowhere
further apart than s_k. Then T(X_T, X'_T) ≥ G_mu, by *shifted interpolation* (Bok, Su and Altschuler
2024). For gradient descent on a λ-strongly convex and M-smooth mean loss

    c = max(|1 - ηλ|, |1 - ηM|),    s = ηΔ/n,    ς = η·(noise std on the mean gradient),

where Δ is how far one record's gradients can differ on the two data sets. Everything is given in
units of `mu_1` = s/ς, the mu of one step. Full batches; both data sets must have c.

Not for clipped gradients of a general loss: clipping spoils the contraction.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dpteach import domain

__all__ = [
    "average_loss_bound", "contraction", "hidden_mu", "projected_mu", "quadratic_mu", "shifted_mu",
]  # fmt: skip

_MU_1 = "[1e-9, 100]"


def contraction(learning_rate: float, strong_convexity: float, smoothness: float) -> float:
    """c = max(|1 - ηλ|, |1 - ηM|): the Lipschitz constant of x ↦ x - η∇F(x). Exact for quadratics.

    λ = `strong_convexity` ≥ 0, M = `smoothness` ≥ λ.

    >>> contraction(0.1, 1.0, 5.0)
    0.9
    """
    eta = domain.number("learning_rate", learning_rate, "(0, 1e6]")
    low = domain.number("strong_convexity", strong_convexity, "[0, 1e6]")
    high = domain.number("smoothness", smoothness, f"[{low}, 1e6]", "at least the strong convexity")
    return max(abs(1 - eta * low), abs(1 - eta * high))


def hidden_mu(mu_1: float, c: float, steps: int) -> float:
    """mu of X_T for equal steps: mu_1 √((1-c^T)/(1+c^T) · (1+c)/(1-c)), c < 1. Upper bound.

    At c = 1 it's mu_1 √T, as by composition. Attained by φ(x) = cx, φ'(x) = cx + s.

    >>> round(hidden_mu(0.1, 0.99, 1000), 8), round(hidden_mu(0.1, 1.0, 1000), 5)
    (1.4106127, 3.16228)
    """
    mu_1 = domain.number("mu_1", mu_1, _MU_1, "the mu of one step")
    c = domain.number("c", c, "[0, 1]", "beyond 1 hiding gains nothing: compose")
    steps = domain.steps(steps)
    if c == 1:
        return mu_1 * math.sqrt(steps)
    return mu_1 * math.sqrt(-math.expm1(_log_power(c, steps)) / (1 + c**steps) * (1 + c) / (1 - c))


def _log_power(c: float, steps: int) -> float:
    """log c^T, where c = 1 - 1e-12 would lose 1 - c^T."""
    return steps * math.log(c) if c > 0 else (0.0 if steps == 0 else -math.inf)


def shifted_mu(shifts: ArrayLike, c: float) -> float:
    """√(Σ a_k²) for the best a_k ≥ 0 of shifted interpolation, in units of 1/ς. Upper bound.

    `shifts` are s_1, …, s_T ≥ 0, shape (T,), T ≤ 10,000; c in (0, 1]. With W_k = Σ_{i≤k} c^{-2i} and
    S_k = Σ_{i≤k} s_i c^{-i} the best shifts are the slopes of the greatest convex minorant of the
    points (W_k, S_k), from (0, 0) to (W_T, S_T).

    >>> round(shifted_mu([0.0] * 4 + [1.0] + [0.0] * 15, 1.0), 12)  # one use, 16 steps to hide it
    0.25
    """
    s = domain.numbers("shifts", shifts, "[0, 1e6]")
    domain.require("shifts", shifts, s.ndim == 1 and s.size <= 10_000, "a list of at most 10,000")
    c = domain.number("c", c, "[1e-3, 1]")
    blocks: list[tuple[float, float]] = []  # (width, height), in units of the last step's c^{-T}
    for shift in s:
        blocks = [(width * c * c, height * c) for width, height in blocks]
        width, height = 1.0, float(shift)
        while blocks and blocks[-1][1] * width >= height * blocks[-1][0]:  # slopes must increase
            width, height = width + blocks[-1][0], height + blocks[-1][1]
            blocks.pop()
        blocks.append((width, height))
    return math.sqrt(sum(height**2 / width for width, height in blocks if width > 0))


def quadratic_mu(mu_1: float, factors: ArrayLike, direction: ArrayLike, steps: int) -> float:
    """mu of θ_T on a public quadratic, mean estimation: mu_1 (Σ v_i² g(c_i)²)^{1/2}. Exact.

    `factors` are c_i = 1 - ηh_i in (-1, 1), for the curvatures h_i, shape (d,); `direction` is v, the
    change of the record in the eigenbasis, of length at most 1. g(c) = (1-c^T)/(1-c) ·
    √((1-c²)/(1-c^{2T})).

    >>> v = [3**-0.5] * 3
    >>> round(quadratic_mu(1.0, [0.95, 0.75, 0.0], v, 50), 8)
    3.71605036
    """
    mu_1 = domain.number("mu_1", mu_1, _MU_1, "the mu of one step")
    c = domain.numbers("factors", factors, "(-1, 1)")
    v = domain.numbers("direction", direction, "[-1, 1]")
    domain.same_shape(factors=c, direction=v)
    domain.require("direction", direction, v @ v <= 1 + 1e-12, "of length at most 1")
    steps = domain.steps(steps)
    if steps == 0:
        return 0.0
    gain = (1 - c**steps) / (1 - c) * np.sqrt((1 - c**2) / (1 - c ** (2 * steps)))
    return mu_1 * math.sqrt(v**2 @ gain**2)


def projected_mu(mu_1: float, diameter: float, steps: int) -> float:
    """mu of θ_T for convex losses (η ≤ 2/M) on a set of that diameter. Upper bound.

    min over K ≤ T of mu_1 (D/s + K)/√K, and mu_1 √T; `diameter` is D in units of one step's s.

    >>> projected_mu(0.05, 100.0, 1000)  # 2√D for K = D
    1.0
    """
    mu_1 = domain.number("mu_1", mu_1, _MU_1, "the mu of one step")
    diameter = domain.number("diameter", diameter, "[0, 1e12]", "in units of one step's shift s")
    steps = domain.steps(steps)
    if steps == 0:
        return 0.0
    best = min(max(diameter, 1.0), steps)  # (D + K)/√K falls until K = D
    found = min((diameter + k) / math.sqrt(k) for k in {math.floor(best), math.ceil(best)})
    return mu_1 * min(found, math.sqrt(steps))


def average_loss_bound(
    n: int, dimensions: int, mu: float, steps: int, lipschitz: float = 1.0, radius: float = 1.0
) -> float:
    """E F(θ̄) - F(θ*) ≤ R L √(1/T + 4d/(n²mu²)): what accuracy a budget buys. Upper bound.

    Noisy gradient descent on a convex, L-Lipschitz mean loss, full batches, mu-GDP under
    replace-one with all iterates published: noise std 2L√T/(n·mu) on the mean gradient, learning
    rate R/√(T(L² + d·std²)). θ̄ is the average of θ_0, …, θ_{T-1}; R bounds ‖θ_0 - θ*‖.

    >>> round(average_loss_bound(2000, 20, 1.0, 50_000), 8)
    0.00632456
    """
    n = domain.whole_number("n", n, "[1, 1e12]")
    d = domain.whole_number("dimensions", dimensions, "[1, 1e12]")
    mu = domain.mu(mu)
    steps = domain.steps(steps, least=1)
    size = domain.number("lipschitz", lipschitz, "(0, 1e12]")
    size *= domain.number("radius", radius, "(0, 1e12]")
    return size * math.sqrt(1 / steps + 4 * d / (n * mu) ** 2)
