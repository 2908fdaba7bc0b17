"""Chapter 20's exercise checks refuse what students plausibly write."""

from wrong_solutions import tries

test_chapter_20 = tries("20-reporting", {
    "ex-20-1": {
        "f k times, not 1 - f": ("alpha = 1 - f(alpha)", "alpha = f(alpha)"),
        "not taken from 1": ("return 1 - alpha", "return alpha"),
        "one time too many": ("range(k)", "range(k + 1)"),
        "one time too few": ("range(k)", "range(k - 1)"),
        "k times the bound": "def folded(f, k, alpha):\n    return 1 - k * (1 - f(alpha))",
        "f at k alpha": "def folded(f, k, alpha):\n    return f(np.minimum(k * alpha, 1))",
        "f to the k": "def folded(f, k, alpha):\n    return f(alpha) ** k",
        "once": "def folded(f, k, alpha):\n    return f(alpha)",
        "1 - f(1 - alpha)": ("alpha = 1 - f(alpha)", "alpha = 1 - f(1 - alpha)"),
        "subtracted in the loop as well": ("return 1 - alpha", "return 1 - (1 - alpha)"),
        "the mean of the errors": ("return 1 - alpha", "return (1 - alpha + f(alpha)) / 2"),
        "nothing returned": ("return 1 - alpha", "1 - alpha"),
    },
    "ex-20-2": {
        "mu over k": ("k / gaussian_mu(epsilon, delta)", "gaussian_mu(epsilon, delta) / k"),
        "k forgotten": ("k / gaussian", "1 / gaussian"),
        "root of k": ("k / gaussian", "math.sqrt(k) / gaussian"),
        "one of the classical bound": "def count_noise(k, epsilon, delta):\n"
                                      "    return k * math.sqrt(2 * math.log(1.25 / delta))"
                                      " / epsilon",
        "epsilon shared among k": ("k / gaussian_mu(epsilon, delta)",
                                   "1 / gaussian_mu(epsilon / k, delta)"),
        "delta shared among k": ("gaussian_mu(epsilon, delta)",
                                 "gaussian_mu(epsilon, delta / k / 2)"),
        "replaced, so twice": ("k / gaussian", "2 * k / gaussian"),
        "product": ("k / gaussian", "k * gaussian"),
        "variance": ("k / gaussian_mu(epsilon, delta)", "(k / gaussian_mu(epsilon, delta)) ** 2"),
        "negative": ("return k", "return -k"),
        "arguments swapped": ("(epsilon, delta)\n", "(delta, min(epsilon, 0.9))\n"),
        "rounded up": ("k / gaussian_mu(epsilon, delta)",
                       "math.ceil(k / gaussian_mu(epsilon, delta))"),
    },
    "ex-20-3": {
        "all N move": ("(N - 1) * log_ndtr(grid) + log_ndtr(grid - mu)",
                       "N * log_ndtr(grid - mu)"),
        "one number fewer": ("(N - 1) * log_ndtr(grid) + log_ndtr(grid - mu)",
                             "log_ndtr(grid - mu)"),
        "N others": ("(N - 1) * log_ndtr(grid)", "N * log_ndtr(grid)"),
        "you aren't among those without": ("np.expm1(N * log", "np.expm1((N - 1) * log"),
        "the wrong order": ("with_you - math.exp(epsilon) * without_you",
                            "without_you - math.exp(epsilon) * with_you"),
        "epsilon not as a power of e": ("math.exp(epsilon)", "(1 + epsilon)"),
        "minus epsilon": ("math.exp(epsilon)", "math.exp(-epsilon)"),
        "shifted the other way": ("grid - mu", "grid + mu"),
        "a coarse grid": ("20001", "12"),
        "the lower tails": ("with_you = -np.expm1", "with_you = 1 + np.expm1"),
        "smallest": ("np.max(", "np.min("),
        "one training": "def loudest_delta(mu, N, epsilon):\n"
                        "    return float(norm.cdf(mu / 2 - epsilon / mu)"
                        " - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))",
    },
    "ex-20-5": {
        "the share of the present": ("found / (found + (1 - prior) * alpha)", "found / prior"),
        "no prior": ("prior * norm", "norm"),
        "absent not weighted": ("(1 - prior) * alpha", "alpha"),
        "type II error": ("norm.cdf(norm.ppf(alpha) + mu)", "norm.cdf(-norm.ppf(alpha) - mu)"),
        "shift the other way": ("norm.ppf(alpha) + mu", "norm.ppf(alpha) - mu"),
        "half the shift": ("+ mu", "+ mu / 2"),
        "odds, not a probability": ("found / (found + (1 - prior) * alpha)",
                                    "found / ((1 - prior) * alpha)"),
        "absent who aren't accused": ("(1 - prior) * alpha", "(1 - prior) * (1 - alpha)"),
        "the absent's share": ("return found /", "return 1 - found /"),
        "e to the mu": ("norm.cdf(norm.ppf(alpha) + mu)", "min(1, math.exp(mu) * alpha)"),
        "prior and its rest swapped": ("found = prior", "found = (1 - prior)"),
        "a blind guess": ("norm.cdf(norm.ppf(alpha) + mu)", "alpha"),
    },
})  # fmt: skip
