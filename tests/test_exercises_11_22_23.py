"""The exercise checks of chapters 11, 22 and 23 refuse what students plausibly write."""

from wrong_solutions import tries

test_chapter_11 = tries(
    "11-noisy-sgd",
    {
        "ex-11-1": {
            "swapped": ("[a - upper, upper]", "[upper, a - upper]"),
            "h's sign": ("expm1(-h)", "expm1(h)"),
            "z's sign": ("np.exp(z)", "np.exp(-z)"),
            "from the right end": ("np.exp(z)", "np.exp(z + h)"),
            "all to the left": ("[a - upper, upper]", "[a, 0 * a]"),
            "all up": ("[a - upper, upper]", "[0 * a, a]"),
            "by the middle": ("upper = (a - b * np.exp(z)) / -np.expm1(-h)", "upper = a / 2"),
            "Q masses": ("[a - upper, upper]", "[(a - upper) / np.exp(z), upper / np.exp(z + h)]"),
            "without the step": (" / -np.expm1(-h)", ""),
            "linear in h": ("-np.expm1(-h)", "h"),
            "b forgotten": ("(a - b * np.exp(z))", "a"),
            "digits lost": ("-np.expm1(-h)", "round(-np.expm1(-h), 4)"),
        },
        "ex-11-2": {
            "wraps round": ("T * (len(weights) - 1) + 1\n", "len(weights)\n"),
            "one short": ("T * (len(weights) - 1) + 1\n", "T * (len(weights) - 1)\n"),
            "one long": ("T * (len(weights) - 1) + 1\n", "T * len(weights)\n"),
            "squared": ("** T", "** 2"),
            "one step less": ("** T", "** (T - 1)"),
            "times": ("** T", "* T"),
            "not inverted": (
                "np.fft.irfft(np.fft.rfft(weights, size) ** T, size)",
                "np.abs(np.fft.rfft(weights, size) ** T)",
            ),
            "normalised": (
                "return np",
                "return (lambda r: 1.01 * r / r.sum())(np",
                "** T, size)",
                "** T, size))",
            ),
            "cut": ("** T, size)", "** T, size)[: len(weights)]"),
            "mirrored": ("** T, size)", "** T, size)[::-1]"),
            "default length": ("** T, size)", "** T)"),
            "of masses, not of their transform": (
                "np.fft.rfft(weights, size) ** T",
                "np.fft.rfft(weights**T, size)",
            ),
        },
        "ex-11-3": {
            "not tilted": ("np.exp(tau * h", "np.exp(0 * tau * h"),
            "not tilted back": ("- tau * z", ""),
            "tilted back the wrong way": ("- tau * z", "+ tau * z"),
            "M once": ("T * np.log(M)", "np.log(M)"),
            "M forgotten": ("T * np.log(M) - tau", "-tau"),
            "h forgotten": ("tau * h * np", "tau * np"),
            "not logarithms": (
                "return T * np.log(M) - tau * z + np.log(total)",
                "return np.exp(T * np.log(M) - tau * z) * total",
            ),
            "z without h": ("z = h * np", "z = np"),
            "not normalised": ("tilted / M", "tilted"),
            "untilted power": "def tilted_log_power(weights, h, tau, T):\n"
            "    return np.log(np.maximum(fft_power(weights, T), 1e-300))",
            "minus the tilt": ("np.exp(tau * h", "np.exp(-tau * h"),
            "one step": ("tilted / M, T", "tilted / M, 1"),
        },
        "ex-11-4": {
            "two steps": (
                "return float(np.exp(first.log_p) @ [two_steps(law, epsilon - loss) for loss"
                " in first.loss])",
                "return float(two_steps(law, epsilon))",
            ),
            "plus the loss": ("epsilon - loss", "epsilon + loss"),
            "equal weights": (
                "np.exp(first.log_p)",
                "np.ones(first.log_p.size) / first.log_p.size",
            ),
            "under Q": ("first.log_p", "first.log_q"),
            "logarithms": ("np.exp(first.log_p)", "first.log_p"),
            "one step inside": (
                "two_steps(law, epsilon - loss)",
                "float(law.delta(epsilon - loss))",
            ),
            "never below 0": ("epsilon - loss", "max(epsilon - loss, 0)"),
            "half the loss": ("epsilon - loss", "epsilon - loss / 2"),
            "three times one": "def profile_of_three(law, epsilon):\n"
            "    return min(1.0, 3 * float(law.delta(epsilon / 3)))",
            "basic composition": "def profile_of_three(law, epsilon):\n"
            "    return 3 * float(law.delta(epsilon))",
            "half as much again": ("return float(", "return 1.5 * float("),
        },
    },
)

test_chapter_22 = tries(
    "22-choosing-and-stopping",
    {
        "ex-22-1": {
            "one trial": ("p / (gamma + (1 - gamma) * p)", "p"),
            "the mean number": ("p / (gamma + (1 - gamma) * p)", "1 - (1 - p) ** (1 / gamma)"),
            "linear": ("p / (gamma + (1 - gamma) * p)", "min(1, p / gamma)"),
            "rates swapped": ("gamma + (1 - gamma) * p", "(1 - gamma) + gamma * p"),
            "bad": ("return p", "return 1 - p"),
            "last trial": ("(1 - gamma) * p)", "(1 - gamma) * (1 - p))"),
            "from 0 trials": ("p / (gamma", "(1 - gamma) * p / (gamma"),
            "gamma forgotten": ("gamma + (1 - gamma) * p", "1 + p"),
            "squared": ("* p)", "* p**2)"),
            "all good": ("p / (gamma + (1 - gamma) * p)", "gamma * p / (1 - (1 - gamma) * p)"),
            "odds": ("p / (gamma + (1 - gamma) * p)", "p / (gamma * (1 - p))"),
        },
        "ex-22-2": {
            "three": ("(2 + eta)", "3"),
            "one": ("(2 + eta)", "(1 + eta)"),
            "two": ("(2 + eta)", "2"),
            "twice": ("(2 + eta)", "(2 + 2 * eta)"),
            "minus": ("2 + eta", "2 - eta"),
            "the base alone": ("(2 + eta) * epsilon", "epsilon"),
            "squared": ("* epsilon", "* epsilon**2"),
            "plus": ("(2 + eta) * epsilon", "2 + eta + epsilon"),
            "eta alone": ("(2 + eta)", "eta"),
            "absolute": ("2 + eta", "2 + abs(eta)"),
            "one more": ("(2 + eta)", "(3 + eta)"),
        },
        "ex-22-3": {
            "parameters add": (
                "mu**2 - sum(m**2 for m in spent)",
                "(mu - sum(spent)) * abs(mu - sum(spent))",
            ),
            "no infinity": (
                "np.inf if left <= 0 else 1 / np.sqrt(left)",
                "1 / np.sqrt(left) if left > 0 else 0.0",
            ),
            "no root": ("1 / np.sqrt(left)", "1 / left"),
            "mu, not sigma": ("1 / np.sqrt(left)", "np.sqrt(left)"),
            "mu not squared": ("mu**2", "mu"),
            "the last step alone": ("sum(m**2 for m in spent)", "(spent[-1] ** 2 if spent else 0)"),
            "twice": ("1 / np.sqrt", "2 / np.sqrt"),
            "the whole budget": (" - sum(m**2 for m in spent)", ""),
            "a step too few": ("for m in spent)", "for m in spent[1:])"),
            "even shares": ("1 / np.sqrt(left)", "1 / np.sqrt(left / (1 + len(spent)))"),
            "spent as noise": ("m**2 for", "1 / m**2 for"),
        },
    },
)

test_chapter_23 = tries(
    "23-correlated-noise",
    {
        "ex-23-1": {
            "applies C": ("return w", "return np.convolve(c, z)[: len(z)]"),
            "plus the past": ("z[t] - past", "z[t] + past"),
            "past draws, not past noise": ("c[i] * w[t - i]", "c[i] * z[t - i]"),
            "not divided": (" / c[0]", ""),
            "one band too few": ("min(len(c), t + 1)", "min(len(c) - 1, t + 1)"),
            "from 2": ("range(1, min", "range(2, min"),
            "first step left out": ("range(len(z))", "range(1, len(z))"),
            "the last band alone": (
                "sum(c[i] * w[t - i] for i in range(1, min(len(c), t + 1)))",
                "c[-1] * w[t - 1] if t else 0",
            ),
            "mirrored": ("return w", "return w[::-1]"),
            "prefix sums": ("return w", "return np.cumsum(w)"),
            "independent": ("return w", "return np.array(z, dtype=float)"),
            "shifted": ("w[t - i]", "w[t - i - 1]"),
        },
        "ex-23-2": {
            "relations swapped": (
                '"zero-out": 1, "replace-one": 2',
                '"zero-out": 2, "replace-one": 1',
            ),
            "one for both": ('"replace-one": 2', '"replace-one": 1'),
            "k outside": (
                "math.sqrt(k * np.sum(prefix_root(bands) ** 2))",
                "k * math.sqrt(np.sum(prefix_root(bands) ** 2))",
            ),
            "k forgotten": ("k * np.sum", "np.sum"),
            "not squared": ("prefix_root(bands) ** 2", "prefix_root(bands)"),
            "no root": (
                "math.sqrt(k * np.sum(prefix_root(bands) ** 2))",
                "(k * np.sum(prefix_root(bands) ** 2))",
            ),
            "all steps": ("math.sqrt(k *", "math.sqrt(k * b *"),
            "identity": ("prefix_root(bands)", "prefix_root(1)"),
            "times mu": (" / mu", " * mu"),
            "b bands": ("prefix_root(bands)", "prefix_root(b)"),
            "a longer run": ("math.sqrt(k *", "math.sqrt((k + 1) *"),
            "change squared": ("return change", "return change**2"),
        },
        "ex-23-3": {
            "nothing happens": (
                "mu * sensitivity(c, k * b, 1, k) / sensitivity(c, k * b, b, k)",
                "mu",
            ),
            "the other way": (
                "1, k) / sensitivity(c, k * b, b, k)",
                "b, k) / sensitivity(c, k * b, 1, k)",
            ),
            "one epoch": ("k * b, 1, k)", "b, 1, k)"),
            "gap 2": ("k * b, 1, k)", "k * b, 2, k)"),
            "one use": ("k * b, 1, k)", "k * b, 1, 1)"),
            "squared": ("return mu", "return mu**2"),
            "by the root of k": (
                "mu * sensitivity(c, k * b, 1, k) / sensitivity(c, k * b, b, k)",
                "mu * math.sqrt(k)",
            ),
            "by k": ("mu * sensitivity(c, k * b, 1, k) / sensitivity(c, k * b, b, k)", "mu * k"),
            "absolute": (" / sensitivity(c, k * b, b, k)", ""),
            "all bands": ("prefix_root(bands)", "prefix_root(k * b)"),
            "one more use": ("k * b, 1, k)", "(k + 1) * b, 1, k + 1)"),
        },
    },
)
