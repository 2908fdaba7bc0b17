"""Runs in phases: against quadrature, Monte Carlo, the whole run, and dp-accounting's events."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr

from dpteach.accountants import account, phases_under, summary
from dpteach.laws import GaussianLaw, PoissonLaw
from dpteach.moments import MomentsGuarantee, PhasedMoments
from dpteach.phases import JoinedPower
from dpteach.report import statement, to_html, to_markdown
from dpteach.run import NoisySGD, Phases

Q = 256 / 60000
PLAN = [(1.3, Q, 2000), (1.6, 2 * Q, 1000), (0.9, Q / 2, 516)]


def pair(rate, sigma):
    return tuple(PoissonLaw(rate, sigma, way) for way in ("remove", "add"))


def joined(*phases):
    (rate, sigma, steps), *more = phases
    later = tuple((pair(q, s), t) for q, s, t in more)
    return JoinedPower(laws=pair(rate, sigma), steps=steps, more=later)


def ends(bracket, delta=1e-5):
    return bracket.lower.epsilon(delta), bracket.upper.epsilon(delta)


@pytest.mark.theorem("prop-21-phases")
def test_two_unequal_steps_against_quadrature():
    bracket = joined((0.3, 1.0, 1), (0.1, 0.7, 1))
    for epsilon, exact in ((0.1, 0.1063799), (0.6, 0.0334907)):
        low, high = bracket.lower.delta(epsilon), bracket.upper.delta(epsilon)
        assert low <= exact + 1e-7
        assert exact - 1e-7 <= high < 1.001 * low


def test_many_phases_against_simulation():
    bracket = joined((0.1, 1.0, 5), (0.2, 1.5, 5), (0.05, 0.7, 5))
    low, high = bracket.lower.delta(0.2), bracket.upper.delta(0.2)
    assert low - 3 * 1.4e-4 <= 0.11789 <= high + 3 * 1.4e-4
    assert high < 1.001 * low


def test_gaussian_phases_are_a_gaussian():
    bracket = JoinedPower(laws=(GaussianLaw(2.0),), steps=3, more=(((GaussianLaw(5.0),), 10),))
    mu = math.sqrt(3 / 4 + 10 / 25)
    for epsilon in (0.0, 1.0, 3.0):
        exact = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
        assert bracket.lower.delta(epsilon) <= exact <= bracket.upper.delta(epsilon)
        assert bracket.upper.delta(epsilon) < 1.002 * bracket.lower.delta(epsilon)


def test_the_reference_plan():
    low, high = ends(account(phases_under("add-remove", PLAN), "add-remove")["tensor-power"])
    assert low - 1e-4 <= 1.02048 <= high + 1e-4  # own product of transforms; dp-accounting 1.020465
    assert high - low < 1e-3
    ways = account(phases_under("add-remove", PLAN), "add-remove")["tensor-power"].details(1e-5)
    assert ways["directions"]["add"][0] - 1e-4 < 0.94640 < ways["directions"]["add"][1] + 1e-4


def test_against_composed_events():
    from dp_accounting import dp_event, pld

    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    for sigma, rate, steps in PLAN:
        event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma))
        accountant.compose(event, steps)
    low, high = ends(account(phases_under("add-remove", PLAN), "add-remove")["tensor-power"])
    assert low - 1e-3 < accountant.get_epsilon(1e-5) < high + 1e-3


def test_order_does_not_matter():
    orders = itertools.permutations((q, s, t) for s, q, t in PLAN)
    found = [ends(joined(*order)) for order in orders]
    assert max(low for low, _ in found) <= min(high for _, high in found)
    assert max(high for _, high in found) - min(high for _, high in found) < 2e-4


def test_two_halves_are_the_whole():
    half, whole = (NoisySGD.at_rate(Q, steps=s, noise_multiplier=1.3) for s in (1758, 3516))
    low, high = ends(account([half, half], "add-remove")["tensor-power"])
    exact = ends(account(whole, "add-remove")["tensor-power"])
    assert low <= exact[1]
    assert exact[0] <= high
    assert high - low < 1e-3
    for name in ("moments", "rdp", "clt"):
        accounts = (account(run, "add-remove") for run in ([half, half], whole))
        joint, alone = (every[name].epsilon(1e-5) for every in accounts)
        assert joint == pytest.approx(alone, rel=1e-9)


def test_moments_of_phases_add_up():
    a, b = PoissonLaw(0.01, 2.0), PoissonLaw(0.03, 1.2)
    joint = PhasedMoments(law=a, steps=100, more=((b, 50),))
    alone = [MomentsGuarantee(law=law, steps=t) for law, t in ((a, 100), (b, 50))]
    for lam in (1, 4, 17):
        total = sum(g.log_moment(lam) for g in alone)
        assert joint.log_moment(lam) == pytest.approx(total, rel=1e-12)
    assert joint.epsilon(1e-5) <= sum(g.epsilon(5e-6) for g in alone)


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_other_relations_have_phases_too(relation):
    runs = [NoisySGD.at_rate(q, steps=t, noise_multiplier=s) for s, q, t in PLAN]
    low, high = ends(account(runs, relation)["tensor-power"])
    assert high - low < 1e-3 * high
    by_name = account(runs, relation)
    assert by_name["moments"].epsilon(1e-5) > high
    assert by_name["berry-esseen"].epsilon(1e-5) == math.inf
    assert "phases" in by_name["berry-esseen"].reason


def test_curves_of_phases_are_ordered():
    bracket = joined((0.1, 1.0, 5), (0.2, 1.5, 5))
    alpha = np.linspace(0, 1, 21)
    assert np.all(bracket.upper.f(alpha) <= bracket.lower.f(alpha) + 1e-12)
    assert np.max(bracket.lower.f(alpha) - bracket.upper.f(alpha)) < 1e-3


def test_a_phase_of_no_steps_counts_nothing():
    run, empty = (NoisySGD.at_rate(Q, steps=s, noise_multiplier=1.3) for s in (100, 0))
    alone = account(run, "add-remove")["tensor-power"].epsilon(1e-5)
    assert account([empty, run, empty], "add-remove")["tensor-power"].epsilon(1e-5) == alone
    assert account([empty, empty], "add-remove")["moments"].epsilon(1e-5) == 0


def test_phases_of_allocation_are_refused_with_the_reason():
    run = NoisySGD.at_rate(0.01, steps=100, noise_multiplier=1.3)
    allocated = NoisySGD(rate=0.01, steps=100, noise_multiplier=1.3, sampling="random-allocation")
    found = account([run, allocated], "zero-out")["tensor-power"]
    assert found.epsilon(1e-5) == math.inf
    assert "draw Poisson batches" in found.reason


def test_bad_plans():
    run = NoisySGD(n=10, batch_size=2, steps=3, noise_multiplier=1.0)
    other = NoisySGD(n=20, batch_size=2, steps=3, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="the same in all phases"):
        Phases((run, other))
    with pytest.raises(ValueError, match="runs = "):
        Phases(())
    with pytest.raises(ValueError, match=r"step = 6"):
        Phases((run, run)).at(6)
    with pytest.raises(ValueError, match="each phase has the same directions"):
        JoinedPower(laws=(GaussianLaw(1.0),), steps=1, more=((pair(0.1, 1.0), 1),))


def test_a_phase_for_each_step():
    plan = phases_under("add-remove", PLAN)
    noise = [plan.at(t).noise_multiplier for t in (0, 1999, 2000, 2999, 3000, 3515)]
    assert noise == [1.3, 1.3, 1.6, 1.6, 0.9, 0.9]


def test_the_statement_of_a_plan():
    runs = [
        NoisySGD(n=60000, batch_size=256, steps=2000, noise_multiplier=1.3, clip_norm=1.5),
        NoisySGD(n=60000, batch_size=512, steps=1000, noise_multiplier=1.6),
    ]
    facts = statement(runs, "add-remove", 1e-5, tuning_runs=1)
    assert facts["steps"] == 3000
    assert [phase["steps"] for phase in facts["phases"]] == [2000, 1000]
    assert "then 1000 updates, Poisson batches of 512" in facts["sentence"]
    assert any("chapter 22" in warning for warning in facts["warnings"])
    page = to_markdown(facts)
    assert "noise on the clipped sum, phase 2" in page
    assert "1.3 × clipping norm C, C = 1.5" in page
    assert "phase 2" in to_html(facts)
    found = summary(runs, "add-remove", 1e-5)
    assert found["guarantees"][0]["epsilon"][1] < facts["quoted"]["epsilon"]  # two trainings
