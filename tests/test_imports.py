"""Runs from other libraries' records: each is the run that it says, or is refused by name."""

import json

import dp_accounting as theirs
import dp_accounting.pld
import dp_accounting.rdp
import numpy as np
import pytest
from opacus.accountants import PRVAccountant, RDPAccountant

from dpteach import NoisySGD, account
from dpteach.__main__ import main
from dpteach.imports import from_dp_event, from_opacus, read_dp_event, read_opacus
from dpteach.run import Phases

Q = 256 / 60000
ONE = theirs.PoissonSampledDpEvent(Q, theirs.GaussianDpEvent(1.3))
RUN_A = theirs.SelfComposedDpEvent(ONE, 3516)
TWO = theirs.ComposedDpEvent([
    theirs.SelfComposedDpEvent(ONE, 2000),
    theirs.SelfComposedDpEvent(theirs.PoissonSampledDpEvent(0.01, theirs.GaussianDpEvent(2.0)), 5),
])
FIXED = theirs.SelfComposedDpEvent(
    theirs.SampledWithoutReplacementDpEvent(1000, 10, theirs.GaussianDpEvent(2.0)), 7)


def facts(run):
    one = (run,) if isinstance(run, NoisySGD) else run.runs
    return [(r.sampling, r.sampling_rate, r.noise_multiplier, r.steps) for r in one]


def said(capsys, *typed):
    code = main([*map(str, typed)])
    out, err = capsys.readouterr()
    return code, out, err


# --- Opacus -----------------------------------------------------------------------------------

def test_run_a_from_its_history(tmp_path, capsys):
    path = tmp_path / "history.json"
    path.write_text("[[1.3, 0.0042666667, 3516]]")
    code, out, _ = said(capsys, "account", "--opacus", path, "--delta", "1e-5", "--json")
    found = json.loads(out)
    low, high = found["guarantees"][0]["epsilon"]
    assert code == 0 and found["convention"] == "add-remove" and found["sampling"] == "poisson"
    assert low < 0.86454 < high < 1.0005 * low  # a recorded reference number
    assert said(capsys, "report", "--opacus", path, "--delta", "1e-5")[1].startswith("# Privacy")


def test_two_entries_are_two_phases(tmp_path, capsys):
    path = tmp_path / "history.json"
    path.write_text("[[1.3, 0.0042666667, 2000], [1.6, 0.0085333, 1000]]")
    found = said(capsys, "account", "--convention", "add-remove", "--opacus", path, "--delta",
                 "1e-5", "--json")[1]
    same = said(capsys, "account", "--convention", "add-remove", "--phases",
                "1.3:0.0042666667:2000,1.6:0.0085333:1000", "--delta", "1e-5", "--json")[1]
    assert json.loads(found) == json.loads(same)


@pytest.mark.parametrize("kind", [RDPAccountant, PRVAccountant])
def test_accountants_and_their_state(kind):
    ledger = kind()
    for noise, steps in ((1.3, 4), (1.1, 3), (1.3, 2)):
        for _ in range(steps):
            ledger.step(noise_multiplier=noise, sample_rate=0.01)
    expected = [("poisson", 0.01, 1.3, 6), ("poisson", 0.01, 1.1, 3)]
    state = json.loads(json.dumps(ledger.state_dict()))
    assert facts(from_opacus(ledger)) == facts(from_opacus(state)) == expected
    assert facts(from_opacus([(np.float64(1.3), 0.01, np.int64(2))])) == [expected[0][:3] + (2,)]


@pytest.mark.parametrize("history, what", [
    ([], "at least one entry"), (3, "a list"), ("x", "a list"), ([[1.3, 0.01]], "history entry"),
    ([[1.3, 0.01, 2.5]], "steps"), ([[0.0, 0.01, 2]], "without noise"), ([[1.3, 1.5, 2]], "rate"),
    ([[float("nan"), 0.01, 2]], "noise multiplier"), ([[1e9, 0.01, 2]], "noise multiplier"),
    ({"history": [[1.3, 0.01, 2]], "mechanism": "magic"}, "mechanism"), ({}, "a list"),
    ([[1 + k / 1000, 0.01, 2] for k in range(101)], "at most 100 phases"),
])
def test_what_is_no_history_is_refused(history, what):
    with pytest.raises(ValueError, match=what):
        from_opacus(history)


# --- dp-accounting ----------------------------------------------------------------------------

def forms(event):
    yield event
    yield repr(event)
    yield json.loads(json.dumps(event.to_named_tuple()))


@pytest.mark.parametrize("event, relation, per, expected", [
    (RUN_A, "add-remove", None, [("poisson", Q, 1.3, 3516)]),
    (ONE, "add-remove", None, [("poisson", Q, 1.3, 1)]),
    (theirs.GaussianDpEvent(2.0), "add-remove", None, [("poisson", 1.0, 2.0, 1)]),
    (TWO, "add-remove", None, [("poisson", Q, 1.3, 2000), ("poisson", 0.01, 2.0, 5)]),
    (theirs.ComposedDpEvent([ONE, theirs.NoOpDpEvent(), RUN_A]), "add-remove", None,
     [("poisson", Q, 1.3, 3517)]),
    (theirs.SelfComposedDpEvent(RUN_A, 2), "zero-out", None, [("poisson", Q, 1.3, 7032)]),
    (FIXED, "replace-one", "clip", [("fixed-size", 0.01, 2.0, 7)]),
    (FIXED, "replace-one", "sensitivity", [("fixed-size", 0.01, 4.0, 7)]),
    (RUN_A, "replace-one", "clip", [("poisson", Q, 1.3, 3516)]),
    (theirs.PoissonSampledDpEvent(0.01, theirs.ComposedDpEvent(
        [theirs.GaussianDpEvent(3.0), theirs.GaussianDpEvent(4.0)])), "add-remove", None,
     [("poisson", 0.01, 2.4, 1)]),  # 1/9 + 1/16 = 1/2.4²
])
def test_events_that_are_imported(event, relation, per, expected):
    for form in forms(event):
        found = facts(from_dp_event(form, relation, per))
        assert [f[0] for f in found] == [e[0] for e in expected]
        for ours, wanted in zip(found, expected, strict=True):
            assert ours[1:] == pytest.approx(wanted[1:], rel=1e-12)


def test_the_noise_of_one_release_is_kept_to_the_last_digit():
    for noise in (0.7, 1.1, 1.3, 2.9):
        event = theirs.PoissonSampledDpEvent(0.01, theirs.GaussianDpEvent(noise))
        assert from_dp_event(event).noise_multiplier == noise


def test_two_releases_of_one_batch_are_one():
    """dp-accounting's own composition of the two Gaussians has the same ε."""
    inner = theirs.ComposedDpEvent([theirs.GaussianDpEvent(3.0), theirs.GaussianDpEvent(4.0)])
    accountant = theirs.rdp.RdpAccountant([2.0, 8.0, 32.0])
    both = accountant.compose(inner).get_epsilon(1e-5)
    one = theirs.rdp.RdpAccountant([2.0, 8.0, 32.0]).compose(theirs.GaussianDpEvent(2.4))
    assert both == pytest.approx(one.get_epsilon(1e-5), rel=1e-9)


def test_the_answers_are_theirs():
    ours = account(from_dp_event(RUN_A), "add-remove")["tensor-power"]
    pld = theirs.pld.PLDAccountant().compose(RUN_A).get_epsilon(1e-5)
    assert ours.lower.epsilon(1e-5) <= pld <= 1.001 * ours.epsilon(1e-5)


@pytest.mark.parametrize("event, reason", [
    (theirs.NonPrivateDpEvent(), "no guarantee"), (theirs.UnsupportedDpEvent(), "isn't known"),
    (theirs.LaplaceDpEvent(1.0), "only Gaussian"), (theirs.ZCDpEvent(1.0, 0.0), "rho"),
    (theirs.RandomizedResponseDpEvent(0.1, 3), "only Gaussian"),
    (theirs.SingleEpochTreeAggregationDpEvent(1.0, [3]), "correlated"),
    (theirs.dp_event.RepeatAndSelectDpEvent(ONE, 10.0, 1.0), "random number"),
    (theirs.dp_event.MixtureOfGaussiansDpEvent(1.0, [0, 1], [0.5, 0.5]), "mixture"),
    (theirs.SampledWithReplacementDpEvent(9, 3, theirs.GaussianDpEvent(1.0)), "twice"),
    (theirs.PoissonSampledDpEvent(0.1, ONE), "batch is drawn from a batch"),
    (theirs.PoissonSampledDpEvent(0.1, theirs.LaplaceDpEvent(1.0)), "only Gaussian"),
    (theirs.GaussianDpEvent(0.0), "without noise"), (theirs.NoOpDpEvent(), "nothing was released"),
    (theirs.ComposedDpEvent([ONE, FIXED]), "no relation here covers both"),
    (theirs.SelfComposedDpEvent(ONE, 10**12), "count"),
    ("__import__('os').system('true')", "isn't imported"), ("1 +", "no repr"), ("3", "none of"),
    ({"class_name": "GaussianDpEvent"}, "noise_multiplier isn't given"), ({}, "class_name"),
    (None, "isn't imported"), ([1, 2], "several"), ("Gaussian" * 999 + "()", "isn't imported"),
    ("ComposedDpEvent([" * 200 + "]" * 200, "isn't imported"),
    ("-GaussianDpEvent(1.0)", "isn't imported"), ("GaussianDpEvent(1.0, 2.0)", "1 fields, not 2"),
    ("GaussianDpEvent(noise_multiplier=1.0, sensitivity=2.0)", "no field sensitivity"),
    (["m", "GaussianDpEvent", 1.0, 2.0], "1 fields, not 2"),
])
def test_events_that_are_refused(event, reason):
    with pytest.raises(ValueError, match=reason):
        from_dp_event(event)


def test_noise_under_replace_one_is_asked_for():
    with pytest.raises(ValueError, match="noise_per = None .* sensitivity"):
        from_dp_event(RUN_A, "replace-one")
    with pytest.raises(ValueError, match="noise_per"):
        from_dp_event(RUN_A, "add-remove", "batch")
    with pytest.raises(ValueError, match="replace-one"):
        from_dp_event(FIXED)  # fixed-size batches aren't covered under add-remove


def test_files(tmp_path, capsys):
    path = tmp_path / "event"
    for text in (repr(TWO), json.dumps(TWO.to_named_tuple())):
        path.write_text(text + "\n")
        assert isinstance(read_dp_event(path), Phases)
    code, out, _ = said(capsys, "account", "--dp-event", path, "--delta", "1e-5", "--json")
    assert code == 0 and json.loads(out)["steps"] == 2005
    path.write_text(repr(FIXED))
    typed = ["account", "--relation", "replace-one", "--dp-event", path, "--delta", "1e-5"]
    assert said(capsys, *typed)[0] == 2
    assert "sigma = 1)" in said(capsys, *typed, "--noise-per", "clip")[1]
    assert "sigma = 2)" in said(capsys, *typed, "--noise-per", "sensitivity")[1]
    for name, text in (("opacus", "[[1.3, 0.01,"), ("opacus", "{}"), ("dp-event", "{"),
                       ("dp-event", ""), ("opacus", "\0")):
        path.write_text(text)
        code, out, err = said(capsys, "account", f"--{name}", path, "--delta", "1e-5")
        assert (code, out) == (2, "") and err.count("\n") == 1
    path.write_bytes(b"\xff\xfe\x00")
    for read in (read_opacus, read_dp_event):
        with pytest.raises(ValueError, match="can't be read"):
            read(path)
        with pytest.raises(ValueError, match="can't be read"):
            read(tmp_path / "nowhere")


@pytest.mark.parametrize("more", [
    ["--sigma", "2"], ["--n", "100"], ["--phases", "1:0.1:5"], ["--noise-per", "clip"],
])
def test_a_file_says_the_run_alone(tmp_path, capsys, more):
    path = tmp_path / "history.json"
    path.write_text("[[1.3, 0.01, 5]]")
    code, out, err = said(capsys, "account", "--opacus", path, "--delta", "1e-5", *more)
    assert (code, out) == (2, "") and more[0][2:].split("-")[0] in err


def test_without_a_file_the_relation_is_needed(capsys):
    with pytest.raises(SystemExit):
        main(["account", "--q", "0.1", "--sigma", "1", "--steps", "1", "--delta", "1e-5"])
    assert "required: --relation" in capsys.readouterr().err
