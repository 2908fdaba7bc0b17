"""Training in phases: each step has its phase's noise, clipping and batch; halves are the whole."""

import pytest
import torch
from torch import nn

from dpteach.run import NoisySGD, Phases
from dpteach.training import sampling, train

X, Y = torch.rand(40, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(40, 1)


def weights(run, **options):
    torch.manual_seed(1)
    model = nn.Linear(3, 1)
    found = train(
        model, run, X, Y, learning_rate=0.1, seed=5, loss=nn.functional.mse_loss, **options
    )
    return torch.cat([p.detach().flatten() for p in found.model.parameters()]), found


def phase(steps, noise=1.0, **more):
    return NoisySGD(**{"n": 40, "batch_size": 8, "steps": steps, "noise_multiplier": noise} | more)


def test_two_halves_train_as_the_whole_to_the_bit():
    halves, whole = Phases((phase(3), phase(4))), phase(7)
    assert torch.equal(weights(halves)[0], weights(whole)[0])
    assert weights(halves)[1].steps == 7


def test_a_quiet_phase_after_a_loud_one():
    """With clipping far below the noise the moves are noise alone: their size is the phase's."""
    loud, quiet = phase(30, 1000.0, clip_norm=1e-3), phase(30, 1.0, clip_norm=1e-3)
    start = weights(phase(0))[0]
    seen = {}
    for name, run in (("loud", Phases((loud,))), ("both", Phases((loud, quiet)))):
        seen[name] = weights(run)[0]
    assert (seen["loud"] - start).norm() > 30 * (seen["both"] - seen["loud"]).norm() > 0


def test_a_phase_stops_and_goes_on(tmp_path):
    plan, path = Phases((phase(4), phase(4, 2.0))), tmp_path / "kept.pt"
    weights(plan, checkpoint=path, stop_after=6)
    assert torch.equal(weights(plan, checkpoint=path)[0], weights(plan)[0])


def test_batches_are_the_phases_own():
    plan = Phases((phase(5, batch_size=2, sampling="fixed-size"), phase(5, sampling="fixed-size")))
    generator = torch.Generator().manual_seed(2)
    sizes = [len(sampling.draw(plan, generator, t)) for t in range(10)]
    assert sizes == [2] * 5 + [8] * 5


def test_epochs_of_two_phases_are_drawn_apart():
    one = phase(5, sampling="shuffled")
    generator = torch.Generator().manual_seed(2)
    batches = [sampling.draw(Phases((one, one)), generator, t).tolist() for t in range(10)]
    assert sorted(sum(batches[:5], [])) == sorted(sum(batches[5:], [])) == list(range(40))
    assert batches[:5] != batches[5:]


def test_other_plans_are_refused():
    with pytest.raises(ValueError, match=r"run = .*Phases"):
        weights([phase(1), phase(2)])
