"""Engine room, skip on first reading: Gauss-Legendre panels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

__all__ = ["panels"]

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def panels(ends: Sequence[float], width: float) -> tuple[np.ndarray, np.ndarray]:
    """Points and log weights of ∫ over [ends[0], ends[-1]]: 16 points a panel, shape (16·panels,).

    Each of the increasing `ends` is the end of a panel, and no panel is wider than `width`.

    >>> points, log_weights = panels([0.0, 0.3, 1.0], 0.5)
    >>> round(float(np.exp(log_weights) @ points**2), 15)
    0.333333333333333
    """
    counts = [math.ceil((high - low) / width) for low, high in pairwise(ends)]
    parts = zip(pairwise(ends), counts, strict=True)
    edges = [np.linspace(*part, count, endpoint=False) for part, count in parts]
    edge = np.append(np.concatenate(edges), ends[-1])
    half, centre = np.diff(edge)[:, None] / 2, (edge[1:] + edge[:-1])[:, None] / 2
    return (centre + half * _POINTS).ravel(), np.log(half * _WEIGHTS).ravel()
