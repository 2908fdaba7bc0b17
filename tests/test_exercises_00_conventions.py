"""Plausible wrong solutions of the conventions' exercises: each check refuses them all."""

from wrong_solutions import tries

RATIO = "E * chi2_plus(1 / sigma) / chi2_plus(2 / sigma)"
STEPS = "-(-E * n // m)"
ROOT = "np.sqrt(2) * C"

test_conventions = tries("00-conventions", {
    "ex-conv-1": {
        "the relations exchanged": ('"add-remove"', '"replace-one"'),
        "2C under both": ('(1 if relation == "add-remove" else 2)', "2"),
        "C under both": ('(1 if relation == "add-remove" else 2)', "1"),
        "the sum's sensitivity": (" * C / m", " * C"),
        "m multiplied": (" * C / m", " * C * m"),
        "C forgotten": (" * C / m", " / m"),
        "upside down": ("noise_std / sensitivity", "sensitivity / noise_std"),
        "a product": ("noise_std / sensitivity", "noise_std * sensitivity"),
        "half the sensitivity": ("else 2", "else 0.5"),
        "√2 for two records": ("else 2", "else 2**0.5"),
        "4 for a variance": ("else 2", "else 4"),
        "2/m of the average": ("/ m\n", "/ (2 * m)\n"),
        "one decimal": ("noise_std / sensitivity", "round(noise_std / sensitivity, 1)"),
    },
    "ex-conv-2": {
        "rounded down": (STEPS, "E * n // m"),
        "each epoch filled up": (STEPS, "E * -(-n // m)"),
        "each epoch cut off": (STEPS, "E * (n // m)"),
        "one step more": (STEPS, "E * n // m + 1"),
        "by floats": (STEPS, "int(np.ceil(E * n / m))"),
        "by floats, rate first": (STEPS, "int(np.ceil(E / (m / n)))"),
        "to the nearest": (STEPS, "round(E * n / m)"),
        "the rate upside down": ("m / n", "n / m"),
        "the rate of one record": ("m / n", "1 / n"),
        "without epochs": (STEPS, "-(-n // m)"),
        "the other way round": ("m / n, -(-E * n // m)", "-(-E * n // m), m / n"),
        "n exchanged with m": (STEPS, "-(-E * m // n)"),
        "steps only": ("m / n, -(-E * n // m)", "-(-E * n // m)"),
        "a sign": (STEPS, "-E * n // m"),
    },
    "ex-conv-3": {
        "a quarter": (RATIO, "E / 4"),
        "a half": (RATIO, "E / 2"),
        "four times": (RATIO, "4 * E"),
        "upside down": (RATIO, "E * chi2_plus(2 / sigma) / chi2_plus(1 / sigma)"),
        "a root": (RATIO, "E * (chi2_plus(1 / sigma) / chi2_plus(2 / sigma)) ** 0.5"),
        "a square": (RATIO, "E * (chi2_plus(1 / sigma) / chi2_plus(2 / sigma)) ** 2"),
        "σ for 1/σ": (RATIO, "E * chi2_plus(sigma) / chi2_plus(sigma / 2)"),
        "twice the noise": (RATIO, "E * chi2_plus(1 / sigma) / chi2_plus(0.5 / sigma)"),
        "the Poisson limit": (RATIO, "E * np.expm1(1 / sigma**2) / np.expm1(4 / sigma**2)"),
        "whole epochs": (RATIO, "np.floor(E * chi2_plus(1 / sigma) / chi2_plus(2 / sigma))"),
        "whole epochs, up": (RATIO, "np.ceil(E * chi2_plus(1 / sigma) / chi2_plus(2 / sigma))"),
        "the root of everything": (RATIO,
                                   "np.sqrt(E * chi2_plus(1 / sigma) / chi2_plus(2 / sigma))"),
        "E forgotten": (RATIO, "chi2_plus(1 / sigma) / chi2_plus(2 / sigma)"),
    },
    "ex-conv-4": {
        "without the signs": (ROOT, "2 * C"),
        "one vector": (ROOT, "C"),
        "half": (ROOT, "C / 2"),
        "half the root": (ROOT, "C / np.sqrt(2)"),
        "the square": (ROOT, "2 * C**2"),
        "√3": (ROOT, "np.sqrt(3) * C"),
        "three digits": (ROOT, "1.41 * C"),
        "four digits": (ROOT, "1.414 * C"),
        "√(2C)": (ROOT, "np.sqrt(2 * C)"),
        "C forgotten": (ROOT, "np.sqrt(2)"),
        "a hair less": (ROOT, "np.sqrt(2) * C * (1 - 1e-4)"),
        "zero": (ROOT, "0.0"),
        "C and √2 added": (ROOT, "np.sqrt(2) + C"),
    },
})  # fmt: skip
