"""The guarantee itself: one record moves the clipped sum by at most C, whatever the model tries.

Adding or removing a record moves it by at most C, replacing one by at most 2C, up to one unit in the last
place of float32 of what the whole sum may be. A hundred models that mix the records or keep state hold
that or are refused by name; a hundred honest ones all pass.
"""

import itertools
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dpteach.training.clipping import clipped_sum

ENGINES = ("naive", "vmap", "fast")
C, RECORDS = 0.7, 6
ULP = torch.finfo(torch.float32).eps * RECORDS * C


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def flat(result):
    return torch.cat([g.flatten() for g in result.gradients]).double()


def holds(model, loss, x, y, engine):
    """Whether adding, removing and replacing records keeps to the bound."""

    def total(rows):
        torch.manual_seed(5)  # the same masks for the records in front
        picked = [t[rows] for t in x] if isinstance(x, list) else x[rows]
        return flat(clipped_sum(model, loss, picked, y[rows], C, engine=engine))

    everyone, order = total(list(range(RECORDS))), [5, 3, 0, 1, 4, 2]
    for last in (1, 3, RECORDS - 1):
        with_it, without = total(list(range(last + 1))), total(list(range(last)))
        replaced = total([*range(last), RECORDS - 1 if last < RECORDS - 1 else 0])
        assert (with_it - without).norm() <= C + ULP
        assert (with_it - replaced).norm() <= 2 * C + ULP
    assert everyone.norm() <= RECORDS * C + ULP
    assert (total(order) - total(order[:-1])).norm() <= C + ULP


# --- Each engine and each kind of layer ---------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.body, self.head = kind(8, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.body(x)[0][:, -1])


class Tied(nn.Module):
    """The table of words gives the scores, too."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 4)

    def forward(self, tokens):
        return F.linear(self.words(tokens).mean(1), self.words.weight)[:, :3]


def images(*layers):
    return lambda: nn.Sequential(*(make() for make in layers), nn.Flatten(), nn.LazyLinear(3))


def rows(*layers):
    return lambda: nn.Sequential(*(make() for make in layers), nn.Flatten(), nn.LazyLinear(3))


IMAGES, ROWS, WORDS = (
    torch.randn(RECORDS, 2, 6, 6, generator=rng(1))
    * torch.logspace(-2, 2, RECORDS).reshape(-1, 1, 1, 1),
    torch.randn(RECORDS, 5, 8, generator=rng(2)) * torch.logspace(-2, 2, RECORDS).reshape(-1, 1, 1),
    torch.randint(9, (RECORDS, 7), generator=rng(3)),
)
LABELS = torch.arange(RECORDS) % 3
LAYERS = {
    "Conv2d": (images(lambda: nn.Conv2d(2, 4, 3, padding=1), nn.ReLU), IMAGES),
    "Conv2d, groups": (images(lambda: nn.Conv2d(2, 4, 3, groups=2), nn.ReLU), IMAGES),
    "Conv2d, dilated": (images(lambda: nn.Conv2d(2, 4, 2, dilation=2)), IMAGES),
    "ConvTranspose2d": (images(lambda: nn.ConvTranspose2d(2, 3, 2)), IMAGES),
    "MaxPool2d": (images(lambda: nn.Conv2d(2, 4, 3), lambda: nn.MaxPool2d(2)), IMAGES),
    "GroupNorm": (images(lambda: nn.Conv2d(2, 4, 3), lambda: nn.GroupNorm(2, 4)), IMAGES),
    "InstanceNorm2d": (
        images(lambda: nn.Conv2d(2, 4, 3), lambda: nn.InstanceNorm2d(4, affine=True)),
        IMAGES,
    ),
    "BatchNorm2d, eval": (
        images(lambda: nn.Conv2d(2, 4, 3), lambda: nn.BatchNorm2d(4).eval()),
        IMAGES,
    ),
    "Conv1d": (rows(lambda: nn.Conv1d(5, 4, 3, stride=2), nn.Tanh), ROWS),
    "Linear": (rows(lambda: nn.Linear(8, 6), nn.GELU), ROWS),
    "Linear, wide": (
        rows(lambda: nn.Linear(8, 300), nn.Tanh, lambda: nn.Linear(300, 4)),
        ROWS[:, :1],
    ),
    "LayerNorm": (rows(lambda: nn.LayerNorm(8), lambda: nn.Linear(8, 6)), ROWS),
    "RMSNorm": (rows(lambda: nn.RMSNorm(8), lambda: nn.Linear(8, 6)), ROWS),
    "PReLU": (rows(lambda: nn.Linear(8, 6), nn.PReLU), ROWS),
    "Dropout": (rows(lambda: nn.Linear(8, 6), lambda: nn.Dropout(0.5)), ROWS),
    "Embedding": (rows(lambda: nn.Embedding(9, 4)), WORDS),
    "Embedding, padding": (rows(lambda: nn.Embedding(9, 4, padding_idx=2)), WORDS),
    "Embedding, sparse": (rows(lambda: nn.Embedding(9, 4, sparse=True)), WORDS),
    "EmbeddingBag": (lambda: nn.Sequential(nn.EmbeddingBag(9, 4), nn.Linear(4, 3)), WORDS),
    "tied": (Tied, WORDS),
    "MultiheadAttention": (Attention, ROWS),
    "TransformerEncoderLayer": (
        rows(lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)),
        ROWS,
    ),
    "LSTM": (lambda: Recurrent(nn.LSTM), ROWS),
    "GRU": (lambda: Recurrent(nn.GRU), ROWS),
    "RNN": (lambda: Recurrent(nn.RNN), ROWS),
    "LSTMCell": (lambda: nn.Sequential(Cells(), nn.Linear(5, 3)), ROWS),
}


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(8, 5)

    def forward(self, x):
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return state[0]


RECURRENT = {"LSTM", "GRU", "RNN", "LSTMCell"}
REFUSED = {(name, engine) for name in RECURRENT for engine in ("vmap", "fast")} - {("LSTM", "vmap")}
REFUSED |= {("Embedding, sparse", "vmap")}


def built(make, x, dtype=torch.float32):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = make()
        with torch.no_grad():
            model(x[:1])
    return model.to(dtype)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", LAYERS)
def test_one_record_moves_the_sum_by_at_most_c(name, engine):
    make, x = LAYERS[name]
    model = built(make, x)
    if (name, engine) in REFUSED:
        with pytest.raises(ValueError, match="use engine='naive'"):
            clipped_sum(model, F.cross_entropy, x, LABELS, C, engine=engine)
        return
    holds(model, F.cross_entropy, x, LABELS, engine)


@pytest.mark.parametrize(
    "name", sorted(LAYERS.keys() - RECURRENT - {"Dropout", "Embedding, sparse"})
)
def test_the_engines_agree_on_each_kind_of_layer(name):
    make, x = LAYERS[name]
    model, x = built(make, x, torch.float64), x.double() if x.is_floating_point() else x
    naive, *others = (clipped_sum(model, F.cross_entropy, x, LABELS, C, engine=e) for e in ENGINES)
    for other in others:
        torch.testing.assert_close(flat(other), flat(naive), rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(other.norms, naive.norms, rtol=1e-10, atol=1e-12)


# --- A hundred that mix or keep state -----------------------------------------------------------------

MIXING = {
    "centred": lambda h: h - h.mean(0),
    "scaled by the batch": lambda h: h / (h.std(0, correction=0) + 0.1),
    "rolled": lambda h: h.roll(1, 0),
    "flipped": lambda h: h.flip(0),
    "sorted": lambda h: h.sort(0).values,
    "permuted": lambda h: 0.5 * h + 0.5 * h[torch.randperm(len(h))],
    "of three records on": lambda h: h - h.mean(0) if len(h) > 2 else h,
    "the first for all": lambda h: h + h[:1],
    "summed up": lambda h: h.cumsum(0),
    "attention over records": lambda h: (h @ h.T).softmax(1) @ h,
    "softmax over records": lambda h: h.softmax(0) * h,
    "times the batch's size": lambda h: h * len(h) ** 2,
    "largest of all": lambda h: h - h.amax(0, keepdim=True),
    "routed": lambda h: h * (h.sum(1, keepdim=True) >= h.sum(1).median()),
    "sorted rows": lambda h: h[h[:, 0].argsort()],
    "normed over everything": lambda h: F.layer_norm(h, h.shape),
    "batch norm, functional": lambda h: (
        F.batch_norm(h, None, None, training=True) if len(h) > 1 else h
    ),
    "transposed": lambda h: (h.T.reshape(h.shape)) + h,
    "flattened": lambda h: F.softmax(h.flatten(), 0).reshape(h.shape),
    "einsum": lambda h: torch.einsum("ij,kj->ik", h, h) @ h,
}


class Mixing(nn.Module):
    def __init__(self, mix, place):
        super().__init__()
        self.first, self.last, self.mix, self.place = nn.Linear(8, 8), nn.Linear(8, 3), mix, place

    def forward(self, x):
        x = self.mix(x) if self.place == "before" else x
        h = torch.tanh(self.first(x))
        h = self.mix(h) if self.place == "between" else h
        out = self.last(h)
        return self.mix(out) if self.place == "behind" else out


class Keeping(nn.Module):
    """Keeps something of the records in `how`, and lets it show in what comes next."""

    def __init__(self, how):
        super().__init__()
        self.layer, self.how = nn.Linear(8, 3), how
        self.register_buffer("kept", torch.zeros(8))
        self.seen, self.named, self.last = [], {}, None

    def forward(self, x):
        x = x + self.before()
        self.keep(x.detach())
        return self.layer(x)

    def before(self):
        if self.how == "list":
            return sum(self.seen[-3:])
        if self.how == "dict":
            return self.named.get("last", 0)
        return self.kept if self.last is None else self.last

    def keep(self, x):
        if self.how == "buffer":
            self.kept += x.mean(0)
        elif self.how == "buffer, by copy_":
            self.kept.copy_(x[0])
        elif self.how == "buffer, anew":
            self.kept = x.mean(0)
        elif self.how == "attribute":
            self.last = x.mean(0)
        elif self.how == "list":
            self.seen.append(x.mean(0))
        elif self.how == "dict":
            self.named["last"] = x.mean(0)
        elif self.how == "parameter":
            with torch.no_grad():
                self.layer.weight.add_(x.mean(0))
        elif self.how == "parameter, anew":
            self.layer.weight = nn.Parameter(self.layer.weight + x.mean(0))
        elif self.how == "new buffer":
            self.register_buffer(f"kept{len(self._buffers)}", x.mean(0))
        elif self.how == "new layer":
            self.add_module(f"layer{len(self._modules)}", nn.Linear(1, 1))


HOW = ["buffer", "buffer, by copy_", "buffer, anew", "attribute", "list", "dict", "parameter", "parameter, anew",
       "new buffer", "new layer"]  # fmt: skip
LOSSES = {
    "contrastive": lambda out, y: (
        F.cross_entropy(out @ out.T, torch.arange(len(out))) + F.cross_entropy(out, y)
    ),
    "of the mean": lambda out, y: (
        (out.mean(0) - F.one_hot(y, 3).float().mean(0)).square().sum() * len(out)
    ),
    "whitened": lambda out, y: F.cross_entropy(out - out.mean(0), y),
    "ranked": lambda out, y: (out[:, 0].sort().values * torch.arange(1, len(out) + 1)).sum(),
}


def tries():
    """A name, and what makes a model and a loss that mix the records or keep state."""
    for (name, mix), place in itertools.product(MIXING.items(), ("before", "between", "behind")):
        yield f"{name}, {place}", partial(Mixing, mix, place), F.cross_entropy
    for how in HOW:
        yield f"keeps in a {how}, alone", partial(Keeping, how), F.cross_entropy
        yield f"keeps in a {how}, inside", partial(inside, how), F.cross_entropy
    for (name, loss), size in itertools.product(LOSSES.items(), (2, 4, 8)):
        yield f"loss: {name}, {size}", partial(plain, size), loss
    for name, mix in list(MIXING.items())[:10]:
        yield f"hook: {name}", partial(hooked, mix), F.cross_entropy


def plain(size):
    return nn.Sequential(nn.Linear(8, size), nn.Tanh(), nn.Linear(size, 3))


def inside(how):
    return nn.Sequential(nn.Linear(8, 8), Keeping(how))


def hooked(mix):
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    model[1].register_forward_hook(lambda module, given, out: mix(out))
    return model


FLAT = ROWS[:, 0]
TRIES = {name: (make, loss) for name, make, loss in tries()}


def test_there_are_a_hundred_tries():
    assert len(TRIES) >= 100


@pytest.mark.parametrize("engine", ENGINES)
def test_whatever_mixes_or_keeps_state_holds_the_bound_or_is_refused(engine):
    held, refused = [], []
    for name, (make, loss) in TRIES.items():
        with torch.random.fork_rng():
            torch.manual_seed(3)
            model = make()
        try:
            holds(model, loss, FLAT, LABELS, engine)
            held.append(name)
        except ValueError as error:
            assert "\n" not in str(error)
            refused.append((name, str(error)))
        except AssertionError as error:
            raise AssertionError(f"{name} with {engine}") from error
    named = {name for name, said in refused if "is changed by a forward pass" in said}
    put_back = {"attribute"} | (
        {"parameter, anew"} if engine == "vmap" else set()
    )  # nothing of it is left
    assert {
        name for name in TRIES if name.startswith("keeps") and not any(w in name for w in put_back)
    } <= named
    assert len(held) >= 60


# --- A hundred honest ones ------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Remembering(nn.Module):
    """Stores what it has seen for whoever looks, as many do; and a cache that doesn't depend on the records."""

    def __init__(self):
        super().__init__()
        self.layer, self.weights, self.ramp = nn.Linear(8, 8), None, None

    def forward(self, x):
        if self.ramp is None:
            self.ramp = torch.linspace(0, 1, x.shape[-1])
        self.weights = self.layer(x).softmax(-1)
        return x * self.weights + self.ramp


BODIES = {
    "linear": lambda: nn.Linear(8, 8),
    "mlp": lambda: nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 8)),
    "residual": lambda: Residual(nn.Linear(8, 8)),
    "layer norm": lambda: nn.LayerNorm(8),
    "dropout": lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3)),
    "remembering": Remembering,
    "frozen": lambda: nn.Linear(8, 8).requires_grad_(False),
    "batch norm in eval": lambda: nn.BatchNorm1d(8).eval(),
    "softmax": lambda: nn.Softmax(-1),
    "group norm": lambda: nn.GroupNorm(2, 8),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_hundred_honest_models_pass(engine):
    for first, second in itertools.product(BODIES, BODIES):
        with torch.random.fork_rng():
            torch.manual_seed(3)
            model = nn.Sequential(BODIES[first](), BODIES[second](), nn.Linear(8, 3))
        if engine == "vmap" and first == "group norm":  # PyTorch's own limit, and the way out
            with pytest.raises(ValueError, match="use engine='naive'"):
                clipped_sum(model, F.cross_entropy, FLAT, LABELS, C, engine=engine)
            continue
        result = clipped_sum(model, F.cross_entropy, FLAT, LABELS, C, engine=engine)
        assert result.skipped == 0 and flat(result).norm() <= RECORDS * C + ULP, (first, second)


def test_a_step_leaves_no_tensor_behind():
    """What a step noted of its layers goes with it: ten steps hold no more than one."""
    import gc

    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    x, y = torch.rand(8, 6), torch.zeros(8, dtype=torch.long)

    def tensors_after(steps):
        for _ in range(steps):
            clipped_sum(model, F.cross_entropy, x, y, 1.0)
        gc.collect()
        return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())

    one = tensors_after(1)
    assert tensors_after(10) <= one + 2
