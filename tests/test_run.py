"""What was run: steps, rates, both sigmas, and the refusals with their reasons."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpteach.laws import PoissonLaw, SubsampledLaw
from dpteach.run import RELATIONS, SAMPLINGS, NoisySGD, steps_for_epochs

FACTS = dict(n=60000, batch_size=256, epochs=15, noise_multiplier=1.3)
SETTINGS = settings(max_examples=200, deadline=None, derandomize=True)


@pytest.mark.parametrize("epochs, steps", [(15, 3516), (60, 14063), (45, 10547)])
def test_steps_of_the_three_runs(epochs, steps):
    """⌈E·60000/256⌉: 3515.625, 14062.5 and 10546.875, each rounded up."""
    assert NoisySGD(**{**FACTS, "epochs": epochs}).steps == steps


@pytest.mark.parametrize("epochs", [0.1, 0.3, 0.7, 1.1, 2.3, 33.3])
def test_a_decimal_number_of_epochs_is_read_as_written(epochs):
    """In binary 1.1·100 is above 110; the decimal 1.1 makes exactly 110 steps of n/m = 100."""
    assert steps_for_epochs(10000, 100, epochs) == Fraction(str(epochs)) * 100
    assert steps_for_epochs(10000, 100, np.float64(epochs)) == Fraction(str(epochs)) * 100


@SETTINGS
@given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(1, 10**4))
def test_steps_are_the_least_number_that_makes_the_epochs(n, batch_size, epochs):
    steps = steps_for_epochs(n, batch_size, epochs)
    assert (steps - 1) * batch_size < epochs * n <= steps * batch_size


def test_facts_of_a_run():
    run = NoisySGD(**FACTS, clip_norm=1.5)
    assert (run.n, run.batch_size, run.sampling) == (60000, 256, "poisson")
    assert run.sampling_rate == 256 / 60000
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.steps = 1
    assert run == NoisySGD(**FACTS, clip_norm=1.5) and hash(run) == hash(
        NoisySGD(**FACTS, clip_norm=1.5)
    )
    assert dataclasses.replace(run, noise_multiplier=2.0).noise_multiplier == 2.0
    assert NoisySGD(n=10, batch_size=10, steps=3, noise_multiplier=1).sampling_rate == 1.0
    assert NoisySGD.at_rate(1, steps=3.0, noise_multiplier=1).steps == 3


@pytest.mark.parametrize(
    "given",
    [FACTS, {**FACTS, "epochs": None, "steps": 70}, dict(rate=0.01, steps=5, noise_multiplier=4.0)],
    ids=["epochs", "steps", "rate"],
)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"noise_multiplier": 2.0},
        {"clip_norm": 1.5, "sampling": "fixed-size"},
        {"n": 5000, "batch_size": 512},
        {"steps": 9},
        {"n": 7000, "batch_size": 3, "epochs": 0.5},
    ],
    ids=str,
)
def test_but_keeps_what_was_given(given, changes):
    """The run made anew from what was given, with the changes: steps put epochs out, and epochs steps."""
    out = {"steps": "epochs", "epochs": "steps"}
    kept = {name: value for name, value in given.items() if name not in {out.get(change) for change in changes}}
    if "n" in changes:
        kept.pop("sampling_rate", None)
    assert NoisySGD(**given).but(**changes) == NoisySGD(**kept | changes)


def test_but_computes_anew_and_refuses_contradictions():
    run = NoisySGD(**FACTS)
    wide = run.but(batch_size=512)
    assert (wide.sampling_rate, wide.steps, wide.epochs) == (512 / 60000, 1758, 15)
    assert run.but(steps=70).but(epochs=15) == run
    assert run.but(n=None, batch_size=None, steps=3).sampling_rate == 256 / 60000
    for changes in ({"sampling_rate": 0.3}, {"steps": 3, "epochs": 15}):
        with pytest.raises(ValueError, match=f"^{next(iter(changes))} = .* contradicts"):
            run.but(**changes)
    for name in ("n", "batch_size", "epochs", "steps", "noise_multiplier"):
        with pytest.raises(ValueError, match=f"^{name} = "):
            run.but(**{name: np.array([1, 2])})


def test_one_run_two_sigmas():
    """Sensitivity of the clipped sum: C when a record comes or goes, 2C when one is replaced."""
    run = NoisySGD(**FACTS)
    assert run.sigma("add-remove") == 1.3
    assert run.sigma("replace-one") == 0.65


def test_each_paper_means_its_own_noise():
    facts = dict(n=60000, batch_size=256, epochs=15)
    abadi, dong = NoisySGD.abadi16(sigma=1.3, **facts), NoisySGD.drs22(sigma=1.3, **facts)
    assert (abadi.sampling, abadi.noise_multiplier, abadi.sigma("add-remove")) == (
        "poisson",
        1.3,
        1.3,
    )
    assert (dong.sampling, dong.noise_multiplier, dong.sigma("replace-one")) == (
        "fixed-size",
        2.6,
        1.3,
    )
    assert dong.noise_multiplier == 2 * abadi.noise_multiplier


def test_laws():
    assert NoisySGD(**FACTS).laws("add-remove") == (
        PoissonLaw(256 / 60000, 1.3, "remove"),
        PoissonLaw(256 / 60000, 1.3, "add"),
    )
    (law,) = NoisySGD(**FACTS, sampling="fixed-size").laws("replace-one")
    assert law == SubsampledLaw(256 / 60000, 0.65)


def test_the_clipping_norm_is_not_in_the_laws():
    for sampling, relation in (("poisson", "add-remove"), ("fixed-size", "replace-one")):
        made = {
            NoisySGD(**FACTS, clip_norm=c, sampling=sampling).laws(relation)
            for c in (1e-6, 1, 1.5, 1e6)
        }
        assert len(made) == 1


@pytest.mark.parametrize(
    "sampling, relation, reason",
    [
        ("fixed-size", "add-remove", "n itself changes"),
        ("poisson", "replace-one", "no dominating pair"),
    ],
)
def test_pairs_without_a_bound_are_refused(sampling, relation, reason):
    with pytest.raises(
        ValueError, match=f"relation = '{relation}' with sampling = '{sampling}'.*{reason}.*ask "
    ):
        NoisySGD(**FACTS, sampling=sampling).laws(relation)


@pytest.mark.parametrize("sampling", ["shuffle", "shuffled", "Poisson", None, 0], ids=repr)
def test_shuffling_is_refused_with_the_reason(sampling):
    with pytest.raises(ValueError, match="^sampling = .*shuffled batches aren't covered"):
        NoisySGD(**FACTS, sampling=sampling)


BAD = [math.nan, math.inf, -1, 0, "1", None, True, [256], np.array([1, 2])]


@pytest.mark.parametrize("bad", BAD, ids=repr)
@pytest.mark.parametrize("name", ["n", "batch_size", "noise_multiplier", "clip_norm"])
def test_bad_facts_are_refused_by_name(name, bad):
    with pytest.raises(ValueError, match=f"^{name} = .*isn't allowed: it must be "):
        NoisySGD(**{**FACTS, name: bad})


@pytest.mark.parametrize("bad", [x for x in BAD if x is not None], ids=repr)
def test_bad_numbers_of_steps_or_epochs(bad):
    with pytest.raises(ValueError, match="^epochs = "):
        NoisySGD(**{**FACTS, "epochs": bad})
    with pytest.raises(ValueError, match="^steps = "):
        NoisySGD(n=60000, batch_size=256, steps=bad, noise_multiplier=1.3)
    with pytest.raises(ValueError, match="^sampling_rate = "):
        NoisySGD.at_rate(bad if bad is not True else True, steps=1, noise_multiplier=1.3)


@pytest.mark.parametrize(
    "facts, message",
    [
        (dict(n=100, batch_size=101, steps=1), r"batch_size = 101.*\[1, 100\]"),
        (dict(n=100, steps=1), "batch_size = None.*give n and batch_size together"),
        (dict(batch_size=10, steps=1), "n = None.*give n and batch_size together"),
        (dict(n=100, batch_size=10), "steps = None.*give steps, or n, batch_size and epochs"),
        (dict(rate=0.1, epochs=3), "epochs = 3 has no meaning without n"),
        (dict(n=100, batch_size=10, steps=5, epochs=1), "steps = 5 contradicts epochs = 1"),
        (dict(n=100, batch_size=10, steps=5, rate=0.2), "sampling_rate = 0.2 contradicts"),
        (dict(rate=1.5, steps=5), r"sampling_rate = 1.5.*\(0, 1\]"),
        (dict(n=100, batch_size=10, steps=2.5), "steps = 2.5.*whole number"),
        (dict(n=100.5, batch_size=10, steps=2), "n = 100.5.*whole number"),
        (dict(n=10**9, batch_size=1, epochs=1e9), "steps = .*choose fewer epochs"),
    ],
)
def test_contradictions_and_gaps(facts, message):
    with pytest.raises(ValueError, match=message):
        NoisySGD(noise_multiplier=1.0, **facts)


@pytest.mark.parametrize("relation", ["add/remove", "replace", "", None, 1, True], ids=repr)
def test_unknown_relations(relation):
    for ask in (NoisySGD(**FACTS).sigma, NoisySGD(**FACTS).laws):
        with pytest.raises(ValueError, match="^relation = .*'add-remove', 'replace-one'"):
            ask(relation)


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(-5, 10**6),
    st.integers(),
    st.text(max_size=3),
    st.sampled_from([*RELATIONS, *SAMPLINGS]),
)


@SETTINGS
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "n",
                "batch_size",
                "steps",
                "epochs",
                "noise_multiplier",
                "clip_norm",
                "sampling",
                "sampling_rate",
            ]
        ),
        anything,
        max_size=5,
    )
)
def test_any_facts_give_a_run_or_a_value_error(facts):
    try:
        run = NoisySGD(**{"noise_multiplier": 1.0, **facts})
    except ValueError:
        return
    assert 0 < run.sampling_rate <= 1 and run.steps >= 1 and run.noise_multiplier > 0
