"""The exercise checks of chapters 14 and 18 refuse what students plausibly write."""

from wrong_solutions import tries

test_chapter_14 = tries(
    "14-per-sample-gradients",
    {
        "ex-14-1": {
            "no bias": (" + 1)", ")"),
            "squares, not the norm": ("np.sqrt", ""),
            "added norms": ("(delta**2).sum(1) * ((a**2).sum(1) + 1)",
                            "(delta**2).sum(1) + (a**2).sum(1)"),
            "bias counted twice": (" + 1)", " + 2)"),
            "over the batch": (".sum(1)", ".sum(0)"),
            "sum of the entries": ("(delta**2)", "delta"),
            "one number for the batch": "def dense_norms(a, delta):\n"
            "    return np.sqrt(np.sum((delta.T @ a) ** 2) + np.sum(delta.sum(0) ** 2))",
            "the mean": ("return np", "return 1 / len(a) * np"),
            "largest entries": ("(delta**2).sum(1)", "(delta**2).max(1)"),
            "norms of weight and bias added": "def dense_norms(a, delta):\n"
            "    d = np.sqrt((delta**2).sum(1))\n"
            "    return d * np.sqrt((a**2).sum(1)) + d",
            "error signal alone": (" * ((a**2).sum(1) + 1)", ""),
            "input alone": ("(delta**2).sum(1) * ", ""),
        },
        "ex-14-2": {
            "one position": "def position_norms(x, delta):\n"
            "    return np.sqrt((x**2).sum((1, 2)) * (delta**2).sum((1, 2)))",
            "the diagonal alone": "def position_norms(x, delta):\n"
            "    return np.sqrt(((x**2).sum(2) * (delta**2).sum(2)).sum(1))",
            "added": ("2, 1)) * (", "2, 1)) + ("),
            "not the norm": ("return np.sqrt(np.maximum(gram.sum((1, 2)), 0))",
                             "return gram.sum((1, 2))"),
            "summed over a line": ("gram.sum((1, 2))", "gram[:, 0].sum(1)"),
            "x alone": (" * (delta @ delta.transpose(0, 2, 1))", ""),
            "matrix product": ("2, 1)) * (", "2, 1)) @ ("),
            "the mean": ("gram.sum((1, 2))", "gram.mean((1, 2))"),
            "absolute terms": ("gram.sum((1, 2))", "abs(gram).sum((1, 2))"),
            "summed first": "def position_norms(x, delta):\n"
            "    return np.sqrt((x.sum(1) ** 2).sum(1) * (delta.sum(1) ** 2).sum(1))",
            "with a bias": ("(x @ x.transpose(0, 2, 1))", "(x @ x.transpose(0, 2, 1) + 1)"),
            "trace": ("gram.sum((1, 2))", "np.trace(gram, axis1=1, axis2=2)"),
        },
        "ex-14-3": {
            "words never repeat": "def embedding_norms(tokens, delta):\n"
            "    return np.sqrt((delta**2).sum((1, 2)))",
            "all the same word": ("tokens[:, :, None] == tokens[:, None, :]",
                                  "np.ones_like(tokens)[:, :, None]"),
            "different words": ("==", "!="),
            "not the norm": ("np.sqrt(np.maximum((same", "(np.maximum((same"),
            "by the word's number": ("same *", "tokens[:, :, None] *"),
            "neighbours alone": ("tokens[:, None, :]", "np.roll(tokens, 1, 1)[:, None, :]"),
            "across records": ("tokens[:, None, :]", "tokens[:1, None, :]"),
            "later than": ("==", ">="),
            "mean": (".sum((1, 2))", ".mean((1, 2))"),
            "absolute terms": ("same * (delta", "same * abs(delta"),
            "summed over words": "def embedding_norms(tokens, delta):\n"
            "    return np.sqrt((delta.sum(1) ** 2).sum(1))",
            "one number": ("return np.sqrt(", "return float(tokens.max()) * np.sqrt("),
        },
        "ex-14-4": {
            "no padding": ("2 * g", "0 * g"),
            "padding on one side": ("2 * g", "g"),
            "no stride": (" // t", ""),
            "one position too few": (" // t + 1", " // t"),
            "positions on a line": (" + 1) ** 2", " + 1)"),
            "square kernel forgotten": ("channels * k * k", "channels * k"),
            "channels forgotten": ("channels * k * k", "k * k"),
            "half of the norms": ("P * P * (p", "P * P // 2 * (p"),
            "no second product": (" + P * out + P * p * out", ""),
            "gradients formed once": (" + 2 * p * out", ""),
            "order swapped": ("P * p * out + 2 * p * out, P * P * (p + out + 1) + P * out + P * p"
                              " * out", "P * P * (p + out + 1) + P * out + P * p * out, P * p * out"
                              " + 2 * p * out"),
            "out not in the gram": ("(p + out + 1)", "(p + 1)"),
        },
    },
)

test_chapter_18 = tries(
    "18-auditing",
    {
        "ex-18-1": {
            "frequencies": ("beta_law.ppf(0.975, k + 1, n - k)", "(k + 0.5) / n"),
            "one-sided 95": ("0.975", "0.95"),
            "the lower limit": ("ppf(0.975, k + 1, n - k)", "ppf(0.025, k + 1, n - k)"),
            "without the one more": ("k + 1, n - k", "k + 1e-9, n - k + 1"),
            "one order": (", (1 - delta - b) / a", ""),
            "the other order": ("(1 - delta - a) / b, ", ""),
            "delta forgotten": ("1 - delta - ", "1 - "),
            "delta twice": ("1 - delta - ", "1 - 2 * delta - "),
            "not at least 0": ("max(1, ", "max("),
            "no logarithm": ("np.log(max", "(max"),
            "counts swapped": ("limit(fp, n0), limit(fn, n1)", "limit(fp, n1), limit(fn, n0)"),
            "no limit at the end": ("1.0 if k == n", "0.0 if k == n"),
        },
        "ex-18-2": {
            "rounded down": (" + 1", ""),
            "one too many": (" + 1", " + 2"),
            "one-sided 95": ("0.025", "0.05"),
            "delta forgotten": ("1 - 1e-5", "1"),
            "delta of 0.01": ("1e-5", "1e-2"),
            "odds": ("(1 + math.exp(epsilon))", "math.exp(epsilon)"),
            "rule of three": "def runs_needed(epsilon):\n"
            "    return math.ceil(3.0 * (1 + math.exp(epsilon)))",
            "first order": ("math.log1p(-g)", "(-g)"),
            "both errors share": ("0.025", "0.0125"),
            "small epsilon": ("math.exp(epsilon)", "(1 + epsilon)"),
            "not whole": ("math.floor(math.log(0.025) / math.log1p(-g)) + 1",
                          "math.log(0.025) / math.log1p(-g)"),
            "base 10": ("math.log(0.025)", "math.log10(0.025)"),
        },
        "ex-18-3": {
            "more than v": ("range(v, r + 1)", "range(v + 1, r + 1)"),
            "the last left out": ("range(v, r + 1)", "range(v, r)"),
            "at most v": ("range(v, r + 1)", "range(0, v + 1)"),
            "exactly v": ("range(v, r + 1)", "range(v, v + 1)"),
            "a coin": ("1 / (1 + math.exp(-epsilon))", "0.5"),
            "the wrong guess": ("math.exp(-epsilon)", "math.exp(epsilon)"),
            "e to the epsilon": ("1 / (1 + math.exp(-epsilon))", "1 - math.exp(-epsilon) / 2"),
            "half of epsilon": ("-epsilon)", "-epsilon / 2)"),
            "no binomial coefficient": ("math.comb(r, k) * ", ""),
            "doubled": ("return sum", "return 2 * sum"),
            "powers swapped": ("p**k * (1 - p) ** (r - k)", "p ** (r - k) * (1 - p) ** k"),
            "Hoeffding": "def one_run_p(v, r, epsilon):\n"
            "    p = 1 / (1 + math.exp(-epsilon))\n"
            "    return min(1.0, math.exp(-2 * r * max(v / r - p, 0) ** 2))",
        },
    },
)
