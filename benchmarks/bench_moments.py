"""What log moments cost.

Goals on two cores: whole orders 1 to 64 under 2 ms, real orders to 64 in steps of 0.1 under 20 ms.
"""

import numpy as np

from dpteach.laws import PoissonLaw, SubsampledLaw
from dpteach.moments import MomentsGuarantee, log_e2_integer, log_e2_series, log_moment

Q, SIGMA = 0.01, 4.0
WHOLE, REAL = np.arange(1.0, 65.0), np.linspace(1.0, 64.0, 631)


def cases():
    """The pairs (what, function) to time, q = 0.01 and sigma = 4 where nothing else is said."""
    law, little, fixed = PoissonLaw(Q, SIGMA), PoissonLaw(Q, 0.5), SubsampledLaw(Q, SIGMA)
    whole = MomentsGuarantee(law=law, steps=10000)
    real = MomentsGuarantee(law=law, steps=10000, orders="real")
    yield "log moments by quadrature, orders 1..64", lambda: log_moment(law, WHOLE)
    yield "log moments by quadrature, 631 real orders", lambda: log_moment(law, REAL)
    yield "  the same at sigma 0.5", lambda: log_moment(little, REAL)
    yield "  the same for C_p(G)", lambda: log_moment(fixed, REAL)
    yield "closed form, orders 1..64", lambda: [log_e2_integer(Q, SIGMA, k) for k in range(1, 65)]
    yield "series, 631 real orders", lambda: [log_e2_series(Q, SIGMA, lam) for lam in REAL + 0.05]
    yield "best whole order, T = 10000", lambda: whole.best(1e-5)
    yield "best real order, T = 10000", lambda: real.best(1e-5)
