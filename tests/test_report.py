"""The privacy statement: it agrees with `account`, says what it must, and is one whole file."""

import json
import math
import re
from html.parser import HTMLParser

import mpmath
import numpy as np
import pytest
from points import gaussian_delta_mp

from dpteach.accountants import account, answer, run_under
from dpteach.guarantees import GaussianGuarantee, Guarantee, NothingProved, gaussian_tradeoff
from dpteach.laws import gaussian_delta
from dpteach.report import group_epsilon, statement, to_html, to_markdown
from dpteach.run import NoisySGD
from dpteach.tensor_power import TensorPower

RUNS = {"A": (15, 1.3), "C": (45, 0.7)}
QUICK = NoisySGD.at_rate(0.01, steps=10, noise_multiplier=4.0)


def mnist(letter, relation, **more):
    epochs, sigma = RUNS[letter]
    return run_under(relation, n=60000, batch_size=256, epochs=epochs, sigma=sigma, **more)


@pytest.fixture(scope="module")
def facts():
    return statement(mnist("A", "add-remove", clip_norm=1.5), "add-remove", 1e-5)


def warned(facts, words):
    return any(words in text for text in facts["warnings"])


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_agrees_with_account(relation):
    run = mnist("A", relation)
    found = statement(run, relation, 1e-5)
    rows = [answer(g, 1e-5) for g in account(run, relation).values()]
    assert found["guarantees"] == rows == found["claimed"]
    proved = [r for r in rows if r["kind"] in ("bracket", "upper bound") and r["epsilon"]]
    least, at_most = min(np.max(r["epsilon"]) for r in proved), found["quoted"]["at_most"]
    assert found["quoted"]["epsilon"] == least <= float(at_most) < 1.01 * least
    assert f"({at_most}, 1e-05)-differentially private" in found["sentence"]


@pytest.mark.parametrize("letter, exact", [("A", 1.067030), ("C", 7.208338)])
def test_numbers_of_the_papers(letter, exact):
    """Exact values under replace-one by another program."""
    quoted = statement(mnist(letter, "replace-one"), "replace-one", 1e-5)["quoted"]
    assert exact <= quoted["epsilon"] < exact * 1.001 and quoted["name"] == "tensor-power"


def test_states_every_fact(facts):
    assert (facts["n"], facts["batch_size"], facts["steps"]) == (60000, 256, 3516)
    assert facts["sigma"] == {"add-remove": 1.3, "replace-one": 0.65} and facts["clip_norm"] == 1.5
    for page in (to_markdown(facts), to_html(facts)):
        for words in (
            "60000", "Poisson", "256", "3516", "1.3 ×", "C = 1.5", "1.3 under add-remove, 0.65",
            "one record is added or removed", "1/n = 1.67e-05", "not counted", "asymptotic",
            "1.19227", "0.834512", "group privacy", "other mechanisms", facts["sentence"][:60],
        ):  # fmt: skip
            assert words in page, words
    assert json.loads(json.dumps(facts, allow_nan=False))["sigma"] == facts["sigma"]


def test_counts_of_records_are_no_secret_only_if_fixed_beforehand():
    """Under add-remove neighbours can differ in their numbers of steps."""
    for relation, told in (("add-remove", True), ("replace-one", False)):
        run = run_under(relation, n=60000, batch_size=256, steps=3, sigma=1.3)
        assert warned(statement(run, relation, 1e-5), "fixed beforehand") == told
    assert not warned(statement(QUICK, "add-remove", 1e-5), "fixed beforehand")
    facts = dict(batch_size=256, epochs=15, noise_multiplier=1.3)
    few, many = (NoisySGD.for_epochs(n=n, **facts).steps for n in (59989, 59990))
    assert few + 1 == many


@pytest.mark.theorem("prop-20-tuning")
def test_warnings_and_what_is_counted():
    run = mnist("A", "replace-one")
    assert warned(statement(run, "replace-one", 1e-4), "at least 1/n")
    assert warned(statement(run, "replace-one", 1e-9), "asymptotic epsilon can be too low")
    counted = statement(run, "replace-one", 1e-5, unit="user", records_per_unit=2, tuning_runs=4)
    assert not warned(counted, "aren't counted") and not warned(counted, "group privacy")
    whose = "one user with up to 2 records is replaced by one with as many, all 5 trainings"
    assert whose in counted["sentence"]
    assert counted["guarantees"] == [answer(g, 1e-5) for g in account(run, "replace-one").values()]
    claimed = {row["name"]: row["epsilon"] for row in counted["claimed"]}
    five = run_under("replace-one", n=60000, batch_size=256, steps=5 * 3516, sigma=1.3)
    limit = GaussianGuarantee(mu=2 * account(five, "replace-one")["clt"].mu)
    assert claimed["clt"] == limit.epsilon(1e-5)
    proved = [claimed[name] for name in ("tensor-power", "moments", "rdp")]
    assert counted["quoted"]["epsilon"] == min(proved)


@pytest.mark.parametrize("sampling, relation", [
    ("random-allocation", "add-remove"), ("shuffled", "zero-out"), ("poisson", "zero-out"),
])  # fmt: skip
def test_other_samplings_have_a_page(sampling, relation):
    facts = dict(n=1000, batch_size=100, steps=10, noise_multiplier=2.0, sampling=sampling)
    found = statement(NoisySGD(**facts), relation, 1e-4)
    assert found["quoted"]["name"] == "tensor-power" and warned(found, f"for {sampling} batches")
    assert relation in to_markdown(found) and "100 records" in found["sentence"]


def test_nothing_proved_is_said_plainly_and_why():
    run, whom = mnist("A", "replace-one"), {"unit": "user", "records_per_unit": 50}
    found = statement(run, "replace-one", 1e-5, **whom)
    assert all(row["epsilon"] is None for row in found["claimed"] if row["name"] != "clt")
    assert found["quoted"] is None and "No accountant" in found["sentence"]
    page = to_markdown(found)
    assert "| none |" in page and "no epsilon for 50 records follows from one record's" in page


@pytest.mark.parametrize("counted", [{}, {"unit": "user", "records_per_unit": 2}], ids=str)
def test_a_statement_that_went_through_json_makes_the_same_page(counted):
    found = statement(QUICK, "add-remove", 1e-5, **counted)
    again = json.loads(json.dumps(found, allow_nan=False))
    assert (to_markdown(again), to_html(again)) == (to_markdown(found), to_html(found))
    assert ("epsilon, all counted" in to_markdown(again)) == bool(counted)


# --- group privacy


@pytest.mark.theorem("thm-drs-2-14")
@pytest.mark.parametrize("mu, k", [(0.1, 2), (0.5, 3), (0.02, 40)])
def test_group_of_a_gaussian(mu, k):
    """kμ-GDP is attained, so no bound lies below it; the pair bound, of the profile, lies above."""
    exact = group_epsilon(GaussianGuarantee(mu=mu), k, 1e-5)
    with mpmath.workdps(40):
        assert abs(gaussian_delta_mp(k * mu, exact) / mpmath.mpf(1e-5) - 1) < 1e-6
    alpha = folded = np.linspace(0.001, 0.999, 99)
    for _ in range(k):  # 1 - (1-f)^{∘k}: DRS22, Theorem 2.14
        folded = 1 - gaussian_tradeoff(mu, folded)
    np.testing.assert_allclose(1 - folded, gaussian_tradeoff(k * mu, alpha), atol=1e-12)
    run = run_under("add-remove", rate=1.0, sigma=1 / mu, steps=1)
    pair = group_epsilon(account(run, "add-remove")["tensor-power"], k, 1e-5)
    assert exact < pair
    grid = np.linspace(0, pair / k, 4001)[1:]
    attained = gaussian_delta(mu, grid) * np.expm1(k * grid) / np.expm1(grid)
    assert attained[-1] <= 1e-5 * (1 + 1e-9) and np.all(attained[:-80] > 1e-5)  # nearly the least


class Pair(Guarantee):
    """(1, 1e-9)-DP and nothing else."""

    name, kind, assumptions, reason = "pair", "upper bound", "none", "nothing below 1e-9"

    def profile(self, epsilon):
        return 1e-9 if epsilon >= 1 else 1.0

    def least_epsilon(self, delta):
        return 1.0 if delta >= 1e-9 else math.inf


@pytest.mark.theorem("thm-drs-2-14")
def test_group_of_a_pair_by_hand():
    """(1, 1e-9) for one record is (3, 1e-9·(1 + e + e²)) for three."""
    for_three = 1e-9 * (1 + math.e + math.e**2)
    assert group_epsilon(Pair(), 3, for_three * 30) == 3
    assert group_epsilon(Pair(), 3, for_three * 0.99) == math.inf
    assert group_epsilon(NothingProved(name="rdp", reason="no"), 2, 1e-5) == math.inf
    assert group_epsilon(Pair(), 1, 1e-6) == 1
    assert group_epsilon(GaussianGuarantee(mu=60), 2, 1e-5) == math.inf


def test_full_batches_use_the_sensitivity_of_k_records():
    """Without sampling k records move the sum by kC: k times less noise, which is kμ-GDP."""
    run = run_under("add-remove", n=100, batch_size=100, steps=4, sigma=8.0)
    found = statement(run, "add-remove", 1e-3, unit="user", records_per_unit=3)
    exact = GaussianGuarantee(mu=3 * math.sqrt(4) / 8).epsilon(1e-3)
    assert abs(found["quoted"]["epsilon"] - exact) < 1e-9


# --- the page


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ("meta", "path", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("path", "polyline"):
            assert self.open.pop() == tag


def test_page_is_whole_and_asks_for_nothing(facts):
    page, reader = to_html(facts), Reader()
    reader.feed(page)
    assert reader.open == [] and not {"script", "link", "img", "iframe"} & set(reader.seen)
    assert "url(" not in page and "http" not in page and not re.search(r"\$\w", page)
    assert reader.seen.count("svg") == 1 and reader.seen.count("title") == 2
    assert "prefers-color-scheme: dark" in page and "@page { size: A4" in page


def test_curve_is_below_its_diagonal_and_above_its_pair(facts):
    curve = facts["curve"]
    alpha, beta, pair = (np.array(curve[key]) for key in ("alpha", "beta", "pair"))
    assert np.all(pair <= beta + 2e-3) and np.all(beta <= 1 - alpha + 1e-12)
    power = account(mnist("A", "add-remove"), "add-remove")["tensor-power"]
    np.testing.assert_array_equal(beta, power.upper.f(alpha))
    assert np.any(beta < power.lower.f(alpha))
    points = re.search(r'class="curve" points="([^"]*)"', to_html(facts)).group(1).split()
    drawn = np.array([[float(x) for x in point.split(",")] for point in points])
    np.testing.assert_allclose(drawn, np.column_stack([200 * alpha, 200 - 200 * beta]), atol=0.006)


def test_a_curve_that_cannot_be_drawn_gives_way_to_the_next(facts, monkeypatch):
    """As for rate 0.00125, sigma = 0.0919 and 23143 steps: the tensor power has an ε and no f."""
    monkeypatch.setattr(TensorPower, "f", lambda self, alpha: np.zeros_like(alpha))
    run = mnist("A", "add-remove", clip_norm=1.5)
    found = statement(run, "add-remove", 1e-5)
    curve, rdp = found["curve"], account(run, "add-remove")["rdp"]
    assert facts["curve"]["of"] == "tensor-power" and curve["of"] == "rdp"
    assert found["quoted"] == facts["quoted"]
    np.testing.assert_array_equal(curve["beta"], rdp.f(np.array(curve["alpha"])))
    (told,) = set(found["warnings"]) - set(facts["warnings"])
    assert "the curve and its pair are by rdp: tensor-power can't" in told


def test_what_the_user_typed_is_escaped():
    found = statement(QUICK, "add-remove", 1e-5, unit="<b>a|b*</b> & c")
    assert "<b>" not in to_html(found) and "&lt;b&gt;a|b*&lt;/b&gt; &amp; c" in to_html(found)
    assert r"\<b\>a\|b\*\</b\>" in to_markdown(found)


@pytest.mark.parametrize("name, values", [
    ("unit", ("", "a\nb", 3, None, "x" * 41)), ("orders", ("all",)),
    ("records_per_unit", (0, 5, 1.5, math.nan, "2", True, 10**7)), ("tuning_runs", (-1, 0.5, "x")),
])  # fmt: skip
def test_bad_arguments_are_named(name, values):
    for value in values:
        with pytest.raises(ValueError, match=f"^{name} = "):
            statement(QUICK, "add-remove", 1e-5, **{name: value})
    for page in (to_markdown, to_html):
        with pytest.raises(ValueError, match="^facts = .*what `statement` returns"):
            page({})
