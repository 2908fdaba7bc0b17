"""Make what the live figures need: the stored grid of exact curves, and the static figures (`make
live`).

The grid holds, for each law and each node of (σ, p, E), the exact privacy of T = ⌈E/p⌉ steps as the
middle of `TensorPower`'s bracket. Stored are logarithms of ratios to the central limit, which are
smooth, so that few nodes do:

* top = ε(1e-10) of the run / ε(1e-10) of G_mu;
* ratio at u in [0, 1]: the mu' with δ of G_mu' at ε equal to δ(ε) of the run, over mu, at ε = ε0 +
u(ε(1e-10) - ε0),
  where ε0 = max(0, mu(mu/2 - 3)).

book/_static/live/maths.js interpolates by the polynomials through Chebyshev's nodes;
tests/test_live.py measures the error off the nodes against fresh brackets.
"""

import json
import math
import sys
from itertools import product
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.patches import Circle
from scipy.optimize import brentq
from scipy.stats import norm

sys.path.insert(0, str(Path(__file__).resolve().parent))
from frame import ROOT

from dpteach.bounds import lemma3_bound, lemma3_leading, lemma3_region
from dpteach.classroom.figures import COLORS, figure
from dpteach.correlated import inverse_coefficients, prefix_root, sensitivity
from dpteach.guarantees import GaussianGuarantee, f_epsilon_delta, gaussian_tradeoff
from dpteach.hidden import hidden_mu
from dpteach.laws import GaussianLaw, PoissonLaw, SubsampledLaw, gaussian_delta
from dpteach.limits import clt_guarantee
from dpteach.moments import MomentsGuarantee, log_e2_integer
from dpteach.run import NoisySGD
from dpteach.tensor_power import TensorPower

LIVE = ROOT / "book" / "_static" / "live"
LEAST_DELTA = 1e-10
RANGES = {"sigma": (0.7, 4.0), "p": (1e-3, 0.1), "epochs": (1.0, 100.0)}
NODES = {"sigma": 7, "p": 6, "epochs": 6, "u": 9}
SCALE = 1e5  # stored as whole numbers
# From which p²T on: relative error of ε that the figure states, above all that 170 random points
# off the nodes showed (0.008, 0.018, 0.098); tests/test_live.py measures again.
ERROR = ((0.1, 0.01), (0.04, 0.03), (0.0, 0.15))


def laws(name, p, sigma):
    """The law of one step under each convention: 'remove' decides under add/remove for every ε ≥ 0
    on the grid."""
    return SubsampledLaw(p, sigma) if name == "fixed" else PoissonLaw(p, sigma, "remove")


def chebyshev(low, high, count):
    """Chebyshev's points of the second kind in the logarithm, ends included."""
    x = np.cos(np.pi * np.arange(count)[::-1] / (count - 1))
    return np.exp((math.log(low) + math.log(high)) / 2 + (math.log(high) - math.log(low)) / 2 * x)


def matching_mu(mu, epsilon, delta):
    """The mu' at which δ of G_mu' at ε is the given δ."""
    def excess(m):
        return math.log(max(float(gaussian_delta(m, epsilon)), 1e-300)) - math.log(delta)

    return brentq(excess, mu / 30, mu * 30, xtol=1e-9)


def point(task):
    """Logarithms of [top, ratio at each u], times SCALE, at one node."""
    name, sigma, p, epochs = task
    law, steps = laws(name, p, sigma), math.ceil(epochs / p * (1 - 1e-12))
    mu = clt_guarantee(law, steps).mu
    run = TensorPower(laws=(law,), steps=steps)
    top = (run.lower.epsilon(LEAST_DELTA) + run.upper.epsilon(LEAST_DELTA)) / 2
    first = max(0.0, mu * (mu / 2 - 3))
    u = (1 - np.cos(np.pi * np.arange(NODES["u"]) / (NODES["u"] - 1))) / 2
    found = [top / GaussianGuarantee(mu=mu).epsilon(LEAST_DELTA)]
    for epsilon in first + u * (top - first):
        delta = (run.lower.delta(epsilon) + run.upper.delta(epsilon)) / 2
        found.append(matching_mu(mu, epsilon, delta) / mu)
    return [round(SCALE * math.log(x)) for x in found]


def grid(pool):
    """The whole table: nested as law, σ, p, E."""
    axes = [chebyshev(*RANGES[name], NODES[name]) for name in ("sigma", "p", "epochs")]
    tables = {}
    for name in ("fixed", "poisson"):
        tasks = [(name, *map(float, node)) for node in product(*axes)]
        tables[name] = [x for found in pool.imap(point, tasks, chunksize=4) for x in found]
    return tables


def cloud():
    """Twenty gradients with a common direction and a heavy tail, and forty standard normal
    pairs."""
    rng = np.random.default_rng(7)
    lengths = rng.lognormal(0.0, 0.7, 20)
    angles = 0.6 + 0.9 * rng.standard_normal(20)
    gradients = np.column_stack([lengths * np.cos(angles), lengths * np.sin(angles)])
    return gradients.round(2).tolist(), rng.standard_normal((40, 2)).round(3).tolist()


def write_grid(tables):
    gradients, noise = cloud()
    stored = {"ranges": RANGES, "nodes": NODES, "scale": SCALE, "leastDelta": LEAST_DELTA,
              "error": ERROR,
              "cloud": gradients, "noise": noise, "values": tables}
    (LIVE
     / "grid.js").write_text(f"window.dpteachGrid = {json.dumps(stored, separators=(',', ':'))};\n",
                             "utf-8")


def save(fig, name):
    with rc_context({"svg.fonttype": "none"}):
        fig.savefig(LIVE / f"{name}.svg", metadata={"Date": None})


def draw_tradeoff():
    """Run A with replace-one neighbours: limit, exact curve, and the lines of (ε, δ) with the exact
    ε."""
    run = TensorPower(laws=(SubsampledLaw(256 / 60000, 1.3),), steps=3516)
    limit, delta = clt_guarantee(run.laws[0], run.steps), 1e-5
    fig, (plane, profile) = figure(["type I error α", "ε"], ["type II error β", "δ"], columns=2)
    alpha = np.concatenate([[0.0], np.geomspace(1e-6, 0.5, 200), 1 - np.geomspace(0.5, 1e-6, 200),
                            [1.0]])
    plane.plot(alpha, limit.f(alpha), label="limit G_μ")
    exact = (run.lower.f(alpha) + run.upper.f(alpha)) / 2
    plane.plot(alpha, exact, color="black", linestyle="-", linewidth=1.2,
               label="tensor power")
    plane.plot(alpha, f_epsilon_delta(run.epsilon(delta), delta, alpha), label="lines of (ε, δ)")
    plane.plot([0, 1], [1, 0], color="gray", linewidth=0.8, linestyle=":")
    epsilon = np.linspace(0, 1.7, 60)
    profile.semilogy(epsilon, [limit.delta(e) for e in epsilon], label="limit G_μ")
    exact = [(run.lower.delta(e) + run.upper.delta(e)) / 2 for e in epsilon]
    profile.semilogy(epsilon, exact, color="black", linestyle="-", linewidth=1.2,
                     label="tensor power")
    profile.axhline(delta, color="gray", linewidth=0.8, linestyle=":")
    plane.legend(), profile.legend()
    save(fig, "tradeoff")


def draw_loss():
    """The Gaussian mechanism with σ = 1: density of the loss, tail and δ, at ε = 1."""
    law = GaussianLaw(1.0)
    fig, (left, right) = figure(["privacy loss L", "ε"], ["density under P", "probability"],
                                columns=2)
    loss = np.linspace(-2.6, 3.6, 300)
    left.plot(loss, norm.pdf(loss - 0.5))
    left.fill_between(loss, norm.pdf(loss - 0.5), where=loss > 1, alpha=0.2)
    epsilon = np.linspace(0, 5.25, 200)
    right.semilogy(epsilon, norm.sf(epsilon - 0.5), label="tail P(L > ε)")
    right.semilogy(epsilon, law.delta(epsilon), label="exact δ(ε)")
    right.plot(1, law.delta(1.0), "o", color=COLORS[1])
    right.set_ylim(1e-6, 1)
    right.legend()
    save(fig, "loss")


def draw_moments():
    """q = 0.01, σ = 4, T = 10000, δ = 1e-5: the run's moments with the tangent; one step's with
    Lemma 3."""
    q, sigma, steps, delta = 0.01, 4.0, 10_000, 1e-5
    epsilon, best = MomentsGuarantee(law=PoissonLaw(q, sigma), steps=steps).best(delta)
    fig, (left, right) = figure("order λ", ["T·α(λ)", "α(λ), one step"], columns=2)
    lam = np.arange(1, 2 * best + 1)
    left.plot(lam, [steps * log_e2_integer(q, sigma, int(x)) for x in lam], label="log moment")
    left.plot([0, 2 * best], [math.log(delta), math.log(delta) + 2 * best * epsilon],
              label=f"slope ε = {epsilon:.4g}")
    left.plot(best, steps * log_e2_integer(q, sigma, best), "o", color=COLORS[1])
    region = int(-(sigma**2) * math.log(q * sigma))
    lam = np.arange(1, 67)
    inside = lam[lemma3_region(q, sigma, lam)]
    right.semilogy(lam, [log_e2_integer(q, sigma, int(x)) for x in lam], label="exact")
    right.semilogy(lam, lemma3_leading(q, sigma, lam), label="Lemma 3, printed term")
    right.semilogy(inside, [lemma3_bound(q, sigma, int(x)) for x in inside],
                   label="Lemma 3, with remainder")
    right.axvspan(0, region, alpha=0.12)
    left.legend(), right.legend()
    save(fig, "moments")


def draw_clipping():
    """C = σ = 1: gradients before and after clipping; their sum, the furthest move, the noise."""
    gradients, noise = map(np.array, cloud())
    clipped = gradients / np.maximum(1, np.linalg.norm(gradients, axis=1))[:, None]
    total = clipped.sum(axis=0)
    fig, axes = figure("first coordinate", "second coordinate", columns=2)
    for before, after in zip(gradients, clipped, strict=True):
        axes[0].plot(*zip(after, before, strict=True), color="gray", linestyle=":", linewidth=1)
        axes[0].plot(*zip((0, 0), after, strict=True), color=COLORS[0], linestyle="-",
                     linewidth=1.2)
    axes[0].plot(*gradients.T, "o", markerfacecolor="none", color="gray", markersize=4)
    axes[0].add_patch(Circle((0, 0), 1, fill=False, color=COLORS[2], linestyle="-."))
    axes[1].add_patch(Circle(total, 1, alpha=0.2, color=COLORS[0]))
    axes[1].add_patch(Circle(total, 1, fill=False, color=COLORS[2], linestyle="-."))
    axes[1].plot(*(total + noise).T, "o", markerfacecolor="none", color="gray", markersize=4)
    axes[1].plot(*zip(total, total - clipped[2], strict=True), color=COLORS[1], linestyle="--")
    axes[1].plot(*total, "o", color=COLORS[0])
    for ax in axes:
        ax.set_aspect("equal", adjustable="datalim")
    save(fig, "clipping")


def draw_front():
    """Run A, add-remove: every attack's errors, and the Gaussian pair with its point at 1 %."""
    run = TensorPower(laws=NoisySGD.abadi16(rate=256 / 60000, sigma=1.3, steps=3516).laws(
        "add-remove"), steps=3516)
    fig, (plane, seen) = figure(
        ["accused of the absent (α)", "what the attacker measures (noise standard deviations)"],
        ["missed of the present (β)", "density"], columns=2)
    alpha = np.linspace(0, 1, 201) ** 2
    plane.plot(alpha, run.f(alpha))
    plane.plot([0, 1], [1, 0], color="gray", linewidth=0.8, linestyle=":")
    plane.plot(0.01, run.f(0.01), "o", color=COLORS[1])
    cut = norm.isf(0.01)
    shift = cut + norm.ppf(1 - float(run.f(0.01)))
    x = np.linspace(-3.5, 5.5, 300)
    seen.plot(x, norm.pdf(x), label="a training without you")
    seen.plot(x, norm.pdf(x - shift), label="a training with you")
    seen.fill_between(x, norm.pdf(x - shift), where=x > cut, alpha=0.2)
    seen.axvline(cut, color="gray", linewidth=0.8, linestyle=":")
    seen.legend()
    save(fig, "front")


def draw_correlated():
    """512 steps at 1-GDP, each record once: noise in the sums with 32 bands and with one."""
    fig, (sums, column) = figure(
        ["step t", "steps later"], ["noise in θ's sum (std, in C at 1-GDP)", "share of z in w"],
        columns=2)
    for bands, name in ((32, "correlated noise"), (1, "independent noise")):
        c = prefix_root(bands)
        w = inverse_coefficients(c, 512)
        spread = sensitivity(c, 512, 1, 1) * np.sqrt(np.cumsum(np.cumsum(w) ** 2))
        sums.plot(np.arange(1, 513)[::8], spread[::8], label=name)
    column.plot(inverse_coefficients(prefix_root(32), 40), "o-", markersize=3)
    sums.legend()
    save(fig, "correlated")


def draw_hidden():
    """c = 0.98, one step 0.1-GDP, 400 steps: the last iterate, and all of them."""
    fig, (growth, errors) = figure(["steps T", "type I error α"], ["μ", "type II error β"],
                                   columns=2)
    steps = np.arange(1, 401, 7)
    last = [hidden_mu(0.1, 0.98, int(t)) for t in steps]
    growth.plot(steps, last, label="the last iterate alone")
    growth.plot(steps, 0.1 * np.sqrt(steps), label="all iterates")
    alpha = np.linspace(0, 1, 80) ** 2
    for mu in (last[-1], 2.0):
        errors.plot(alpha, gaussian_tradeoff(mu, alpha))
    errors.plot([0, 1], [1, 0], color="gray", linewidth=0.8, linestyle=":")
    growth.legend()
    save(fig, "hidden")


def main():
    LIVE.mkdir(exist_ok=True)
    for draw in (draw_front, draw_tradeoff, draw_loss, draw_moments, draw_clipping,
                 draw_correlated, draw_hidden):
        draw()
    with Pool() as pool:
        write_grid(grid(pool))


if __name__ == "__main__":
    main()
