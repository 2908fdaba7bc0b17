"""Algorithm 1: the update, its noise, its seeds, stopping and resuming, run A's accuracy."""

import importlib.util
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

from dpteach.classroom import kept as _cache
from dpteach.classroom.runs import RECORDS as RECORDS_FILE
from dpteach.classroom.runs import recorded, train_mnist
from dpteach.run import NoisySGD
from dpteach.training import accuracy, checkpoint, evaluation_steps, noisy_step, train
from dpteach.training.clipping import clipped_sum

ROOT = Path(__file__).resolve().parents[1]
RECORDS = json.loads(RECORDS_FILE.read_text())


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def small(seed=0):
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    torch.random.set_rng_state(torch_state)
    return model


X, Y = torch.randn(40, 5, generator=rng(1)), torch.randint(3, (40,), generator=rng(2))


def run(epochs=4, **changes):
    facts = {"n": 40, "batch_size": 8, "noise_multiplier": 0.8, "clip_norm": 0.5} | changes
    return NoisySGD(**facts) if "steps" in facts else NoisySGD.for_epochs(epochs=epochs, **facts)


def theta(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def fit(facts=None, seed=3, **options):
    options = {"learning_rate": 0.2} | options
    return train(small(), facts or run(), X, Y, seed=seed, **options)


# --- One step ----------------------------------------------------------------------------------


@pytest.mark.parametrize("drawn", [8, 3, 13, 0])
def test_the_update_is_algorithm_1_with_the_public_batch_size(drawn):
    model, facts = small(), run()
    before, clipped = theta(model), clipped_sum(model, F.cross_entropy, X[:drawn], Y[:drawn], 0.5)
    total = torch.cat([g.flatten() for g in clipped.gradients])
    noisy_step(model, F.cross_entropy, X[:drawn], Y[:drawn], facts, 0.2, rng(9))
    generator, noise = rng(9), []
    for p in small().parameters():
        noise.append(torch.randn(p.shape, generator=generator).flatten())
    expected = before - 0.2 / 8 * (total + 0.8 * 0.5 * torch.cat(noise))
    torch.testing.assert_close(theta(model), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("drawn", [0, 5, 8])
def test_noise_has_the_stated_standard_deviation_whatever_was_drawn(drawn):
    model = nn.Linear(200, 200)
    x, y = torch.randn(drawn, 200, generator=rng()), torch.randint(200, (drawn,), generator=rng())
    for multiplier, clip_norm in ((1.3, 1.5), (0.4, 3.0)):
        facts = run(noise_multiplier=multiplier, clip_norm=clip_norm)
        total = clipped_sum(model, F.cross_entropy, x, y, clip_norm).gradients[0].flatten()
        before = model.weight.detach().clone().flatten()
        noisy_step(model, F.cross_entropy, x, y, facts, 1.0, rng(4))
        noise = ((before - model.weight.detach().flatten()) * 8 - total).double().numpy()
        std = multiplier * clip_norm
        assert stats.kstest(noise / std, "norm").pvalue > 1e-3
        low, high = np.sqrt(stats.chi2.ppf([1e-5, 1 - 1e-5], noise.size) / noise.size)
        assert low * std < noise.std() < high * std


# --- The loop ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", ["poisson", "fixed-size"])
def test_steps_made_are_the_steps_accounted(sampling):
    facts = run(sampling=sampling, epochs=3.3)
    assert fit(facts).steps == facts.steps == math.ceil(3.3 * 40 / 8)


def test_empty_poisson_batches_still_step():
    facts = run(batch_size=1, epochs=0.5)  # 20 steps, of which about 36 % draw nobody
    assert fit(facts).steps == 20
    sizes = []

    def spy(out, y):
        sizes.append(len(y))
        return F.cross_entropy(out, y)

    result = fit(facts, loss=spy, engine="naive")
    assert len(sizes) < 60 and result.steps == 20
    assert theta(result.model).isfinite().all()


def test_engines_and_microbatches_give_the_same_training():
    reference = theta(fit(engine="naive").model)
    for options in ({"engine": "vmap"}, {"engine": "fast"}, {"engine": "fast", "microbatch": 3}):
        torch.testing.assert_close(theta(fit(**options).model), reference, rtol=1e-4, atol=1e-5)


def test_seeds_are_arguments_and_nothing_global_moves():
    state = torch.random.get_rng_state()
    first = theta(fit().model)
    torch.manual_seed(99)
    assert torch.equal(first, theta(fit().model))
    torch.random.set_rng_state(state)
    assert not torch.equal(first, theta(fit(seed=4).model))
    fit()
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_model_given_isn_t_changed():
    model = small()
    before = theta(model)
    train(model, run(), X, Y, learning_rate=0.2, seed=0)
    assert torch.equal(before, theta(model))


def test_dropout_is_seeded():
    def once():
        torch.manual_seed(int(time.time_ns() % 2**31))
        model = nn.Sequential(small(), nn.Dropout(0.5))
        return theta(train(model, run(), X, Y, learning_rate=0.2, seed=5).model)

    assert torch.equal(once(), once())


def test_little_noise_learns():
    labels = X[:, :3].argmax(1)  # learnable, unlike Y
    facts = run(noise_multiplier=0.05, epochs=40, clip_norm=1.0, sampling="fixed-size")
    result = train(small(), facts, X, labels, learning_rate=1.0, seed=3)
    assert accuracy(small(), X, labels) < 60 and accuracy(result.model, X, labels) > 85


def test_learning_rate_schedule():
    constant = theta(fit().model)
    assert torch.equal(constant, theta(fit(learning_rate=lambda t: 0.2).model))
    assert not torch.equal(constant, theta(fit(learning_rate=lambda t: 0.2 / (1 + t)).model))


def test_a_nan_record_can_t_poison_the_parameters():
    x = X.clone()
    x[7], x[8] = float("nan"), float("inf")
    for engine in ("naive", "vmap", "fast"):
        result = train(small(), run(), x, Y, learning_rate=0.2, seed=1, engine=engine)
        assert theta(result.model).isfinite().all() and result.skipped > 0
    assert fit().skipped == 0


def test_epochs_or_steps_are_one_run(tmp_path):
    file = tmp_path / "checkpoint.pt"
    fit(run(epochs=4), checkpoint=file, stop_after=5)
    assert fit(run(steps=20), checkpoint=file).steps == 20


def test_history_and_last_epoch():
    facts = run(epochs=4)  # 5 steps an epoch
    result = fit(facts, evaluate=lambda model: 7.0)
    assert [e.step for e in result.history] == [5, 10, 15, 17, 18, 19, 20]
    assert result.history[0].epoch == 1 and result.last_epoch().tolist() == [7.0] * 4
    assert evaluation_steps(run(epochs=0.2)) == [1]
    stopped = fit(facts, evaluate=lambda model: 7.0, evaluate_at=[2, 3], stop_after=2)
    assert [e.step for e in stopped.history] == [2] and stopped.steps == 2


def test_a_prefix_is_the_beginning_of_the_whole():
    seen = {}
    fit(
        evaluate=lambda model: seen.setdefault("theta", theta(model).clone()).sum(), evaluate_at=[7]
    )
    assert torch.equal(theta(fit(stop_after=7).model), seen["theta"])


def test_progress_goes_to_stderr_only_when_asked(capsys):
    fit()
    assert capsys.readouterr() == ("", "")
    fit(progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "step 20/20" in err


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"inputs": X[:39], "targets": Y[:39]}, "run.n = 40, but inputs has 39"),
        ({"inputs": X[:39]}, r"inputs has shape \(39, 5\) and targets \(40,\)"),
        ({"learning_rate": 0.0}, r"learning_rate = 0.0 isn't allowed"),
        ({"learning_rate": float("nan")}, r"learning_rate = nan"),
        ({"learning_rate": lambda t: float("inf")}, r"learning_rate\(0\) = inf"),
        ({"seed": -1}, r"seed = -1"),
        ({"stop_after": 21}, r"stop_after = 21 .*\[0, 20\]"),
        ({"engine": "fastest"}, r"engine = 'fastest'"),
        ({"model": nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))}, "BatchNorm1d"),
        ({"run": NoisySGD.at_rate(0.1, steps=3, noise_multiplier=1.0)}, "run.n = None"),
    ],
)
def test_bad_arguments(changes, message):
    arguments = {"model": small(), "run": run(), "inputs": X, "targets": Y}
    with pytest.raises(ValueError, match=message):
        train(**(arguments | {"learning_rate": 0.2, "seed": 0} | changes))


# --- Stopping and resuming -----------------------------------------------------------------------


def test_resuming_gives_the_same_parameters_to_the_bit(tmp_path):
    file = tmp_path / "checkpoint.pt"
    options = {"evaluate": lambda model: theta(model).sum().item()}
    whole = fit(**options)
    for stop in (0, 1, 7, 13, 20, 20):
        part = fit(**options, checkpoint=file, checkpoint_every=3, stop_after=stop)
        assert part.steps == stop
    assert torch.equal(theta(part.model), theta(whole.model)) and part.history == whole.history


def test_checkpoint_of_another_run_or_damaged_is_refused(tmp_path):
    file = tmp_path / "checkpoint.pt"
    fit(checkpoint=file, stop_after=5)
    for changes in ({"seed": 4}, {"facts": run(noise_multiplier=0.7)}, {"learning_rate": 0.1}):
        with pytest.raises(ValueError, match="belongs to another run"):
            fit(checkpoint=file, **changes)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match="isn't a whole checkpoint"):
        fit(checkpoint=file)


def other_loss(outputs, targets):
    return 2 * F.cross_entropy(outputs, targets)


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": X + torch.eye(40, 5) * 1e-6},
        {"targets": Y.flip(0)},
        {"model": small(1)},
        {"loss": other_loss},
        {"loss": nn.CrossEntropyLoss()},
        {"learning_rate": lambda t: 0.2 + 0.1 * (t == 9)},
    ],
)
def test_checkpoint_of_other_data_model_loss_or_schedule_is_refused_and_kept(tmp_path, changes):
    file = tmp_path / "checkpoint.pt"
    given = {
        "model": small(),
        "run": run(),
        "inputs": X,
        "targets": Y,
        "learning_rate": 0.2,
        "seed": 3,
    }
    train(**given, checkpoint=file, stop_after=5)
    before = file.read_bytes()
    with pytest.raises(
        ValueError,
        match="belongs to another run, seed, model, data, loss, optimiser or learning rate",
    ):
        train(**(given | changes), checkpoint=file)
    assert file.read_bytes() == before
    assert (
        train(**given | {"inputs": X.clone().t().contiguous().t()}, checkpoint=file).steps == 20
    )  # another layout


def test_checkpoint_with_more_steps_than_asked_for_is_refused(tmp_path):
    file = tmp_path / "checkpoint.pt"
    fit(checkpoint=file, stop_after=7)
    before = file.read_bytes()
    with pytest.raises(
        ValueError, match=r"stop_after = 6, but checkpoint = .*checkpoint.pt' holds 7 steps"
    ):
        fit(checkpoint=file, stop_after=6)
    assert file.read_bytes() == before and fit(checkpoint=file, stop_after=7).steps == 7


def test_checkpoint_of_a_model_with_buffers_scalars_and_other_types(tmp_path):
    model, file = small(), tmp_path / "checkpoint.pt"
    model.register_buffer("scalar", torch.tensor(True))
    model.register_buffer("none", torch.zeros(0, dtype=torch.bfloat16))
    steps = [
        train(model, run(), X, Y, learning_rate=0.2, seed=3, checkpoint=file, stop_after=s).steps
        for s in (2, 4)
    ]
    assert steps == [2, 4]


class CountedInTraining(nn.Module):
    """Writes to a buffer in train mode only."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.calls += 1
        return x


@pytest.mark.parametrize("mode", [True, False])
def test_a_model_is_checked_in_train_mode_however_it_arrives(mode):
    model = nn.Sequential(nn.Linear(5, 3), CountedInTraining()).train(mode)
    with pytest.raises(
        ValueError, match=r"'calls' of layer '1' \(CountedInTraining\) is changed by a forward pass"
    ):
        train(model, run(), X, Y, learning_rate=0.2, seed=0)
    assert model[1].calls == 0 and model.training == mode


class Viewing(nn.Module):
    """Works on images as they're stored, not on channels-last ones."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 3)

    def forward(self, x):
        return self.layer(x.view(len(x), -1))


def test_a_model_that_views_images_trains_and_is_evaluated():
    images = torch.randn(40, 3, 2, 2, generator=rng(1))
    model = Viewing()
    fast, naive = (
        train(model, run(), images, Y, learning_rate=0.2, seed=0, engine=engine).model
        for engine in ("fast", "naive")
    )
    torch.testing.assert_close(theta(fast), theta(naive), rtol=1e-4, atol=1e-5)
    assert accuracy(model, images, Y) == 100 * int((model(images).argmax(1) == Y).sum()) / 40


def test_a_full_disk_loses_no_checkpoint(tmp_path, monkeypatch):
    file, save = tmp_path / "checkpoint.pt", torch.save
    fit(checkpoint=file, stop_after=5)
    before = file.read_bytes()

    def fill_up(kept, target):
        save(kept, target)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", fill_up)
    with pytest.raises(OSError, match="No space left"):
        fit(checkpoint=file)
    assert file.read_bytes() == before and list(tmp_path.iterdir()) == [file]
    monkeypatch.setattr(torch, "save", save)
    assert fit(checkpoint=file).steps == fit().steps


SLOW_RUN = """
import sys, time, torch
sys.path.insert(0, sys.argv[2])
import test_training as t
seen = set()  # the schedule is read once for the checkpoint's identity, then step by step
def slow(step):
    time.sleep(0.01 * (step in seen))
    seen.add(step)
    return 0.2
print("ready", flush=True)
t.fit(t.run(epochs=20), learning_rate=slow, checkpoint=sys.argv[1], checkpoint_every=1)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_kill_at_any_moment_and_resume(tmp_path):
    facts, file = run(epochs=20), tmp_path / "checkpoint.pt"
    command = [sys.executable, "-c", SLOW_RUN, str(file), str(ROOT / "tests")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    process.stdout.readline()
    time.sleep(0.3)
    process.kill()
    process.wait()
    process.stdout.close()
    kept = checkpoint.load(file)
    assert kept is None or 0 < kept["step"] <= facts.steps
    resumed = fit(facts, learning_rate=lambda t: 0.2, checkpoint=file)
    assert resumed.steps == facts.steps
    assert torch.equal(theta(resumed.model), theta(fit(facts).model))


# --- The cache ---------------------------------------------------------------------------------


def test_cache_computes_once_for_the_same_parameters(tmp_path, monkeypatch):
    monkeypatch.setenv("DPTEACH_CACHE", str(tmp_path / "new" / "folder"))
    calls = []

    def compute():
        calls.append(1)
        return {"value": torch.arange(3), "n": len(calls)}

    for _ in range(3):
        assert _cache.cached("x", {"a": 1}, ("run",), compute)["n"] == 1
    assert _cache.cached("x", {"a": 2}, ("run",), compute)["n"] == 2
    assert _cache.cached("x", {"a": 1}, ("run", "training/mnist"), compute)["n"] == 3
    for file in _cache.folder().glob("*.pt"):
        file.write_bytes(file.read_bytes()[:50])
    assert _cache.cached("x", {"a": 1}, ("run",), compute)["n"] == 4  # a damaged file is made again
    assert not list(_cache.folder().glob("*.part"))


def test_cache_key_follows_the_source(tmp_path, monkeypatch):
    monkeypatch.setattr(_cache, "__file__", str(tmp_path / "classroom" / "kept.py"))
    sources = [
        "def f(x):\n    return x",
        'def f(x):\n    """Doc."""\n\n    return x  # so',
        "def f(x):\n    return -x",
    ]
    keys = []
    for source in sources:
        (tmp_path / "run.py").write_text(source)
        keys.append(_cache._key({}, ("run",)))
    assert keys[0] == keys[1] != keys[2]  # a docstring isn't code


def _compute_slowly(folder, log, seconds):
    os.environ["DPTEACH_CACHE"] = folder

    def compute():
        with open(log, "a") as file:
            file.write("computed\n")
        time.sleep(seconds)
        return {"pid": os.getpid()}

    _cache.cached("slow", {}, ("run",), compute)


def test_two_processes_compute_once_and_a_killed_one_blocks_nobody(tmp_path, monkeypatch):
    context, log = multiprocessing.get_context("spawn"), tmp_path / "log"
    killed = context.Process(target=_compute_slowly, args=(str(tmp_path), str(log), 600))
    killed.start()
    while not log.exists():
        time.sleep(0.05)
    killed.kill()
    killed.join()
    pair = [
        context.Process(target=_compute_slowly, args=(str(tmp_path), str(log), 0.5))
        for _ in range(2)
    ]
    for process in pair:
        process.start()
    for process in pair:
        process.join(60)
        assert process.exitcode == 0
    assert log.read_text().count("computed") == 2  # the killed one's and one more


def test_waiting_for_a_lock_ends(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setenv("DPTEACH_CACHE", str(tmp_path))
    lock = tmp_path / f"x-{_cache._key({}, ('run',))}.lock"
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert _cache.cached("x", {}, ("run",), lambda: {"v": 1}, patience=0.5)["v"] == 1


# --- MNIST ---------------------------------------------------------------------------------------


def recorded_run(name):
    return NoisySGD(**RECORDS[name]["run"])


@pytest.mark.parametrize("name", ["a-fixed-size", "a-poisson", "a-algorithm-1"])
def test_recorded_runs_are_what_they_say(name):
    record, facts = RECORDS[name], recorded_run(name)
    assert facts.n == 60000 and facts.batch_size == 256 and facts.steps == record["steps"] == 3516
    assert facts.clip_norm == 1.5 and record["learning_rate"] == 0.25 and record["skipped"] == 0
    assert facts.noise_multiplier == (2.6 if name == "a-algorithm-1" else 1.3)
    assert [step for step, _ in record["history"]] == evaluation_steps(facts)
    assert {"torch", "python"} <= record["versions"].keys() and record["date"]


@pytest.mark.parametrize("name", ["a-fixed-size", "a-poisson", "a-algorithm-1"])
def test_the_beginning_of_each_recorded_run_comes_out_again(name):
    record = RECORDS[name]
    prefix = record["prefix"]
    result = train_mnist(
        recorded_run(name),
        learning_rate=record["learning_rate"],
        seed=record["seed"],
        stop_after=prefix["steps"],
        evaluate_at=[20, prefix["steps"]],
    )
    norms = [p.double().norm().item() for p in result.model.parameters()]
    np.testing.assert_allclose(norms, prefix["parameter_norms"], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose([e.value for e in result.history], prefix["accuracy"], atol=0.5)


def test_accuracies_of_the_recorded_runs():
    fixed, poisson, literal = (
        recorded(name).last_epoch().mean()
        for name in ("a-fixed-size", "a-poisson", "a-algorithm-1")
    )
    assert len(recorded("a-poisson").last_epoch()) == 4
    assert 94.4 <= fixed <= 95.7
    assert abs(poisson - fixed) <= 0.6
    assert literal < 94.4 - (95.7 - 94.4)  # apart from the other noise by more than its whole range


def test_run_a_trained_here():
    """The same cached result that the chapter shows: trained once for each version of the code."""
    result = train_mnist(recorded_run("a-fixed-size"), learning_rate=0.25, seed=1)
    assert result.steps == 3516 and result.skipped == 0
    assert 94.4 <= result.last_epoch().mean() <= 95.7


# --- Memory and what is refused ------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench_memory():
    pytest.importorskip("resource")
    spec = importlib.util.spec_from_file_location(
        "bench_memory", ROOT / "benchmarks" / "bench_memory.py"
    )
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    return bench


def test_a_batch_of_8192_fits_in_two_gigabytes(bench_memory):
    """Two private steps of the tutorial network in a process of their own, everything counted."""
    found = bench_memory.measured(8192, 512)
    assert found["steps"] == 2
    assert 60000 * 28 * 28 * 4 < found["before"] < found["peak"] < 2e9


def test_the_peak_is_the_process_s_own(bench_memory):
    """However much the process that starts the measurement has had in memory before."""
    held = bytearray(b"x") * 2_500_000_000
    assert bench_memory.peak() > len(held)
    assert bench_memory.measured(64, 0)["peak"] < 2e9


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"learning_rate": 1e300},
            r"learning_rate = 1e\+300 isn't allowed: it must be a number in \(0, 1e30\]",
        ),
        ({"learning_rate": -0.1}, r"learning_rate = -0.1"),
        ({"learning_rate": "0.1"}, r"learning_rate = '0.1'"),
        ({"learning_rate": lambda t: "much"}, r"learning_rate\(0\) = 'much'"),
        ({"model": "cnn"}, r"model = 'cnn' isn't allowed.*nn.Linear"),
        ({"run": {"n": 40}}, r"run = {'n': 40} isn't allowed.*NoisySGD"),
        ({"inputs": X.tolist()}, r"inputs = .* isn't allowed.*a tensor"),
        ({"targets": Y.tolist()}, r"targets = .* isn't allowed.*a tensor"),
        ({"loss": 3}, r"loss = 3 isn't allowed.*cross_entropy"),
        ({"evaluate": 3}, r"evaluate = 3 isn't allowed"),
        ({"evaluate": lambda model: None}, r"evaluate\(model\) = None .*after step 5"),
        ({"evaluate": lambda model: float("nan")}, r"evaluate\(model\) = nan"),
        ({"evaluate": lambda model: 1.0, "evaluate_at": 7}, r"evaluate_at = 7 isn't allowed"),
        (
            {"evaluate": lambda model: 1.0, "evaluate_at": [0]},
            r"a step of evaluate_at = 0 .*\[1, 20\]",
        ),
        ({"evaluate": lambda model: 1.0, "evaluate_at": [2.5]}, r"a step of evaluate_at = 2.5"),
        ({"checkpoint": 3}, r"checkpoint = 3 isn't allowed"),
        (
            {"learning_rate": 1e30, "run": run(noise_multiplier=1e3, clip_norm=1e9)},
            "infinite or NaN after step",
        ),
    ],
)
def test_hostile_arguments_are_refused_in_one_line(changes, message):
    arguments = {
        "model": small(),
        "run": run(),
        "inputs": X,
        "targets": Y,
        "learning_rate": 0.2,
        "seed": 0,
    }
    with pytest.raises(ValueError, match=message) as refused:
        train(**(arguments | changes))
    assert "\n" not in str(refused.value)


def test_a_tiny_clip_norm_that_double_precision_holds():
    result = clipped_sum(small().double(), F.cross_entropy, X[:1].double(), Y[:1], 1e-36)
    length = torch.cat([g.flatten() for g in result.gradients]).norm().item()
    assert 0.999e-36 < length <= 1e-36


@pytest.mark.parametrize("content", [{"model": {}}, {}, {"identity": 3}, torch.zeros(3), [1, 2]])
def test_a_file_that_isn_t_a_checkpoint_is_refused_and_kept(tmp_path, content):
    file = tmp_path / "mine.pt"
    torch.save(content, file)
    before = file.read_bytes()
    with pytest.raises(
        ValueError,
        match=r"checkpoint = .*mine.pt' (isn't a whole checkpoint|belongs to another run)",
    ):
        fit(checkpoint=file)
    assert file.read_bytes() == before


def test_a_checkpoint_of_another_network_is_refused_and_kept(tmp_path):
    file = tmp_path / "checkpoint.pt"
    fit(checkpoint=file, stop_after=5)
    before = file.read_bytes()
    with pytest.raises(ValueError, match="belongs to another run, seed, model, data"):
        train(nn.Linear(5, 3), run(), X, Y, learning_rate=0.2, seed=3, checkpoint=file)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((3, X, Y), "model = 3"),
        ((small(), X[:0], Y[:0]), r"targets has shape \(0,\)"),
        ((small(), X, Y[:5]), r"inputs has shape \(40, 5\) and targets \(5,\)"),
        ((small(), X, torch.rand(40, 3)), r"targets has shape \(40, 3\)"),
        ((small(), [1, 2], Y), r"inputs = \[1, 2\]"),
        ((small(), X, Y, 0), "batch = 0"),
        ((small(), X, Y, "all"), "batch = 'all'"),
    ],
)
def test_hostile_arguments_of_accuracy(arguments, message):
    with pytest.raises(ValueError, match=message):
        accuracy(*arguments)


@pytest.mark.parametrize("in_last_epoch", [0, -1, 1.5, float("nan"), "4", None])
def test_hostile_arguments_of_evaluation_steps(in_last_epoch):
    with pytest.raises(ValueError, match="in_last_epoch = "):
        evaluation_steps(run(), in_last_epoch)
    with pytest.raises(ValueError, match="run = 3 isn't allowed"):
        evaluation_steps(3)


def test_hostile_arguments_of_a_step():
    for noise, message in ((None, "noise = None"), (3, "noise = 3")):
        with pytest.raises(ValueError, match=message):
            noisy_step(small(), F.cross_entropy, X, Y, run(), 0.1, noise)
    for rate in (float("nan"), -1, None, 1e38):
        with pytest.raises(ValueError, match="learning_rate = "):
            noisy_step(small(), F.cross_entropy, X, Y, run(), rate, rng())
    with pytest.raises(ValueError, match="run = None"):
        noisy_step(small(), F.cross_entropy, X, Y, None, 0.1, rng())
