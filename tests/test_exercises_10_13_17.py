"""The exercise checks of chapters 10, 13 and 17 refuse what students plausibly write."""

from wrong_solutions import tries

test_chapter_10 = tries(
    "10-subsampling",
    {
        "ex-10-1": {
            "epsilon times p": ("np.log1p(p * np.expm1(epsilon))", "p * epsilon"),
            "delta not amplified": ("p * delta", "delta"),
            "order swapped": (
                "[np.log1p(p * np.expm1(epsilon)), p * delta]",
                "[p * delta, np.log1p(p * np.expm1(epsilon))]",
            ),
            "without minus 1": ("np.log1p(p * np.expm1(epsilon))", "np.log(p * np.exp(epsilon))"),
            "log of the mixture lost for tiny p": (
                "np.log1p(p * np.expm1(epsilon))",
                "np.log(1 + p * (np.exp(epsilon) - 1))",
            ),
            "no logarithm": ("np.log1p(p * np.expm1(epsilon))", "p * np.expm1(epsilon)"),
            "1 - p": ("p * np.expm1", "(1 - p) * np.expm1"),
            "p squared": ("p * delta", "p**2 * delta"),
            "delta by 1 - p": ("p * delta", "(1 - p) * delta"),
            "doubled": ("p * delta", "2 * p * delta"),
            "exp": ("np.expm1(epsilon)", "np.exp(epsilon)"),
            "epsilon alone": (
                "np.array([np.log1p(p * np.expm1(epsilon)), p * delta])",
                "np.log1p(p * np.expm1(epsilon))",
            ),
        },
        "ex-10-2": {
            "half of it": (
                "return 2 * u",
                "return 0.5 * (2 * u",
                "mixed(corner)\n",
                "mixed(corner))\n",
            ),
            "without the mixture": ("- corner - mixed(corner)", "- 2 * corner"),
            "fixed point of G": (
                "mixed = lambda alpha: float(p * gaussian_tradeoff(mu, alpha)"
                " + (1 - p) * (1 - alpha))",
                "mixed = lambda alpha: float(gaussian_tradeoff(mu, alpha))",
            ),
            "corner at 1 - ": ("ndtr(-mu / 2)", "ndtr(mu / 2)"),
            "corner at mu": ("-mu / 2", "-mu"),
            "rates swapped": (
                "p * gaussian_tradeoff(mu, alpha) + (1 - p)",
                "(1 - p) * gaussian_tradeoff(mu, alpha) + p",
            ),
            "the distance along the diagonal": (
                "return 2 * u - corner - mixed(corner)",
                "return (2 * u - corner - mixed(corner)) / np.sqrt(2)",
            ),
            "negative": (
                "return 2 * u - corner - mixed(corner)",
                "return corner + mixed(corner) - 2 * u",
            ),
            "u once": ("2 * u - corner", "u - corner"),
            "the corner's own height": ("2 * u - corner - mixed(corner)", "mixed(corner) - corner"),
            "nothing": ("return 2 * u - corner - mixed(corner)", "return 0.0"),
        },
        "ex-10-3": {
            "not inverted": "def inverse_of_mixed(p, mu, alpha):\n"
            "    return float(p * gaussian_tradeoff(mu, alpha) + (1 - p) * (1 - alpha))",
            "inverse of G": "def inverse_of_mixed(p, mu, alpha):\n"
            "    return float(gaussian_tradeoff(mu, alpha))",
            "few halvings": ("range(100)", "range(12)"),
            "the wrong half": ("value > alpha", "value < alpha"),
            "rates swapped": (
                "p * gaussian_tradeoff(mu, t) + (1 - p)",
                "(1 - p) * gaussian_tradeoff(mu, t) + p",
            ),
            "without sampling": (
                "p * gaussian_tradeoff(mu, t) + (1 - p) * (1 - t)",
                "gaussian_tradeoff(mu, t)",
            ),
            "t, not 1 - t": ("(1 - p) * (1 - t)", "(1 - p) * t"),
            "the other mu": ("(mu, t)", "(-mu, t)"),
            "one minus": ("return high", "return 1 - high"),
            "half an interval": ("0.0, 1.0", "0.0, 0.5"),
            "mu scaled by p": ("gaussian_tradeoff(mu, t)", "gaussian_tradeoff(p * mu, t)"),
            "inverse of a line": "def inverse_of_mixed(p, mu, alpha):\n    return 1 - alpha",
        },
        "ex-10-4": {
            "no bridge": (
                "np.where(alpha <= x, left, np.where(alpha <= y, x + y - alpha, right))",
                "np.minimum(left, right)",
            ),
            "the maximum": (
                "np.where(alpha <= x, left, np.where(alpha <= y, x + y - alpha, right))",
                "np.maximum(left, right)",
            ),
            "left alone": (
                "np.where(alpha <= x, left, np.where(alpha <= y, x + y - alpha, right))",
                "left",
            ),
            "right alone": (
                "np.where(alpha <= x, left, np.where(alpha <= y, x + y - alpha, right))",
                "right",
            ),
            "corner at mu": ("ndtr(-mu / 2)", "ndtr(-mu)"),
            "bridge through the origin": ("x + y - alpha", "y - alpha"),
            "bridge from 1": ("x + y - alpha", "1 - alpha"),
            "end of the bridge": ("p * x + (1 - p) * (1 - x)", "1 - x"),
            "rates swapped": (
                "p * gaussian_tradeoff(mu, alpha) + (1 - p)",
                "(1 - p) * gaussian_tradeoff(mu, alpha) + p",
            ),
            "pieces swapped": (
                "np.where(alpha <= x, left",
                "np.where(alpha <= x, right",
                "x + y - alpha, right)",
                "x + y - alpha, left)",
            ),
            "without sampling": "def three_pieces(p, mu, alpha):\n"
            "    return gaussian_tradeoff(mu, alpha)",
            "scaled mu": "def three_pieces(p, mu, alpha):\n"
            "    return gaussian_tradeoff(p * mu, alpha)",
        },
    },
)

test_chapter_13 = tries(
    "13-berry-esseen",
    {
        "ex-13-1": {
            "atom left of 0": ("if v < 0", "if v <= 0"),
            "no atom": ("(1 - p) * ndtr(-t)", "ndtr(-t)"),
            "tail": (
                "return float(1 - (1 - p) * ndtr(-t) - p * ndtr(s - t))",
                "return float((1 - p) * ndtr(-t) + p * ndtr(s - t))",
            ),
            "below 0 the mixture": (
                "return float(ndtr(-t))",
                "return float((1 - p) * ndtr(-t) + p * ndtr(s - t))",
            ),
            "shift forgotten": ("s / 2 + np", "np"),
            "shift subtracted": ("s / 2 + np", "-s / 2 + np"),
            "not divided by s": (" / p) / s", " / p)"),
            "p forgotten": ("np.expm1(abs(v)) / p", "np.expm1(abs(v))"),
            "under Q": ("- p * ndtr(s - t)", "- p * ndtr(-t)"),
            "abs forgotten": ("abs(v)", "max(v, 0)"),
            "rates swapped": ("(1 - p) * ndtr(-t) - p *", "p * ndtr(-t) - (1 - p) *"),
            "exp": ("np.log1p(np.expm1(abs(v)) / p)", "np.log1p(np.exp(abs(v)) / p)"),
        },
        "ex-13-2": {
            "weight 1": ("(1 + np.exp(-epsilon)) * ", ""),
            "weight 2": ("1 + np.exp(-epsilon)", "2"),
            "the other sign": ("np.exp(-epsilon)", "np.exp(epsilon)"),
            "minus": ("1 + np.exp(-epsilon)", "1 - np.exp(-epsilon)"),
            "half": ("return quad", "return 0.5 * quad"),
            "from 0 to 1": ("0, np.inf", "0, 1"),
            "sigma and s": ("1 / s", "s"),
            "without sampling": ("SubsampledLaw(p, 1 / s)", "SubsampledLaw(1.0, 1 / s)"),
            "negative": ("return quad", "return -quad"),
            "epsilon as weight": ("(1 + np.exp(-epsilon))", "epsilon"),
            "the pair": ("limit=500)[0]", "limit=500)"),
        },
        "ex-13-3": {
            "without the maximum": (
                "max(0.0, ndtr(-ndtri(gamma) - mu) - gamma)",
                "ndtr(-ndtri(gamma) - mu) - gamma",
            ),
            "gamma not subtracted": (" - mu) - gamma", " - mu)"),
            "plus gamma": (" - mu) - gamma", " - mu) + gamma"),
            "plus mu": ("- mu", "+ mu"),
            "quantile's sign": ("-ndtri(gamma)", "ndtri(gamma)"),
            "gamma twice": (" - mu) - gamma", " - mu) - 2 * gamma"),
            "the complement": (
                "ndtr(-ndtri(gamma) - mu) - gamma",
                "1 - ndtr(-ndtri(gamma) - mu) - gamma",
            ),
            "half of mu": ("- mu)", "- mu / 2)"),
            "at most half": ("max(0.0,", "min(0.5,"),
            "the curve at gamma": (
                "ndtr(-ndtri(gamma) - mu) - gamma",
                "ndtr(-ndtri(1 - gamma) - mu)",
            ),
            "1 - gamma": ("max(0.0, ndtr(-ndtri(gamma) - mu) - gamma)", "1 - gamma"),
        },
        "ex-13-4": {
            "no correction": (" + skewness / 6 * (x**2 - 1) * norm.pdf(x)", ""),
            "sign": ("+ skewness", "- skewness"),
            "of 3 factorial": ("/ 6", "/ 3"),
            "third Hermite": ("(x**2 - 1)", "(x**3 - 3 * x)"),
            "plus one": ("x**2 - 1", "x**2 + 1"),
            "first": ("(x**2 - 1)", "x"),
            "cdf": ("norm.sf", "norm.cdf"),
            "tail, not density": ("norm.pdf(x)", "norm.sf(x)"),
            "squared": ("skewness /", "skewness**2 /"),
            "no factor": ("skewness / 6", "skewness"),
            "x squared": ("(x**2 - 1)", "x**2"),
            "the density": ("norm.sf(x) +", "norm.pdf(x) +"),
        },
    },
)

test_chapter_17 = tries(
    "17-which-noise",
    {
        "ex-17-1": {
            "sigma as it stands": ("2 / sigma", "1 / sigma"),
            "half": ("2 / sigma", "0.5 / sigma"),
            "mu doubled": "def corrected_mu(p, sigma, T):\n    s = 1 / sigma\n"
            "    a = np.exp(s**2) * ndtr(1.5 * s) + 3 * ndtr(-0.5 * s) - 2\n"
            "    return 2 * p * np.sqrt(2 * T * a)",
            "the Poisson limit": "def corrected_mu(p, sigma, T):\n"
            "    return p * np.sqrt(T * np.expm1(1 / sigma**2))",
            "without the 2": ("2 * T", "T"),
            "no root": ("np.sqrt(2", "(2"),
            "p squared": ("p *", "p**2 *"),
            "a constant": ("- 2)", "- 1)"),
            "3/2": ("1.5 * s", "0.5 * s"),
            "sign": ("-0.5", "0.5"),
            "T outside": ("p * np.sqrt(2 * T", "p * T * np.sqrt(2"),
            "exponent": ("s**2)", "s**2 / 2)"),
        },
        "ex-17-2": {
            "divided by m": ("np.asarray(g) + m * C", "np.asarray(g) / m + C"),
            "not centred": ("np.asarray(g) + m * C", "np.asarray(g)"),
            "minus the centre": ("+ m * C", "- m * C"),
            "sigma for C": ("(sigma * C)", "sigma"),
            "mu for one record removed": ("2 / sigma", "1 / sigma"),
            "rate": ("m / n", "1 / n"),
            "without sampling": (
                "np.log1p(p * np.expm1(mu * x - mu**2 / 2))",
                "mu * x - mu**2 / 2",
            ),
            "no mean": ("mu * x - mu**2 / 2", "mu * x"),
            "sign": ("return float(", "return -float("),
            "ratio, not log": (
                "np.log1p(p * np.expm1(mu * x - mu**2 / 2))",
                "p * np.expm1(mu * x - mu**2 / 2)",
            ),
            "mean over steps": ("np.sum", "np.mean"),
            "largest": ("np.sum", "np.max"),
        },
        "ex-17-3": {
            "sigma, not the multiplier": ("middle / 2", "middle"),
            "doubled twice": ("return high", "return 2 * high"),
            "half": ("return high", "return high / 2"),
            "another delta": ("1e-5", "1e-6"),
            "the wrong side": (
                "(middle, high) if",
                "(low, middle) if",
                "else (low, middle)",
                "else (middle, high)",
            ),
            "few halvings": ("range(60)", "range(14)"),
            "one step": ("middle / 2, T", "middle / 2, 1"),
            "no sampling": ("subsampled_clt_mu(p,", "subsampled_clt_mu(1.0,"),
            "rounded": ("return high", "return round(high, 2)"),
            "mu for epsilon": ("GaussianGuarantee(mu=mu).epsilon(1e-5) > epsilon", "mu > epsilon"),
            "a short search": ("200.0", "1.0"),
            "rate squared": ("(p, middle", "(p**2, middle"),
        },
    },
)
