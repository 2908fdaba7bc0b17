"""Plausible wrong solutions of chapter 16's exercises: each check refuses them all."""

from wrong_solutions import tries

CORNER = "(1 - delta) / (1 + np.exp(epsilon))"
LOOP = "gaussian_delta(middle, epsilon) <= delta"
BEST = "float(np.min(D + np.log(1 / delta) / (orders - 1)))"

test_chapter_16 = tries("16-figure-7", {
    "ex-16-1": {
        "δ forgotten": ("(1 - delta)", "1"),
        "the end of the steep line": (CORNER, "(1 - delta) * np.exp(-epsilon)"),
        "the end of the flat line": (CORNER, "1 - delta"),
        "1 + δ": ("(1 - delta)", "(1 + delta)"),
        "δ counted twice": ("(1 - delta)", "(1 - 2 * delta)"),
        "1 - e^ε": ("1 + np.exp(epsilon)", "np.exp(epsilon) - 1 + 1e-9"),
        "e^-ε": ("np.exp(epsilon)", "np.exp(-epsilon)"),
        "1 + ε": ("np.exp(epsilon)", "(1 + epsilon)"),
        "half": (CORNER, "(1 - delta) * np.exp(-epsilon) / 2"),
        "δ in the denominator": ("(1 + np", "(1 + delta + np"),
        "the advantage": (CORNER, "1 - 2 * (1 - delta) / (1 + np.exp(epsilon))"),
        "4 decimals": (CORNER, "round((1 - delta) / (1 + np.exp(epsilon)), 4)"),
    },
    "ex-16-2": {
        "δ/2": ("<= delta", "<= delta / 2"),
        "2δ": ("<= delta", "<= 2 * delta"),
        "δ at ε = 0": ("middle, epsilon)", "middle, 0.0)"),
        "the halves exchanged": ("<= delta", "> delta"),
        "ten halvings": ("range(100)", "range(10)"),
        "σ for μ": ("return low", "return 1 / low"),
        "rounded up to 3 decimals": ("return low", "return np.ceil(low * 1000) / 1000"),
        "rounded down to 3 decimals": ("return low", "return np.floor(low * 1000) / 1000"),
        "the classical formula": "largest_mu = lambda epsilon, delta: epsilon / np.sqrt(2 * "
                                 "np.log(1.25 / delta))",
        "by the tail": (LOOP, "ndtr(-epsilon / middle + middle / 2) <= delta"),
        "the conjugate's second term": (LOOP, "ndtr(-epsilon / middle - middle / 2) <= delta"),
        "from zero-concentration": "largest_mu = lambda epsilon, delta: np.sqrt(2) * "
                                   "(np.sqrt(epsilon + np.log(1 / delta)) - np.sqrt(np.log(1 / "
                                   "delta)))",
        "ends at 1": ("100.0", "1.0"),
    },
    "ex-16-3": {
        "a for a - 1": ("(orders - 1)", "orders"),
        "λ = a + 1": ("(orders - 1)", "(orders + 1)"),
        "log 10": ("np.log(", "np.log10("),
        "the worst": ("np.min", "np.max"),
        "the mean": ("np.min", "np.mean"),
        "the first": (BEST, "float((D + np.log(1 / delta) / (orders - 1))[0])"),
        "the last": (BEST, "float((D + np.log(1 / delta) / (orders - 1))[-1])"),
        "all of them": ("float(np.min(", "np.asarray(("),
        "log δ": ("1 / delta", "delta"),
        "D times λ": ("(D +", "(D * (orders - 1) +"),
        "D times a": ("(D +", "(D * orders / (orders - 1) +"),
        "the order instead": (BEST,
                              "float(orders[np.argmin(D + np.log(1 / delta) / (orders - 1))])"),
        "the conversion of Canonne, Kamath and Steinke": (
            BEST, "float(np.min(D + np.log(1 / delta) / (orders - 1) + np.log1p(-1 / orders) - "
                  "np.log(orders) / (orders - 1)))"),
        "whole orders only": (BEST, "float(np.min((D + np.log(1 / delta) / (orders - 1))[orders == "
                                    "np.floor(orders)]))"),
        "two decimals": (BEST, "round(float(np.min(D + np.log(1 / delta) / (orders - 1))), 2)"),
    },
})  # fmt: skip
