"""Hostile arguments for what trains.

One argument at a time is replaced by a value of the wrong type or far out of range. It's
answered finitely and in silence, or refused by a `ValueError` that begins with the argument's name. What a caller's own
function raises (a model that doesn't fit the inputs, a loss) is passed on as it is, and no part of this grid.
"""

import contextlib
import math
import pathlib
import re
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from hostile import (
    EXTREME,
    NOT_A_NUMBER,
    WRONG_OBJECTS,
    answer_or_refusal,
    names_called,
    public_names,
    watchdog,  # noqa: F401 (a fixture around each test)
)
from torch import nn

from dpteach import training
from dpteach.run import NoisySGD
from dpteach.training import clipping, distributed, mnist, sampling

RUN = NoisySGD(n=8, batch_size=2, steps=3, noise_multiplier=1.0)
RATE = NoisySGD.at_rate(0.25, steps=3, noise_multiplier=1.0)
X, Y = torch.linspace(-1, 1, 24).reshape(8, 3), torch.arange(8) % 2
SUM = {"inputs": X, "targets": Y, "loss": F.cross_entropy}
HELD = (torch.zeros(2, 3), torch.zeros(2))


def small():
    return nn.Linear(3, 2)


SAME = small()  # a checkpoint is of one initial model


def rng():
    return torch.Generator().manual_seed(0)


def parameters(trained):
    return [p.detach() for p in trained.parameters()]


def clipped(**arguments):
    found = clipping.clipped_sum(**{"model": small(), **SUM, "clip_norm": 1.0, **arguments})
    return [*found.gradients, found.norms]


def stepped(**arguments):
    arguments = {"model": small(), "run": RUN, **SUM, "learning_rate": 0.1, **arguments}
    step = training.noisy_step(**arguments)
    return [*parameters(arguments["model"]), step.norms]


def updated(**arguments):
    arguments = {"model": small(), "totals": HELD, "run": RUN, "noise": rng(), "learning_rate": 0.1, **arguments}
    training.update(**arguments)
    return parameters(arguments["model"])


def trained(**arguments):
    arguments = {"model": small(), "run": RUN, "inputs": X, "targets": Y, "learning_rate": 0.1, "seed": 1, **arguments}
    return parameters(training.train(**arguments).model)


def trained_together(**arguments):
    arguments = {"model": small(), "run": RUN, "inputs": X, "targets": Y, "learning_rate": 0.1, "seed": 1, **arguments}
    return parameters(distributed.train_distributed(**arguments).model)


def step_together(**arguments):
    with contextlib.suppress(distributed.LostRank):  # another number of records than was drawn, documented
        return distributed.distributed_step(**{"model": small(), **SUM, "run": RUN, "noise": rng(), **arguments})


def worker(rank, size):
    return rank


# Functions of numbers: each is replaced by every value of NOT_A_NUMBER, which must be refused, and of EXTREME.
FUNCTIONS = {
    "clipped_sum": (clipped, {"clip_norm": 1.0, "microbatch": 3}),
    "part": (lambda **k: distributed.part(torch.arange(5), **k), {"rank": 0, "size": 2}),
    "distributed_step": (step_together, {"drawn": 8, "learning_rate": 0.1, "microbatch": 3}),
    "train_distributed": (trained_together, {"learning_rate": 0.1, "seed": 1, "stop_after": 1, "microbatch": 3}),
    "poisson": (lambda **k: sampling.poisson(generator=rng(), **k), {"n": 5, "batch_size": 2}),
    "fixed_size": (lambda **k: sampling.fixed_size(generator=rng(), **k), {"n": 5, "batch_size": 2}),
    "noisy_step": (lambda **k: stepped(noise=rng(), **k), {"learning_rate": 0.1, "microbatch": 3}),
    "update": (updated, {"learning_rate": 0.1}),
    "train": (trained, {"learning_rate": 0.1, "seed": 1, "stop_after": 1, "microbatch": 3}),
    "train with a checkpoint": (lambda **k: trained(checkpoint="a.pt", model=SAME, **k), {"checkpoint_every": 2}),
    "train_mnist": (lambda **k: training.train_mnist(MNIST, **k).steps,
                    {"learning_rate": 0.1, "seed": 1, "stop_after": 1}),
    "evaluation_steps": (lambda **k: training.evaluation_steps(RUN, **k), {"in_last_epoch": 4}),
    "accuracy": (lambda batch: training.accuracy(small(), X, Y, batch), {"batch": 3}),
}  # fmt: skip
MNIST = NoisySGD(n=60000, batch_size=1, steps=1, noise_multiplier=1.0)
OPTIONAL = {(name, "stop_after") for name in ("train", "train_mnist", "train_distributed")}
OPTIONAL |= {(name, "microbatch") for name in FUNCTIONS}

# Functions of objects: each argument is replaced by objects of another kind, and must be refused.
STEP = {"model": small(), **SUM, "run": RUN, "noise": rng(), "engine": "fast"}
OBJECTS = {
    "channels_last": (clipping.channels_last, {"x": X}),
    "check_model": (clipping.check_model, {"model": small(), "inputs": X}),
    "check_records": (clipping.check_records, {"inputs": X, "targets": Y}),
    "clipped_sum": (clipped, {"model": small(), **SUM, "engine": "fast"}),
    "trainable": (clipping.trainable, {"model": small()}),
    "part": (lambda **k: distributed.part(rank=0, size=1, **k), {"drawn": torch.arange(5), "shard": range(5)}),
    "distributed_step": (lambda **k: step_together(drawn=8, learning_rate=0.1, **k), STEP),
    "train_distributed": (trained_together,
                          {"model": small(), "run": RUN, "inputs": X, "targets": Y, "loss": F.cross_entropy,
                           "shard": range(8), "learning_rate": 0.1, "engine": "fast"}),
    "launch": (lambda **k: distributed.launch(size=1, **k), {"worker": worker, "lost": ()}),
    "load": (mnist.load, {"path": mnist.DATA_FILE}),
    "tutorial_cnn": (mnist.tutorial_cnn, {"generator": rng()}),
    "draw": (sampling.draw, {"run": RUN, "generator": rng()}),
    "poisson": (lambda generator: sampling.poisson(5, 2, generator), {"generator": rng()}),
    "fixed_size": (lambda generator: sampling.fixed_size(5, 2, generator), {"generator": rng()}),
    "noisy_step": (stepped, STEP),
    "update": (updated, {"model": small(), "totals": HELD, "run": RUN, "noise": rng()}),
    "train": (trained,
              {"model": small(), "run": RUN, "inputs": X, "targets": Y, "loss": F.cross_entropy, "engine": "fast",
               "learning_rate": 0.1, "evaluate": lambda net: 1.0, "evaluate_at": [1]}),
    "train into a file": (trained, {"checkpoint": pathlib.Path("b.pt")}),
    "train_mnist": (lambda **k: training.train_mnist(learning_rate=0.1, seed=1, **k),
                    {"run": MNIST, "evaluate_at": [1]}),
    "evaluation_steps": (training.evaluation_steps, {"run": RUN}),
    "accuracy": (training.accuracy, {"model": small(), "inputs": X, "targets": Y}),
    "recorded": (training.recorded, {"name": "a-poisson"}),
}  # fmt: skip
OPTIONAL |= {("check_model", "inputs"), ("part", "shard"), ("train_distributed", "shard"), ("train", "evaluate"),
             ("train", "evaluate_at"), ("train_mnist", "evaluate_at"), ("load", "path"),
             ("train into a file", "checkpoint")}  # fmt: skip
ANY_TEXT = {("train into a file", "checkpoint"), ("load", "path")}
NO_STEPS = {("train", "evaluate_at"), ("train_mnist", "evaluate_at")}  # may be empty

# Made by the package itself, from checked arguments; or without arguments.
RECORDS = {"ClippedSum", "Evaluation", "LostRank", "Mnist", "Training",
           "keep_freed_memory"}  # fmt: skip
HERE = {"clipping", "distributed", "loop", "mnist", "sampling"}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder to write in, and data of MNIST's shape without its content, for what trains on it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPTEACH_CACHE", str(tmp_path))
    sets = [(torch.zeros(1, 1, 28, 28).expand(n, 1, 28, 28), torch.zeros(n).long()) for n in (60000, 9)]
    blank, load = mnist.Mnist(*sets[0], *sets[1]), mnist.load
    monkeypatch.setattr(mnist, "load", lambda path=None: blank if path is None else load(path))


@pytest.fixture(scope="module")
def group_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


REFUSAL = r"isn't allowed: it must be |isn't reached at delta = |contradicts "


def refused_by_name(refusal, names):
    """One line: an argument's name, its value, what's allowed."""
    begun = re.match(rf"(run\.|excess\(|a step of )?({'|'.join(map(re.escape, names))})\)? = ", refusal)
    return begun and "\n" not in refusal and re.search(REFUSAL, refusal)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_types_and_extreme_numbers(name, group_of_one):
    function, arguments = FUNCTIONS[name]
    assert answer_or_refusal(function, arguments)[1] is None
    for argument in arguments:
        for value in NOT_A_NUMBER:
            refusal = answer_or_refusal(function, {**arguments, argument: value})[1]
            given = value is not None or (name, argument) not in OPTIONAL
            assert not given or refusal and refused_by_name(refusal, [argument]), (argument, type(value), refusal)
        for value in EXTREME:  # another argument may be the one that doesn't fit it: count = 3 of trials = 1
            numbers, refusal = answer_or_refusal(function, {**arguments, argument: value})
            assert all(map(math.isfinite, numbers)), (argument, type(value), numbers)
            assert refusal is None or refused_by_name(refusal, arguments), (argument, type(value), refusal)


ANY_TENSOR = {("channels_last", "x"), ("check_model", "inputs")}


def taken(right, wrong, case):
    """Whether `wrong` is of the right kind after all."""
    if isinstance(wrong, torch.Tensor):
        return isinstance(right, (int, float)) or case in ANY_TENSOR
    if case in NO_STEPS and hasattr(wrong, "__len__"):
        return not isinstance(wrong, (str, bytes))
    if isinstance(right, (int, float)):
        return isinstance(wrong, int)
    return isinstance(wrong, str) and case in ANY_TEXT or isinstance(wrong, tuple) and case == ("launch", "lost")


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_of_another_kind_are_refused_by_name(name, group_of_one):
    function, arguments = OBJECTS[name]
    if name != "launch":  # its own test starts processes
        function(**arguments)
    for argument, right in arguments.items():
        for wrong in WRONG_OBJECTS:
            case = name, argument
            if not (wrong is None and case in OPTIONAL) and not taken(right, wrong, case):
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    with pytest.raises(ValueError) as refused:
                        function(**{**arguments, argument: wrong})
                told = str(refused.value)
                assert refused_by_name(told, [argument]) or re.match(r"inputs has shape .* and targets \(", told), case


def test_every_public_function_stands_in_the_grid():
    covered = set().union(*(names_called(function) for function, _ in [*FUNCTIONS.values(), *OBJECTS.values()]))
    helpers = clipped, stepped, updated, trained, trained_together, step_together
    covered |= set().union(*map(names_called, helpers))
    for path in sorted(pathlib.Path(training.__file__).parent.glob("*.py")):
        if path.stem in HERE:
            assert public_names(path) - covered - RECORDS == set(), path.stem


# --- what one wrong value can't show ----------------------------------------------------------------


@pytest.mark.parametrize("totals", [HELD[:1], (*HELD, HELD[1]), HELD[::-1], (HELD[0], torch.full((2,), math.nan)),
                                    (torch.full((2, 3), math.inf), HELD[1])], ids=range(5))  # fmt: skip
def test_totals_that_do_not_fit_leave_the_parameters_alone(totals):
    model = small()
    before = [p.clone() for p in parameters(model)]
    with pytest.raises(ValueError, match="^totals = .* must be a finite tensor of each parameter's shape$"):
        updated(model=model, totals=totals)
    assert all(torch.equal(a, b) for a, b in zip(before, parameters(model), strict=True))


def test_a_run_that_is_known_by_its_rate_only_is_not_trained():
    for step in (lambda: stepped(run=RATE, noise=rng()), lambda: updated(run=RATE), lambda: trained(run=RATE)):
        with pytest.raises(ValueError, match=r"^run\.(n|batch_size) = None"):
            step()


@pytest.mark.parametrize("argument", ["size", "timeout", "patience"])
def test_launch_refuses_before_it_starts_a_process(argument):
    for value in [*NOT_A_NUMBER, math.inf, -1, 0, -0.0, 1e300, 2**63, 10**400]:
        with pytest.raises(ValueError, match=f"^{argument} = "):
            distributed.launch(worker, **{"size": 1, argument: value})
