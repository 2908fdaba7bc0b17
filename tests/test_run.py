"""What was run: steps, rates, both sigmas, and the refusals with their reasons."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpteach.laws import PoissonLaw, SubsampledLaw
from dpteach.run import NoisySGD, steps_for_epochs

FACTS = dict(n=60000, batch_size=256, steps=3516, noise_multiplier=1.3)
SETTINGS = settings(max_examples=200, deadline=None, derandomize=True)


@pytest.mark.parametrize("epochs, steps", [(15, 3516), (60, 14063), (45, 10547), (0, 0)])
def test_steps_of_the_three_runs(epochs, steps):
    """⌈E·60000/256⌉: 3515.625, 14062.5 and 10546.875, each rounded up."""
    facts = {**FACTS, "epochs": epochs, "clip_norm": 1.5, "sampling": "fixed-size"}
    facts.pop("steps")
    assert NoisySGD.for_epochs(**facts) == NoisySGD(
        **{**FACTS, "steps": steps}, clip_norm=1.5, sampling="fixed-size"
    )


@pytest.mark.parametrize("epochs", [0.1, 0.3, 0.7, 1.1, 2.3, 33.3])
def test_a_decimal_number_of_epochs_is_read_as_written(epochs):
    """In binary 1.1·100 is above 110; the decimal 1.1 makes exactly 110 steps of n/m = 100."""
    assert steps_for_epochs(10000, 100, epochs) == Fraction(str(epochs)) * 100
    assert steps_for_epochs(10000, 100, np.float64(epochs)) == Fraction(str(epochs)) * 100


@SETTINGS
@given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(1, 10**4))
def test_steps_are_the_least_number_that_makes_the_epochs(n, batch_size, epochs):
    batch_size = min(batch_size, n)
    steps = steps_for_epochs(n, batch_size, epochs)
    assert (steps - 1) * batch_size < epochs * n <= steps * batch_size


def test_facts_of_a_run():
    run = NoisySGD(**FACTS, clip_norm=1.5)
    assert run.sampling == "poisson" and run.sampling_rate == 256 / 60000 and run.rate is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.steps = 1
    same = NoisySGD(**FACTS | {"n": 6e4, "steps": np.int64(3516)}, clip_norm=np.float64(1.5))
    assert run == same and hash(run) == hash(same)
    assert NoisySGD(n=10, batch_size=10, steps=3, noise_multiplier=1).sampling_rate == 1.0
    at_rate = NoisySGD.at_rate(1, steps=3.0, noise_multiplier=1, sampling="fixed-size")
    assert at_rate == NoisySGD(rate=1, steps=3, noise_multiplier=1.0, sampling="fixed-size")
    assert NoisySGD.at_rate(0.25, steps=3, noise_multiplier=1).sampling_rate == 0.25


def test_a_variant_is_checked_like_a_run():
    """dataclasses.replace changes what it names, and nothing else."""
    run = NoisySGD(**FACTS)
    wide = dataclasses.replace(run, batch_size=512)
    assert (wide.sampling_rate, wide.steps) == (512 / 60000, 3516)
    assert dataclasses.replace(run, n=None, batch_size=None, rate=0.1).sampling_rate == 0.1
    for changes in ({"rate": 0.1}, {"steps": -1}, {"batch_size": 60001}, {"noise_multiplier": 0}):
        with pytest.raises(ValueError, match=f"^{next(iter(changes))} = "):
            dataclasses.replace(run, **changes)


def test_one_run_two_sigmas_and_each_paper_means_its_own():
    """Sensitivity of the clipped sum: C when a record comes or goes, 2C when one is replaced."""
    run = NoisySGD(**FACTS)
    assert (run.sigma("add-remove"), run.sigma("replace-one")) == (1.3, 0.65)
    facts = dict(n=60000, batch_size=256, epochs=15, clip_norm=1.5)
    abadi, dong = NoisySGD.abadi16(sigma=1.3, **facts), NoisySGD.drs22(sigma=1.3, **facts)
    assert abadi == NoisySGD(**FACTS, clip_norm=1.5)
    twice = dataclasses.replace(abadi, noise_multiplier=2.6, sampling="fixed-size")
    assert dong == twice
    assert abadi.sigma("add-remove") == dong.sigma("replace-one") == 1.3
    assert NoisySGD.drs22(rate=0.1, steps=4, sigma=0.5).noise_multiplier == 1.0


def test_laws_whatever_the_clipping_norm():
    for clip_norm in (1e-6, 1, 1.5, 1e6):
        run = NoisySGD(**FACTS, clip_norm=clip_norm)
        assert run.laws("add-remove") == (
            PoissonLaw(256 / 60000, 1.3, "remove"), PoissonLaw(256 / 60000, 1.3, "add")
        )  # fmt: skip
        fixed = dataclasses.replace(run, sampling="fixed-size")
        assert fixed.laws("replace-one") == (SubsampledLaw(256 / 60000, 0.65),)


@pytest.mark.parametrize("sampling, relation, reason", [
    ("fixed-size", "add-remove", "n itself changes"),  # the rest: test_batches.py
])  # fmt: skip
def test_pairs_without_a_bound_are_refused(sampling, relation, reason):
    pair = f"relation = '{relation}' with sampling = '{sampling}'"
    with pytest.raises(ValueError, match=f"{pair} isn't covered.*{reason}.*ask "):
        NoisySGD(**FACTS, sampling=sampling).laws(relation)


@pytest.mark.parametrize("sampling", ["shuffle", "Poisson", None, 0], ids=repr)
def test_unknown_samplings(sampling):
    with pytest.raises(ValueError, match="^sampling = .* isn't allowed: it must be one of 'poisson'"):
        NoisySGD(**FACTS, sampling=sampling)


BAD = [math.nan, math.inf, -1, "1", None, True, [256], np.array([1, 2])]


@pytest.mark.parametrize("name", ["n", "batch_size", "steps", "noise_multiplier", "clip_norm"])
def test_bad_facts_are_refused_by_name(name):
    for bad in [*BAD, *([0] if name != "steps" else [2.5])]:
        with pytest.raises(ValueError, match=f"^{name} = .*isn't allowed: it must be "):
            NoisySGD(**{**FACTS, name: bad})


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_bad_epochs_and_rates(bad):
    for make in (NoisySGD.for_epochs, NoisySGD.abadi16):
        noise = {"noise_multiplier": 1.3} if make == NoisySGD.for_epochs else {"sigma": 1.3}
        if bad is not None or make == NoisySGD.for_epochs:
            with pytest.raises(ValueError, match="^epochs = "):
                make(n=60000, batch_size=256, epochs=bad, **noise)
    if bad is not True:
        with pytest.raises(ValueError, match="^rate = "):
            NoisySGD.at_rate(bad, steps=1, noise_multiplier=1.3)


@pytest.mark.parametrize("facts, message", [
    (dict(n=100, batch_size=101, steps=1), r"batch_size = 101.*\[1, 100\]"),
    (dict(n=100, steps=1), "batch_size = None.*give n and batch_size together"),
    (dict(batch_size=10, steps=1), "n = None.*give n and batch_size together"),
    (dict(steps=1), "rate = None.*or give n and batch_size"),
    (dict(n=100, batch_size=10), "steps = None"),
    (dict(rate=0.1, epochs=3), "n = None"),
    (dict(n=100, batch_size=10, steps=5, epochs=1), "epochs = 1 .* left out; steps are given"),
    (dict(n=100, batch_size=10, steps=5, rate=0.2), "rate = 0.2 .* left out; it follows from n"),
    (dict(rate=1.5, steps=5), r"rate = 1.5.*\[1e-9, 1\]"),
    (dict(n=100.5, batch_size=10, steps=2), "n = 100.5.*whole number"),
    (dict(n=10**12, batch_size=1, steps=1), r"batch_size/n = 1e-12 .*\[1e-9, 1\]"),
    (dict(n=10**9, batch_size=1, epochs=1e9), "steps = .*noisy updates"),
])  # fmt: skip
def test_contradictions_and_gaps(facts, message):
    with pytest.raises(ValueError, match=message):
        NoisySGD.abadi16(sigma=1.0, **facts)


@pytest.mark.parametrize("relation", ["add/remove", "replace", "", None, 1, True], ids=repr)
def test_unknown_relations(relation):
    for ask in (NoisySGD(**FACTS).sigma, NoisySGD(**FACTS).laws):
        with pytest.raises(ValueError, match="^relation = .*'add-remove', 'replace-one'"):
            ask(relation)
