"""What people bring: nested inputs, Datasets, optimisers; checkpoints tried before the work."""

import copy
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from filelock import FileLock
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from dpteach.run import NoisySGD
from dpteach.training import accuracy, checkpoint, train
from dpteach.training.clipping import clipped_sum
from dpteach.training.options import Options

ROOT = Path(__file__).resolve().parents[1]
ENGINES = ("naive", "vmap", "fast")
X, Y = torch.randn(40, 5, generator=torch.Generator().manual_seed(1)), torch.arange(40) % 3
RUN = NoisySGD(n=40, batch_size=8, steps=12, noise_multiplier=0.8, clip_norm=0.5)


def small(*between):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), *between, nn.Linear(6, 3))


def theta(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def fit(inputs=X, targets=Y, model=None, **options):
    options = {"learning_rate": 0.2, "seed": 3} | options
    return train(model or small(), RUN, inputs, targets, **options)


def flat(result):
    return torch.cat([g.flatten() for g in result.gradients])


# --- Nested inputs -------------------------------------------------------------------


@dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor


class Two(nn.Module):
    """Takes a tuple as two arguments, a dict by name, a dataclass as it is."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 3), nn.Linear(3, 3)

    def forward(self, left, right=None):
        if isinstance(left, Pair):
            left, right = left.left, left.right
        return self.a(left) + self.b(right)


@pytest.mark.parametrize("engine", ENGINES)
def test_tuples_dicts_and_dataclasses_go_in_and_come_out(engine):
    torch.manual_seed(0)
    model, left, right = Two(), X[:, :2], X[:, 2:]
    whole = nn.Linear(5, 3)
    with torch.no_grad():
        whole.weight.copy_(torch.cat([model.a.weight, model.b.weight], 1))
        whole.bias.copy_(model.a.bias + model.b.bias)
    expected = clipped_sum(whole, F.cross_entropy, X, Y, 1e6, engine="naive").gradients[0]
    forms = [(left, right), [left, right], {"left": left, "right": right}, Pair(left, right)]
    for inputs in forms:
        found = clipped_sum(
            model, F.cross_entropy, inputs, Y, 1e6, engine=engine, microbatch=7
        ).gradients
        torch.testing.assert_close(
            torch.cat([found[0], found[2]], 1), expected, rtol=1e-4, atol=1e-5
        )
    loss = lambda out, y: F.cross_entropy(out, y["class"]) + 0 * y["weight"].sum()  # noqa: E731
    found = clipped_sum(
        model, loss, (left, right), {"class": Y, "weight": X[:, 0]}, 1e6, engine=engine
    ).gradients
    torch.testing.assert_close(torch.cat([found[0], found[2]], 1), expected, rtol=1e-4, atol=1e-5)
    assert fit((left, right), Y, model, engine=engine).steps == 12


# --- Datasets, arrays on disk, batches larger than memory ----------------------------


class Counting(Dataset):
    """The same records, and who was read."""

    def __init__(self):
        self.read = []

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        self.read.append(i)
        return X[i], int(Y[i])


def test_a_dataset_gives_the_same_training_as_its_tensors():
    expected = theta(fit().model)
    for options in ({}, {"microbatch": 3}):
        assert torch.allclose(theta(fit(Counting(), None, **options).model), expected, atol=1e-6)
    assert torch.equal(theta(fit(TensorDataset(X, Y), None).model), expected)


@pytest.mark.skipif(
    sys.platform == "win32", reason="functions in tests can't be sent to spawned workers"
)
def test_a_dataset_loaded_by_workers_gives_the_same_training():
    state = torch.random.get_rng_state()
    assert torch.equal(theta(fit(Counting(), None, workers=2).model), theta(fit().model))
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_dataset_resumes_to_the_bit(tmp_path):
    file = tmp_path / "a.pt"
    for stop in (0, 5, 12):
        result = fit(Counting(), None, checkpoint=file, stop_after=stop)
    assert torch.equal(theta(result.model), theta(fit().model))


def test_arrays_mapped_from_disk_are_read_by_index(tmp_path):
    np.save(tmp_path / "x.npy", X.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert torch.equal(theta(fit(mapped, Y.numpy()).model), theta(fit().model))


def test_a_batch_is_loaded_in_parts_no_larger_than_a_microbatch():
    data = Counting()
    sizes, seen = [], 0

    def loss(out, y):
        nonlocal seen
        sizes.append(len(data.read) - seen)
        seen = len(data.read)
        return F.cross_entropy(out, y)

    fit(data, None, loss=loss, microbatch=2, engine="fast")
    assert max(sizes) <= 3  # two, and the first time the one for the rehearsal


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([])


def test_an_endless_or_short_dataset_is_refused():
    with pytest.raises(ValueError, match="run.n = 40, but inputs has 39"):
        fit(TensorDataset(X[:39], Y[:39]), None)
    with pytest.raises(
        ValueError, match="targets = .* must be left out; a Dataset's items hold them"
    ):
        fit(TensorDataset(X, Y), Y)
    with pytest.raises(ValueError, match="inputs = .* a Dataset with a length"):
        fit(Stream(), None)


# --- Optimisers ----------------------------------------------------------------------

OPTIMISERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.2),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-2),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
}


def test_plain_sgd_as_an_optimiser_is_the_algorithm():
    found = theta(fit(learning_rate=None, optimiser=OPTIMISERS["SGD"]).model)
    torch.testing.assert_close(found, theta(fit().model), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_any_optimiser_steps_on_the_noisy_average_and_resumes_to_the_bit(name, tmp_path):
    options = {"learning_rate": None, "optimiser": OPTIMISERS[name],
               "scheduler": lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.5)}  # fmt: skip
    whole = fit(**options)
    for stop in (4, 7, 12):
        part = fit(**options, checkpoint=tmp_path / "a.pt", stop_after=stop)
    assert torch.equal(theta(part.model), theta(whole.model))
    assert all(p.grad is None for p in part.model.parameters())
    other = {**options, "optimiser": lambda p: torch.optim.AdamW(p, lr=0.5)}
    with pytest.raises(ValueError, match="belongs to another run, .*optimiser"):
        fit(**other, checkpoint=tmp_path / "a.pt")


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"learning_rate": 0.1, "optimiser": OPTIMISERS["SGD"]},
            "learning_rate = 0.1 .*the optimiser has its own",
        ),
        ({"learning_rate": None}, "learning_rate = None .*or give an optimiser"),
        ({"learning_rate": None, "optimiser": 3}, "optimiser = 3 isn't allowed.*AdamW"),
        ({"learning_rate": None, "optimiser": lambda p: p}, r"optimiser\(parameters\) = "),
        ({"scheduler": lambda o: o}, "scheduler = .*it needs an optimiser"),
        ({"workers": -1}, "workers = -1"),
        ({"progress": "yes"}, "progress = 'yes'"),
        ({"microbatch": 0}, "microbatch = 0"),
        ({"checkpoint_every": 0}, "checkpoint_every = 0"),
    ],
)
def test_options_are_refused_in_one_line(options, message):
    with pytest.raises(ValueError, match=message) as refused:
        fit(**options)
    assert "\n" not in str(refused.value)


def test_the_options_are_those_of_the_docstring():
    documented = Options.__doc__
    assert all(f"{name}" in documented for name in Options.__dataclass_fields__)


# --- Frozen parts --------------------------------------------------------------------


class LoRA(nn.Module):
    def __init__(self, layer, rank=2):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_linear_probe_and_lora_train_what_isn_t_frozen(engine):
    probe = small()
    probe[0].requires_grad_(False)
    lora = nn.Sequential(LoRA(nn.Linear(5, 6)), nn.Tanh(), LoRA(nn.Linear(6, 3)))
    for model in (probe, lora):
        found = clipped_sum(model, F.cross_entropy, X, Y, 0.5, engine=engine)
        torch.testing.assert_close(
            flat(found), flat(clipped_sum(model, F.cross_entropy, X, Y, 0.5, engine="naive"))
        )
        trained = fit(model=copy.deepcopy(model), engine=engine).model
        for (name, before), after in zip(
            model.named_parameters(), trained.parameters(), strict=True
        ):
            assert torch.equal(before, after) != before.requires_grad, name


# --- Checkpoints ---------------------------------------------------------------------


@pytest.mark.parametrize("place", ["a folder", "below a file", "read-only"])
def test_an_unusable_path_is_refused_before_the_first_step(tmp_path, place, monkeypatch):
    steps = []
    path = tmp_path / "a.pt"
    if place == "a folder":
        path.mkdir()
    elif place == "below a file":
        (tmp_path / "file").write_text("x")
        path = tmp_path / "file" / "a.pt"
    else:

        def refuse(*args, **more):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(ValueError, match="checkpoint = .*(folder|can be written)") as refused:
        fit(checkpoint=path, loss=lambda out, y: steps.append(1) or F.cross_entropy(out, y))
    assert steps == [] and "\n" not in str(refused.value)


def test_too_small_a_disk_is_refused_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(ValueError, match="checkpoint = .*room for it; the disk has 0.001 MB left"):
        fit(checkpoint=tmp_path / "a.pt")
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_another_process_writes_is_refused(tmp_path):
    held = FileLock(tmp_path / ".a.pt.lock")
    with (
        held,
        pytest.raises(ValueError, match="another process writes it; give this training another"),
    ):
        fit(checkpoint=tmp_path / "a.pt")
    assert fit(checkpoint=tmp_path / "a.pt").steps == 12
    assert [file.name for file in tmp_path.iterdir()] == ["a.pt"]


KILLED = """
import os, signal, sys, torch
sys.path.insert(0, sys.argv[2])
import test_inputs as t
save, calls = torch.save, []
def half_written(kept, file):
    calls.append(1)
    if len(calls) == 3:  # in the middle of the third write
        file.write(b"x" * 1000)
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    save(kept, file)
torch.save = half_written
t.fit(checkpoint=sys.argv[1], checkpoint_every=2)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_while_writing_it_loses_only_the_steps_since_the_last_checkpoint(
    tmp_path,
):
    file = tmp_path / "a.pt"
    command = [sys.executable, "-c", KILLED, str(file), str(ROOT / "tests")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    assert subprocess.run(command, cwd=ROOT, env=environment).returncode == -signal.SIGKILL
    assert (tmp_path / "a.pt.part").exists() and checkpoint.load(file)["step"] == 4
    started = time.monotonic()
    assert torch.equal(theta(fit(checkpoint=file, checkpoint_every=2).model), theta(fit().model))
    assert time.monotonic() - started < 60  # the dead process's lock holds nobody up
    assert [left.name for left in tmp_path.iterdir()] == ["a.pt"]


def test_evaluating_changes_no_layer_s_mode():
    model = small(nn.BatchNorm1d(6).eval(), nn.Dropout(0.5))
    modes = [layer.training for layer in model.modules()]
    accuracy(model, X, Y)
    assert [layer.training for layer in model.modules()] == modes
