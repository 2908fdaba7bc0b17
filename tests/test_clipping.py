"""Clipped sums: a plain loop written here is the reference; the engines must agree with it and
respect the bound.
"""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import prune
from torch.utils._python_dispatch import TorchDispatchMode

from dpteach.training.clipping import check_model, clipped_sum, trainable
from dpteach.training.mnist import tutorial_cnn

FAST = ("vmap", "fast")
ALL = ("naive", "vmap", "fast")


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def reference(model, loss, x, y, clip_norm):
    """Σ clip(∇ℓ_i) from PyTorch's ordinary `.backward()`, one record at a time, in float64 on the
    flat vector.
    """
    model = copy.deepcopy(model)
    parameters = list(trainable(model).values())
    rows = []
    for i in range(len(x)):
        for p in parameters:
            p.grad = None
        loss(model(x[i : i + 1]), y[i : i + 1]).sum().backward()
        rows.append(
            torch.cat(
                [
                    torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten()
                    for p in parameters
                ]
            )
        )
    rows = torch.stack(rows).double()
    return (rows * (clip_norm / rows.norm(dim=1)).clamp(max=1)[:, None]).sum(0), rows.norm(dim=1)


def flat(result):
    return torch.cat([g.flatten() for g in result.gradients]).double()


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


class Scaled(nn.Module):
    """A layer with its own parameters and a child, as users write them."""

    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, width))
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return self.inner(x) * self.scale


class Twice(nn.Module):
    """One layer used twice: its two contributions belong to the same parameter."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


def tied():
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    model[2].weight = model[0].weight
    return model


def frozen():
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 5)
    )
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


def image(n=6, channels=2, size=8):
    return torch.rand(n, channels, size, size, generator=rng(5)) + 0.1


MODELS = {
    "tutorial": (lambda: tutorial_cnn(rng(1)), torch.rand(9, 1, 28, 28, generator=rng(2))),
    "strided": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(84, 5),
        ),
        image(),
    ),
    "uneven": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3, stride=4, bias=False), nn.Flatten(), nn.Linear(12, 5)
        ),
        image(),
    ),
    "same": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding="same"), nn.Flatten(), nn.Linear(192, 5)),
        image(),
    ),
    "dilated, grouped": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 2, dilation=2),
            nn.Conv2d(4, 4, 3, groups=2),
            nn.Flatten(),
            nn.Linear(64, 5),
        ),
        image(),
    ),
    "circular": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(256, 5)
        ),
        image(),
    ),
    "in place": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3),
            nn.ReLU(inplace=True),
            nn.Conv2d(4, 4, 3),
            nn.ReLU(inplace=True),
            nn.Flatten(),
        ),
        image(),
    ),
    "group norm": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3),
            nn.GroupNorm(2, 4),
            nn.ReLU(),
            nn.Flatten(),
            nn.LayerNorm(144),
            nn.Linear(144, 5),
        ),
        image(),
    ),
    "conv1d": (
        lambda: nn.Sequential(nn.Conv1d(3, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(24, 5)),
        torch.rand(6, 3, 7, generator=rng(3)),
    ),
    "positions": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Flatten(), nn.Linear(28, 5)),
        torch.rand(6, 7, 3, generator=rng(3)),
    ),
    "few positions, wide": (
        lambda: nn.Sequential(nn.Linear(40, 50), nn.Tanh(), nn.Linear(50, 5), nn.Flatten()),
        torch.rand(6, 2, 40, generator=rng(3)),
    ),
    "conv, few positions": (
        lambda: nn.Sequential(nn.Conv2d(30, 40, 3, bias=False), nn.Flatten(), nn.Linear(160, 5)),
        torch.rand(6, 30, 4, 4, generator=rng(3)),
    ),
    "own parameter": (
        lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.PReLU(), nn.Linear(4, 5)),
        torch.rand(6, 6, generator=rng(3)),
    ),
    "nested": (
        lambda: nn.Sequential(Scaled(6), nn.Tanh(), nn.Linear(6, 5)),
        torch.rand(6, 6, generator=rng(3)),
    ),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(28, 5)),
        torch.randint(9, (6, 7), generator=rng(3)),
    ),
    "twice": (Twice, torch.rand(6, 6, generator=rng(3))),
    "tied": (tied, torch.rand(6, 6, generator=rng(3))),
    "frozen": (frozen, image()),
}


def build(name, dtype=torch.float64):
    make, x = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = make()
    y = torch.arange(len(x)) % 3
    return model.to(dtype), x.to(dtype) if x.is_floating_point() else x, y


@pytest.mark.theorem("lem-14-dense", "lem-14-own")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("engine", ALL)
def test_clipped_sum_equals_the_plain_loop(name, engine):
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        model, x, y = build(name, dtype)
        _, norms = reference(model, F.cross_entropy, x, y, 1.0)
        for clip_norm in (norms.median().item(), 1e-3, 1e6):  # some clipped, all, none
            expected, _ = reference(model, F.cross_entropy, x, y, clip_norm)
            result = clipped_sum(model, F.cross_entropy, x, y, clip_norm, engine=engine)
            assert relative(flat(result), expected) < tolerance, (name, engine, dtype, clip_norm)
            assert relative(result.norms.double(), norms) < tolerance
            assert [g.shape for g in result.gradients] == [
                p.shape for p in trainable(model).values()
            ]


@pytest.mark.parametrize("engine", ALL)
def test_a_records_loss_is_its_own_whatever_the_reduction(engine):
    model, x, y = build("tutorial")
    expected, _ = reference(model, F.cross_entropy, x, y, 0.5)
    losses = [
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(reduction="none"),
        lambda out, target: -out.log_softmax(1).gather(1, target[:, None]).mean(),
    ]
    for loss in losses:
        assert relative(flat(clipped_sum(model, loss, x, y, 0.5, engine=engine)), expected) < 1e-10


@pytest.mark.parametrize("engine", ALL)
def test_regression_and_microbatches(engine):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    x, y = (
        torch.randn(11, 4, generator=rng()).double(),
        torch.randn(11, 2, generator=rng(1)).double(),
    )
    expected, norms = reference(model, F.mse_loss, x, y, 0.7)
    for microbatch in (None, 1, 4, 11, 100):
        result = clipped_sum(model, F.mse_loss, x, y, 0.7, engine=engine, microbatch=microbatch)
        assert relative(flat(result), expected) < 1e-10
        assert relative(result.norms, norms) < 1e-10


def convolutions(draw):
    """Convolutions of any kernel, stride and padding with what may stand between them, for images
    (2, 9, 8).
    """
    layers, channels, sides = [], 2, [9, 8]
    for _ in range(draw(st.integers(0, 2))):
        kernel, stride, padding = (
            (draw(st.integers(low, high)), draw(st.integers(low, high)))
            for low, high in ((1, 3), (1, 2), (0, 1))
        )
        out = draw(st.sampled_from([1, 2, 4]))
        bias = draw(st.booleans())
        layers.append(nn.Conv2d(channels, out, kernel, stride=stride, padding=padding, bias=bias))
        channels = out
        sides = [
            (side + 2 * p - k) // s + 1
            for side, k, s, p in zip(sides, kernel, stride, padding, strict=True)
        ]
        between = [
            nn.ReLU(),
            nn.ReLU(inplace=True),
            nn.Tanh(),
            nn.PReLU(channels),
            nn.GroupNorm(1, channels),
            nn.LayerNorm(sides),
        ]
        layers.append(draw(st.sampled_from(between)))
        if min(sides) >= 2 and draw(st.booleans()):
            layers.append(nn.MaxPool2d(2, stride=1))
            sides = [side - 1 for side in sides]
    return layers, channels * sides[0] * sides[1]


@st.composite
def networks(draw):
    """A random network from the supported layers, and six inputs: images, rows or words."""
    seed = draw(st.integers(0, 2**31))
    torch.manual_seed(seed)
    kind = draw(st.sampled_from(["images", "rows", "words"]))
    if kind == "images":
        inputs = torch.randn(6, 2, 9, 8, generator=rng(seed)) * 3
        layers, width = convolutions(draw)
    else:
        positions, width = draw(st.integers(1, 4)), draw(st.sampled_from([3, 30]))
        inputs = torch.randn(6, positions, width, generator=rng(seed)) * 3
        layers = []
        if kind == "words":
            inputs = torch.randint(5, (6, positions), generator=rng(seed))
            layers = [nn.Embedding(5, width)]
        for _ in range(draw(st.integers(0, 2))):
            out = draw(st.sampled_from([2, 40]))
            between = [nn.Tanh(), nn.ReLU(), nn.LayerNorm(out)]
            layers += [nn.Linear(width, out), draw(st.sampled_from(between))]
            width = out
        width *= positions
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 3)), inputs


@pytest.mark.theorem("prop-14-two-ways", "prop-15-step")
@settings(deadline=None, derandomize=True, max_examples=40)
@given(drawn=networks(), log_clip=st.floats(-3, 2), engine=st.sampled_from(ALL))
def test_bounds_on_random_networks(drawn, log_clip, engine):
    """Each clipped norm ≤ C, the sum ≤ batch·C, a record added moves it by ≤ C, one replaced by ≤
    2C.
    """
    (model, x), clip_norm = drawn, 10.0**log_clip
    y = torch.tensor([0, 1, 2, 0, 1, 2])

    def total(rows):
        return flat(clipped_sum(model, F.cross_entropy, x[rows], y[rows], clip_norm, engine=engine))

    wide = x.double() if x.is_floating_point() else x
    expected, _ = reference(model.double(), F.cross_entropy, wide, y, clip_norm)
    model.float()
    assert (total(range(6)) - expected).norm() <= 2e-5 * 6 * clip_norm
    for i in range(6):
        assert total([i]).norm() <= clip_norm
    rounding = 1e-5 * clip_norm
    assert total(range(6)).norm() <= 6 * clip_norm
    assert (total(range(5)) - total(range(6))).norm() <= clip_norm + rounding
    assert (total([0, 1, 2, 3, 4]) - total([0, 1, 2, 3, 5])).norm() <= 2 * clip_norm + rounding


@pytest.mark.parametrize("engine", ALL)
def test_both_bounds_are_attained(engine):
    """A record x with gradient x: one more moves the sum by C, one replaced by 2C."""
    line = nn.Linear(1, 1, bias=False).double()

    def total(*rows):
        x = torch.tensor(rows).double()[:, None]
        return flat(clipped_sum(line, lambda out, _: out.sum(), x, x, 0.7, engine=engine))

    assert (total(5, 9) - total(5)).item() == pytest.approx(0.7, rel=1e-12)
    assert (total(5, 9) - total(5, -9)).item() == pytest.approx(1.4, rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 67])
def test_batches_of_any_length(size):
    model = build("strided")[0]
    x = torch.rand(size, 2, 8, 8, generator=rng(size)).double()
    y = torch.arange(size) % 5
    expected, norms = reference(model, F.cross_entropy, x, y, 0.9)
    result = clipped_sum(model, F.cross_entropy, x, y, 0.9)
    assert relative(flat(result), expected) < 1e-10
    assert relative(result.norms, norms) < 1e-10


@pytest.mark.parametrize("engine", ALL)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 3e38])
def test_one_bad_record_contributes_nothing(engine, bad):
    for name in ("tutorial", "positions", "group norm"):
        model, x, y = build(name, torch.float32)
        x = x.clone()
        x[2] = bad
        result = clipped_sum(model, F.cross_entropy, x, y, 1.0, engine=engine)
        assert all(g.isfinite().all() for g in result.gradients)
        if (
            result.skipped
        ):  # a huge but finite input may leave a finite gradient (ReLU, normalisation)
            assert result.skipped == 1 and not result.norms[2].isfinite()
            others = [i for i in range(len(x)) if i != 2]
            expected, _ = reference(model, F.cross_entropy, x[others], y[others], 1.0)
            assert relative(flat(result), expected) < 1e-5
        else:
            assert bad == 3e38


@pytest.mark.parametrize("engine", ALL)
def test_a_record_with_zero_gradient(engine):
    model = nn.Sequential(nn.Linear(3, 2, bias=False)).double()
    x = torch.tensor([[0.0, 0, 0], [1, 2, 3]]).double()
    result = clipped_sum(model, lambda out, _: out.sum(), x, torch.zeros(2), 1.0, engine=engine)
    assert result.norms[0] == 0 and result.skipped == 0
    assert abs(flat(result).norm() - 1) < 1e-12


@pytest.mark.parametrize("engine", ALL)
def test_empty_batch(engine):
    model, x, y = build("tutorial")
    result = clipped_sum(model, F.cross_entropy, x[:0], y[:0], 1.0, engine=engine)
    assert flat(result).abs().sum() == 0 and result.norms.shape == (0,) and result.skipped == 0
    assert [g.shape for g in result.gradients] == [p.shape for p in model.parameters()]


@pytest.mark.parametrize("engine", ALL)
def test_a_parameter_that_the_loss_doesn_t_reach(engine):
    class Partly(nn.Sequential):
        def forward(self, x):
            return self[0](x)

    model = Partly(nn.Linear(6, 5), nn.Linear(2, 2)).double()
    x, y = build("twice")[1:]
    result = clipped_sum(model, F.cross_entropy, x, y, 0.5, engine=engine)
    expected, _ = reference(model, F.cross_entropy, x, y, 0.5)
    assert relative(flat(result), expected) < 1e-10


@pytest.mark.parametrize("engine", ALL)
def test_an_infinite_gradient_without_nan_contributes_nothing(engine):
    """0 · inf is NaN, so a factor of 0 wouldn't do."""
    line = nn.Linear(2, 1, bias=False)
    x = torch.tensor([[1.0, 0.0], [float("inf"), 1.0], [0.0, 1.0]])
    result = clipped_sum(line, lambda out, _: out.sum(), x, x, 2.0, engine=engine)
    assert result.gradients[0].tolist() == [[1.0, 1.0]]
    assert result.skipped == 1 and result.norms.tolist() == [1.0, float("inf"), 1.0]


class Largest(TorchDispatchMode):
    """The size of the largest tensor that any operation returned."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return out


@pytest.mark.theorem("thm-14-conv")
def test_no_gradient_of_a_record_is_formed_where_its_norm_is_cheaper():
    dense = nn.Sequential(nn.Linear(200, 300), nn.Tanh(), nn.Linear(300, 5))
    convolution = nn.Sequential(nn.Conv2d(60, 70, 3), nn.Flatten(), nn.Linear(280, 5))
    for model, x in ((dense, torch.rand(40, 200)), (convolution, torch.rand(40, 60, 4, 4))):
        for engine, formed in (("vmap", True), ("fast", False)):
            with Largest() as largest:
                clipped_sum(model, F.cross_entropy, x, torch.arange(40) % 5, 1.0, engine=engine)
            weight = max(p.numel() for p in model.parameters())
            assert (largest.numel >= 40 * weight) == formed
            assert formed or largest.numel <= 3 * weight


def test_model_is_left_as_it_was():
    for engine in ALL:
        model, x, y = build("frozen")
        before = {name: (p.clone(), p.requires_grad) for name, p in model.named_parameters()}
        clipped_sum(model, F.cross_entropy, x, y, 1.0, engine=engine)
        for name, p in model.named_parameters():
            assert (
                torch.equal(p, before[name][0])
                and p.requires_grad == before[name][1]
                and p.grad is None
            )
        assert not any(module._forward_hooks for module in model.modules())


def test_model_is_left_as_it_was_after_an_error():
    model, x, _ = build("tutorial")
    with pytest.raises(ValueError, match="targets holds a class number"):
        clipped_sum(model, F.cross_entropy, x, torch.full((len(x),), 99), 1.0)
    assert all(p.requires_grad for p in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_in_place_change_of_a_layers_input_is_refused():
    class Bad(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 5)

        def forward(self, x):
            h = torch.tanh(self.first(x))
            out = self.second(h)
            h.mul_(2)
            return out

    _, x, y = build("twice")
    with pytest.raises(ValueError, match=r"input of layer 'second' is changed in place"):
        clipped_sum(Bad().double(), F.cross_entropy, x, y, 1.0)


@pytest.mark.parametrize(
    "layer, name",
    [
        (nn.BatchNorm1d(4), "BatchNorm1d"),
        (nn.SyncBatchNorm(4), "SyncBatchNorm"),
    ],
)
def test_batch_norm_is_refused_by_name(layer, name):
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), layer))
    with pytest.raises(
        ValueError, match=rf"layer '1.1' \({name}\) mixes the records.*GroupNorm or LayerNorm"
    ):
        check_model(model)


def test_instance_norm_with_running_statistics_is_refused_by_name():
    model = nn.Sequential(nn.Linear(3, 4), nn.InstanceNorm1d(4, track_running_stats=True))
    with pytest.raises(ValueError, match=r"layer '1' \(InstanceNorm1d\) keeps running statistics"):
        check_model(model)
    check_model(model.eval())


def test_lazy_parameters_are_refused_until_the_model_has_run_once():
    model = nn.Sequential(nn.LazyLinear(4))
    with pytest.raises(
        ValueError, match="parameter '0.weight' isn't initialised yet: run the model once"
    ):
        check_model(model)
    model(torch.zeros(1, 3))
    check_model(model)


def test_good_models_pass_and_a_frozen_one_doesn_t():
    for name in MODELS:
        check_model(build(name)[0])
    with pytest.raises(ValueError, match="nothing to train"):
        check_model(nn.Linear(2, 2).requires_grad_(False))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"clip_norm": 0.0}, r"clip_norm = 0.0 isn't allowed"),
        ({"clip_norm": float("nan")}, r"clip_norm = nan"),
        ({"clip_norm": float("inf")}, r"clip_norm = inf"),
        ({"clip_norm": 1e-300, "model": tutorial_cnn(rng())}, r"clip_norm = 1e-300 .*must hold"),
        ({"clip_norm": 1e-13, "model": tutorial_cnn(rng())}, r"clip_norm = 1e-13 .*must hold"),
        ({"clip_norm": 1e305}, r"clip_norm = 1e\+305"),
        ({"loss": None}, r"loss = None isn't allowed"),
        ({"model": 3}, r"model = 3 isn't allowed"),
        ({"inputs": [1, 2]}, r"inputs = \[1, 2\] isn't allowed"),
        ({"inputs": torch.tensor(1.0)}, r"inputs has shape \(\)"),
        ({"engine": "ghost"}, r"engine = 'ghost'.*'naive', 'vmap', 'fast'"),
        ({"microbatch": 0}, r"microbatch = 0"),
        (
            {"targets": torch.zeros(3).long()},
            r"inputs has shape \(9, 1, 28, 28\) and targets \(3,\)",
        ),
    ],
)
def test_bad_arguments(change, message):
    model, x, y = build("tutorial")
    arguments = {
        "model": model,
        "loss": F.cross_entropy,
        "inputs": x,
        "targets": y,
        "clip_norm": 1.0,
    } | change
    with pytest.raises(ValueError, match=message):
        clipped_sum(**arguments)


# --- What isn't a plain chain of layers: it agrees with the loop -----------------------------------


class Functional(nn.Module):
    """Uses its sub-modules' parameters without calling them, as `use` says."""

    def __init__(self, use):
        super().__init__()
        self.a, self.b, self.use = nn.Linear(6, 6), nn.Linear(6, 6), use
        self.listed = nn.ParameterList([torch.full((6,), 0.5)])

    def forward(self, x):
        return self.b(torch.tanh(self.use(self, self.a(x))))


def reparametrized(change):
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    change(model[0])
    return model


OUTSIDE = {
    "weight_norm": lambda: reparametrized(torch.nn.utils.weight_norm),
    "spectral_norm": lambda: reparametrized(torch.nn.utils.spectral_norm).eval(),
    "parametrization": lambda: reparametrized(torch.nn.utils.parametrizations.weight_norm),
    "prune": lambda: reparametrized(
        lambda layer: prune.l1_unstructured(layer, "weight", amount=0.3)
    ),
    "tied": lambda: Functional(lambda m, h: F.linear(h, m.a.weight)),
    "transposed": lambda: Functional(lambda m, h: h @ m.a.weight.T),
    "not yet called": lambda: Functional(lambda m, h: F.linear(h, m.b.weight, m.b.bias)),
    "in a list": lambda: Functional(lambda m, h: torch.stack([h, h * m.listed[0]]).sum(0)),
}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:There is a performance drop")
@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_parameter_used_outside_its_layer_counts(name, engine):
    torch.manual_seed(0)
    model, (_, x, y) = OUTSIDE[name]().double(), build("twice")
    expected = flat(clipped_sum(model, F.cross_entropy, x, y, 0.5, engine="naive"))
    before = [dict(vars(module)) for module in model.modules()]
    for _ in range(2):  # what the first call found out serves the second
        assert (
            relative(flat(clipped_sum(model, F.cross_entropy, x, y, 0.5, engine=engine)), expected)
            < 1e-10
        )
    assert all(a.keys() == vars(m).keys() for a, m in zip(before, model.modules(), strict=True))
    assert model(x).isfinite().all()  # nothing of the map is left in the model


@pytest.mark.parametrize("engine", FAST)
def test_a_loss_that_reads_a_parameter_counts(engine):
    model, x, y = build("twice")
    loss = lambda out, t: F.cross_entropy(out, t) + model.layer.weight.square().sum()  # noqa: E731
    expected = flat(clipped_sum(model, loss, x, y, 0.5, engine="naive"))
    assert relative(flat(clipped_sum(model, loss, x, y, 0.5, engine=engine)), expected) < 1e-10


class Backbone(nn.Module):
    """A layer below that the model itself keeps out of the gradient; its values may be read."""

    def __init__(self):
        super().__init__()
        self.below, self.head = nn.Linear(6, 6), nn.Linear(6, 5)

    def forward(self, x):
        with torch.no_grad():
            h = self.below(x)
        return self.head(h * self.below.weight.detach().sum() + torch.zeros_like(self.below.bias))


class Shared(nn.Module):
    """A layer and its child hold one and the same parameter."""

    def __init__(self):
        super().__init__()
        self.child = nn.Linear(6, 6)
        self.scale = self.child.bias

    def forward(self, x):
        return self.child(x * self.scale) * self.scale


def hooked(make, before=None, after=None):
    model = nn.Sequential(make(), nn.Tanh(), nn.Linear(6, 5))
    if before:
        model[0].register_forward_pre_hook(before)
    if after:
        model[0].register_forward_hook(after)
    return model


def patched(make):
    model = nn.Sequential(make(), nn.Tanh(), nn.Linear(6, 5))
    forward = model[0].forward
    model[0].forward = lambda x: 3 * forward(x)
    return model


def dense():
    return nn.Linear(6, 6)


def normed():
    return nn.LayerNorm(6)


UNUSUAL = {
    "no_grad": Backbone,
    "shared with a child": lambda: nn.Sequential(Shared(), nn.Linear(6, 5)),
    **{
        f"{kind}, {make.__name__}": builder
        for make in (dense, normed)
        for kind, builder in {
            "hook": partial(hooked, make, after=lambda m, i, o: 3 * o),
            "pre-hook": partial(hooked, make, before=lambda m, i: (3 * i[0],)),
            "patched": partial(patched, make),
        }.items()
    },
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_hooks_patches_and_no_grad_agree_with_the_plain_loop(name):
    torch.manual_seed(0)
    model, (_, x, y) = UNUSUAL[name]().double(), build("twice")
    expected = flat(clipped_sum(model, F.cross_entropy, x, y, 0.5, engine="naive"))
    for engine in FAST:
        assert (
            relative(flat(clipped_sum(model, F.cross_entropy, x, y, 0.5, engine=engine)), expected)
            < 1e-10
        ), engine


class Viewing(nn.Module):
    """Flattens with `view`, before or behind a convolution."""

    def __init__(self, convolve):
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 3, 3) if convolve else nn.Dropout(0), nn.LazyLinear(5)

    def forward(self, x):
        h = torch.relu(self.first(x))
        return self.last(h.view(len(x), -1))


@pytest.mark.parametrize("convolve", [True, False])
def test_a_model_that_views_images_works(convolve):
    model, x, y = Viewing(convolve), image(), torch.arange(6) % 3
    model(x)
    model.double()
    expected, _ = reference(model, F.cross_entropy, x.double(), y, 0.5)
    for engine in ALL:
        result = clipped_sum(model, F.cross_entropy, x.double(), y, 0.5, engine=engine)
        assert relative(flat(result), expected) < 1e-10, engine


def test_a_parameter_used_outside_counts_also_after_a_view_has_failed():
    class Scaling(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(128))

        def forward(self, x):
            return x.view(len(x), -1) * self.scale

    model, y = Scaling(), torch.arange(6)
    loss = lambda out, t: F.cross_entropy(out * model.scale, t)  # noqa: E731
    expected = flat(clipped_sum(model, loss, image(), y, 1.0, engine="naive"))
    assert relative(flat(clipped_sum(model, loss, image(), y, 1.0)), expected) < 1e-5


def test_random_numbers_below_a_layer_with_parameters_of_its_own():
    class Positioned(nn.Module):
        def __init__(self):
            super().__init__()
            self.position, self.drop, self.head = (
                nn.Parameter(torch.ones(6)),
                nn.Dropout(0.5),
                nn.Linear(6, 5),
            )

        def forward(self, x):
            return self.head(self.drop(x + self.position))

    model, (_, x, y) = nn.Sequential(Positioned()).double(), build("twice")
    for engine in FAST:
        assert flat(clipped_sum(model, F.cross_entropy, x, y, 1.0, engine=engine)).norm() <= len(x)
    expected = flat(clipped_sum(model.eval(), F.cross_entropy, x, y, 1.0, engine="naive"))
    assert relative(flat(clipped_sum(model, F.cross_entropy, x, y, 1.0)), expected) < 1e-10


class TimeFirst(nn.Module):
    """Turns (record, time, …) round, as models with batch_first=False do."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(3, 4), nn.Linear(4, 5)

    def forward(self, x):
        return self.head(self.layer(x.transpose(0, 1))).mean(0)


@pytest.mark.parametrize("times", [1, 3, 6])
def test_another_dimension_than_the_record_first_inside_the_model(times):
    model, x, y = (
        TimeFirst().double(),
        torch.rand(6, times, 3, generator=rng()).double(),
        torch.arange(6) % 5,
    )
    expected, _ = reference(model, F.cross_entropy, x, y, 0.5)
    for engine in ALL:
        assert (
            relative(flat(clipped_sum(model, F.cross_entropy, x, y, 0.5, engine=engine)), expected)
            < 1e-10
        )


def test_as_many_positions_as_records_are_no_reason_to_refuse():
    model, _, _ = build("positions")
    x, y = torch.rand(7, 7, 3, generator=rng()).double(), torch.arange(7) % 5
    expected, _ = reference(model, F.cross_entropy, x, y, 0.5)
    assert relative(flat(clipped_sum(model, F.cross_entropy, x, y, 0.5)), expected) < 1e-10
    states, model = [], nn.Sequential(nn.Dropout(0.5), model).double()
    for forward in (model, lambda x: clipped_sum(model, F.cross_entropy, x, y, 0.5)):
        torch.manual_seed(0)
        forward(x)
        states.append(torch.random.get_rng_state())
    assert torch.equal(*states)  # telling them apart draws no random numbers


@pytest.mark.parametrize("engine", ALL)
def test_frozen_models_and_batch_norm_are_refused_by_the_sum_too(engine):
    x, y = torch.rand(6, 3, generator=rng()), torch.arange(6) % 4
    for rows in (slice(0), slice(6)):
        with pytest.raises(ValueError, match="nothing to train"):
            clipped_sum(
                nn.Linear(3, 4).requires_grad_(False),
                F.cross_entropy,
                x[rows],
                y[rows],
                1.0,
                engine=engine,
            )
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    with pytest.raises(ValueError, match=r"layer '1' \(BatchNorm1d\) mixes"):
        clipped_sum(model, F.cross_entropy, x, y, 1.0, engine=engine)
    expected, _ = reference(
        model.eval(), F.cross_entropy, x, y, 0.5
    )  # in eval mode it mixes nothing
    assert (
        relative(flat(clipped_sum(model, F.cross_entropy, x, y, 0.5, engine=engine)), expected)
        < 1e-5
    )


@pytest.mark.parametrize("mode", [True, False])
def test_batch_norm_without_running_statistics_is_refused(mode):
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten()
    ).train(mode)
    with pytest.raises(ValueError, match=r"layer '1' \(BatchNorm2d\) mixes"):
        clipped_sum(model, F.cross_entropy, image(), torch.arange(6) % 3, 0.5)


def test_class_weights_that_would_cancel_are_refused_and_the_advice_works():
    model, x, y = build("twice")
    weight = torch.tensor([1.0, 10, 100, 1, 1, 1]).double()
    with pytest.raises(ValueError, match="class weights.*reduction='sum'"):
        clipped_sum(model, nn.CrossEntropyLoss(weight), x, y, 1e6)
    plain, total = (
        flat(clipped_sum(model, loss, x, y, 1e6))
        for loss in (F.cross_entropy, nn.CrossEntropyLoss(weight, reduction="sum"))
    )
    assert relative(total, plain) > 1
