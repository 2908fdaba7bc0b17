"""Train chapter 23's softmax regressions; keep the results in
dpteach/classroom/data/correlated.json.

    python tools/record_correlated.py          # what isn't recorded yet; stop it at any moment

Softmax regression with bias on MNIST, every record's gradient clipped to 1, 15 epochs of 240
batches. `bands` of 0 are secret Poisson batches at the ε that mu has at δ = 1e-5; other bands are
fixed batches in one order, which a public seed decides, with correlated noise, exactly mu-GDP under
zero-out.
"""

import datetime
import itertools
import json
import os
from pathlib import Path

import torch

import dpteach
from dpteach.calibration import calibrate
from dpteach.correlated import CorrelatedSGD
from dpteach.guarantees import GaussianGuarantee
from dpteach.training import mnist
from dpteach.training.correlated import CorrelatedNoise

FILE = Path(dpteach.__file__).parent / "classroom" / "data" / "correlated.json"
FACTS = {"n": 60_000, "batch_size": 250, "epochs": 15}
GRID = [
    {"mu": mu, "bands": bands, "learning_rate": rate, "seed": seed}
    for mu, bands, rate, seed in itertools.product(
        (1.0, 0.3), (1, 16, 240, 0), (0.1, 0.3, 1.0), (0, 1)
    )
]


def clipped_sum(theta, x, y):
    """Sum of the records' gradients of the cross-entropy, each scaled to length 1 at most."""
    residual = torch.softmax(x @ theta, dim=1)
    residual[torch.arange(len(y)), y] -= 1
    norms = residual.norm(dim=1) * x.norm(dim=1)
    return x.T @ (residual / norms.clamp(min=1)[:, None])


def multiplier(mu, bands):
    """Noise std / clipping norm before correlation."""
    if bands:
        return CorrelatedSGD.for_mu(mu, "zero-out", bands=bands, **FACTS).noise_multiplier
    target = GaussianGuarantee(mu=mu).epsilon(1e-5)
    return calibrate(
        "sigma", "tensor-power", "add-remove", epsilon=target, delta=1e-5, **FACTS
    ).value


def train(mu, bands, learning_rate, seed, data, stop_after=3600):
    """The parameters after `stop_after` of 3600 steps."""
    x, y = data
    std = multiplier(mu, bands)
    noise = CorrelatedNoise(
        CorrelatedSGD(noise_multiplier=1.0, bands=bands or 1, **FACTS).coefficients,
        torch.Generator().manual_seed(1000 + seed),
    )
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(y), generator=draw)
    theta = torch.zeros(x.shape[1], 10)
    for step in range(stop_after):
        if bands:
            start = step % 240 * 250
            batch = order[start : start + 250]
        else:
            batch = (torch.rand(len(y), generator=draw) < 250 / len(y)).nonzero().ravel()
        total = clipped_sum(theta, x[batch], y[batch])
        theta -= learning_rate / 250 * (total + std * noise([theta])[0])
    return theta


def load():
    """Images as rows with a 1 at the end, for training and for testing."""
    data = mnist.load()
    rows = [
        torch.cat([x.reshape(len(x), -1), torch.ones(len(x), 1)], dim=1)
        for x in (data.x_train, data.x_test)
    ]
    return (rows[0], data.y_train), (rows[1], data.y_test)


def accuracy(theta, data):
    return 100 * float(((data[0] @ theta).argmax(dim=1) == data[1]).double().mean())


def main():
    torch.set_num_threads(1)
    kept = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {"runs": []}
    known = [{key: run[key] for key in GRID[0]} for run in kept["runs"]]
    training, testing = load()
    for facts in GRID:
        if facts in known:
            continue
        theta = train(data=training, stop_after=20, **facts)
        early = float(theta.norm())
        theta = train(data=training, **facts)
        kept["runs"].append(
            facts
            | {"accuracy": round(accuracy(theta, testing), 2), "norm": float(theta.norm()),
               "norm_after_20": early, "date": datetime.date.today().isoformat(),
               "torch": torch.__version__.split("+")[0]}
        )  # fmt: skip
        print(kept["runs"][-1], flush=True)
        aside = FILE.with_name(f"correlated.json.{os.getpid()}")
        aside.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
        os.replace(aside, FILE)


if __name__ == "__main__":
    main()
