"""Certificates: what they prove is true, what is altered is refused unless it's still true, and the
book's hold.

The judge of altered certificates shares no code with the verifier: profiles and lines by mpmath
with 50 digits, the T-fold law by an exact convolution without windows and without rounding.
"""

import copy
import dataclasses
import json
import math
import random
import subprocess
import sys
import time
from fractions import Fraction
from functools import cache
from pathlib import Path

import mpmath
import numpy as np
import pytest
from certificates import DELTAS, RUNS, WIDTH, path, the_run
from flint import arb, ctx, fmpq, fmpz_poly
from mpmath import mp, mpf

from dpteach import verify
from dpteach.__main__ import main
from dpteach.certificate import certify, proofs
from dpteach.guarantees import GaussianGuarantee
from dpteach.run import NoisySGD
from dpteach.tensor_power import TensorPower

ROOT = Path(__file__).resolve().parent.parent
SMALL = {
    "add-remove": NoisySGD.at_rate(0.1, steps=3, noise_multiplier=1.0),
    "replace-one": NoisySGD.at_rate(0.2, steps=3, noise_multiplier=3.0, sampling="fixed-size"),
}


@pytest.fixture(scope="module")
def small():
    return {relation: certify(run, relation, [1e-2, 1e-4], width=0.05)
            for relation, run in SMALL.items()}


# --- an independent judge


def tails(x, q, sigma):
    """P(X > x) under the mixture and under the base."""
    base, moved = mpmath.erfc(x / sigma / mp.sqrt(2)) / 2, mpmath.erfc((x - 1) / sigma
                                                                       / mp.sqrt(2)) / 2
    return (1 - q) * base + q * moved, base


def removed(y, q, sigma):
    """sup over thresholds of P(X > x) - y Q(X > x), P the mixture: at the x where its density is y
    times the base's."""
    if y <= 1 - q:
        return 1 - y
    a, b = tails(sigma**2 * mp.log((y - (1 - q)) / q) + mpf(1) / 2, q, sigma)
    return a - y * b


def true_value(pair, y, q, sigma):
    swapped = 1 - y + y * removed(1 / y, q, sigma)
    return {"remove": lambda: removed(y, q, sigma), "add": lambda: swapped,
            "subsampled": lambda: removed(y, q, sigma) if y >= 1 else swapped}[pair]()  # fmt: skip


def line_holds(pair, kind, x, y, v, q, sigma):
    a, b = tails(mpf(x.numerator) / x.denominator, q, sigma)
    if kind == "event":
        return pair != "add" and v <= a - b * y
    if kind == "complement":
        return pair != "remove" and v <= 1 - b - (1 - a) * y
    return v <= 0


def values(z, w, infinite):
    """2^S V at each point, and between."""
    return [infinite + sum((m * (1 - mp.exp(a - b)) for b, m in zip(z, w, strict=True) if b > a),
                           mpf(0)) for a in z]


def fraction(text):
    return Fraction(*map(int, text.split("/")))


def exact(x):
    return mpf(x.numerator) / x.denominator


def one_step_holds(law, q, sigma):
    """Whether the masses are in order and bound the true profile from their side."""
    unit, k, pair = mpf(2) ** law["bits"], law["points"], law["pair"]
    w, infinite = [int(m, 16) for m in law["masses"]], int(law["infinite"], 16)
    if min(*w, infinite) < 0 or sorted(set(k)) != k or len(w) != len(k):
        return False
    z = [exact(fraction(law["offset"]) + i * fraction(law["step"])) for i in k]
    y, v = [mp.exp(x) for x in z], values(z, w, infinite)
    if law["side"] == "upper":
        bounded = (a >= unit * true_value(pair, b, q, sigma) for a, b in zip(v, y, strict=True))
        return sum(w) + infinite >= unit and all(bounded)
    if sum(w) > unit or infinite or v[0] > unit * (1 - y[0]) or len(law["lines"]) != len(k) - 1:
        return False
    return all(line_holds(pair, kind, fraction(x), y[j], v[j] / unit, q, sigma)
               for i, (kind, x) in enumerate(law["lines"]) for j in (i, i + 1))  # fmt: skip


def claims_hold(law, steps):
    """The law's claims, by its whole exact power."""
    k, w, infinite = law["points"], [int(m, 16) for m in law["masses"]], int(law["infinite"], 16)
    dense = np.zeros(k[-1] - k[0] + 1, dtype=object)
    dense[[i - k[0] for i in k]] = w
    total = np.array([1], dtype=object)
    for _ in range(steps):
        total = np.convolve(total, dense)
    unit = mpf(2) ** (law["bits"] * steps)
    offset, h = fraction(law["offset"]), fraction(law["step"])
    lost = mpf((sum(w) + infinite) ** steps - sum(w) ** steps) / unit
    losses = [(exact(steps * (offset + k[0] * h) + i * h), m) for i, m in enumerate(total) if m]
    for delta, claim in law["epsilon"].items():
        e, d = exact(fraction(claim)), exact(fraction(delta))
        value = sum((m * (1 - mp.exp(e - x)) for x, m in losses if x > e), mpf(0)) / unit + lost
        if not (value <= d if law["side"] == "upper" else value > d):
            return False
    return True


@cache
def law_holds(text, rate, sigma, steps):
    law, facts = json.loads(text), (exact(fraction(rate)), exact(fraction(sigma)))
    return one_step_holds(law, *facts) and claims_hold(law, steps)


def judged(file):
    """Whether all inequalities of the file hold, its claims included."""
    facts = file["rate"], file["sigma"], file["steps"]
    return all(law_holds(json.dumps(law), *facts) for law in file["laws"])


def passes(file):
    try:
        proofs(file)
    except ValueError:
        return False
    return True


# --- what is proved is true


def mpmath_profile(pair, y, q, sigma):
    """E_P(1 - y dQ/dP)_+ by quadrature: no optimal event is used. C_p's is the larger of the two
    directions."""
    def base(x):
        return mp.npdf(x, 0, sigma)
    def mixture(x):
        return (1 - q) * base(x) + q * mp.npdf(x, 1, sigma)
    first, second = (mixture, base) if pair == "remove" else (base, mixture)
    bound = 14 * sigma + 1
    grid = [-bound, -3, -1, 0, mpf(1) / 2, 1, 2, 3, bound]
    ratio = (y if pair == "remove" else 1 / y) - 1 + q
    if ratio > 0:
        grid = sorted([*grid, min(max(sigma**2 * mp.log(ratio / q) + mpf(1) / 2, -bound), bound)])
    return mp.quad(lambda x: max(first(x) - y * second(x), 0), grid)


@pytest.mark.parametrize("q, sigma", [(0.1, 1.0), (0.004, 0.7), (0.5, 2.0)])
def test_true_profile_is_the_hockey_stick_divergence(q, sigma):
    ctx.prec = 200
    with mp.workdps(30):
        for z in (Fraction(-1, 2), Fraction(-1, 50), Fraction(0), Fraction(1, 30), Fraction(3, 2)):
            y = mp.exp(mpf(z.numerator) / z.denominator)
            by_pair = {pair: mpmath_profile(pair, y, mpf(q), mpf(sigma))
                       for pair in ("remove", "add")}
            by_pair["subsampled"] = max(by_pair.values())
            for pair, expected in by_pair.items():
                found = verify.true_profile(pair, fmpq(z.numerator, z.denominator), arb(q),
                                            arb(sigma))
                assert abs(mpf(found.mid().str(25, radius=False)) - expected) < 1e-14, (pair, z)
                kinds = ("event", "complement", "nothing")
                for x in (-1.0, 0.3, 0.5, 1.7):  # every event's line is below
                    lines = [verify.line(pair, kind, arb(x), fmpq(z.numerator, z.denominator),
                                         arb(q), arb(sigma))
                             for kind in kinds]  # fmt: skip
                    assert all(float(line.mid()) <= float(expected) + 1e-12
                               for line in lines), (pair, z, x)


@pytest.mark.parametrize("sigma, steps, delta", [(1.0, 1, 1e-5), (4.0, 7, 1e-6), (20.0, 100, 1e-9)])
def test_at_rate_1_the_answer_is_gaussian(sigma, steps, delta):
    for sampling, relation, factor in (("poisson", "add-remove", 1),
                                       ("fixed-size", "replace-one", 2)):
        run = NoisySGD.at_rate(1.0, steps=steps, noise_multiplier=sigma * factor, sampling=sampling)
        (proof,) = proofs(certify(run, relation, [delta], width=1e-2))
        exact = GaussianGuarantee(mu=math.sqrt(steps) / sigma).epsilon(delta)
        assert proof.low <= exact <= proof.high and proof.high - proof.low <= 1e-2
        assert proof.fits(run, relation, delta)


@pytest.mark.parametrize("rate, sigma, steps",
                         [(0.1, 0.5, 2), (1e-3, 1.0, 500), (0.5, 3.0, 40), (0.01, 0.3, 10)])
def test_intervals_meet_the_bracket(rate, sigma, steps):
    for sampling, relation, factor in (("poisson", "add-remove", 1),
                                       ("fixed-size", "replace-one", 2)):
        run = NoisySGD.at_rate(rate, steps=steps, noise_multiplier=sigma * factor,
                               sampling=sampling)
        for proof in proofs(certify(run, relation, [1e-4, 1e-7], width=1e-2)):
            bracket = TensorPower(laws=run.laws(relation), steps=steps)
            delta = float(proof.delta)
            assert proof.high - proof.low <= 1e-2
            assert bracket.lower.epsilon(delta) <= proof.high
            assert proof.low <= bracket.upper.epsilon(delta)


@pytest.mark.parametrize("seed", range(12))
def test_powers_are_rounded_and_cut_to_the_safe_side(seed):
    """With 16 bits and a narrow window every rounding counts; the judge is an exact convolution."""
    rng = random.Random(seed)
    steps, first = rng.randrange(2, 8), rng.randrange(-3, 2)
    w = [rng.randrange(2**12) for _ in range(4)]
    infinite = rng.randrange(300)
    window = [str(Fraction(rng.randrange(-9, 0), 4)), str(Fraction(rng.randrange(2, 16), 4))]
    law = {"offset": "-1/7", "step": "1/4", "bits": 16, "window": window}
    total, finite = np.array([1], dtype=object), sum(w)
    for _ in range(steps):
        total = np.convolve(total, np.array(w, dtype=object))
    unit, lost = 2 ** (16 * steps), (finite + infinite) ** steps - finite**steps
    z = [float(steps * Fraction(-1, 7) + Fraction(steps * first + i, 4)) for i in range(len(total))]
    ctx.prec = 200
    for side, mass in (("upper", infinite), ("lower", 0)):
        one = 1, first, fmpz_poly(w), mass
        losses, rest = verify.power(one, steps, law | {"side": side})
        for at in (-3, -1, 0, 1, 2, 5):
            parts = (max(0.0, -math.expm1(at - x)) for x in z)
            exact = sum(m / unit * part for m, part in zip(total, parts, strict=True))
            found = float(verify.profile(losses, rest, fmpq(at)).mid()) / 2**16
            if side == "upper":
                assert found >= (exact + lost / unit) * (1 - 1e-12), at
            else:
                assert found <= exact * (1 + 1e-12), at


def test_the_judge_agrees_on_what_is_whole(small):
    with mp.workdps(50):
        for file in small.values():
            assert judged(file) and passes(file)


# --- what is altered


def moved(text, by):
    return str(Fraction(text) + by)


def heavier(text, by):
    return f"{int(text, 16) + by:x}"


class Alter:
    """One kind of alteration a method: of the file or of one law, by a random amount."""

    def __init__(self, rng):
        self.rng = rng

    def by(self, most=1):
        return self.rng.choice((-1, 1)) * Fraction(most, 2 ** self.rng.randrange(1, 45))

    def mass(self, file, law):
        i, by = self.rng.randrange(len(law["masses"])), 2 ** self.rng.randrange(law["bits"] - 4)
        law["masses"][i] = heavier(law["masses"][i], self.rng.choice((-1, 1)) * by)

    def infinite(self, file, law):
        by = self.rng.choice((-1, 1)) * 2 ** self.rng.randrange(30)
        law["infinite"] = heavier(law["infinite"], by)

    def threshold(self, file, law):
        line = self.rng.choice(law["lines"] or [["", "0"]])
        line[1] = moved(line[1], self.by())

    def line(self, file, law):
        line = self.rng.choice(law["lines"] or [["", "0"]])
        line[0] = self.rng.choice([k for k in ("event", "complement", "nothing") if k != line[0]])

    def steps(self, file, law):
        file["steps"] += self.rng.choice((-1, 1, 2))

    def rate(self, file, law):
        file["rate"] = str(Fraction(file["rate"]) * (1 + self.by()))

    def sigma(self, file, law):
        file["sigma"] = str(Fraction(file["sigma"]) * (1 + self.by()))

    def offset(self, file, law):
        law["offset"] = moved(law["offset"], self.by() / 64)

    def step(self, file, law):
        law["step"] = str(Fraction(law["step"]) * (1 + self.by()))

    def point(self, file, law):
        law["points"][self.rng.randrange(len(law["points"]))] += self.rng.choice((-1, 1))

    def window(self, file, law):
        end = self.rng.randrange(2)
        inward = Fraction(self.rng.randrange(1, 60), 16) * (-1 if end else 1)
        law["window"][end] = moved(law["window"][end], inward)

    def pair(self, file, law):
        pairs = [p for p in ("remove", "add", "subsampled") if p != law["pair"]]
        law["pair"] = self.rng.choice(pairs)

    def side(self, file, law):
        law["side"] = {"lower": "upper", "upper": "lower"}[law["side"]]

    def claim(self, file, law):
        delta = self.rng.choice(list(law["epsilon"]))
        law["epsilon"][delta] = moved(law["epsilon"][delta], self.by())

    def delta(self, file, law):
        delta = self.rng.choice(list(law["epsilon"]))
        claim = law["epsilon"].pop(delta)
        law["epsilon"][str(Fraction(delta) * (1 + self.by()))] = claim
        file["delta"] = [*file["delta"], *law["epsilon"]]


KINDS = [name for name in vars(Alter) if name[0] != "_" and name != "by"]


def altered_copy(file, rng):
    """(kind, a copy of the file with one alteration)."""
    altered, kind = copy.deepcopy(file), rng.choice(KINDS)
    law = rng.choice(altered["laws"])
    getattr(Alter(rng), kind)(altered, law)
    return (kind, altered) if altered != file else altered_copy(file, rng)


@pytest.mark.parametrize("relation, count, seed", [("add-remove", 300, 1), ("replace-one", 200, 2)])
def test_500_altered_certificates(small, relation, count, seed):
    """No altered certificate passes unless the judge says that each of its inequalities holds."""
    rng, refused, true = random.Random(seed), {}, 0
    with mp.workdps(50):
        for _ in range(count):
            kind, altered = altered_copy(small[relation], rng)
            if passes(altered):
                assert judged(altered), kind
                true += 1
            else:
                refused[kind] = refused.get(kind, 0) + 1
    assert set(refused) == set(KINDS)
    assert 0 < true < count / 3 and sum(refused.values()) + true == count


def test_a_passing_alteration_is_still_true_of_its_own_run(small):
    """More noise, fewer steps, a wider claim: the same file may prove it, and then it's so."""
    for change in ({"steps": 2}, {"sigma": "101/100"}):
        altered = copy.deepcopy(small["add-remove"]) | change
        altered["laws"] = [law for law in altered["laws"] if law["side"] == "upper"]
        run = NoisySGD.at_rate(0.1, steps=altered["steps"],
                               noise_multiplier=float(Fraction(altered["sigma"])))
        bracket = TensorPower(laws=run.laws("add-remove"), steps=run.steps)
        assert passes(altered)
        for proof in proofs(altered):
            assert bracket.lower.epsilon(float(proof.delta)) <= proof.high
            assert proof.low == 0


def test_what_a_refusal_says(small):
    file = small["replace-one"]
    lower = next(i for i, law in enumerate(file["laws"]) if law["side"] == "lower")

    def refusal(change):
        altered = copy.deepcopy(file)
        change(altered, altered["laws"][lower], altered["laws"][1 - lower])
        with pytest.raises(ValueError) as error:
            proofs(altered)
        return str(error.value)

    def heavy(f, low, up):
        i = len(low["masses"]) // 2
        low["masses"][i] = f"{int(low['masses'][i], 16) + 2**60:x}"

    assert "no proof of V <= " in refusal(heavy)
    assert "V >= D at " in refusal(lambda f, low, up: up.update(infinite="0"))
    assert "V(0) >= 1" in refusal(lambda f, low, up: up.update(masses=["0"] * len(up["masses"])))
    def later(f, low, up):  # where 1 - y is no longer close to D
        cut = len(low["points"]) // 2
        low.update({key: low[key][cut:] for key in ("points", "masses", "lines")})

    from_0 = "no proof of V <= 1 - y from 0 to the first point"
    assert from_0 in refusal(later)
    assert from_0 in refusal(lambda f, low, up: low["masses"].__setitem__(0, f"{2**95:x}"))
    assert from_0 in refusal(lambda f, low, up: low.update(infinite="1"))
    assert "no proof of masses" in refusal(lambda f, low, up: low["masses"].__setitem__(-1, "-5"))
    first = file["delta"][0]
    assert "upper end 0 at " in refusal(lambda f, low, up: up["epsilon"].update({first: "0"}))
    assert "lower end 9 at " in refusal(lambda f, low, up: low["epsilon"].update({first: "9"}))
    assert "range" in refusal(lambda f, low, up: f.update(rate="3/2"))


def without(key):
    return lambda file: {k: v for k, v in file.items() if k != key}


@pytest.mark.parametrize("spoil", [
    *(without(key) for key in ("relation", "rate", "sigma", "steps", "delta", "laws")),
    lambda file: [], lambda file: "text", lambda file: None, lambda file: file | {"rate": 0.5},
    lambda file: file | {"rate": "1/0"}, lambda file: file | {"rate": "1e9"},
    lambda file: file | {"steps": 2.5},
    lambda file: file | {"steps": 10**12}, lambda file: file | {"steps": 0},
    lambda file: file | {"relation": "x"},
    lambda file: file | {"laws": 3}, lambda file: file | {"laws": [1]},
    lambda file: file | {"laws": [{}]},
    lambda file: file | {"laws": [file["laws"][0] | {"bits": 10**9}]},
    lambda file: file | {"laws": [file["laws"][0] | {"points": [0, 10**12]}]},
    lambda file: file | {"laws": [file["laws"][0] | {"points": []}]},
    lambda file: file
    | {"laws": [file["laws"][0] | {"masses": ["zz"] * len(file["laws"][0]["masses"])}]},
    lambda file: file | {"laws": [file["laws"][0] | {"step": "-1/64"}]},
    lambda file: file | {"laws": [file["laws"][0] | {"window": ["0"]}]},
])  # fmt: skip
def test_malformed_files_get_a_sentence(small, spoil, tmp_path, capsys):
    name = tmp_path / "file.json"
    name.write_text(json.dumps(spoil(small["replace-one"])))
    assert main(["verify", str(name)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("dpteach verify: ") and said.count("\n") == 1 and "Traceback" not in said


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100000, b"NaN"])
def test_files_that_are_no_json(tmp_path, capsys, content):
    name = tmp_path / "file.json"
    name.write_bytes(content)
    assert main(["verify", str(name)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["verify", str(tmp_path / "absent.json")]) == 2


# --- the verifier as a file


def test_the_verifier_stands_alone():
    text = (ROOT / "dpteach" / "verify.py").read_text(encoding="utf-8")
    assert text.count("\n") <= 100 and "dpteach" not in text
    imports = {line.split()[1] for line in text.splitlines()
               if line.startswith(("import ", "from "))}
    assert imports == {"json", "sys", "flint"}
    assert "assert " not in text  # python -O would remove it


def test_the_verifier_runs_without_the_package(small, tmp_path):
    (tmp_path
     / "verify.py").write_text((ROOT / "dpteach" / "verify.py").read_text(encoding="utf-8"))
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(small["replace-one"]))
    bad.write_text(json.dumps(small["replace-one"] | {"steps": 5}))

    def run(name):
        done = subprocess.run([sys.executable, "-O", "-I", "verify.py", name], cwd=tmp_path,
                              capture_output=True,
                              text=True, encoding="utf-8")  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    code, said = run("good.json")
    assert code == 0 and said.startswith("proved: ") and "replace-one" in said
    for name in ("bad.json", "absent.json"):
        code, said = run(name)
        assert code == 1 and said.startswith("refused: ") and "Traceback" not in said


def test_command_line(tmp_path, capsys):
    name = str(tmp_path / "run.json")
    run = "--relation add-remove --q 0.5 --steps 4 --sigma 2 --delta 1e-3".split()
    assert main(["certify", *run, "--width", "0.02", "-o", name]) == 0
    assert main(["verify", name, "--upper", "0.1", "--lower", "0.1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("proved: ε in [")
    assert "Poisson batches of rate 1/2" in out and "remove: [" in out
    assert "0.1 as upper bound at δ = 0.001: it's wrong" in out
    assert "0.1 as lower bound at δ = 0.001: this certificate doesn't refute it" in out
    long = ["1000000" if x == "4" else x for x in run]
    assert main(["certify", *long, "--width", "1e-7", "-o", name]) == 2
    assert "width" in capsys.readouterr().err
    assert main(["certify", *[x if x != "4" else "0" for x in run]]) == 2


def test_a_statement_can_carry_a_certificate(tmp_path, capsys):
    name = str(tmp_path / "run.json")
    run = "--relation add-remove --q 0.5 --steps 4 --sigma 2 --delta 1e-3".split()
    assert main(["certify", *run, "--width", "0.02", "-o", name]) == 0
    assert main(["report", *run, "--certificate", name]) == 0
    page = capsys.readouterr().out
    assert "by run.json: proved: ε in" in page and "4 steps" in page
    for typed, other in (("4", "5"), ("2", "2.5"), ("0.5", "0.4"), ("1e-3", "1e-4")):
        changed = [other if x == typed else x for x in run]
        assert main(["report", *changed, "--certificate", name]) == 2
        assert "about this run" in capsys.readouterr().err
    shuffled = NoisySGD(n=400, batch_size=200, steps=4, noise_multiplier=2.0, sampling="shuffled")
    (proof,) = proofs(name)
    poisson = dataclasses.replace(shuffled, sampling="poisson")
    assert proof.fits(poisson, "add-remove", 1e-3)
    assert not proof.fits(shuffled, "add-remove", 1e-3)


def test_without_noise_to_speak_of_or_without_need():
    """A lower end of 0 needs no proof: δ above the total variation."""
    run = NoisySGD.at_rate(0.01, steps=2, noise_multiplier=5.0)
    (proof,) = proofs(certify(run, "add-remove", [0.5], width=1e-2))
    assert proof.low == 0 <= proof.high <= 1e-2


# --- the book's certificates

BOOK = [(name, relation) for name in RUNS for relation in ("add-remove", "replace-one")]


@pytest.mark.parametrize("name, relation", BOOK)
def test_what_the_book_keeps(name, relation, request):
    """Right form, size and questions; proved here for run A, for all with `python
    tools/certificates.py --verify`."""
    file = json.loads(path(name, relation).read_text(encoding="utf-8"))
    run = the_run(name, relation)
    assert path(name, relation).stat().st_size < 400_000
    assert [Fraction(d) for d in file["delta"]] == [Fraction(repr(d)) for d in DELTAS]
    assert {(law["pair"], law["side"]) for law in file["laws"]} == {
        (pair, side) for pair in verify.PAIRS[relation] for side in ("lower", "upper")}  # fmt: skip
    for delta in map(str, file["delta"]):
        for pair in verify.PAIRS[relation]:
            ends = {law["side"]: Fraction(law["epsilon"][delta]) for law in file["laws"]
                    if law["pair"] == pair}
            assert 0 < ends["upper"] - ends["lower"] <= Fraction(repr(WIDTH))
    if name != "A":
        return
    start = time.process_time()
    found = proofs(file)
    assert time.process_time() - start < 90
    values = {("add-remove", 1e-5): 0.864540, ("replace-one", 1e-5): 1.067030,
              ("replace-one", 1e-8): 1.486489}
    for proof, delta in zip(found, DELTAS, strict=True):
        assert proof.fits(run, relation, delta) and not proof.fits(run, relation, 2 * delta)
        # chapter 12's integral; extrapolation of finer and finer lattices
        if (relation, delta) in values:
            value = values[relation, delta]
            assert proof.low <= value + 1e-6 and value - 1e-6 <= proof.high
