"""Random points of the whole domain, its corners included, for hypothesis."""

from hypothesis import settings
from hypothesis import strategies as st

__all__ = ["DELTAS", "QUICK", "RATES", "SIGMAS", "STEPS"]

QUICK = settings(deadline=None, derandomize=True, max_examples=60)


def _powers_of_ten(low, high, *corners):
    inside = st.floats(low, high).map(lambda x: 10.0**x)
    return st.one_of(inside, st.sampled_from(corners))


RATES = _powers_of_ten(-9, 0, 1e-9, 0.5, 1 - 2.0**-30, 1.0)
SIGMAS = _powers_of_ten(-1.3, 3, 0.05, 1.0, 1e3)
STEPS = _powers_of_ten(0, 9, 1, 1e9).map(int)
DELTAS = _powers_of_ten(-30, -0.01, 1e-30, 1e-5, 0.5)
