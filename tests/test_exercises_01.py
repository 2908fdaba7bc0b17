"""Plausible wrong solutions of chapter 1's exercises: each check refuses them all."""

from wrong_solutions import tries

LOSS = "(np.abs(o) - np.abs(o - 1)) / b"
TAIL = "norm.sf((epsilon - mu**2 / 2) / mu)"
DELTA = "float(np.sum(np.maximum(p - np.exp(epsilon) * q, 0)))"
TEST = "GaussianLaw(middle).delta(epsilon) <= delta"

test_chapter_1 = tries("01-privacy-loss", {
    "ex-01-1": {
        "the other order": (LOSS, "(np.abs(o - 1) - np.abs(o)) / b"),
        "b forgotten": (" / b", ""),
        "b multiplied": (" / b", " * b"),
        "2b": (" / b", " / (2 * b)"),
        "b²": (" / b", " / b**2"),
        "the size": (LOSS, "np.abs(np.abs(o) - np.abs(o - 1)) / b"),
        "the Gaussian loss": (LOSS, "(o - 0.5) / b**2"),
        "squares": (LOSS, "(o**2 - (o - 1) ** 2) / b"),
        "no absolute values": (LOSS, "np.ones_like(o) / b"),
        "the largest loss": (LOSS, "np.full_like(o, 1 / b)"),
        "the ratio, not its logarithm": (LOSS, "np.exp((np.abs(o) - np.abs(o - 1)) / b)"),
        "1 at the other end": (LOSS, "(np.abs(o + 1) - np.abs(o)) / b"),
        "cut at 0": (LOSS, "np.maximum((np.abs(o) - np.abs(o - 1)) / b, 0)"),
        "the mean": (LOSS, "float(np.mean((np.abs(o) - np.abs(o - 1)) / b))"),
    },
    "ex-01-2": {
        "below ε": ("norm.sf", "norm.cdf"),
        "under Q": ("epsilon - mu**2", "epsilon + mu**2"),
        "mean μ/2": ("mu**2 / 2", "mu / 2"),
        "mean μ²": ("mu**2 / 2", "mu**2"),
        "mean 0": (" - mu**2 / 2", ""),
        "divided by μ²": (" / mu)", " / mu**2)"),
        "not divided": (") / mu)", "))"),
        "divided before the mean": (TAIL, "norm.sf(epsilon / mu - mu**2 / 2)"),
        "two-sided": (TAIL, "2 * norm.sf((epsilon - mu**2 / 2) / mu)"),
        "the density": ("norm.sf", "norm.pdf"),
        "the exact δ": (TAIL, "float(GaussianLaw(1 / mu).delta(epsilon))"),
        "σ for μ": (TAIL, "norm.sf((epsilon - mu**-2 / 2) * mu)"),
        "4 digits": (TAIL, "round(float(norm.sf((epsilon - mu**2 / 2) / mu)), 4)"),
        "from a simulation": (TAIL, "float(np.mean(GaussianLaw(1 / mu).sample(10**5, np.random.default_rng(0)) > epsilon))"),
    },
    "ex-01-3": {
        "the tail": (DELTA, "float(np.sum(p[p > np.exp(epsilon) * q]))"),
        "no positive part": (DELTA, "float(np.sum(p - np.exp(epsilon) * q))"),
        "positive part of the sum": (DELTA, "float(max(np.sum(p - np.exp(epsilon) * q), 0))"),
        "the size": (DELTA, "float(np.sum(np.abs(p - np.exp(epsilon) * q)))"),
        "half the size": (DELTA, "float(np.sum(np.abs(p - np.exp(epsilon) * q)) / 2)"),
        "one output only": (DELTA, "float(np.max(np.maximum(p - np.exp(epsilon) * q, 0)))"),
        "p and q exchanged": (DELTA, "float(np.sum(np.maximum(q - np.exp(epsilon) * p, 0)))"),
        "the worse order": (DELTA, "float(max(np.sum(np.maximum(p - np.exp(epsilon) * q, 0)), np.sum(np.maximum(q - np.exp(epsilon) * p, 0))))"),
        "e^-ε": ("np.exp(epsilon)", "np.exp(-epsilon)"),
        "1 + ε": ("np.exp(epsilon)", "(1 + epsilon)"),
        "ε for e^ε": ("np.exp(epsilon)", "epsilon"),
        "total variation": (DELTA, "float(np.sum(np.maximum(p - q, 0)))"),
        "outputs with q = 0 left out": (DELTA, "float(np.sum(np.maximum(p - np.exp(epsilon) * q, 0)[q > 0]))"),
        "not weighted by p": (DELTA, "float(np.sum(np.maximum(1 - np.exp(epsilon) * q / np.maximum(p, 1e-9), 0)))"),
        "by division": (DELTA, "float(np.sum(p * np.maximum(1 - np.exp(epsilon - np.log(p) + np.log(q)), 0)))"),
        "the loss above ε": (DELTA, "float(np.sum(p * np.maximum(np.log(p / np.maximum(q, 1e-9) + 1e-300) - epsilon, 0)))"),
    },
    "ex-01-4": {
        "the classical formula": "least_sigma = lambda epsilon, delta: np.sqrt(2 * np.log(1.25 / delta)) / max(epsilon, 1e-9)",
        "μ": ("float(high)", "float(1 / high)"),
        "by the tail": "least_sigma = lambda epsilon, delta: 1 / max(np.sqrt(norm.isf(delta) ** 2 + 2 * epsilon) - norm.isf(delta), 1e-9)",
        "by the tail, in the loop": (TEST, "norm.sf(epsilon * middle - 0.5 / middle) <= delta"),
        "20 halvings": ("range(100)", "range(20)"),
        "halves taken from the wrong side": ("<= delta", "> delta"),
        "the interval begins at 1": ("0.05", "1.0"),
        "the interval ends at 10": ("1000.0", "10.0"),
        "rounded up to 3 decimals": ("float(high)", "float(np.ceil(high * 1000) / 1000)"),
        "μ for σ in the law": ("GaussianLaw(middle)", "GaussianLaw(min(1 / middle, 20))"),
        "2δ": ("<= delta", "<= 2 * delta"),
        "δ/2": ("<= delta", "<= delta / 2"),
        "δ at ε = 0": (".delta(epsilon)", ".delta(0.0)"),
        "a grid": "least_sigma = lambda epsilon, delta: float(min(s for s in np.geomspace(0.05, 1000, 2001) if GaussianLaw(s).delta(epsilon) <= delta))",
        "sensitivity 2": ("float(high)", "float(2 * high)"),
    },
})  # fmt: skip
