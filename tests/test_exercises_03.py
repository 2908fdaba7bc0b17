"""Plausible wrong solutions of chapter 3's exercises: each check refuses them all."""

from wrong_solutions import tries

WEIGHTS = "log_binomial + (a - k) * np.log(1 - q) + k * np.log(q)"
SUM = "float(logsumexp(weights + k * (k - 1) / (2 * sigma**2)))"
ALONE = "    if q == 1:\n        return a * (a - 1) / (2 * sigma**2)\n"
INTEGRAND = "return base * (base / mixture) ** lam"
LIMITS = "-12 * sigma - lam, 12 * sigma + 1"
MOST = "(lams * epsilon - np.log(1 / delta)) / log_e2(q, sigma, lams)"
ORDERS = "np.arange(1, 201)"
FULL = "float(c + 2 * np.sqrt(c * np.log(1 / delta)))"

test_chapter_3 = tries("03-sampled-gaussian", {
    "ex-03-1": {
        "sum to λ": ("np.arange(a + 1)", "np.arange(a)"),
        "a = λ": ("a = lam + 1", "a = lam"),
        "k²": ("k * (k - 1) / (2", "k**2 / (2"),
        "k(k+1)": ("k * (k - 1) / (2", "k * (k + 1) / (2"),
        "no half": ("weights + k * (k - 1) / (2 * sigma**2)", "weights + k * (k - 1) / sigma**2"),
        "σ for σ²": ("(2 * sigma**2)))", "(2 * sigma)))"),
        "q and 1 - q exchanged": (WEIGHTS,
                                  "log_binomial + k * np.log(1 - q) + (a - k) * np.log(q)"),
        "no binomials": ("log_binomial + (a", "(a"),
        "no 1 - q": (" + (a - k) * np.log(1 - q)", ""),
        "the full batch forgotten": (ALONE, ""),
        "the full batch is 0": ("return a * (a - 1) / (2 * sigma**2)", "return 0.0"),
        "E2, not its logarithm": (SUM, "float(np.exp(logsumexp(weights + k * (k - 1) / (2 * "
                                       "sigma**2))))"),
        "exponentials before the logarithm": (SUM, "float(np.log(np.sum(np.exp(weights) * np.exp(k "
                                                   "* (k - 1) / (2 * sigma**2)))))"),
        "the largest term": ("logsumexp(weights", "np.max(weights"),
        "E1": (SUM, "float(log_e1(q, sigma, lam))"),
        "the second order only": (SUM, "float(np.log1p(a * (a - 1) / 2 * q**2 * "
                                       "np.expm1(min(sigma**-2, 600))))"),
        "from k = 2 on": (SUM, "float(logsumexp((weights + k * (k - 1) / (2 * sigma**2))[2:]))"),
    },
    "ex-03-2": {
        "E2": (INTEGRAND, "return mixture * (mixture / base) ** lam"),
        "z from the mixture": (INTEGRAND, "return mixture * (base / mixture) ** lam"),
        "z from the base, ratio upside down": (INTEGRAND, "return base * (mixture / base) ** lam"),
        "λ + 1": ("** lam\n", "** (lam + 1)\n"),
        "λ - 1": ("** lam\n", "** (lam - 1)\n"),
        "not a logarithm": ("float(np.log(quad(integrand, -12 * sigma - lam, 12 * sigma + 1, "
                            "epsabs=0, limit=500)[0]))",
                            "float(quad(integrand, -12 * sigma - lam, 12 * sigma + 1, epsabs=0, "
                            "limit=500)[0])"),
        "right half only": (LIMITS, "0, 12 * sigma + 1"),
        "one σ": (LIMITS, "-sigma, sigma"),
        "limits that don't follow σ and λ": (LIMITS, "-2, 3"),
        "σ² as the deviation": ("scale=sigma)", "scale=sigma**2)"),
        "unit noise": ("scale=sigma)", "scale=1)"),
        "the record alone": ("(1 - q) * base + ", ""),
        "weights that don't add up": ("(1 - q) * base", "base"),
        "q exchanged": ("(1 - q) * base + q *", "q * base + (1 - q) *"),
        "moved by 2": ("loc=1", "loc=2"),
        "log10": ("np.log(", "np.log10("),
        "the mean of the loss": (INTEGRAND, "return base * np.log(base / mixture) * lam"),
    },
    "ex-03-3": {
        "orders to 64": (ORDERS, "np.arange(1, 65)"),
        "orders to 199": (ORDERS, "np.arange(1, 200)"),
        "orders to 201": (ORDERS, "np.arange(1, 202)"),
        "orders to 1000": (ORDERS, "np.arange(1, 1001)"),
        "orders from 2": (ORDERS, "np.arange(2, 201)"),
        "real orders": (ORDERS, "np.linspace(0.1, 200, 2000)"),
        "rounded up": ("np.floor", "np.ceil"),
        "rounded to the nearest": ("np.floor", "np.round"),
        "one too few": ("int(np.floor(most))", "int(np.floor(most)) - 1"),
        "one too many": ("int(np.floor(most))", "int(np.floor(most)) + 1"),
        "below 0": ("max(0, int(np.floor(most)))", "int(np.floor(most))"),
        "not rounded": ("max(0, int(np.floor(most)))", "max(0.0, float(most))"),
        "log10": ("np.log(", "np.log10("),
        "the sign of the logarithm": ("1 / delta", "delta"),
        "δ left out": (" - np.log(1 / delta)", ""),
        "λ + 1": ("lams * epsilon", "(lams + 1) * epsilon"),
        "ε not multiplied by λ": ("lams * epsilon", "epsilon"),
        "the worst order": ("np.max", "np.min"),
        "E1": ("log_e2(", "log_e1("),
        "T² like a Gaussian's √T": ("most = np.max", "most = np.sqrt(1) * np.mean"),
        "at least 1": ("max(0,", "max(1,"),
        "in hundreds": ("int(np.floor(most))", "int(np.floor(most)) // 100 * 100"),
    },
    "ex-03-4": {
        "one σ for both": ('"replace-one": 2', '"replace-one": 1'),
        "twice the σ": ('"replace-one": 2', '"replace-one": 0.5'),
        "the relations exchanged": ('"add-remove": 1, "replace-one": 2',
                                    '"add-remove": 2, "replace-one": 1'),
        "√2": ('"replace-one": 2', '"replace-one": 2**0.5'),
        "T left out": ("steps / (2", "1 / (2"),
        "√T": ("steps / (2", "np.sqrt(steps) / (2"),
        "no half": ("(2 * sigma**2)", "sigma**2"),
        "σ for σ²": ("sigma**2", "sigma"),
        "no first term": ("c + 2 *", "2 *"),
        "no factor 2": ("2 * np.sqrt", "np.sqrt"),
        "log10": ("np.log(", "np.log10("),
        "the exact ε": (FULL,
                        "float(GaussianGuarantee(mu=min(100.0, np.sqrt(2 * c))).epsilon(delta))"),
        "whole orders": (FULL,
                         "float(min(c * (k + 1) + np.log(1 / delta) / k for k in range(1, 5000)))"),
        "at λ = 1": (FULL, "float(2 * c + np.log(1 / delta))"),
        "ε doubled": (FULL, 'float(c + 2 * np.sqrt(c * np.log(1 / delta))) * {"add-remove": 1, '
                            '"replace-one": 2}[relation]',
                      'noise_multiplier / {"add-remove": 1, "replace-one": 2}[relation]',
                      "noise_multiplier"),
        "3 decimals": (FULL, "round(float(c + 2 * np.sqrt(c * np.log(1 / delta))), 3)"),
    },
})  # fmt: skip
