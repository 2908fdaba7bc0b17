"""Several records of one user: the law against quadrature, and runs against recorded numbers."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, norm

from dpteach import NoisySGD, statement
from dpteach.laws import GaussianLaw, PoissonLaw
from dpteach.report import group_epsilon
from dpteach.tensor_power import TensorPower
from dpteach.users import UserLaw, user_laws

RUN_A = NoisySGD.abadi16(n=60000, batch_size=256, epochs=15, sigma=1.3)


def power(k, relation="add-remove"):
    return TensorPower(laws=user_laws(RUN_A, relation, k), steps=RUN_A.steps)


@pytest.mark.theorem("thm-20-users")
@pytest.mark.parametrize("k, way, epsilon", [
    (1, "remove", 0.86454), (1, "add", 0.80145), (2, "remove", 1.85987), (4, "add", 3.71852),
    (4, "remove", 4.075507), (8, "remove", 9.25419),
])
def test_recorded_numbers(k, way, epsilon):
    """By an FFT of other making, and by dp-accounting's MixtureOfGaussiansDpEvent."""
    low, high = power(k).details(1e-5)["directions"][way]
    assert low * (1 - 5e-5) <= epsilon <= high * (1 + 5e-5) and high < 1.0005 * low


def test_advantage_of_two_records():
    assert power(2).delta(0.0) == pytest.approx(0.178941, rel=1e-4)


def densities(rate, sigma, k):
    j = np.arange(k + 1)
    weights = binom.pmf(j, k, rate)
    return (lambda x: weights @ norm.pdf(x, j, sigma)), (lambda x: norm.pdf(x, 0, sigma))


@pytest.mark.theorem("thm-20-users")
@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("rate, sigma, k", [(0.1, 1.0, 2), (0.3, 0.6, 3), (0.01, 2.0, 8)])
def test_delta_by_quadrature(rate, sigma, k, direction):
    mixture, noise = densities(rate, sigma, k)
    p, q = (mixture, noise) if direction == "remove" else (noise, mixture)
    law = UserLaw(rate, sigma, direction, k)
    for epsilon in (-0.5, 0.0, 0.02, 0.3, 1.5):
        def gain(x, e=epsilon):
            return max(p(x) - math.exp(e) * q(x), 0.0)

        cut = float(law._inverse(epsilon if direction == "remove" else -epsilon)) * sigma
        ends = [-12 * sigma, *([cut] if math.isfinite(cut) else []), k + 12 * sigma]
        exact = sum(quad(gain, a, b, limit=400, epsabs=1e-14)[0]
                    for a, b in zip(ends, ends[1:], strict=False))
        assert float(law.delta(epsilon)) == pytest.approx(exact, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_masses_samples_and_nodes_agree(direction):
    law = UserLaw(0.2, 0.8, direction, 4)
    edges = np.array([-np.inf, -1.0, -0.3, 0.0, 0.2, 1.0, 4.0, np.inf])
    p, q = law.loss_masses(edges)
    assert p.sum() == pytest.approx(1) and q.sum() == pytest.approx(1)
    drawn = law.sample(200_000, np.random.default_rng(1))
    counts = np.histogram(drawn, edges)[0] / drawn.size
    assert np.all(np.abs(counts - p) < 5 * np.sqrt(p / drawn.size) + 1e-9)
    nodes = law.nodes(3.0)
    assert np.exp(nodes.log_p).sum() == pytest.approx(1, rel=1e-9)
    assert np.exp(nodes.log_q).sum() == pytest.approx(1, rel=1e-9)
    low, high = law.loss_range(1e-6)
    assert np.mean(drawn < low) < 1e-4 and np.mean(drawn > high) < 1e-4


def test_the_inverse_is_one():
    law = UserLaw(1e-3, 0.5, "remove", 8)
    loss = np.array([law._least_loss + 1e-9, -1e-4, 0.0, 1e-3, 1.0, 10.0, 60.0])
    assert law._loss(law._inverse(loss)) == pytest.approx(loss, rel=1e-9, abs=1e-12)
    assert law._inverse(law._least_loss - 1.0) == -math.inf


def test_one_record_is_the_sampled_gaussian():
    one, plain = UserLaw(0.05, 1.1, "add", 1), PoissonLaw(0.05, 1.1, "add")
    epsilon = np.linspace(-1, 0.05, 12)
    assert one.delta(epsilon) == pytest.approx(plain.delta(epsilon), rel=1e-9, abs=1e-15)
    assert one.limit_mu == pytest.approx(plain.limit_mu, rel=1e-12)


@pytest.mark.theorem("thm-20-users")
def test_gradients_in_one_direction_are_the_worst():
    """Kahane: the wider the angle between two gradients, the smaller δ (2-D grid)."""
    rate, sigma = 0.3, 1.0
    x = np.linspace(-8, 10, 361)
    grid_x, grid_y = np.meshgrid(x, x)
    cell = (x[1] - x[0]) ** 2

    def mixture(angle):
        other = np.array([math.cos(angle), math.sin(angle)])
        centres = [((1 - rate) ** 2, 0, 0), (rate * (1 - rate), 1, 0),
                   (rate * (1 - rate), *other), (rate**2, 1 + other[0], other[1])]
        return sum(w * np.exp(-((grid_x - a) ** 2 + (grid_y - b) ** 2) / 2) / (2 * math.pi)
                   for w, a, b in centres)

    noise = np.exp(-(grid_x**2 + grid_y**2) / 2) / (2 * math.pi)
    found = [np.maximum(mixture(a) - math.exp(0.3) * noise, 0).sum() * cell
             for a in (0.0, 0.5, 1.5, 3.1)]
    assert found == pytest.approx([0.15008, 0.14351, 0.09785, 0.03480], abs=2e-4)  # recorded
    assert found[0] == pytest.approx(float(UserLaw(rate, sigma, "remove", 2).delta(0.3)), abs=2e-4)


def test_the_statement_takes_the_exact_law():
    found = statement(RUN_A, "add-remove", 1e-5, unit="user", records_per_unit=2)
    low, high = found["claimed"][0]["epsilon"]
    assert low < 1.85987 < high and found["quoted"]["at_most"] == "1.87"
    one = TensorPower(laws=RUN_A.laws("add-remove"), steps=RUN_A.steps)
    assert high < group_epsilon(one, 2, 1e-5)
    fixed = NoisySGD.drs22(n=60000, batch_size=256, epochs=15, sigma=1.3)
    group = statement(fixed, "replace-one", 1e-5, unit="user", records_per_unit=2)
    assert isinstance(group["claimed"][0]["epsilon"], float)


def test_where_nothing_is_proved_the_way_out_is_named():
    many = statement(RUN_A, "replace-one", 1e-5, unit="user", records_per_unit=100_000)
    assert many["quoted"] is None
    assert any("draw units instead of records" in text for text in many["warnings"])


@pytest.mark.parametrize("call", [
    lambda: UserLaw(1.0, 1.0, "remove", 2), lambda: UserLaw(0.1, 1.0, "remove", 0),
    lambda: UserLaw(0.1, 1.0, "both", 2), lambda: UserLaw(0.1, 1.0, "remove", 1001),
    lambda: user_laws(NoisySGD.drs22(rate=0.1, sigma=1.0, steps=1), "replace-one", 2),
    lambda: user_laws(NoisySGD.at_rate(0.1, steps=1, noise_multiplier=1.0), "replace-one", 2),
    lambda: user_laws(NoisySGD.at_rate(1.0, steps=1, noise_multiplier=0.1), "add-remove", 9),
])
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError, match="isn't allowed"):
        call()


def test_without_sampling_it_is_gaussian():
    run = NoisySGD.at_rate(1.0, steps=1, noise_multiplier=2.0)
    assert user_laws(run, "add-remove", 4) == (GaussianLaw(0.5),)
