"""Clipped sums of 27 kinds of layers and habits against a plain loop in double precision.

    python benchmarks/against_opacus.py            # the table: dpteach and Opacus
    python benchmarks/against_opacus.py --record   # kept in dpteach/classroom/data/opacus.json

The loop runs each record alone, by PyTorch's own backward pass. `right`: the clipped sum is the
loop's to 1e-3 of its length, and nothing of the records is kept in the model. `refused`: an error,
before any sum. `wrong`: anything else. dpteach's engine is 'fast'; where that refuses a model and
names another engine, the other one's result stands. Opacus: its validator, then `GradSampleModule`
and `DPOptimizer` without noise, as its documentation uses them.
"""

from __future__ import annotations

import copy
import datetime
import json
import platform
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from dpteach.training.clipping import clipped_sum

FILE = Path(__file__).resolve().parents[1] / "dpteach" / "classroom" / "data" / "opacus.json"
RECORDS, C = 6, 0.7


class Of(nn.Module):
    """A function as a layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.body = kind(8, 5, batch_first=True)

    def forward(self, x):
        return self.body(x)[0][:, -1]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        return self.body(x, x, x, need_weights=False)[0]


class OwnParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.linspace(-1, 1, 8))

    def forward(self, x):
        return x + self.position


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 8)

    def forward(self, tokens):
        return F.linear(self.words(tokens), self.words.weight)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


class RunningMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().flatten(0, -2).mean(0)
        return x


class Sloped(nn.Module):
    """Uses the slope of a layer in its forward pass."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 1)

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(torch.tanh(self.inner(x)).sum(), x, create_graph=True)[0]


class LoRA(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8).requires_grad_(False)
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)

    def forward(self, x):
        return self.body(x) + self.up(self.down(x))


def _draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


ROWS, IMAGES = _draw(RECORDS, 5, 8), _draw(RECORDS, 2, 6, 6)
WORDS = torch.randint(9, (RECORDS, 7), generator=torch.Generator().manual_seed(3))
LABELS = torch.arange(RECORDS) % 3


def _broken():
    x = ROWS.clone()
    x[2] = float("nan")
    return x


def _frozen_norm():
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4).requires_grad_(False).eval())


def _weight_normed():
    return torch.nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))


#: what it's called: (the layers under test, in front of a linear head; inputs; loss)
CASES = {
    "dense layer at several positions": (lambda: nn.Linear(8, 6), ROWS),
    "2-D convolution": (lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1), IMAGES),
    "grouped convolution": (lambda: nn.Conv2d(2, 4, 3, groups=2), IMAGES),
    "dilated convolution": (lambda: nn.Conv2d(2, 4, 2, dilation=2), IMAGES),
    "transposed convolution": (lambda: nn.ConvTranspose2d(2, 3, 2), IMAGES),
    "embedding": (lambda: nn.Embedding(9, 4), WORDS),
    "embedding with padding": (lambda: nn.Embedding(9, 4, padding_idx=2), WORDS),
    "embedding with max_norm": (lambda: nn.Embedding(9, 4, max_norm=0.5), WORDS),
    "layer normalisation": (lambda: nn.LayerNorm(8), ROWS),
    "group normalisation": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4)), IMAGES),
    "RMS normalisation": (lambda: nn.RMSNorm(8), ROWS),
    "batch normalisation": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)), IMAGES),
    "batch normalisation, frozen in eval": (_frozen_norm, IMAGES),
    "PReLU": (lambda: nn.PReLU(8), ROWS.mT.contiguous().reshape(RECORDS, 8, 5)),
    "LSTM": (lambda: Recurrent(nn.LSTM), ROWS),
    "GRU": (lambda: Recurrent(nn.GRU), ROWS),
    "multi-head attention": (Attention, ROWS),
    "a parameter of the model's own": (OwnParameter, ROWS),
    "tied weights": (Tied, WORDS),
    "a layer used twice": (Twice, ROWS),
    "weight normalisation (parametrised)": (_weight_normed, ROWS),
    "LoRA on a frozen layer": (LoRA, ROWS),
    "in-place activation": (lambda: nn.Sequential(nn.Linear(8, 6), nn.ReLU(inplace=True)), ROWS),
    "a slope inside the forward pass": (Sloped, ROWS),
    "subtracts the batch's mean": (
        lambda: nn.Sequential(nn.Linear(8, 8), Of(lambda h: h - h.mean(0))),
        ROWS,
    ),
    "keeps a running mean": (RunningMean, ROWS),
    "a record with a NaN": (lambda: nn.Linear(8, 6), _broken()),
}


def built(name):
    """The case's model with its head, and inputs."""
    make, x = CASES[name]
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        body = make()
        width = copy.deepcopy(body).eval()(x[:2]).flatten(1).shape[1]
        return nn.Sequential(body, nn.Flatten(), nn.Linear(width, 3)), x


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def loop(model, x):
    """Σ clip(v_i), each record alone, in double precision; NaN records left out."""
    model, x = copy.deepcopy(model).double(), x.double() if x.is_floating_point() else x
    total = torch.zeros(sum(p.numel() for p in trained(model)), dtype=torch.float64)
    for i in range(len(x)):
        value = F.cross_entropy(model(x[i : i + 1]), LABELS[i : i + 1])
        gradient = torch.autograd.grad(
            value, trained(model), allow_unused=True, materialize_grads=True
        )
        v = torch.cat([g.flatten() for g in gradient])
        if v.isfinite().all():
            total += v * min(1.0, C / max(v.norm().item(), 1e-300))
    return total


def by_dpteach(model, x):
    try:
        found = clipped_sum(model, F.cross_entropy, x, LABELS, C).gradients
    except ValueError as error:
        if "use engine='naive'" not in str(error):
            raise
        found = clipped_sum(model, F.cross_entropy, x, LABELS, C, engine="naive").gradients
    return torch.cat([g.flatten() for g in found]).double()


def by_opacus(model, x):
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from opacus.validators import ModuleValidator

    ModuleValidator.validate(model, strict=True)
    private = GradSampleModule(model)
    optimiser = DPOptimizer(
        torch.optim.SGD(trained(private), lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=C,
        expected_batch_size=RECORDS,
    )
    F.cross_entropy(private(x), LABELS).backward()
    optimiser.clip_and_accumulate()
    return torch.cat([p.summed_grad.flatten() for p in trained(private)]).double()


def verdict(name, run):
    """'right', 'refused' or 'wrong', and what was said or how far off it is."""
    model, x = built(name)
    before = copy.deepcopy(model.state_dict())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected, found = loop(model, x), run(model, x)
    except Exception as error:  # a refusal is any error before a sum
        return "refused", f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
    kept = [
        key
        for key, value in before.items()
        if not torch.equal(value, model.state_dict().get(key, value))
    ]
    if kept:
        return "wrong", f"{kept[0]} was changed by the records"
    if not found.isfinite().all():
        return "wrong", "not finite"
    gap = float((found - expected).norm() / max(expected.norm().item(), 1e-12))
    return ("right" if gap < 1e-3 else "wrong"), f"gap {gap:.0e}"


def rows(names=tuple(CASES)):
    """One row for each case: its name and both verdicts."""
    for name in names:
        ours, theirs = verdict(name, by_dpteach), verdict(name, by_opacus)
        yield {"case": name, "dpteach": ours[0], "opacus": theirs[0], "why": [ours[1], theirs[1]]}


def main(arguments=()):
    found = list(rows())
    for row in found:
        ours, theirs = row["why"]
        print(f"{row['case']:<40}{row['dpteach']:<9}{row['opacus']:<9}{ours:<50.50} | {theirs:.60}")
    if "--record" in arguments:
        kept = {
            "what": "clipped sums against a plain loop in double precision",
            "command": "python benchmarks/against_opacus.py --record",
            "date": datetime.date.today().isoformat(),
            "versions": {"python": platform.python_version()}
            | {p: version(p) for p in ("torch", "opacus")},
            "rows": found,
        }
        FILE.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
