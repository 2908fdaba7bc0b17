"""Chapter 11: certificates of ε, made here and proved by `dpteach.verify`. Needs python-flint.

Nothing that `certify` does has to be trusted. Points, thresholds, masses, windows and the ends of
ε are proposals: the verifier accepts them if its inequalities hold, whatever made them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flint import arb, ctx, fmpq
from scipy.special import logsumexp, ndtri

from dpteach import domain
from dpteach.run import NoisySGD, Relation
from dpteach.verify import PAIRS, line, one_step, power, profile, prove, true_profile

__all__ = ["Proof", "certify", "proofs"]

_NEGLIGIBLE = 1e-8  # the share of δ that windows may cut off
_LONGEST = 2**20  # points of a window: some seconds for each product
_TILTS = np.geomspace(1e-4, 1e6, 500)
_SAMPLING = {"add-remove": "poisson", "replace-one": "fixed-size"}  # whose pairs are known
_BATCHES = {"add-remove": "Poisson batches", "replace-one": "batches of fixed size"}


class Proof(NamedTuple):
    """What a certificate proves at one δ: low ≤ ε ≤ high, with everything that ε depends on.

    Under add-remove the pairs are the two directions, and ε is the larger of their two. Both are
    attained by data sets, so no smaller ε is true. Under replace-one ε is that of
    C_rate(G_{1/sigma})^{⊗steps}, which Theorem 5.1 guarantees for the run.

    >>> ends = {"subsampled": (Fraction(106, 100), Fraction(107, 100))}
    >>> proof = Proof("replace-one", Fraction(1, 2), Fraction(2), 2, Fraction(1, 1000), ends)
    >>> proof.refutes(1.05, as_bound="upper"), proof.refutes(1.065, as_bound="upper")
    (True, False)
    """

    relation: str
    rate: Fraction
    sigma: Fraction  # noise std / sensitivity
    steps: int
    delta: Fraction
    pairs: dict[str, tuple[Fraction, Fraction | None]]  # remove and add, or subsampled

    @property
    def low(self) -> Fraction:
        """ε is at least this."""
        return max(low for low, _ in self.pairs.values())

    @property
    def high(self) -> Fraction | None:
        """ε is at most this; None where a pair has no upper end."""
        highs = [high for _, high in self.pairs.values()]
        return None if None in highs else max(highs)  # type: ignore[type-var]

    @property
    def sentence(self) -> str:
        """ "proved: ε in [low, high]", rounded outward, and for what."""
        ends = _interval(self.low, self.high)
        where = f"{self.relation} neighbours, {_BATCHES[self.relation]} of rate {self.rate}"
        noise = f"noise {float(self.sigma):g} × sensitivity, {self.steps} steps"
        said = f"proved: ε in {ends} at δ = {float(self.delta):g} ({where}, {noise})"
        if len(self.pairs) == 1:
            return said
        return f"{said}; " + ", ".join(f"{p}: {_interval(*e)}" for p, e in self.pairs.items())

    def refutes(self, published: float, *, as_bound: str) -> bool:
        """Whether a published number is on the wrong side: an 'upper' bound on this ε that's below
        its proved low end, or a 'lower' one above its high end.

        False says nothing: the number may be right, or the certificate too wide.
        """
        domain.one_of("as_bound", as_bound, ("upper", "lower"))
        number = Fraction(repr(domain.number("published", published, "(-inf, inf)")))
        if as_bound == "upper":
            return number < self.low
        return self.high is not None and number > self.high

    def fits(self, run: Any, relation: str, delta: float) -> bool:
        """Whether this is about that run and question; numbers as the decimals they print as."""
        if not isinstance(run, NoisySGD) or run.sampling != _SAMPLING.get(relation):
            return False
        asked = (relation, *_exact(run, relation), run.steps, Fraction(repr(delta)))
        return asked == (self.relation, self.rate, self.sigma, self.steps, self.delta)


def _interval(low: Fraction, high: Fraction | None) -> str:
    """Seven decimals, rounded outward."""
    top = "inf" if high is None else f"{math.ceil(high * 10**7) / 10**7:.7f}"
    return f"[{math.floor(low * 10**7) / 10**7:.7f}, {top}]"


def _exact(run: NoisySGD, relation: Any) -> tuple[Fraction, Fraction]:
    """Rate and sigma as fractions: m/n, and the decimal that a double prints as."""
    rate = Fraction(repr(run.sampling_rate))
    if run.n is not None and run.batch_size is not None:
        rate = Fraction(run.batch_size, run.n)
    return rate, Fraction(repr(run.sigma(relation)))


def proofs(certificate: str | Path | dict[str, Any]) -> list[Proof]:
    """What a certificate proves, one entry for each δ, after proving it.

    `certificate` is a file's name, or what `certify` returns. Raises `ValueError` with the
    inequality that doesn't hold, or with what is wrong with the file.

    >>> run = NoisySGD.at_rate(0.5, steps=2, noise_multiplier=2.0)
    >>> proof, = proofs(certify(run, "add-remove", [1e-3], width=0.01))
    >>> proof.sentence.partition(";")[0]  # doctest: +ELLIPSIS
    'proved: ε in [1.12..., 1.13...] at δ = 0.001 (add-remove neighbours, ...
    """
    try:
        if isinstance(certificate, dict):
            file = certificate
        else:
            file = json.loads(Path(certificate).read_text(encoding="utf-8"))
        found = prove(file)
        return [_proof(file, delta, ends) for delta, ends in found.items()]
    except OSError as error:
        raise ValueError(f"{certificate} can't be read: {error.strerror}") from None
    except ValueError as error:
        if str(error).startswith("no proof of"):
            raise
        raise ValueError(f"it isn't a certificate: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"it isn't a certificate: {error!r}") from None


def _proof(file: dict[str, Any], delta: str, ends: dict[str, list[Any]]) -> Proof:
    pairs = {p: (Fraction(a), None if b is None else Fraction(b)) for p, (a, b) in ends.items()}
    facts = (Fraction(file["rate"]), Fraction(file["sigma"]), file["steps"], Fraction(delta))
    return Proof(file["relation"], *facts, pairs)


def certify(
    run: NoisySGD, relation: Relation, deltas: Sequence[float], *, width: float = 5e-4,
    sides: Sequence[str] = ("lower", "upper"),
) -> dict[str, Any]:  # fmt: skip
    """A certificate of ε at each δ, ready for JSON; `proofs` proves it.

    Parameters
    ----------
    run, relation : as for `account`. Numbers count as the decimals that they print as (1.3 is
        13/10), the rate as m/n where both are known.
    deltas : one or more δ, in [1e-30, 1).
    width : the widest interval of ε, for each δ and direction, in [1e-9, 1e3].
    sides : ('lower',) or ('upper',) makes one end alone, about half the width from ε.

    Raises `ValueError` for a run of 0 steps (its ε is 0), and where the width would need a lattice
    of more than a million points.

    >>> run = NoisySGD.at_rate(0.5, steps=2, noise_multiplier=2.0)
    >>> found = certify(run, "add-remove", [1e-3], width=0.1)
    >>> found["rate"], [(law["pair"], law["side"]) for law in found["laws"]][:2]
    ('1/2', [('remove', 'lower'), ('remove', 'upper')])
    """
    domain.one_of("relation", relation, tuple(_SAMPLING), "certificates are for these two")
    fits = run.sampling == _SAMPLING[relation]
    domain.require("sampling", run.sampling, fits, f"{_SAMPLING[relation]!r} under {relation}")
    domain.require("steps", run.steps, run.steps > 0, "at least 1", "without steps ε is 0")
    width = domain.number("width", width, "[1e-9, 1e3]", "it's the widest interval of ε")
    asked = [domain.delta(delta) for delta in deltas]
    domain.require("deltas", deltas, len(asked) > 0, "at least one δ")
    asked_sides = set(sides) and set(sides) <= {"lower", "upper"}
    domain.require("sides", sides, bool(asked_sides), "'lower', 'upper' or both")
    rate, sigma = _exact(run, relation)
    laws = []
    for pair in PAIRS[relation]:
        laws += _fine_laws(pair, rate, sigma, run.steps, asked, width, sides)
    exact = [str(Fraction(repr(delta))) for delta in asked]
    facts = {"relation": relation, "rate": str(rate), "sigma": str(sigma), "steps": run.steps}
    return {"format": "dpteach certificate 1", **facts, "delta": exact, "laws": laws}


class _Step(NamedTuple):
    """One step's pair, and a table of its losses that choices are made by (nothing is proved)."""

    pair: str
    rate: Fraction
    sigma: Fraction
    losses: np.ndarray  # increasing
    log_mass: np.ndarray  # under P
    log_density: np.ndarray

    def log_moments(self, theta: np.ndarray, cap: float = math.inf) -> np.ndarray:
        """log E e^{min(θL, cap)} under P; the atom at 0 has what the table's masses leave."""
        exponents = np.minimum(theta[:, None] * self.losses, cap)
        sums = logsumexp(self.log_mass + exponents, axis=1)
        atom = -math.expm1(float(logsumexp(self.log_mass))) if self.pair == "subsampled" else 0.0
        return np.logaddexp(sums, math.log(atom)) if atom > 0 else sums


def _step(pair: str, rate: Fraction, sigma: Fraction, tail: float) -> _Step:
    """8,000 outputs x, up to where either side has mass `tail`."""
    q, s = float(rate), float(sigma)
    reach = float(-ndtri(tail)) * s
    edges = np.linspace(0.5 if pair == "subsampled" else -reach, 1 + reach, 8001)

    def loss_at(x: np.ndarray) -> np.ndarray:
        rest = math.log1p(-q) if q < 1 else -math.inf
        return np.logaddexp(rest, math.log(q) + (2 * x - 1) / (2 * s**2))

    x = (edges[1:] + edges[:-1]) / 2
    base = -((x / s) ** 2) / 2 - math.log(s * math.sqrt(2 * math.pi)) + np.log(np.diff(edges))
    loss, log_slope = loss_at(x), np.log(np.maximum(np.diff(loss_at(edges)), 1e-300))
    mass = {
        "remove": base + loss,
        "add": base[::-1],
        "subsampled": np.append(base[::-1], base + loss),
    }[pair]
    z, log_slope = {
        "remove": (loss, log_slope),
        "add": (-loss[::-1], log_slope[::-1]),
        "subsampled": (np.append(-loss[::-1], loss), np.append(log_slope[::-1], log_slope)),
    }[pair]
    return _Step(pair, rate, sigma, z, mass, mass - log_slope)


def _fine_laws(
    pair: str, rate: Fraction, sigma: Fraction, steps: int, deltas: Sequence[float], width: float,
    sides: Sequence[str],
) -> list[dict[str, Any]]:  # fmt: skip
    """The laws of the sides asked for, with claims, so fine that ε's interval is narrow enough."""
    step = _step(pair, rate, sigma, 1e-3 * _NEGLIGIBLE * min(deltas) / steps)
    tilts = [(_tilt(step, steps, delta), -math.log(delta)) for delta in deltas]
    low, high = _window(step, steps, min(deltas))
    spread = math.sqrt(float(np.exp(step.log_mass) @ step.losses**2))
    halvings = math.ceil(math.log2(4 / spread))
    while True:
        h = Fraction(2) ** -halvings
        if (high - low) / h > _LONGEST:
            raise ValueError(f"width = {width} isn't allowed: the lattice would be too fine")
        units = 2 * steps * float((high - low) / h) / min(deltas)
        bits = 32 * math.ceil((math.log2(units) + 30) / 32)
        ctx.prec = bits + 128
        laws = [_best_law(step, side, h, tilts, bits) for side in ("lower", "upper")]
        gaps = [steps * (_score(laws[1], [t]) - _score(laws[0], [t])) for t in tilts]
        if max(gaps) <= 0.9 * width:  # as it seems; so make the claims, and see
            chosen = [law for law in laws if law["side"] in sides]
            for law in chosen:
                law["window"] = [str(low), str(high)]
                law["epsilon"] = _claims(law, rate, sigma, steps, deltas, width)
            if len(chosen) == 1:
                return chosen
            lows, highs = (law["epsilon"] for law in chosen)
            gaps = [float(Fraction(highs[d]) - Fraction(lows.get(d, 0))) for d in highs]
            if max(gaps) <= width:
                return chosen
        halvings += max(1, math.ceil(math.log(max(gaps) / width, 4)))


def _tilt(step: _Step, steps: int, delta: float) -> float:
    """The order of the best moment bound: δ's slope in ε, about."""
    return float(_TILTS[np.argmin((steps * step.log_moments(_TILTS) - math.log(delta)) / _TILTS)])


def _window(step: _Step, steps: int, delta: float) -> tuple[Fraction, Fraction]:
    """Losses beyond which sums of some of the steps have next to no mass (Chernoff)."""
    up, down = step.log_moments(_TILTS), step.log_moments(-_TILTS)
    ends = []
    # after T/parts steps a cut counts so often
    for parts in 2.0 ** np.arange(math.log2(steps) + 1):
        spare = math.log(_NEGLIGIBLE * delta / parts)
        ends.append([np.min((steps / parts * m - spare) / _TILTS) for m in (down, up)])
    below, above = np.max(ends, axis=0)
    unit = Fraction(2) ** (math.floor(math.log2(below + above)) - 6)
    return -math.ceil(below / unit) * unit, math.ceil(above / unit) * unit


def _best_law(
    step: _Step, side: str, h: Fraction, tilts: Sequence[tuple[float, float]], bits: int
) -> dict[str, Any]:
    """Of eight offsets the best: it matters where the losses crowd into the first cell."""
    inward = {"remove": 1, "add": -1, "subsampled": 0}[step.pair]
    if inward == 0 or step.rate == 1:
        return _law(step, side, Fraction(0), h, tilts, bits)
    edge = inward * math.log1p(-float(step.rate))
    away = inward if side == "lower" else -inward
    fine = 2 ** (60 + max(0, -math.frexp(float(h))[1]))
    offsets = [edge + away * float(h) * (eighth / 8 + 2.0**-30) for eighth in range(8)]
    if (step.pair, side) == ("remove", "lower"):  # V <= 1 - y at the first point asks for y < 1
        offsets = [o for o in offsets if o < 0] or [edge]
    laws = [_law(step, side, Fraction(round(o * fine), fine), h, tilts, bits) for o in offsets]
    return (min if side == "upper" else max)(laws, key=lambda law: _score(law, tilts))


def _score(law: dict[str, Any], tilts: Sequence[tuple[float, float]]) -> float:
    """The larger it is, the larger is the composed law's ε, about.

    At a tilt τ it's log E φ(L)/τ. φ is e^{τz} up to τz = cap and levels off beyond, so that it's a
    mean of (1 - e^{s-z})_+ over s: of two laws whose profiles are ordered the larger has the
    larger score.
    """
    z = np.array(law["points"]) * float(Fraction(law["step"])) + float(Fraction(law["offset"]))
    mass = np.array([int(m, 16) / 2 ** law["bits"] for m in law["masses"]])
    total = 0.0
    for tilt, cap in tilts:
        over = np.maximum(tilt * z - cap, 0.0)
        level = np.log1p(-tilt * np.expm1(-over / tilt))
        total += float(logsumexp(tilt * z - over + level, b=mass)) / tilt
    return total


def _law(
    step: _Step, side: str, offset: Fraction, h: Fraction, tilts: Sequence[tuple[float, float]],
    bits: int,
) -> dict[str, Any]:  # fmt: skip
    """One lattice law as it stands in the file, without its window and its claims."""
    k = _points(step, offset, h, tilts)
    z = [_rational(offset + i * h) for i in k]
    grid = _Grid(step, z, [arb(x).exp().mid() for x in z])
    masses, infinite, lines = _chords(grid, bits), _units(grid.true(-1), bits, 2), []
    if side == "lower":
        widths = np.diff([2 * k[0] - k[1], *k]) + np.diff([*k, 2 * k[-1] - k[-2]])
        heavy = int(np.argmax([m / w for m, w in zip(masses, widths.tolist(), strict=True)]))
        lines = _tangents(grid, min(max(heavy, 1), len(k) - 2))
        masses, infinite = _hull(grid, lines, bits), 0
    place = {"pair": step.pair, "side": side, "step": str(h), "offset": str(offset), "bits": bits}
    hexed = {"masses": [f"{m:x}" for m in masses], "infinite": f"{infinite:x}"}
    return place | {"points": k} | hexed | {"lines": [[kind, str(x)] for kind, x in lines]}


def _points(
    step: _Step, offset: Fraction, h: Fraction, tilts: Sequence[tuple[float, float]]
) -> list[int]:
    """Lattice indices: all of them where the losses that count lie dense, few where they don't."""
    z = step.losses
    shifted = [np.minimum(t * z, c) - step.log_moments(np.array([t]), c) for t, c in tilts]
    weight = logsumexp(np.stack(shifted), axis=0) + step.log_density
    most = min(float(weight.max()), -math.log(float(h)))  # a cell has no more than all
    gaps = np.exp(np.minimum((most - weight - math.log(30)) / 3, 40))
    widest = max(1.0, 0.5 / max(tilts)[0] / float(h))
    first, last = math.floor((z[0] - offset) / h), math.ceil((z[-1] - offset) / h)
    if step.rate < 1:
        first, last = {"remove": (0, last), "add": (first, 0)}.get(step.pair, (first, last))
    first, last = min(first, last - 3), max(last, first + 3)
    start = 0 if step.pair == "subsampled" else round((z[np.argmax(weight)] - offset) / h)
    start = min(max(start, first), last)

    def walk(end: int, sign: int) -> list[int]:
        k, found = start, []
        while k != end:
            gap = max(1.0, float(np.interp(float(offset + k * h), z, gaps)))
            gap = min(gap, max(widest, abs(k - start) / 8))
            k = sign * min(sign * k + int(gap), sign * end)
            found.append(k)
        return found

    return walk(first, -1)[::-1] + [start] + walk(last, 1)


def _rational(x: Fraction) -> fmpq:
    return fmpq(x.numerator, x.denominator)


def _double(x: fmpq) -> float:
    return int(x.p) / int(x.q)


class _Grid(NamedTuple):
    """The points of one lattice law, with the true profile and its lines there."""

    step: _Step
    z: list[fmpq]
    y: list[arb]

    def true(self, i: int) -> arb:
        step = self.step
        facts = arb(_rational(step.rate)), arb(_rational(step.sigma))
        return true_profile(step.pair, self.z[i], *facts).mid()

    def line(self, kind: str, x: Fraction, i: int) -> arb:
        step = self.step
        facts = arb(_rational(step.rate)), arb(_rational(step.sigma))
        return line(step.pair, kind, arb(_rational(x)), self.z[i], *facts).mid()


def _units(mass: arb, bits: int, slack: int) -> int:
    """A mass in units of 2^-bits, rounded down, and moved by some units; at least 0."""
    return max(0, int((mass * arb(2) ** bits).mid().floor().unique_fmpz() or 0) + slack)


def _polygon(y: list[arb], v: list[arb], bits: int, slack: int) -> list[int]:
    """Masses of the polygon through (0, 1) and (y_i, v_i), level after its last point."""
    y, v = [arb(0), *y], [arb(1), *v]
    slopes = [(v[i + 1] - v[i]) / (y[i + 1] - y[i]) for i in range(len(y) - 1)] + [arb(0)]
    return [_units(y[i] * (slopes[i] - slopes[i - 1]), bits, slack) for i in range(1, len(y))]


def _chords(grid: _Grid, bits: int) -> list[int]:
    """The upper law: its profile has the true values at the points, and two units more."""
    return _polygon(grid.y, [grid.true(i) for i in range(len(grid.y))], bits, 2)


def _tangents(grid: _Grid, heavy: int) -> list[tuple[str, Fraction]]:
    """One line below the true profile for each cell, each through the end of the one before it.

    They run from both ends to the heaviest point, since errors die out where the density rises
    in the direction of travel. What doesn't meet there, the convex hull takes away.
    """
    cells = len(grid.z) - 1
    lines = [("nothing", Fraction(0))] * cells
    value = 1 - grid.y[0]
    for i in range(heavy):
        lines[i], value = _through(grid, i, i + 1, value)
    value = arb(0)
    for i in reversed(range(heavy, cells)):
        lines[i], value = _through(grid, i + 1, i, value)
    return lines


def _through(
    grid: _Grid, near: int, far: int, value: arb
) -> tuple[tuple[str, Fraction], arb]:  # fmt: skip
    """The line with `value` at the point `near` that touches D towards `far`; its value there."""
    pair, right = grid.step.pair, max(grid.z[near], grid.z[far])
    event = pair == "remove" or pair == "subsampled" and right > 0
    kind = "event" if event else "complement"
    true, here, there = grid.true(near), *(_touching(grid, kind, i) for i in (near, far))

    def root_of_gap(x: float) -> float:  # nearly proportional to the distance from `here`
        return math.sqrt(max(0.0, float(true - grid.line(kind, _short(x), near))))

    wanted, x = math.sqrt(max(0.0, float(true - value))), there
    if (found := root_of_gap(there)) > wanted:
        for _ in range(5):
            x = here + (x - here) * (wanted / found if found > 0 else 0.5)
            found = root_of_gap(x)
    ends = [grid.line(kind, _short(x), i) for i in (near, far)]
    if ends[0] < 0 or ends[1] < 0:
        return ("nothing", Fraction(0)), arb(0)
    return (kind, _short(x)), ends[1]


def _touching(grid: _Grid, kind: str, i: int) -> float:
    """The threshold of the event whose line touches D at the point i; not below 14 sigma."""
    q, s, z = float(grid.step.rate), float(grid.step.sigma), _double(grid.z[i])
    ratio = (math.expm1(z if kind == "event" else -z) + q) / q
    lowest = 0.5 - 14 * s
    return lowest if ratio <= 0 else max(lowest, s**2 * math.log(ratio) + 0.5)


def _short(x: float) -> Fraction:
    return Fraction(round(x * 2**40), 2**40)


def _hull(grid: _Grid, lines: list[tuple[str, Fraction]], bits: int) -> list[int]:
    """The lower law: the convex hull of the lower of two lines at each point, two units less."""
    last = len(lines)
    m = [1 - grid.y[0], *(grid.line(*lines[i - 1], i) for i in range(1, last)), arb(0)]
    m = [min(m[i], grid.line(*lines[i], i)) for i in range(last)] + [arb(0)]
    y, v, kept = [arb(0)], [arb(1)], [-1]
    for i in range(last + 1):
        while len(kept) > 1 and not (m[i] - v[-1]) * (y[-1] - y[-2]) > (
            (v[-1] - v[-2]) * (grid.y[i] - y[-1])
        ):
            del y[-1], v[-1], kept[-1]
        y, v, kept = [*y, grid.y[i]], [*v, m[i]], [*kept, i]
    masses = dict(zip(kept[1:], _polygon(y[1:], v[1:], bits, -2), strict=True))
    return [masses.get(i, 0) for i in range(last + 1)]


def _claims(
    law: dict[str, Any], rate: Fraction, sigma: Fraction, steps: int, deltas: Sequence[float],
    width: float,
) -> dict[str, str]:  # fmt: skip
    """For each δ the end of ε that the law proves; nothing where a lower law sees none."""
    ctx.prec = law["bits"] + 128
    total = power(one_step(law, arb(_rational(rate)), arb(_rational(sigma))), steps, law)
    unit, upper = Fraction(10) ** (math.floor(math.log10(width)) - 4), law["side"] == "upper"
    claims = {}
    for delta in deltas:
        exact, found = Fraction(repr(delta)), _crossing(*total, law["bits"], delta)
        if not upper and found <= 0:
            continue  # ε = 0, or so near that the lower law doesn't see it
        end = (math.ceil(found / unit) if upper else math.floor(found / unit)) * unit
        bound = arb(_rational(exact)) * 2 ** law["bits"]
        for _ in range(100):  # doubles found the place; balls decide
            V = profile(*total, _rational(end))
            if (V <= bound if upper else V > bound):
                claims[str(exact)] = f"{end}"
                break
            end += unit if upper else -unit
    return claims


def _crossing(losses: list[Any], infinite: int, bits: int, delta: float) -> float:
    """The ε at which the profile is δ, by doubles: 0 where it's below δ everywhere."""
    z = np.array([_double(x) for x, _ in losses])
    mass = np.array([int(m) / 2**bits for _, m in losses])
    with np.errstate(divide="ignore"):
        above = np.cumsum(mass[::-1])[::-1] + int(infinite) / 2**bits
        log_sum = np.logaddexp.accumulate((np.log(mass) - z)[::-1])[::-1]
    below = above - np.exp(log_sum + z) <= delta
    s = int(np.argmax(below))
    return max(0.0, math.log(above[s] - delta) - float(log_sum[s])) if above[s] > delta else 0.0
