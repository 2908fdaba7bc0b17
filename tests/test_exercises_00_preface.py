"""The preface's exercise checks refuse what students plausibly write."""

from wrong_solutions import tries

test_preface = tries(
    "00-preface",
    {
        "ex-pref-1": {
            "the probability multiplied": (
                "return odds / (1 + odds)",
                "return prior * np.exp(epsilon)",
            ),
            "cut at 1": ("return odds / (1 + odds)", "return min(1.0, prior * np.exp(epsilon))"),
            "odds, not a probability": ("odds / (1 + odds)", "odds"),
            "the least": ("np.exp(epsilon)", "np.exp(-epsilon)"),
            "twice epsilon": ("np.exp(epsilon)", "np.exp(2 * epsilon)"),
            "half of epsilon": ("np.exp(epsilon)", "np.exp(epsilon / 2)"),
            "first order": ("np.exp(epsilon)", "(1 + epsilon)"),
            "prior for odds": ("prior / (1 - prior)", "prior"),
            "the other hypothesis": ("prior / (1 - prior)", "(1 - prior) / prior"),
            "one minus": ("odds / (1 + odds)", "1 / (1 + odds)"),
            "a fair coin before": ("prior / (1 - prior) * np", "np"),
            "nothing learnt": ("odds / (1 + odds)", "prior"),
        },
        "ex-pref-2": {
            "no second toss": ("(1 + h) / (1 - h)", "max(h, 1e-9) / (1 - h)"),
            "half": ("np.log((1 + h) / (1 - h))", "np.log((1 + h) / (1 - h)) / 2"),
            "the ratio": ("np.log((1 + h) / (1 - h))", "(1 + h) / (1 - h)"),
            "upside down": ("(1 + h) / (1 - h)", "(1 - h) / (1 + h)"),
            "the coin's tail": ("(1 + h) / (1 - h)", "(2 - h) / max(h, 1e-9)"),
            "always log 3": ("(1 + h) / (1 - h)", "3 + 0 * h"),
            "first order": ("np.log((1 + h) / (1 - h))", "2 * h"),
            "base 2": ("np.log(", "np.log2("),
            "one answer": ("(1 + h) / (1 - h)", "1 / (1 - h)"),
            "the truth's share": ("(1 + h) / (1 - h)", "1 + h"),
            "doubled": ("np.log((", "2 * np.log(("),
        },
        "ex-pref-3": {
            "threshold at 0": ("norm.cdf(mu / 2) - norm.cdf(-mu / 2)", "norm.cdf(mu) - 0.5"),
            "true alarms alone": (" - norm.cdf(-mu / 2)", ""),
            "accuracy": ("norm.cdf(mu / 2) - norm.cdf(-mu / 2)", "norm.cdf(mu / 2)"),
            "no halves": ("norm.cdf(mu / 2) - norm.cdf(-mu / 2)", "norm.cdf(mu) - norm.cdf(-mu)"),
            "half of it": (
                "return norm",
                "return 0.5 * norm",
                "- norm.cdf(-mu / 2)",
                "- 0.5 * norm.cdf(-mu / 2)",
            ),
            "negative": (
                "norm.cdf(mu / 2) - norm.cdf(-mu / 2)",
                "norm.cdf(-mu / 2) - norm.cdf(mu / 2)",
            ),
            "densities": ("norm.cdf(mu / 2) - norm.cdf(-mu / 2)", "norm.pdf(0) - norm.pdf(mu)"),
            "small mu": ("norm.cdf(mu / 2) - norm.cdf(-mu / 2)", "mu / np.sqrt(2 * np.pi)"),
            "by epsilon": ("norm.cdf(mu / 2) - norm.cdf(-mu / 2)", "np.tanh(mu / 2)"),
            "a threshold at 1": (
                "norm.cdf(mu / 2) - norm.cdf(-mu / 2)",
                "norm.sf(1 - mu) - norm.sf(1)",
            ),
            "of a quarter": ("mu / 2) - norm.cdf(-mu / 2)", "mu / 4) - norm.cdf(-mu / 4)"),
        },
    },
)
