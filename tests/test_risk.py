"""What an attacker can do: true positives, advantage, beliefs, reconstruction, and σ for them."""

import json
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpteach import NoisySGD, account, calibrate, statement
from dpteach.__main__ import main
from dpteach.calibration import calibrate_risk
from dpteach.guarantees import GaussianGuarantee, NothingProved
from dpteach.laws import PoissonLaw
from dpteach.moments import MomentsGuarantee
from dpteach.report import to_markdown
from dpteach.risk import advantage, posterior, reconstruction, risk, true_positive_rate
from dpteach.tensor_power import TensorPower

FACTS = dict(n=60000, batch_size=256, epochs=15)
RUN_A = NoisySGD.abadi16(sigma=1.3, **FACTS)
TYPED = "--convention add-remove --n 60000 --batch-size 256 --epochs 15".split()


@pytest.fixture(scope="module")
def run_a():
    return account(RUN_A, "add-remove")["tensor-power"]


def test_the_reference_run(run_a):
    """By an FFT of another program's making (recorded reference numbers), for removal."""
    rates = true_positive_rate(run_a, [0.1, 0.01, 0.001])
    assert rates == pytest.approx([0.146280, 0.018085, 0.0021373], rel=1e-4)
    assert advantage(run_a) == pytest.approx(0.090175, rel=1e-4)
    assert advantage(run_a.lower) <= 0.090175 * (1 + 1e-5) and advantage(run_a) >= 0.0901745


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_gaussians_are_exact(mu):
    g = GaussianGuarantee(mu=mu)
    alpha = np.array([1e-6, 0.001, 0.1, 0.9])
    assert true_positive_rate(g, alpha) == pytest.approx(norm.cdf(norm.ppf(alpha) + mu), rel=1e-9)
    assert advantage(g) == pytest.approx(2 * norm.cdf(mu / 2) - 1, rel=1e-9)


@pytest.mark.theorem("prop-20-risk")
def test_advantage_is_the_total_variation_and_one_step_attains_it():
    """½∫|p - q| of the mixture, and the best test's rates by integration over its region."""
    rate, sigma = 0.2, 0.7
    one = TensorPower(laws=(PoissonLaw(rate, sigma, "remove"),), steps=1)

    def p(x):
        return (1 - rate) * norm.pdf(x, 0, sigma) + rate * norm.pdf(x, 1, sigma)

    tv = quad(lambda x: abs(p(x) - norm.pdf(x, 0, sigma)), -9, 9, points=[0.5], limit=200)[0] / 2
    assert advantage(one.lower) <= tv * (1 + 1e-9) and advantage(one) >= tv * (1 - 1e-9)
    assert advantage(one) == pytest.approx(tv, rel=1e-3)
    for cut in (0.5, 1.0, 2.0):  # the loss rises with x, so the best test accuses above a cut
        found = quad(p, cut, 12)[0]
        bound = float(true_positive_rate(one, norm.sf(cut / sigma)))
        assert found * (1 - 1e-9) <= bound <= found * 1.002


@pytest.mark.theorem("prop-20-risk")
def test_a_simulated_attacker_stays_below_every_bound():
    """200,000 records, a tenth of them present; G_1 is the likelihood ratio test's own curve."""
    rng, g, prior = np.random.default_rng(5), GaussianGuarantee(mu=1.0), 0.1
    present = rng.random(200_000) < prior
    score = rng.normal(size=present.size) + present
    for alpha in (0.001, 0.01, 0.1):
        accused = score > norm.isf(alpha)
        right = present[accused].mean()
        bound = posterior(g, prior, alpha)
        error = math.sqrt(bound * (1 - bound) / accused.sum())
        assert abs(right - bound) < 4 * error
    guess = score > 0.5
    balanced = (guess[present].mean() + 1 - guess[~present].mean()) / 2
    assert abs(balanced - (1 + advantage(g)) / 2) < 4 / math.sqrt(present.sum())


@pytest.mark.theorem("prop-20-reconstruction")
def test_reconstruction_by_enumeration():
    """k equally likely secrets, each moves one of k coordinates: the best guess is the largest."""
    rng, mu = np.random.default_rng(6), 1.5
    for k in (2, 5, 50):
        noise = rng.normal(size=(40_000, k))
        noise[:, 0] += mu  # by symmetry the secret is number 0
        success = (noise.argmax(axis=1) == 0).mean()
        bound = reconstruction(GaussianGuarantee(mu=mu), 1 / k)
        assert 1 / k < success < bound + 4 / 200


def test_moments_say_something_of_the_advantage():
    """δ(0) = 1 there, but the other (ε, δ) bound the total variation."""
    law = PoissonLaw(256 / 60000, 1.3, "remove")
    bound = advantage(MomentsGuarantee(law=law, steps=3516))
    assert 0.0902 < bound < 0.7


def test_risk_of_a_run(run_a):
    found = risk(run_a)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["kind"] == "upper bound" and found["warnings"] == []
    assert [row["false_positive_rate"] for row in found["true_positive_rate"]] == [0.001, 0.01, 0.1]
    assert len(found["posterior"]) == 9
    assert "1.9 % of the present" in found["sentence"]


def test_a_guarantee_that_protects_nothing_says_so():
    assert "next to nothing" in risk(GaussianGuarantee(mu=5.0))["warnings"][0]
    assert "next to nothing" in risk(NothingProved(name="x", reason="y"))["warnings"][0]
    loud = statement(NoisySGD.abadi16(rate=0.1, sigma=0.4, steps=1000), "add-remove", 1e-5)
    assert any("next to nothing" in text for text in loud["warnings"])


@pytest.mark.parametrize("call", [
    lambda g: posterior(g, 0.0, 0.1), lambda g: posterior(g, 0.5, 0.0),
    lambda g: reconstruction(g, 1.5), lambda g: true_positive_rate(g, -0.1),
    lambda g: true_positive_rate(3, 0.1), lambda g: advantage(None),
])
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError, match="isn't allowed"):
        call(GaussianGuarantee(mu=1.0))


@pytest.mark.parametrize("wanted, sigma", [(0.1, 1.2031), (0.05, 2.1317)])
def test_sigma_for_an_advantage(wanted, sigma):
    """Recorded reference numbers, by bisection on another FFT."""
    found = calibrate_risk("add-remove", advantage=wanted, **FACTS)
    assert sigma * (1 - 1e-4) <= found.sigma <= sigma * 1.0025
    assert found.reached <= wanted == found.target and found.kind == "bracket"
    assert advantage(account(found.run, "add-remove")["tensor-power"]) == found.reached


def test_sigma_for_a_true_positive_rate():
    found = calibrate_risk("replace-one", tpr=0.02, fpr=0.01, guarantee="clt", rate=1.0, steps=4)
    mu = norm.ppf(0.02) - norm.ppf(0.01)  # at rate 1 the run is exactly mu-GDP, mu = √T/σ
    assert 2 / mu <= found.sigma <= 2 / mu * 1.002


@pytest.mark.parametrize("bad", [
    dict(advantage=0.0), dict(advantage=1.5), dict(tpr=0.1), dict(tpr=0.01, fpr=0.02),
    dict(advantage=0.1, tpr=0.2), dict(advantage=0.1, sigma=1.0), dict(advantage=1e-9),
    dict(advantage=0.1, guarantee="magic"), {},
])
def test_bad_targets_are_refused(bad):
    with pytest.raises(ValueError, match="isn't allowed|isn't reached"):
        calibrate_risk("add-remove", **FACTS | bad)


def said(capsys, *typed):
    code = main([*map(str, typed)])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_line_says_it(capsys, run_a):
    typed = ["account", *TYPED, "--sigma", "1.3", "--delta", "1e-5", "--risk"]
    code, out, _ = said(capsys, *typed, "--json")
    assert code == 0 and json.loads(out)["risk"] == risk(run_a)
    code, out, _ = said(capsys, *typed)
    assert code == 0 and "of the absent 0.1% accused: at most 0.214 % of the present found" in out
    code, out, _ = said(capsys, *typed[:-1], "--json")
    assert code == 0 and "risk" not in json.loads(out)


def test_the_command_line_calibrates(capsys):
    code, out, _ = said(capsys, "calibrate", *TYPED, "--advantage", "0.1", "--json")
    found = json.loads(out)
    assert code == 0 and found["value"] == pytest.approx(1.2031, rel=2.5e-3)
    assert found["advantage"] <= found["target"] == 0.1 and "choose it before" in out
    code, out, _ = said(capsys, "calibrate", *TYPED, "--tpr", "0.02", "--fpr", "0.01")
    assert code == 0 and out.startswith("sigma = 1.15") and "tpr = 0.0" in out
    for bad in (["--advantage", "0.1", "--epsilon", "1"], ["--tpr", "0.1"], [],
                ["--advantage", "0.1", "--find", "steps"], ["--epsilon", "1"]):
        code, out, err = said(capsys, "calibrate", *TYPED, *bad)
        assert code == 2 and not out and err.count("\n") == 1


def test_the_statement_has_it_for_what_it_claims():
    page = statement(RUN_A, "add-remove", 1e-5)
    assert page["risk"]["of"] == "tensor-power" and "## What an attacker" in to_markdown(page)
    counted = statement(RUN_A, "add-remove", 1e-5, tuning_runs=3)["risk"]
    assert counted["advantage"] > page["risk"]["advantage"]  # all four trainings
    assert statement(RUN_A, "add-remove", 1e-5, unit="user", records_per_unit=2)["risk"] is None


@pytest.mark.parametrize("trials, epsilon", [("geometric 0.1", 2.036333), ("poisson 10", 2.168036)])
def test_tuning_by_a_random_number_of_trials_is_counted(capsys, trials, epsilon):
    """Recorded reference numbers, by dp-accounting's RepeatAndSelectDpEvent."""
    page = statement(RUN_A, "add-remove", 1e-5, tuning=trials)
    assert page["claimed"][0]["epsilon"] == pytest.approx(epsilon, rel=1e-3)
    assert page["quoted"]["name"] == "best-of-random" and "best of a" in page["sentence"]
    assert not any("aren't counted" in text for text in page["warnings"])
    assert "best-of-random" in to_markdown(page)
    typed = ["report", *TYPED, "--sigma", "1.3", "--delta", "1e-5", "--tuning", trials]
    code, out, _ = said(capsys, *typed, "--format", "json")
    assert code == 0 and json.loads(out)["claimed"] == page["claimed"]
    assert said(capsys, *typed, "--tuning-runs", "2")[0] == 2


def test_tuning_that_is_not_covered_is_refused():
    with pytest.raises(ValueError, match="one training whose step has a law"):
        both = [NoisySGD.at_rate(0.01, steps=5, noise_multiplier=s) for s in (1.0, 2.0)]
        statement(both, "add-remove", 1e-5, tuning="geometric 0.1")
    with pytest.raises(ValueError, match="tuning"):
        statement(RUN_A, "add-remove", 1e-5, tuning="best of 10")


def test_the_risk_target_agrees_with_the_epsilon_target():
    """At rate 1 both are one Gaussian: δ(0) = 2Φ(mu/2) - 1, and ε at δ follows from mu."""
    by_risk = calibrate_risk("add-remove", advantage=0.3, guarantee="clt", rate=1.0, steps=1)
    mu = 2 * norm.ppf(0.65)
    epsilon = GaussianGuarantee(mu=mu).epsilon(1e-5)
    by_epsilon = calibrate("sigma", "clt", "add-remove", epsilon=epsilon, delta=1e-5, rate=1.0,
                           steps=1)
    assert by_risk.sigma == pytest.approx(by_epsilon.value, rel=3e-3)
    assert by_risk.sigma == pytest.approx(1 / mu, rel=2e-3)
