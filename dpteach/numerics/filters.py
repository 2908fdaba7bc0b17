"""A running sum that forgets. Skip on first reading."""

from __future__ import annotations

import numpy as np

__all__ = ["decaying_sum"]


def decaying_sum(x: np.ndarray, decay: float) -> np.ndarray:
    """y_k = x_k + decay·y_{k-1} along the last axis, decay in [0, 1].

    By doubling: after each pass y_k holds the last 2, 4, 8, … terms. For x ≥ 0 nothing cancels.
    (`scipy.signal.lfilter` does the same, but its module takes longer to import than all the rest.)

    >>> decaying_sum(np.array([1.0, 0.0, 0.0, 4.0]), 0.5).tolist()
    [1.0, 0.5, 0.25, 4.125]
    """
    y, shift = np.array(x, dtype=float), 1
    while shift < y.shape[-1] and decay > 0:
        y[..., shift:] += decay * y[..., :-shift]
        shift, decay = 2 * shift, decay**2
    return y
