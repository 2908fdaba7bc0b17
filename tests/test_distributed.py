"""Training on several processes: the same θ as on one, noise once, nothing silent when a rank is lost."""

import inspect
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from dpteach.classroom.runs import RECORDS, train_mnist
from dpteach.run import NoisySGD
from dpteach.training import distributed, train
from dpteach.training.distributed import launch, part, train_distributed

DTYPES = {"float64": 1e-10, "float32": 1e-5}
SHARDS = {
    "none": None,
    "equal": (0, 14, 27, 40),
    "unequal": (0, 3, 4, 40),
    "one empty": (0, 25, 25, 40),
}
RUN = {"n": 40, "batch_size": 8, "steps": 12, "noise_multiplier": 0.8, "clip_norm": 0.5}


@pytest.fixture
def folder_with_spaces(tmp_path, monkeypatch):
    folder = tmp_path / "a folder with spaces"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def problem(dtype):
    """The model, inputs and targets of these tests."""
    import torch
    from torch import nn

    generator = torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    for p in model.parameters():
        p.data = torch.randn(p.shape, generator=generator) / 2
    x = torch.randn(40, 5, generator=generator)
    x[11] = float("nan")
    return model.to(dtype), x.to(dtype), torch.randint(3, (40,), generator=generator)


# --- The same θ on one rank and on several ----------------------------------------------------------


def compared(rank, size, source, facts, dtypes, shards):
    """θ after training, for each precision, sampler and division of the records."""
    import torch

    from dpteach.run import NoisySGD
    from dpteach.training.distributed import train_distributed

    exec(source, globals())

    found = {}
    for dtype in dtypes:
        for sampling in ("poisson", "fixed-size"):
            for name, edges in shards.items():
                model, x, y = problem(getattr(torch, dtype))
                held = range(edges[rank], edges[rank + 1]) if edges else None
                rows = list(held) if edges else slice(None)
                result = train_distributed(
                    model,
                    NoisySGD(**facts, sampling=sampling),
                    x[rows],
                    y[rows],
                    learning_rate=0.2,
                    seed=3,
                    shard=held,
                )
                theta = torch.cat([p.detach().flatten() for p in result.model.parameters()])
                found[f"{dtype} {sampling} {name}"] = (theta.tolist(), result.skipped, result.steps)
    return found


@pytest.fixture(scope="module")
def three_ranks():
    return launch(compared, 3, inspect.getsource(problem), RUN, list(DTYPES), SHARDS)


@pytest.mark.theorem("prop-19-same")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sampling", ["poisson", "fixed-size"])
@pytest.mark.parametrize("shards", SHARDS)
def test_three_ranks_train_as_one_process_does(three_ranks, dtype, sampling, shards):
    model, x, y = problem(getattr(torch, dtype))
    alone = train(model, NoisySGD(**RUN, sampling=sampling), x, y, learning_rate=0.2, seed=3)
    theta = torch.cat([p.detach().flatten() for p in alone.model.parameters()])
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    found = [of_rank[f"{dtype} {sampling} {shards}"] for of_rank in three_ranks]
    assert found[0] == found[1] == found[2]  # to the bit, so that the ranks never drift apart
    assert found[0][1:] == [alone.skipped, alone.steps] and alone.skipped > 0
    assert (theta - before).norm() > 0.1
    difference = (torch.tensor(found[0][0], dtype=torch.float64) - theta.double()).abs().max()
    assert difference < DTYPES[dtype]


@pytest.fixture
def group_of_one(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_one_rank_gives_the_same_bits(group_of_one):
    model, x, y = problem(torch.float32)
    model = nn.Sequential(model, nn.Dropout(0.3))
    state, options = (
        torch.random.get_rng_state(),
        {"learning_rate": lambda t: 0.2 / (1 + t), "seed": 3},
    )
    for sampling in ("poisson", "fixed-size"):
        facts = NoisySGD(**RUN, sampling=sampling)
        ours, alone = (f(model, facts, x, y, **options).model for f in (train_distributed, train))
        assert all(
            torch.equal(a, b) for a, b in zip(ours.parameters(), alone.parameters(), strict=True)
        )
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_model_is_checked_in_train_mode_however_it_arrives(group_of_one):
    class CountedInTraining(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            if self.training:
                self.calls += 1
            return x

    model = nn.Sequential(nn.Linear(5, 3), CountedInTraining()).eval()
    with pytest.raises(ValueError, match=r"'calls' of layer '1' \(CountedInTraining\) is changed"):
        train_distributed(
            model,
            NoisySGD(**RUN),
            torch.rand(40, 5),
            torch.zeros(40).long(),
            learning_rate=0.1,
            seed=0,
        )


def test_layers_that_mix_records_are_refused(group_of_one):
    model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    with pytest.raises(ValueError, match="BatchNorm1d"):
        train_distributed(
            model, NoisySGD(**RUN), torch.zeros(40, 5), torch.zeros(40), learning_rate=0.1, seed=0
        )


@pytest.mark.theorem("prop-19-same")
@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.data())
def test_parts_are_a_partition_of_the_batch(data):
    n, size = data.draw(st.integers(1, 50)), data.draw(st.integers(1, 6))
    drawn = torch.tensor(sorted(data.draw(st.sets(st.integers(0, n - 1)))), dtype=torch.int64)
    slices = [part(drawn, rank, size) for rank in range(size)]
    assert torch.cat(slices).tolist() == drawn.tolist()
    assert max(map(len, slices)) - min(map(len, slices)) <= 1
    edges = [
        0,
        *sorted(data.draw(st.lists(st.integers(0, n), min_size=size - 1, max_size=size - 1))),
        n,
    ]
    shards = [range(a, b) for a, b in zip(edges, edges[1:], strict=False)]
    held = [part(drawn, rank, size, shard) for rank, shard in enumerate(shards)]
    pairs = [
        (i, shard)
        for shard, positions in zip(shards, held, strict=True)
        for i in positions.tolist()
    ]
    assert [i + shard.start for i, shard in pairs] == drawn.tolist()
    assert all(0 <= i < len(shard) for i, shard in pairs)


# --- The noise, disagreements, incomplete sums -------------------------------------------------------


def several_questions(rank, size, source, facts):
    """Noise of a step without gradients; what disagreeing ranks are told; a sum with records left out."""
    import torch
    import torch.nn.functional as F

    from dpteach.run import NoisySGD
    from dpteach.training.distributed import LostRank, distributed_step, train_distributed

    exec(source, globals())

    flat = torch.nn.Linear(100, 300)
    torch.nn.init.zeros_(flat.weight)
    before = flat.weight.detach().clone()
    run = NoisySGD(**(facts | {"noise_multiplier": 1.3, "clip_norm": 1.5}))
    x = torch.zeros(8, 100)
    distributed_step(
        flat,
        lambda out, _: 0 * out.sum(),
        x[: 5 * rank],
        x[: 5 * rank],
        5,
        run,
        1.0,
        torch.Generator().manual_seed(4),
    )
    answers = {"noise": ((before - flat.weight.detach()) * 8).flatten().tolist()}

    def told(key, rows=slice(None), labels=None, **changes):
        model, x, y = problem(torch.float32)
        options = {"learning_rate": 0.2, "seed": 3, "run": NoisySGD(**facts)} | changes
        try:
            train_distributed(
                model, options.pop("run"), x[rows], y[rows if labels is None else labels], **options
            )
        except ValueError as error:
            answers[key] = str(error)

    told("seed", seed=3 + rank)
    told("run", run=NoisySGD(**(facts | {"noise_multiplier": 0.8 + rank / 10})))
    told("rate", learning_rate=0.2 + rank / 10)
    told("one with a shard", shard=range(40) if rank else None)
    told("overlap", rows=slice(20 * rank, 21 + 19 * rank), shard=range(20 * rank, 21 + 19 * rank))
    told("gap", rows=slice(21 * rank, 20 + 20 * rank), shard=range(21 * rank, 20 + 20 * rank))
    told("both everything", shard=range(40))
    told("too few", rows=slice(39))
    told("targets", labels=slice(39))
    told("fewer on one", rows=slice(40 - rank))

    model, x, y = problem(torch.float32)
    theta = [p.detach().clone() for p in model.parameters()]
    try:  # a rank that leaves one record out
        distributed_step(
            model, F.cross_entropy, x[: 4 - rank], y[: 4 - rank], 8, run, 1.0, torch.Generator()
        )
    except LostRank as error:
        answers["left out"] = str(error)
    answers["untouched"] = all(
        torch.equal(a, b) for a, b in zip(theta, model.parameters(), strict=True)
    )
    return answers


@pytest.fixture(scope="module")
def two_ranks():
    return launch(several_questions, 2, inspect.getsource(problem), RUN)


@pytest.mark.theorem("prop-19-same")
def test_noise_is_added_once(two_ranks):
    assert two_ranks[0]["noise"] == two_ranks[1]["noise"]
    noise, std = np.array(two_ranks[0]["noise"]), 1.3 * 1.5
    assert stats.kstest(noise / std, "norm").pvalue > 1e-3
    low, high = np.sqrt(stats.chi2.ppf([1e-5, 1 - 1e-5], noise.size) / noise.size)
    assert low * std < noise.std() < high * std


@pytest.mark.parametrize(
    "case, message",
    [
        ("seed", "rank 1 was given"),
        ("run", "rank 1 was given"),
        ("rate", "rank 1 was given"),
        ("one with a shard", "rank 1 was given"),
        ("overlap", "positions 0 to 40 once"),
        ("gap", "positions 0 to 40 once"),
        ("both everything", "positions 0 to 40 once"),
        ("too few", "positions 0 to 40 once"),
        ("targets", "positions 0 to 40 once"),
        ("fewer on one", "positions 0 to 40 once"),
        ("left out", "8 records were drawn, but the ranks' parts hold 7"),
    ],
)
def test_disagreement_is_refused_on_every_rank(two_ranks, case, message):
    for answers in two_ranks:
        assert message in answers[case]


def test_an_incomplete_sum_leaves_theta_alone(two_ranks):
    assert two_ranks[0]["untouched"] and two_ranks[1]["untouched"]


# --- Lost ranks ---------------------------------------------------------------------------------------


def losing(rank, size, how, facts, source):
    """Two steps; in the third, rank 1 dies or falls silent. Returns what the others see, and θ at that moment."""
    import os
    import time

    import torch
    import torch.nn.functional as F

    from dpteach.run import NoisySGD
    from dpteach.training.distributed import LostRank, distributed_step

    exec(source, globals())

    model, x, y = problem(torch.float64)
    run, noise = NoisySGD(**facts), torch.Generator().manual_seed(0)
    for step in range(3):
        if rank == 1 and step == 2:
            time.sleep(0 if how == "dies" else 5)
            os._exit(9)
        before = torch.cat([p.detach().flatten() for p in model.parameters()])
        try:
            distributed_step(model, F.cross_entropy, x[:4], y[:4], 4 * size, run, 0.1, noise)
        except LostRank as error:
            after = torch.cat([p.detach().flatten() for p in model.parameters()])
            return [step, str(error), torch.equal(before, after)]


@pytest.mark.parametrize("how", ["dies", "falls silent"])
def test_a_lost_rank_stops_the_others_with_a_clear_error(folder_with_spaces, how):
    results = launch(losing, 2, how, RUN, inspect.getsource(problem), patience=3, lost=(1,))
    assert not list(folder_with_spaces.iterdir())  # nothing is left behind
    assert results[1] is None
    step, message, untouched = results[0]
    assert step == 2 and untouched
    assert "rank 0 of 2 can't get the others' sums, so no step is made" in message


def failing(rank, size):
    import time

    if rank == 1:
        raise OSError("no more disk")
    time.sleep(0.1)
    return 1


def sleeping(rank, size):
    import time

    time.sleep(600)


def test_launch_says_which_rank_failed_and_nothing_hangs():
    with pytest.raises(RuntimeError, match="(?s)rank 1 of 2 ended without a result.*no more disk"):
        launch(failing, 2)
    with pytest.raises(RuntimeError, match="(?s)rank 0 of 1 ended without a result .given 3 s"):
        launch(sleeping, 1, timeout=3)


def test_a_worker_may_be_nested_print_much_and_take_what_json_holds():
    def chatty(rank, size, numbers, facts):
        import sys

        print("x" * 300_000, file=sys.stderr)
        print("3\nresult of nothing", end="")
        return [numbers, facts, rank]

    given = [float("inf"), np.float64(0.5), None, "a 'quoted' {text}\n"], {"b": (1, True)}
    assert launch(chatty, 2, *given) == [
        [[float("inf"), 0.5, None, given[0][3]], {"b": [1, True]}, r] for r in (0, 1)
    ]


@pytest.mark.parametrize("wrong", [np.int64(3), {1, 2}, {(1, 2): 3}, torch.ones(2), b"bytes"])
def test_arguments_that_json_can_t_hold_are_refused_by_name(wrong):
    with pytest.raises(
        ValueError, match=r"args\[1\] = .* can't be sent as JSON: give numbers"
    ) as refused:
        launch(failing, 2, 1, wrong)
    assert "\n" not in str(refused.value)


def talking_until_all_have(rank, size):
    """Rank 0 waits for rank 1, which first says more than a pipe holds."""
    import sys

    import torch

    if rank == size - 1:
        print("x" * 1_000_000, file=sys.stderr, flush=True)
    torch.distributed.barrier()
    return rank


def test_much_on_stderr_holds_nobody_up():
    assert launch(talking_until_all_have, 2, timeout=30, patience=10) == [0, 1]


def one_fails_and_others_wait(rank, size):
    import sys

    import torch

    if rank == 1:
        raise OSError("no more disk")
    if rank == 2:
        print("good bye")
        sys.exit(0)
    torch.distributed.all_reduce(torch.ones(1))


def test_all_failed_ranks_are_reported_and_those_that_only_lost_a_connection_last():
    with pytest.raises(RuntimeError) as failed:
        launch(one_fails_and_others_wait, 3, patience=2)
    said = str(failed.value)
    assert "no more disk" in said and "rank 2 of 3 ended without a result" in said
    assert 0 <= said.index("rank 1 of 3 ended") < said.index("rank 0 of 3 ended")


# --- torchrun -----------------------------------------------------------------------------------------


def test_torchrun_trains_the_recorded_run(folder_with_spaces):
    """As typed in the documentation, in a folder with spaces; the result is chapter 15's, on one process."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    done = subprocess.run(
        [*command, "-m", "dpteach.training.distributed", "5"],
        cwd=folder_with_spaces,
        text=True,
        capture_output=True,
        timeout=120,
        env=os.environ | {"TMPDIR": str(folder_with_spaces)},
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    record = json.loads(RECORDS.read_text())["a-fixed-size"]
    facts = NoisySGD(**record["run"])
    alone = train_mnist(facts, learning_rate=0.25, seed=1, stop_after=5, evaluate_at=[])
    norms = [p.double().norm().item() for p in alone.model.parameters()]
    assert shown["ranks"] == 2 and shown["steps"] == 5
    np.testing.assert_allclose(shown["parameter_norms"], norms, rtol=1e-3, atol=1e-5)


def test_without_torchrun_the_command_says_how_to_start_it(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit, match="torchrun --standalone --nproc-per-node 2"):
        distributed._main()
