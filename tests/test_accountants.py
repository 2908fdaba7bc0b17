"""From a run to all its guarantees: other programs' numbers, reasons, warnings, the limits."""

import math

import numpy as np
import pytest
from golden import records, value
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import norm

from dpteach.accountants import Unavailable, account, convention, run_under, warnings_for
from dpteach.guarantees import KINDS
from dpteach.limits import chi2_plus, clt_guarantee, poisson_clt_mu, subsampled_clt_mu
from dpteach.run import NoisySGD

SETTINGS = settings(max_examples=15, deadline=None, derandomize=True)
RUNS = {"A": (15, 1.3), "B": (60, 1.1), "C": (45, 0.7)}


def named(run, relation, name, **options):
    (found,) = [g for g in account(run, relation, **options) if g.name == name]
    return found


def mnist(letter, paper):
    epochs, sigma = RUNS[letter]
    return paper(n=60000, batch_size=256, epochs=epochs, sigma=sigma)


# --- moments, against the tail bound over another program's Rényi divergences


@pytest.mark.parametrize("steps, printed", [(10000, 1.2586), (40000, 2.5759)])
def test_headline(steps, printed):
    run = NoisySGD.abadi16(rate=0.01, sigma=4.0, steps=steps)
    moments = named(run, "add-remove", "moments")
    expected, order = value("tail bound (alpha", T=steps)
    assert_allclose(moments.epsilon(1e-5), expected, rtol=1e-10)
    assert round(moments.epsilon(1e-5), 4) == printed
    assert moments.details(1e-5) == {"order": order, "orders": "integer"}
    assert moments.kind == "upper bound"


@pytest.mark.parametrize("letter, least", [("A", 1.1912), ("B", 3.0084), ("C", 7.0980)])
def test_moments_of_the_three_runs(letter, least):
    """At most 0.003 above the least value over all real orders, and never below it."""
    moments = named(mnist(letter, NoisySGD.abadi16), "add-remove", "moments", orders="real")
    assert least - 5e-5 <= moments.epsilon(1e-5) <= least + 0.003
    grid, order = value(
        "Mironov conversion, TF-privacy 2019", run=letter
    )  # a coarse grid of orders
    assert moments.epsilon(1e-5) <= grid + 1e-9 <= moments.epsilon(1e-5) + 0.03
    assert abs(moments.details(1e-5)["order"] + 1 - order) < 1.5


def test_no_guarantee_is_below_the_truth():
    """Brackets of the exact value in both directions, from an independent computation."""
    for letter in RUNS:
        moments = named(mnist(letter, NoisySGD.abadi16), "add-remove", "moments", orders="real")
        for direction in ("rem direction", "add direction"):
            assert moments.epsilon(1e-5) > value(direction, run=letter)[1]


@pytest.mark.parametrize("letter", RUNS)
def test_moments_of_the_subsampled_law(letter):
    found = value("symmetrised pair C_p(G)", run=letter)[0]  # rounded to 4 digits there
    moments = named(mnist(letter, NoisySGD.drs22), "replace-one", "moments")
    assert_allclose(moments.epsilon(1e-5), found, atol=6e-5)


# --- central limits, against another program's, which takes E·n/m steps without rounding up


@pytest.mark.parametrize(
    "letter, mu, epsilon",
    [("A", 0.2847, 1.069), ("B", 0.7374, 3.087), ("C", 1.5536, 7.355)],
)
def test_limit_of_the_three_runs(letter, mu, epsilon):
    clt = named(mnist(letter, NoisySGD.drs22), "replace-one", "clt")
    assert round(clt.mu, 4) == mu and round(clt.epsilon(1e-5), 3) == epsilon
    assert clt.kind == "asymptotic" and clt.details(1e-5)["mu"] == clt.mu


@pytest.mark.parametrize("name, paper, relation", [
    ("uniform", NoisySGD.drs22, "replace-one"), ("poisson", NoisySGD.abadi16, "add-remove"),
])  # fmt: skip
def test_limits_agree_with_another_program(name, paper, relation):
    for letter, (epochs, _) in RUNS.items():
        run = mnist(letter, paper)
        exact_steps = epochs * 60000 / 256
        clt = named(run, relation, "clt")
        unrounded = clt.mu * math.sqrt(exact_steps / run.steps)
        assert_allclose(unrounded, value(f"compute_mu_{name}", run=letter), rtol=1e-12)
        assert_allclose(clt.epsilon(1e-5), value(f"compute_eps_{name}", run=letter), rtol=2e-4)


def test_the_two_limits_differ():
    """Run A: Poisson 0.2273, fixed-size 0.2847, for the same nominal sigma."""
    assert round(poisson_clt_mu(256 / 60000, 1.3, 3516), 4) == 0.2273
    assert round(subsampled_clt_mu(256 / 60000, 1.3, 3516), 4) == 0.2847


@pytest.mark.parametrize("mu", [1e-6, 1e-4, 9e-4, 1.1e-3, 0.01, 0.3, 1.0, 2.0, 5.0])
def test_chi2_plus_is_the_integral(mu):
    """∫₀¹ (|G_mu'(x)| - 1)₊² dx, integrated in t = Φ⁻¹(1-x), where |G_mu'| = e^{mu t - mu²/2}."""
    integral = quad(
        lambda t: math.expm1(mu * t - mu * mu / 2) ** 2 * norm.pdf(t),
        mu / 2,
        2 * mu + 14,
        epsrel=1e-12,
        epsabs=0,
        limit=500,
    )[0]
    assert_allclose(chi2_plus(mu), integral, rtol=1e-8)


def test_limits_refuse_what_they_cannot_say():
    """Another program returns inf there."""
    assert value("compute_mu_uniform", sigma=0.03) == "inf"
    run = NoisySGD.abadi16(rate=0.01, sigma=0.03, steps=10)
    clt = named(run, "add-remove", "clt")
    assert isinstance(clt, Unavailable) and clt.kind == "asymptotic"
    assert clt.epsilon(1e-5) is None and "sigma" in clt.details(1e-5)["reason"]
    for bad in (math.nan, math.inf, 0, -1, None, "1", True):
        with pytest.raises(ValueError, match="^mu = "):
            chi2_plus(bad)
        for mu in (subsampled_clt_mu, poisson_clt_mu):
            with pytest.raises(ValueError, match="^sigma = "):
                mu(0.01, bad, 10)
            with pytest.raises(ValueError, match="= .*isn't allowed"):
                mu(bad if bad is not True else 2, 1.0, 10)
            with pytest.raises(ValueError, match="^steps = "):
                mu(0.01, 1.0, bad)


# --- account


def test_every_guarantee_says_what_it_is():
    for run, relation in (
        (mnist("A", NoisySGD.abadi16), "add-remove"),
        (mnist("A", NoisySGD.drs22), "replace-one"),
    ):
        found = account(run, relation)
        assert {"moments", "clt"} <= {g.name for g in found}
        assert len({g.name for g in found}) == len(found)
        for g in found:
            assert g.kind in KINDS and relation in g.convention and run.sampling in g.convention


def test_guarantees_answer_all_three_questions():
    for g in account(mnist("A", NoisySGD.abadi16), "add-remove"):
        if isinstance(g, Unavailable) or g.kind == "bracket":
            continue
        epsilon = g.epsilon(1e-5)
        if epsilon is None:
            assert g.details(1e-5)["reason"]
            continue
        assert_allclose(g.delta(epsilon), 1e-5, rtol=1e-4)
        f = g.f(np.array([0.0, 0.1, 0.5, 1.0]))
        assert (
            f[0] > 0.99
            and np.all(np.diff(f) <= 0)
            and np.all(f <= 1 - np.array([0, 0.1, 0.5, 1.0]) + 1e-12)
        )


def test_one_loop_asks_them_all():
    """What can't be given answers None to each question, so no guarantee needs a case of its own."""
    every = account(mnist("A", NoisySGD.abadi16), "add-remove")
    for answers in ({g.name: g.f(0.1) for g in every}, {g.name: g.delta(1.0) for g in every}):
        missing = {name for name, value in answers.items() if value is None}
        assert missing == {"berry-esseen"} == {g.name for g in every if isinstance(g, Unavailable)}


@pytest.mark.parametrize("more", [{"noise_multiplier": 1}, {"sampling": "poisson"}, {"Sigma": 2}], ids=str)
def test_other_facts_are_refused_by_name(more):
    with pytest.raises(ValueError, match=f"^{next(iter(more))} = .* left out; .*sigma is noise std / sensitivity"):
        run_under("add-remove", rate=0.1, sigma=1.0, steps=3, **more)


def test_large_delta_gives_zero():
    for g in account(NoisySGD.abadi16(rate=0.01, sigma=4.0, steps=1), "add-remove"):
        epsilon = g.epsilon(0.5)
        assert g.details(0.5)["reason"] if epsilon is None else np.all(np.asarray(epsilon) >= 0)


def test_shuffled_or_mixed_questions_are_refused():
    with pytest.raises(ValueError, match="isn't covered"):
        account(mnist("A", NoisySGD.drs22), "add-remove")
    with pytest.raises(ValueError, match="isn't covered"):
        account(mnist("A", NoisySGD.abadi16), "replace-one")
    with pytest.raises(ValueError, match="^orders = 'all'"):
        account(mnist("A", NoisySGD.abadi16), "add-remove", orders="all")


def test_convention_names_everything():
    assert convention(mnist("A", NoisySGD.drs22), "replace-one") == (
        "replace-one neighbours, fixed-size batches, "
        "noise std 2.6 × clip_norm on the sum (sigma = 1.3)"
    )


def test_warnings():
    run = mnist("A", NoisySGD.abadi16)
    assert warnings_for(run, 1e-5) == []
    for delta in (1 / 60000, 1e-3):
        assert any("at least 1/n" in text for text in warnings_for(run, delta))
    assert any("small" in text for text in warnings_for(run, 1e-8))
    unknown = NoisySGD.at_rate(0.01, steps=1, noise_multiplier=1.0)
    assert any("n isn't known" in text for text in warnings_for(unknown, 1e-5))
    for bad in (0, 1, math.nan, None, "x"):
        with pytest.raises(ValueError, match="^delta = "):
            warnings_for(run, bad)


def test_limit_of_a_plain_gaussian_is_exact():
    from dpteach.laws import GaussianLaw

    assert_allclose(clt_guarantee(GaussianLaw(1 / 0.3), 25).mu, 1.5, rtol=1e-15)


@SETTINGS
@given(
    st.floats(1e-4, 1), st.floats(0.05, 1e3), st.integers(1, 10**6), st.floats(1e-12, 0.9),
    st.sampled_from([(NoisySGD.abadi16, "add-remove"), (NoisySGD.drs22, "replace-one")]),
)  # fmt: skip
def test_any_run_gives_numbers_or_reasons(q, sigma, steps, delta, question):
    make, relation = question
    for g in account(make(rate=q, sigma=sigma, steps=steps), relation):
        try:
            epsilon = g.epsilon(delta)
        except ValueError as refusal:
            assert "sigma" in str(refusal)
            continue
        assert g.details(delta)["reason"] if epsilon is None else np.all(np.asarray(epsilon) >= 0)
        assert epsilon is None or np.all(np.isfinite(epsilon))


def test_reference_numbers_are_all_there():
    assert len(records("")) == 156
