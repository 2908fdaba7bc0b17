"""The recorded MNIST runs of chapter 21: complete, and the same when begun again."""

import json
import math

import pytest
from record_batches import EPOCHS, FACTS, FILE, LEARNING_RATE, RUNS, prefix, run_of

from dpteach.run import SAMPLINGS, NoisySGD

KEPT = json.loads(FILE.read_text())


def test_all_runs_are_kept_with_what_made_them():
    assert sorted(KEPT) == sorted(RUNS)
    for name, (sampling, seed) in RUNS.items():
        kept = KEPT[name]
        assert NoisySGD(**kept["run"]) == run_of(sampling)
        assert (kept["seed"], kept["learning_rate"], kept["skipped"]) == (seed, LEARNING_RATE, 0)
        steps = [step for step, _ in kept["history"]]
        assert len(steps) == EPOCHS
        assert steps[-1] == math.ceil(EPOCHS * FACTS["n"] / FACTS["batch_size"])
        assert 90 < kept["history"][-1][1] < 96
        assert kept["versions"]["torch"]
        assert kept["date"]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_run_begins_as_recorded(sampling):
    kept = KEPT[f"{sampling}-1"]["prefix"]
    found = prefix(run_of(sampling), 1)
    assert found["steps"] == kept["steps"]
    assert found["accuracy"] == pytest.approx(kept["accuracy"], abs=0.5)
    assert found["parameter_norms"] == pytest.approx(kept["parameter_norms"], rel=1e-3)
