"""Tuning against dp-accounting's published bounds, and against exact laws of the best trial."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from dpteach.laws import GaussianLaw, PoissonLaw
from dpteach.tuning import BestOfRandom, Trials

LOGARITHMIC = Trials.logarithmic(0.0269183)
HALF = Trials("negative-binomial", gamma=0.0625, eta=0.5)


@pytest.mark.theorem("thm-22-tuning")
@pytest.mark.parametrize(
    ("law", "steps", "trials", "known"),
    [(GaussianLaw(4.0), 1, Trials.geometric(0.1), 2.153413),
     (GaussianLaw(4.0), 1, LOGARITHMIC, 1.783891),
     (GaussianLaw(2.0), 1, HALF, 3.997713),
     (GaussianLaw(2.0), 1, Trials.poisson(10), 4.907634),
     (PoissonLaw(256 / 60000, 1.3), 3516, Trials.geometric(0.1), 2.036333),
     (PoissonLaw(256 / 60000, 1.3), 3516, Trials.poisson(10), 2.168036)],
)  # fmt: skip
def test_reference_bounds(law, steps, trials, known):
    """dp-accounting 0.6.0's RepeatAndSelect on other lists of orders."""
    assert BestOfRandom(law=law, steps=steps, trials=trials).epsilon(1e-5) == pytest.approx(
        known, rel=3e-4
    )


def exact_delta(sigma, trials, epsilon):
    """δ(ε) of the best of K scores, N(0, 1) or N(1/σ, 1), the larger score winning."""
    if trials.distribution == "poisson":
        slope = lambda x: trials.mean * np.exp(trials.mean * (x - 1))  # noqa: E731
    else:
        g, h = trials.gamma, trials.eta
        slope = lambda x: trials.expected * g ** (h + 1) * (1 - (1 - g) * x) ** (-h - 1)  # noqa: E731
    density = lambda x, m: slope(ndtr(x - m)) * math.exp(-((x - m) ** 2) / 2)  # noqa: E731
    excess = lambda x, a, b: max(0.0, density(x, a) - math.exp(epsilon) * density(x, b))  # noqa: E731
    both = [
        quad(excess, -12, 12, args=pair, limit=400, points=[0.0, 2.0])[0] / math.sqrt(2 * math.pi)
        for pair in ((1 / sigma, 0.0), (0.0, 1 / sigma))
    ]
    return max(both)


@pytest.mark.parametrize("trials", [Trials.geometric(0.1), LOGARITHMIC, Trials.poisson(10)])
def test_the_exact_best_of_a_toy_stays_below(trials):
    bound = BestOfRandom(law=GaussianLaw(4.0), steps=1, trials=trials)
    for epsilon in (0.5, 1.06, 1.5):
        assert exact_delta(4.0, trials, epsilon) <= bound.delta(epsilon)
    reference = {"poisson": 1.060632}.get(trials.distribution, 1.0605)
    assert exact_delta(4.0, trials, reference) == pytest.approx(1e-5, rel=0.01)


@pytest.mark.parametrize(
    "trials", [Trials.geometric(0.2), Trials.logarithmic(0.1), HALF, Trials.poisson(3)]
)
def test_draws_have_the_expected_mean(trials):
    rng = np.random.default_rng(2)
    drawn = np.array([trials.sample(rng) for _ in range(20_000)])
    assert drawn.mean() == pytest.approx(trials.expected, abs=5 * drawn.std() / math.sqrt(drawn.size))
    assert drawn.min() >= (trials.distribution != "poisson")


def test_what_is_typed():
    assert Trials.parse("geometric 0.1") == Trials.geometric(0.1)
    assert Trials.parse("negative-binomial 0.5 0.0625") == HALF
    assert Trials.parse("poisson 10") == Trials.poisson(10)
    for typed in ("", "geometric", "geometric x", "uniform 3", "poisson 0.5", "geometric 1.5"):
        with pytest.raises(ValueError, match="isn't allowed"):
            Trials.parse(typed)


def test_no_steps_still_pay_for_the_selection_and_the_order_is_stated():
    free = BestOfRandom(law=GaussianLaw(4.0), steps=0, trials=Trials.geometric(0.1))
    paid = BestOfRandom(law=GaussianLaw(4.0), steps=1, trials=Trials.geometric(0.1))
    assert 0 <= free.epsilon(1e-5) < 0.1 < paid.epsilon(1e-5)
    assert paid.details(1e-5)["expected_trials"] == 10
