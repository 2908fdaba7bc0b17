"""Proves a certificate (chapter 11) by integers and balls alone: python verify.py FILE"""
import json
import sys

from flint import arb, ctx, fmpq, fmpz_poly

PAIRS = {"add-remove": ("remove", "add"), "replace-one": ("subsampled",)}

def require(holds: bool, inequality: str) -> None:
    if holds is not True:  # balls that overlap compare as False, whichever way one asks
        raise ValueError(f"no proof of {inequality}")

def rational(text: str) -> fmpq:
    return fmpq(*map(int, text.split("/")))

def line(pair: str, kind: str, x: arb, z: fmpq, q: arb, sigma: arb) -> arb:
    """P(A) - e^z Q(A): A is X > x; or X <= x, with P and Q exchanged; or nothing."""
    b, moved = ((t / sigma / arb(2).sqrt()).erfc() / 2 for t in (x, x - 1))
    a, y = (1 - q) * b + q * moved, arb(z).exp()  # X > x under the mixture, and under the base
    if kind == "event" and pair != "add":
        return a - b * y
    return 1 - b - (1 - a) * y if kind == "complement" and pair != "remove" else arb(0)

def true_profile(pair: str, z: fmpq, q: arb, sigma: arb) -> arb:
    """D(e^z), the supremum of P(A) - e^z Q(A) over all events A."""
    kind = "event" if pair == "remove" or pair == "subsampled" and z >= 0 else "complement"
    ratio = (arb(z if kind == "event" else -z).exp() - 1 + q) / q
    if ratio <= 0:
        return 1 - arb(z).exp() if kind == "event" else arb(0)
    require(ratio > 0, f"e^({z}) != 1 - q")
    return line(pair, kind, sigma**2 * ratio.log() + arb(0.5), z, q, sigma)

def profile(losses: list, infinite: int, at: fmpq) -> arb:
    """V(e^at) of a law, a list of (loss, mass)."""
    return sum((m * (1 - arb(at - z).exp()) for z, m in losses if z > at), arb(infinite))

def one_step(law: dict, q: arb, sigma: arb) -> tuple:
    """The law in the file, after the proof that its V bounds D from its side (Lemmas 2 and 3)."""
    k, pair, lines, unit = law["points"], law["pair"], law["lines"], 2 ** law["bits"]
    z = [rational(law["offset"]) + i * rational(law["step"]) for i in k]
    mass, infinite = [int(m, 16) for m in law["masses"]], int(law["infinite"], 16)
    require(k == sorted(set(k)) and k[-1] - k[0] < 2**22 and min(*mass, infinite) >= 0, "masses")
    V = [profile(list(zip(z, mass, strict=True)), infinite, x) for x in z]
    if law["side"] == "upper":
        require(sum(mass) + infinite >= unit, f"V(0) >= 1, {pair}")
        for i, x in enumerate(z):
            require(V[i] >= unit * true_profile(pair, x, q, sigma), f"V >= D at {k[i]}, {pair}")
    else:
        start = sum(mass) <= unit and infinite == 0 and V[0] <= unit * (1 - arb(z[0]).exp())
        require(start, f"V <= 1 - y from 0 to the first point, {pair}")
        for i, (kind, x) in zip(range(len(k) - 1), lines, strict=True):
            for j in (i, i + 1):
                bound = unit * line(pair, kind, arb(rational(x)), z[j], q, sigma)
                require(V[j] <= bound, f"V <= line {i} at {k[j]}, {pair}")
    at = dict(zip(k, mass, strict=True))
    return 1, k[0], fmpz_poly([at.get(i, 0) for i in range(k[0], k[-1] + 1)]), infinite

def add(u: tuple, v: tuple, law: dict) -> tuple:
    """The sum of two losses: exact, then cut to the window, rounded to the safe side (Lemma 4)."""
    steps, first, m = u[0] + v[0], u[1] + v[1], (u[2] * v[2]).coeffs()
    offset, h, bits = rational(law["offset"]), rational(law["step"]), law["bits"]
    low, high = ((rational(z) - steps * offset) / h for z in law["window"])
    cut = max(0, int(low.ceil()) - first)
    end = max(cut, int(high.floor()) + 1 - first)
    if law["side"] != "upper":
        return steps, first + cut, fmpz_poly([w >> bits for w in m[cut:end]]), 0
    infinite = u[3] * (v[2](1) + v[3]) + v[3] * u[2](1) + sum(m[end:])
    kept = [-(-w >> bits) for w in (sum(m[: cut + 1]), *m[cut + 1 : end], infinite)]
    return steps, first + cut, fmpz_poly(kept[:-1]), kept[-1]

def power(one: tuple, steps: int, law: dict) -> tuple[list, int]:
    """The sum over all steps, as a list of (loss, mass), and its infinite mass."""
    total = one
    for bit in bin(steps)[3:]:
        total = add(total, total, law)
        total = add(total, one, law) if bit == "1" else total
    start, h = steps * rational(law["offset"]), rational(law["step"])
    return [(start + k * h, m) for k, m in enumerate(total[2].coeffs(), total[1])], total[3]

def prove(file: dict) -> dict[str, dict]:
    """The claims, once they're proved: for each delta and pair the two ends of epsilon."""
    q, sigma, steps = rational(file["rate"]), rational(file["sigma"]), file["steps"]
    require(0 < q <= 1 and sigma > 0 and 1 <= steps <= 10**9, "rate, sigma and steps in range")
    proved: dict = {d: {p: ["0", None] for p in PAIRS[file["relation"]]} for d in file["delta"]}
    for law in file["laws"]:
        require(16 <= law["bits"] <= 1024 and rational(law["step"]) > 0, "bits and step in range")
        ctx.prec, upper = law["bits"] + 128, law["side"] == "upper"
        total = power(one_step(law, arb(q), arb(sigma)), steps, law)
        for delta, end in law["epsilon"].items():  # Lemma 5
            V, bound = profile(*total, rational(end)), arb(rational(delta)) * 2 ** law["bits"]
            require(V <= bound if upper else V > bound, f"{law['side']} end {end} at {delta}")
            proved[delta][law["pair"]][upper] = end
    return proved

if __name__ == "__main__":
    try:
        said = json.load(open(sys.argv[1]))
        print("proved:", prove(said), *(said[k] for k in ("relation", "rate", "sigma", "steps")))
    except Exception as error:  # whatever is wrong with a file, nothing is proved
        sys.exit(f"refused: {error!r}")
