"""Inputs that break such software, one test each: parameters, conventions, calibration."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

from dpteach.accountants import account, run_under, summary, warnings_for
from dpteach.calibration import calibrate
from dpteach.guarantees import GaussianGuarantee
from dpteach.limits import poisson_clt_mu, subsampled_clt_mu
from dpteach.moments import log_e2
from dpteach.report import statement
from dpteach.run import NoisySGD

RUN_A = dict(n=60000, batch_size=256, epochs=15)


def every(relation="add-remove", orders="integer", **facts):
    return account(run_under(relation, **facts), relation, orders)


def ends(guarantee, delta=1e-5):
    return guarantee.lower.epsilon(delta), guarantee.upper.epsilon(delta)


# --- parameters


def test_one_full_batch_step_is_a_plain_gaussian():
    """Rate 1: no log(0). 4.37718 is the inverse of Corollary 2.13; 4.7285 by Canonne et al."""
    found = every(rate=1.0, sigma=1.0, steps=1, orders="real")
    assert ends(found["tensor-power"]) == pytest.approx((4.37718, 4.37718), abs=5e-6)
    assert found["moments"].epsilon(1e-5) > found["rdp"].epsilon(1e-5)
    assert 4.7283 < found["rdp"].epsilon(1e-5) <= 4.72855  # 4.7285 is on a peer's grid of orders


@pytest.mark.parametrize("name, bad", [
    ("rate", [1.5, -0.1, 0]), ("sigma", [0, -1, 1e4]), ("steps", [-1, 2.5]),
    ("delta", [0, 1, 1.5, -1e-5]), ("clip_norm", [0, -1]),
])  # fmt: skip
def test_what_is_out_of_range_is_refused_at_once(name, bad):
    for value in [*bad, math.nan, math.inf]:
        facts = {"rate": 0.01, "sigma": 1.0, "steps": 10, "delta": 1e-5, name: value}
        delta = facts.pop("delta")
        with pytest.raises(ValueError, match=f"^{name} = .* isn't allowed: it must be a .*number"):
            every(**facts)["moments"].epsilon(delta)


def test_a_large_delta_gives_zero():
    """δ = 0.5 above δ(0): ε = 0, not -0.67."""
    for name, guarantee in every(rate=0.01, sigma=4.0, steps=1).items():
        loose = name in ("moments", "strong-composition", "berry-esseen")
        assert guarantee.epsilon(0.5) >= 0 if loose else guarantee.epsilon(0.5) == 0


def test_small_noise_is_bracketed_around_the_truth():
    """σ = 0.3, rate 0.01, T = 1000: 69.8157, RDP 78.37; 2050 with whole orders, and it's said."""
    facts = dict(rate=0.01, sigma=0.3, steps=1000)
    low, high = ends(every(**facts)["tensor-power"])
    assert low <= 69.8157 <= high and high - low < 1e-3 * high
    assert every(**facts, orders="real")["rdp"].epsilon(1e-5) == pytest.approx(78.37, abs=0.01)
    told = summary(run_under("add-remove", **facts), "add-remove", 1e-5)["warnings"]
    assert any("rdp: the best order, 2, is at the end of the grid" in text for text in told)
    real = summary(run_under("add-remove", **facts), "add-remove", 1e-5, "real")["warnings"]
    assert not any("end of the grid" in text for text in real)


def test_orders_at_which_the_exponential_overflows():
    """(1-q) + q·exp(…) beyond 1e308: finite, and no warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lam = np.array([10.0, 100.0, 490.0])
        all_in = (lam + 1) * (math.log(0.01) + lam / (2 * 0.05**2))  # the largest term of Eq. 4
        np.testing.assert_allclose(log_e2(0.01, 0.05, lam), all_in, rtol=1e-6)
        assert math.isfinite(every(rate=0.01, sigma=0.05, steps=10)["moments"].epsilon(1e-5))


def test_delta_of_at_least_one_over_n():
    run = NoisySGD(n=1000, batch_size=10, steps=1, noise_multiplier=1.0)
    assert "allows publishing a whole record" in warnings_for(run, 1e-3)[0]
    assert warnings_for(run, 0.99e-3) == []


def test_steps_are_the_noisy_updates_made():
    assert NoisySGD.for_epochs(**RUN_A, noise_multiplier=1.3).steps == 3516


@pytest.mark.parametrize("sigma, epsilon", [(1.0, 4.37718), (0.5, 9.99726)])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_the_central_limit_without_sampling_is_the_gaussian(relation, sigma, epsilon):
    """Not 6.007, nor 96.07 for σ = 0.5."""
    limit = every(relation, rate=1.0, sigma=sigma, steps=1)["clt"]
    assert limit.epsilon(1e-5) == pytest.approx(epsilon, abs=5e-6) and limit.kind == "exact"
    assert every(relation, rate=1.0, sigma=sigma, steps=4)["clt"].mu == 2 / sigma


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_zero_steps_release_nothing(relation):
    alpha = np.array([0.0, 0.3, 1.0])
    for guarantee in every(relation, n=100, batch_size=10, sigma=1.0, steps=0).values():
        assert (guarantee.epsilon(1e-9), guarantee.delta(0.0)) == (0.0, 0.0)
        assert np.all(guarantee.f(alpha) == 1 - alpha)
    run = run_under(relation, n=100, batch_size=10, sigma=1.0, epochs=0)
    assert "It is (0, 0.001)-differentially private" in statement(run, relation, 1e-3)["sentence"]


def test_an_epsilon_that_protects_next_to_nothing():
    run = run_under("add-remove", n=1000, batch_size=1000, sigma=0.2, steps=100)
    told = statement(run, "add-remove", 1e-5)
    assert told["quoted"]["epsilon"] > 1400
    assert any("protects next to nothing" in text for text in told["warnings"])


def test_rare_steps_and_many_of_them():
    """Rate 1e-9, σ = 1, T = 1e9: the bracket's sides in order, below the moments' bound."""
    found = every(rate=1e-9, sigma=1.0, steps=10**9)
    low, high = ends(found["tensor-power"])
    assert low <= high and low <= found["rdp"].epsilon(1e-5)
    with pytest.raises(ValueError, match=r"^sigma = 1e\+08|^sigma = 100000000"):
        every(rate=0.5, sigma=1e8, steps=10**8)


# --- conventions


def test_sigma_is_always_noise_over_sensitivity():
    """One physical noise, two relations; the relation stands in every printed result."""
    run = NoisySGD(n=60000, batch_size=256, steps=3516, noise_multiplier=2.6, sampling="fixed-size")
    assert (run.sigma("add-remove"), run.sigma("replace-one")) == (2.6, 1.3)
    found = summary(run, "replace-one", 1e-5)
    assert "replace-one neighbours, fixed-size batches" in found["assumptions"]
    assert "(sigma = 1.3)" in found["assumptions"] and "2.6 × clip_norm" in found["assumptions"]


def test_the_clipping_norm_does_not_enter_epsilon():
    run = NoisySGD.at_rate(0.01, steps=100, noise_multiplier=1.0)
    told = {account(replace(run, clip_norm=c), "add-remove")["rdp"].epsilon(1e-5) for c in (1, 9)}
    assert len(told) == 1


def test_two_central_limits_for_two_samplings():
    """Run A with σ = 1.3: Poisson 0.2273, fixed-size 0.2847 (Corollary 5.4)."""
    assert round(poisson_clt_mu(256 / 60000, 1.3, 3516), 4) == 0.2273
    assert round(subsampled_clt_mu(256 / 60000, 1.3, 3516), 4) == 0.2847
    for relation, mu, sampling in (
        ("add-remove", 0.2273, "poisson"), ("replace-one", 0.2847, "fixed-size")
    ):  # fmt: skip
        limit = every(relation, **RUN_A, sigma=1.3)["clt"]
        assert round(limit.mu, 4) == mu and sampling in limit.assumptions


def test_an_asymptotic_number_is_called_one():
    """Rate 0.01, σ = 1, T = 1: the limit says 0.037, the truth is 0.19945."""
    found = every(rate=0.01, sigma=1.0, steps=1)
    assert found["clt"].kind == "asymptotic"
    assert found["clt"].epsilon(1e-5) == pytest.approx(0.037, abs=5e-4)
    assert ends(found["tensor-power"]) == pytest.approx((0.19945, 0.19945), abs=5e-6)


def test_replace_one_with_noise_of_one_clipping_norm():
    """σ = 1 relative to C is 1/2 relative to the sensitivity 2C: 9.99726, not 4.73."""
    run = NoisySGD.at_rate(1.0, steps=1, noise_multiplier=1.0, sampling="fixed-size")
    power = account(run, "replace-one")["tensor-power"]
    assert ends(power) == pytest.approx((9.99726, 9.99726), abs=5e-6)
    assert GaussianGuarantee(mu=2.0).epsilon(1e-5) == pytest.approx(9.99726, abs=5e-6)


@pytest.mark.parametrize("sampling, relation", [
    ("shuffled", "add-remove"), ("fixed-size", "add-remove")
])  # fmt: skip
def test_a_bound_for_one_sampling_is_not_used_for_another(sampling, relation):
    """Shuffled batches aren't accounted as Poisson, nor random subsets; the reason is told."""
    run = NoisySGD(n=10, batch_size=2, steps=5, noise_multiplier=1.0, sampling=sampling)
    with pytest.raises(ValueError, match="isn't covered: .*ask "):
        account(run, relation)


# --- calibration


@pytest.mark.parametrize("target", [0.1, 1.0, 8.0])
def test_the_sigma_found_is_safe_and_near(target):
    found = calibrate("sigma", "rdp", "add-remove", epsilon=target, delta=1e-5, **RUN_A)
    assert target - 1e-3 <= found.epsilon <= target
    assert every(**RUN_A, sigma=found.value)["rdp"].epsilon(1e-5) == found.epsilon


def test_an_unreachable_target_is_refused_with_the_reason():
    facts = dict(delta=1e-5, rate=0.5, steps=10**6)
    with pytest.raises(ValueError, match="^epsilon = 0.0001 isn't .*sigma = 1000 it's still"):
        calibrate("sigma", "rdp", "add-remove", epsilon=1e-4, **facts)


@pytest.mark.parametrize("sigma", [0.06, 30.0, 900.0])
def test_the_search_interval_grows(sigma):
    """From σ = 1 on to the domain's ends; never "f(a) and f(b) must have different signs"."""
    facts = dict(rate=1.0, steps=1)
    target = every(**facts, sigma=sigma)["clt"].epsilon(1e-5) * 1.0005
    found = calibrate("sigma", "clt", "add-remove", epsilon=target, delta=1e-5, **facts)
    assert found.value == pytest.approx(sigma, rel=2e-3)
