"""The exercise checks of chapters 8, 9 and 12 refuse what students plausibly write."""

from wrong_solutions import tries

test_chapter_8 = tries("08-trade-offs", {
    "ex-08-1": {
        "no threshold above all scores": ("best = 1.0", "best = np.inf"),
        "only the scores without Ann": ("np.concatenate([null, other])", "null[:1]"),
        "a tie doesn't accuse": ("null >= t", "null > t"),
        "a tie isn't missed, but counted": ("other < t", "other <= t"),
        "both ties the other way": ("null >= t", "null > t", "other < t", "other <= t"),
        "strictly below alpha": ("<= alpha", "< alpha"),
        "largest miss": ("min(best,", "max(best if best < 1 else 0,"),
        "hits, not misses": ("other < t", "other >= t"),
        "worlds swapped": ("null >= t", "other >= t", "other < t", "null < t"),
        "accuses low scores": ("null >= t", "null <= t", "other < t", "other > t"),
        "one quantile": "def best_threshold_miss(null, other, alpha):\n"
                        "    return float(np.mean(other < np.quantile(null, 1 - alpha)))",
        "the line 1 - alpha": "def best_threshold_miss(null, other, alpha):\n    return 1 - alpha",
    },
    "ex-08-2": {
        "rising ratio": ("argsort(-q / p)", "argsort(q / p)"),
        "by q alone": ("argsort(-q / p)", "argsort(-q)"),
        "by p alone": ("argsort(-q / p)", "argsort(p)"),
        "not sorted": ("np.argsort(-q / p)", "np.arange(len(p))"),
        "q not sorted": ("np.cumsum(q[order])", "np.cumsum(q)"),
        "power, not miss": ("1 - np.concatenate([[0.0], np.cumsum(q[order])])",
                            "np.concatenate([[0.0], np.cumsum(q[order])])"),
        "without the first vertex": ("np.concatenate([[0.0], np.cumsum(p[order])])",
                                     "np.cumsum(p[order])",
                                     "1 - np.concatenate([[0.0], np.cumsum(q[order])])",
                                     "1 - np.cumsum(q[order])"),
        "no randomisation": ("np.interp(alpha, a, b)", "b[np.searchsorted(a, alpha, 'right') - 1]"),
        "worlds swapped": ("-q / p", "-p / q", "cumsum(p[order])", "cumsum(q[order])",
                           "1 - np.concatenate([[0.0], np.cumsum(q[order])])",
                           "1 - np.concatenate([[0.0], np.cumsum(p[order])])"),
        "total variation": "def finite_tradeoff(p, q, alpha):\n"
                           "    return max(0.0, 1 - alpha - abs(p - q).sum() / 2)",
        "best over all rules without a budget": "def finite_tradeoff(p, q, alpha):\n"
                                                "    return float(1 - q[p <= alpha].sum())",
    },
    "ex-08-3": {
        "one kink at half": ("alpha < shrink / 2", "alpha < 0"),
        "first piece of a pure mechanism": ("1 - alpha / shrink", "1 - alpha * shrink"),
        "last piece steep": ("shrink * (1 - alpha)", "(1 - alpha) / shrink"),
        "middle without the quarter": ("(4 * np", "(2 * np"),
        "the pure epsilon bound": "def laplace_tradeoff(epsilon, alpha):\n"
                                  "    return np.maximum(1 - np.exp(epsilon) * alpha,"
                                  " np.exp(-epsilon) * (1 - alpha))",
        "the other sign": ("np.exp(-epsilon)", "np.exp(epsilon)"),
        "half of epsilon": ("np.exp(-epsilon)", "np.exp(-epsilon / 2)"),
        "kink at shrink": ("alpha < shrink / 2", "alpha < shrink"),
        "power": ("return np.where", "return 1 - np.where"),
        "a Gaussian": "def laplace_tradeoff(epsilon, alpha):\n"
                      "    return gaussian_tradeoff(epsilon, alpha)",
        "one number": ("return np.where(", "return float(np.max(alpha)) * np.where("),
        "the middle alone": ("return np.where", "return middle\n    return np.where"),
    },
    "ex-08-4": {
        "half": ("2 * ndtri", "ndtri"), "no half inside": ("(1 + limit) / 2", "limit"),
        "one minus": ("(1 + limit) / 2", "(1 - limit) / 2"), "four": ("2 * ndtri", "4 * ndtri"),
        "inverse at 1 + limit": ("(1 + limit) / 2", "min(0.999, limit + 0.5)"),
        "pi": "def largest_mu(limit):\n    return limit * np.sqrt(2 * np.pi) / 2",
        "small mu": "def largest_mu(limit):\n    return limit * np.sqrt(2 * np.pi)",
        "epsilon": "def largest_mu(limit):\n    return np.log(1 / (1 - limit))",
        "odds": "def largest_mu(limit):\n    return np.log((1 + limit) / (1 - limit))",
        "negative": ("return float(2", "return float(-2"),
        "a bound only": ("2 * ndtri((1 + limit) / 2)", "1.9 * ndtri((1 + limit) / 2)"),
        "nothing": ("return float", "float"),
    },
})  # fmt: skip

test_chapter_9 = tries("09-composition-clt", {
    "ex-09-1": {
        "sorted by q": ("argsort(-q / p)", "argsort(-q)"), "rising": ("-q / p", "q / p"),
        "not sorted": ("np.argsort(-q / p)", "np.arange(p.size)"),
        "hits": ("1 - np.append", "np.append"),
        "sums of pairs": ("np.outer(p1, p2).ravel()", "np.add.outer(p1, p2).ravel() / 9",
                          "np.outer(q1, q2).ravel()", "np.add.outer(q1, q2).ravel() / 9"),
        "no first vertex": ("np.append(0, np.cumsum(p[order]))", "np.cumsum(p[order])",
                            "1 - np.append(0, np.cumsum(q[order]))", "1 - np.cumsum(q[order])"),
        "q in another order": ("np.outer(q1, q2).ravel()", "np.outer(q1, q2).T.ravel()"),
        "first pair alone": ("np.outer(p1, p2).ravel(), np.outer(q1, q2).ravel()", "p1, q1"),
        "worlds swapped": ("np.outer(p1, p2)", "np.outer(q1, q2)", "np.outer(q1, q2).ravel()\n",
                           "np.outer(p1, p2).ravel()\n"),
        "q not sorted": ("np.cumsum(q[order])", "np.cumsum(q)"),
        "no randomisation": ("np.interp(alpha, a, b)", "b[np.searchsorted(a, alpha, 'right') - 1]"),
    },
    "ex-09-2": {
        "rounded": ("int(np.floor((mu / mu_0) ** 2 * (1 + 1e-12)))",
                    "int(round((mu / mu_0) ** 2))"),
        "rounded up": ("np.floor", "np.ceil"),
        "parameters add": ("(mu / mu_0) ** 2", "(mu / mu_0)"),
        "no allowance": (" * (1 + 1e-12)", ""), "generous": ("1e-12", "1e-2"),
        "the square of a floor": "def releases(mu, mu_0):\n    return int(mu / mu_0) ** 2",
        "one too many": ("int(np", "1 + int(np"), "one too few": ("int(np", "-1 + int(np"),
        "root": ("** 2", "** 0.5"), "the other way": ("mu / mu_0", "mu_0 / mu"),
        "at least one": ("return int(", "return max(1, int(", "1e-12)))", "1e-12))))"),
        "no whole number": ("int(np.floor((mu / mu_0) ** 2 * (1 + 1e-12)))", "(mu / mu_0) ** 2"),
    },
    "ex-09-3": {
        "the flat edge": ("1 / (1 + np.exp(epsilon))", "1 / (1 + np.exp(-epsilon))"),
        "kl with the other sign": ("kl = epsilon * (1", "kl = -epsilon * (1"),
        "kl is epsilon": ("epsilon * (1 - 2 * a)", "epsilon"),
        "kappa2 about kl": ("[kl, epsilon**2,", "[kl, epsilon**2 - kl**2,"),
        "no absolute value": ("epsilon**3,", "-epsilon**3,"),
        "centred the wrong way": ("(epsilon + kl) ** 3 + (1 - a) * (epsilon - kl) ** 3",
                                  "(epsilon - kl) ** 3 + (1 - a) * (epsilon + kl) ** 3"),
        "third moment with sign": ("a * (epsilon + kl) ** 3 + (1 - a)",
                                   "a * (epsilon + kl) ** 3 - (1 - a)"),
        "not centred": ("a * (epsilon + kl) ** 3 + (1 - a) * (epsilon - kl) ** 3", "epsilon**3"),
        "weights swapped": ("a * (epsilon + kl)", "(1 - a) * (epsilon + kl)",
                            "+ (1 - a) * (epsilon - kl)", "+ a * (epsilon - kl)"),
        "half": ("epsilon * (1 - 2 * a)", "epsilon * (1 - 2 * a) / 2"),
        "small epsilon": ("epsilon * (1 - 2 * a)", "epsilon**2 / 2"),
        "three numbers": ("return np.array([kl, ", "return np.array(["),
    },
    "ex-09-4": {
        "no square": ("(single / target) ** 2", "single / target"),
        "rounded down": ("np.ceil", "np.floor"), "without 0.56": ("0.56 * ", ""),
        "variance to the first power": ("** 1.5", ""), "square root": ("** 1.5", "** 0.5"),
        "not centred": ("kappa2 - kl**2", "kappa2"), "kl not squared": ("kl**2", "kl"),
        "one more": ("return int(", "return 1 + int("),
        "root of target": ("/ target", "/ target**2"),
        "another constant": ("0.56", "0.4748"), "half": ("int(np.ceil(", "int(np.ceil(0.5 * "),
        "not whole": ("int(np.ceil((single / target) ** 2))", "(single / target) ** 2"),
    },
})  # fmt: skip

test_chapter_12 = tries("12-clt", {
    "ex-12-1": {
        "steps not rounded up": ("steps = int((target * n / m) ** 2 / (2 * inside))\n"
                                 "    return steps * m // n",
                                 "return int((target * n / m) ** 2 / (2 * inside) * m / n)"),
        "the Poisson limit": ("2 * inside", "np.expm1(s**2)"),
        "without the 2": ("(2 * inside)", "inside"),
        "noise and sensitivity swapped": ("s = 1 / sigma", "s = sigma"),
        "rounded up": ("steps * m // n", "-(-steps * m // n)"),
        "one more epoch": ("steps * m // n", "steps * m // n + 1"),
        "steps, not epochs": ("steps * m // n", "steps"),
        "n and m swapped": ("target * n / m", "target * m / n"),
        "target not squared": ("(target * n / m) ** 2", "target * (n / m) ** 2"),
        "a constant left out": ("- 2\n", "- 1\n"),
        "the other tail": ("3 * ndtr(-0.5 * s)", "3 * ndtr(0.5 * s)"),
        "batches in an epoch rounded first": ("steps * m // n", "steps // -(-n // m)"),
    },
    "ex-12-2": {
        "without the 2": ("2 * steps", "steps"), "not squared": (" ** 2 / (1", " / (1"),
        "without the fixed point": (" / (1 + np.exp(epsilon))", ""),
        "the whole line": ("(1 + np.exp(epsilon))", "(1 + np.exp(-epsilon))"),
        "small epsilon": ("np.expm1(epsilon) ** 2 / (1 + np.exp(epsilon))", "epsilon**2 / 2"),
        "exp, not exp - 1": ("np.expm1(epsilon) ** 2", "np.exp(epsilon) ** 2"),
        "no root": ("np.sqrt(2 * steps * chi2)", "(2 * steps * chi2)"),
        "p inside the root": ("p * np.sqrt(2 * steps", "np.sqrt(2 * p * steps"),
        "steps outside": ("p * np.sqrt(2 * steps * chi2)", "p * steps * np.sqrt(2 * chi2)"),
        "both sides of the graph": ("/ (1 + np.exp(epsilon))", "* 2 / (1 + np.exp(epsilon))"),
        "of the Gaussian": "def pure_limit_mu(epsilon, p, steps):\n"
                           "    return p * np.sqrt(steps * np.expm1(epsilon**2))",
    },
    "ex-12-3": {
        "one step": ("steps) / target", "1) / target"), "rate one": ("(p, np", "(1.0, np"),
        "rounded": ("return np.exp(", "return round(np.exp(", "np.log(999)))", "np.log(999))), 2)"),
        "the logarithm": ("return np.exp(brentq(excess, np.log(0.2), np.log(999)))",
                          "return brentq(excess, np.log(0.2), np.log(999))"),
        "1/sigma": ("return np.exp(brent", "return 1 / np.exp(brent"),
        "the Poisson limit": "def sigma_for_limit(target, p, steps):\n"
                             "    return 1 / np.sqrt(np.log1p((target / p) ** 2 / steps))",
        "large sigma": "def sigma_for_limit(target, p, steps):\n"
                       "    return p * np.sqrt(steps) / target",
        "twice": ("return np", "return 2 * np"), "half": ("return np", "return 0.5 * np"),
        "the target squared": ("/ target", "/ target**2"),
        "a coarse search": "def sigma_for_limit(target, p, steps):\n"
                           "    grid = np.geomspace(0.2, 900, 500)\n"
                           "    values = [subsampled_clt_mu(p, s, steps) for s in grid]\n"
                           "    return grid[np.argmin(np.abs(np.array(values) - target))]",
    },
    "ex-12-4": {
        "the whole moment": "def third_moment(sigma):\n    s = 1 / sigma\n"
                            "    return np.exp(3 * s**2) - 3 * np.exp(s**2) + 2",
        "sigma for s": ("s = 1 / sigma", "s = sigma"),
        "first exponent": ("np.exp(3 * s**2)", "np.exp(2 * s**2)"),
        "second exponent": ("- 3 * np.exp(s**2)", "- 3 * np.exp(s**2 / 2)"),
        "second sign": ("- 3 * np.exp(s**2)", "+ 3 * np.exp(s**2)"),
        "third sign": ("+ 3 * ndtr(s / 2)", "- 3 * ndtr(s / 2)"),
        "last sign": ("- ndtr(-s / 2)", "+ ndtr(-s / 2)"),
        "lower tails": ("ndtr(2.5 * s)", "ndtr(-2.5 * s)"),
        "first shift": ("ndtr(2.5 * s)", "ndtr(3 * s)"),
        "binomial coefficient": ("- 3 * np.exp", "- 2 * np.exp"),
        "the square": "def third_moment(sigma):\n    s = 1 / sigma\n    return np.exp(s**2)"
                      " * ndtr(1.5 * s) - 2 * ndtr(s / 2) + ndtr(-s / 2)",
        "a number": ("return np.exp", "return float(np.max(s)) * 0 + np.exp(1.0) * np.exp"),
    },
})  # fmt: skip
