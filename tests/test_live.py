"""The live figures in a real Chromium: their formulas against dpteach, and how they behave for a
reader.

The page is made here from the figures' own files and opened from disk, so nothing needs a build of
the book.
"""

import re

import numpy as np
import pytest
from browser import chromium
from golden import value
from live_figures import NAMES
from live_grid import ERROR, LIVE, NODES, RANGES, SCALE, chebyshev, point
from scipy import special

from dpteach import bounds, correlated, guarantees, hidden, laws, limits, moments
from dpteach.run import steps_for_epochs
from dpteach.tensor_power import TensorPower

PAGE = """<!DOCTYPE html><html lang="en" data-theme="{theme}"><head><meta charset="utf-8">
<title>Live figures</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="{live}/live.css">
<style>:root {{ --pst-color-text-base: #222832; --pst-color-background: #fff;
  --pst-color-border: #d1d5da;
--pst-color-text-muted: #48566b; --pst-color-surface: #f3f4f5; --pst-color-primary: #0a7d91 }}
[data-theme=dark] {{ --pst-color-text-base: #ced6dd; --pst-color-background: #14181e;
  --pst-color-border: #48566b;
--pst-color-text-muted: #9ca4af; --pst-color-surface: #222832; --pst-color-primary: #3fb1c5 }}
body {{ background: var(--pst-color-background); font-family: sans-serif }}
img {{ max-width: 100% }}</style>
{scripts}</head><body><main class="bd-article">{figures}</main></body></html>"""
FIGURE = ('<div class="live" data-live="{0}"><figure><img src="{1}/{0}.svg" alt="static picture">'
          "</figure></div>")
SIGMAS = (0.5, 0.7, 1.0, 1.3, 4.0, 20.0)
RATES = (1e-4, 256 / 60000, 0.1, 0.7, 1.0)
RUNS = {"A": (1.3, 15, 3516), "B": (1.1, 60, 14063), "C": (0.7, 45, 10547)}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Writes the page; gives its address for a theme."""
    def write(theme="light"):
        scripts = "".join(f'<script defer src="{LIVE.as_uri()}/{name}.js"></script>'
                          for name in ("maths", "power", "grid", "draw", *NAMES))
        figures = "".join(FIGURE.format(name, LIVE.as_uri()) for name in NAMES)
        path = tmp_path_factory.mktemp("live") / "page.html"
        path.write_text(PAGE.format(theme=theme, live=LIVE.as_uri(), scripts=scripts,
                                    figures=figures), "utf-8")
        return path.as_uri()
    return write


@pytest.fixture(scope="module")
def wide(page):
    with chromium(1280, 2400) as browser:
        browser.open(page())
        yield browser


def evaluate(browser, name, grid):
    """A function of dpteachLive at each tuple of arguments."""
    script = "return arguments[1].map((a) => dpteachLive[arguments[0]](...a))"
    plain = [[x if isinstance(x, str) else float(x) for x in arguments] for arguments in grid]
    return np.array(browser.run(script, name, plain), float)


# ---- closed forms
# --------------------------------------------------------------------------------------------

LINE = [(x,) for x in np.concatenate([np.linspace(-30, 30, 241),
                                      [-1e-9, 1e-9, 0.46875, -0.46875, 4, 4.0001]])]
POSITIVE = [(x,) for x in np.concatenate([np.geomspace(1e-10, 1e6, 200), [0.46875, 4.0]])]
PROBABILITIES = [(x,) for x in np.concatenate([np.geomspace(1e-300, 0.5, 200),
                                               1 - np.geomspace(1e-12, 0.5, 60)])]
PROFILE = [(mu, e) for mu in (0.01, 0.28, 1, 2.5, 8) for e in (-2, -0.1, 0, 0.01, 0.5, 1, 4, 20)
           if mu > 0.1 or abs(e) < 0.3]
PLANE = [(mu, a) for mu in (0.05, 0.28, 1, 3) for a in (1e-8, 1e-3, 0.1, 0.5, 0.9, 0.9999)]
PAIRS = [(e, d, a) for e in (0, 1, 5) for d in (0, 1e-5, 0.3) for a in (0, 0.01, 0.4, 0.8, 1)]
LIMITS = [(p, s, t) for p in RATES for s in SIGMAS for t in (1, 3516, 10**7)]
MOMENTS = [(q, s, k) for q in RATES for s in SIGMAS for k in (1, 2, 3, 7, 40, 200)]
LEMMA = [(q, s, k) for q, s in ((1e-4, 1.0), (0.01, 4.0), (0.04, 1.0), (0.001, 7.5))
         for k in (1, 2, 3)]
LAWS = {
    "gaussian": lambda q, s: laws.GaussianLaw(s),
    "remove": lambda q, s: laws.PoissonLaw(q, s, "remove"),
    "add": lambda q, s: laws.PoissonLaw(q, s, "add"),
    "replace": laws.SubsampledLaw,
}
LOSSES = [(name, q, s, e) for name in LAWS for q in RATES[1:] for s in (0.5, 1.3, 4.0)
          for e in (0, 1e-3, 0.03, 0.3, 1, 3, 9)]
LOSS_POINTS = LOSSES + [(name, q, s, -e) for name, q, s, e in LOSSES if 0 < e < 3]


def exact_tail(name, q, sigma, z):
    law = LAWS[name](q, sigma)
    atom = law.atom if name == "replace" and z == 0 else 0.0  # P(L > z) is without the atom at z
    return float(laws.loss_masses(law, np.array([-np.inf, z, np.inf]))[0][1]) - atom


CLOSED = {
    "erf": (LINE, special.erf),
    "erfc": (LINE, special.erfc),
    "erfcx": (POSITIVE, special.erfcx),
    "Phi": (LINE, special.ndtr),
    "logPhi": (LINE, special.log_ndtr),
    "PhiInverse": (PROBABILITIES, special.ndtri),
    "gaussianDelta": (PROFILE, laws.gaussian_delta),
    "gaussianEpsilon": ([(m, d) for m in (0.1, 0.28, 1, 4) for d in (1e-10, 1e-5, 1e-2)],
                        lambda m, d: guarantees.GaussianGuarantee(mu=m).epsilon(d)),
    "gaussianTradeoff": (PLANE, guarantees.gaussian_tradeoff),
    "pairTradeoff": (PAIRS, guarantees.f_epsilon_delta),
    "chi2Plus": ([(m,) for m in np.geomspace(1e-2, 5, 80)], limits.chi2_plus),
    "fixedMu": (LIMITS, lambda p, s, t: limits.subsampled_clt_mu(p, s, int(t))),
    "poissonMu": (LIMITS, lambda q, s, t: limits.poisson_clt_mu(q, s, int(t))),
    "stepsOf": ([(n, m, e) for n in (1000, 60000, 10**7) for m in (16, 100, 256)
                 for e in (1, 3, 15, 45, 60)],
                lambda n, m, e: steps_for_epochs(int(n), int(m), e)),
    "mixtureLoss": ([(q, x) for q in RATES for x in (-50, -1, -1e-6, 0, 0.3, 1, 40)],
                    lambda q, x: laws.mixture_loss(q, np.array(x))),
    "atom": ([(p, 1 / s) for p in RATES for s in SIGMAS],
             lambda p, mu: laws.SubsampledLaw(p, 1 / mu).atom),
    "lossDelta": (LOSSES, lambda name, q, s, e: LAWS[name](q, s).delta(e)),
    "lossTail": (LOSS_POINTS, exact_tail),
    "logMoment": (MOMENTS, lambda q, s, k: moments.log_e2_integer(q, s, int(k))),
    "lemma3Leading": (LEMMA, bounds.lemma3_leading),
    "lemma3Bound": (LEMMA, lambda q, s, k: bounds.lemma3_bound(q, s, int(k))),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_agree_with_the_package(wide, name):
    grid, exact = CLOSED[name]
    expected = np.array([float(exact(*arguments)) for arguments in grid])
    found = evaluate(wide, name, grid)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-15
                               if name == "PhiInverse" else 1e-300)


def test_the_density_of_the_loss_integrates_to_its_masses(wide):
    script = "return dpteachLive.lossDensity(arguments[0], arguments[1], arguments[2], 4000)"
    for name, q, sigma in (("gaussian", 1, 1.0), ("remove", 0.1, 0.8), ("add", 0.1, 0.8),
                           ("replace", 0.3, 0.8)):
        loss, density = np.array(wide.run(script, name, q, sigma)).T
        edges = np.linspace(*laws.loss_range(LAWS[name](q, sigma), 0.02), 7)
        inside = np.array([np.trapezoid(np.where((loss > a) & (loss < b), density, 0), loss)
                           for a, b in zip(edges[:-1], edges[1:], strict=True)])
        mass = laws.loss_masses(LAWS[name](q, sigma), edges)[0]
        if name == "replace":
            mass[(edges[:-1] <= 0) & (edges[1:] > 0)] -= laws.SubsampledLaw(q, sigma).atom
        np.testing.assert_allclose(inside, mass, atol=0.01)


@pytest.mark.parametrize("q, sigma, steps",
                         [(0.01, 4.0, 10_000), (256 / 60000, 1.3, 3516), (0.05, 1.0, 300)])
def test_moments_give_the_accountants_epsilon_and_order(wide, q, sigma, steps):
    found = wide.run("return dpteachLive.momentsEpsilon(...arguments, 512)", q, sigma, steps, 1e-5)
    epsilon, order = moments.MomentsGuarantee(law=laws.PoissonLaw(q, sigma), steps=steps).best(1e-5)
    assert found["order"] == order and abs(found["epsilon"] / epsilon - 1) < 1e-10


def test_the_region_of_lemma_3(wide):
    for q, sigma in ((0.01, 4.0), (0.0624, 1.0), (0.0626, 1.0), (0.01, 0.99), (1e-3, 8.0)):
        whole = np.arange(1, 2000)
        inside = whole[bounds.lemma3_region(q, sigma, whole)]
        largest = evaluate(wide, "lemma3Largest", [(q, sigma)])[0]
        assert largest == (inside.max() if inside.size else 0), (q, sigma)


# ---- the exact curve from stored points
# ----------------------------------------------------------------------

def both(law, p, sigma):
    """All laws of a convention: the grid holds one direction of the Poisson pair, the truth is the
    worse of both."""
    if law == "fixed":
        return (laws.SubsampledLaw(p, sigma),)
    return laws.PoissonLaw(p, sigma, "remove"), laws.PoissonLaw(p, sigma, "add")


def off_the_nodes(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        sigma, p, epochs = (float(np.exp(rng.uniform(*np.log(RANGES[name]))))
                            for name in ("sigma", "p", "epochs"))
        yield sigma, p, max(1, round(epochs / p)), float(10 ** rng.uniform(-9, -2))


def curve_epsilon(browser, law, p, sigma, steps, delta):
    script = ("const c = dpteachLive.exactCurve(...arguments[0]);"
              "return c && [c.epsilon(arguments[1]), c.error]")
    return browser.run(script, [law, p, sigma, steps], delta)


@pytest.mark.parametrize("law", ["fixed", "poisson"])
def test_the_exact_curve_is_within_its_stated_error_off_the_nodes(wide, law):
    for sigma, p, steps, delta in off_the_nodes(12, seed=5):
        run = TensorPower(laws=both(law, p, sigma), steps=steps)
        low, high = run.lower.epsilon(delta), run.upper.epsilon(delta)
        found, error = curve_epsilon(wide, law, p, sigma, steps, delta)
        assert found * (1 - error) <= low <= high <= found * (1 + error), (sigma, p, steps, delta,
                                                                           found, low, high)


@pytest.mark.parametrize("run", RUNS)
def test_the_exact_curve_of_the_three_runs(wide, run):
    sigma, _, steps = RUNS[run]
    # by inversion of the characteristic function
    expected = {"A": 1.067030, "B": 3.068629, "C": 7.208338}[run]
    found, error = curve_epsilon(wide, "fixed", 256 / 60000, sigma, steps, 1e-5)
    assert abs(found / expected - 1) < error <= 0.03


def test_the_stored_points_are_what_the_tool_computes(wide):
    assert wide.run("return dpteachGrid.error") == [list(level) for level in ERROR]
    stored = wide.run("return dpteachGrid.values")
    axes = [chebyshev(*RANGES[name], NODES[name]) for name in ("sigma", "p", "epochs")]
    width = NODES["u"] + 1
    for law, i, j, k in (("fixed", 2, 3, 1), ("poisson", 4, 2, 4)):
        row = (i * NODES["p"] + j) * NODES["epochs"] + k
        again = point((law, *(float(axis[n]) for axis, n in zip(axes, (i, j, k), strict=True))))
        np.testing.assert_allclose(stored[law][row * width:][:width], again, atol=2,
                                   err_msg=f"SCALE = {SCALE}")


def test_no_curve_is_made_up_outside_the_stored_range(wide):
    for law, p, sigma, steps in (("fixed", 0.01, 0.5, 1000), ("fixed", 5e-4, 1, 10**5),
                                 ("poisson", 0.01, 1, 10**5)):
        assert curve_epsilon(wide, law, p, sigma, steps, 1e-5) is None


# ---- what a reader sees and does
# -----------------------------------------------------------------------------

def state(browser, name):
    """What is drawn, and the sentence below it."""
    return browser.run("""const root = document.querySelector(`[data-live=${arguments[0]}]`);
        return [root.querySelector(".live-drawing").innerHTML,
                root.querySelector(".live-summary").textContent]""", name)


def each(browser, selector, expression):
    """A property of every element e that fits."""
    return browser.run(f"return [...document.querySelectorAll(arguments[0])].map((e) => "
                       f"{expression})", selector)


def press(browser, name, key, keys):
    """Press keys on a control, and wait until the drawing and the sentence have followed."""
    control = browser.driver.find_element("css selector", f"[data-live={name}] [data-key={key}]")
    control.send_keys(keys)
    browser.driver.execute_async_script("setTimeout(arguments[0], 500)")
    return control


SLIDERS = {"tradeoff": ("n", "m", "E", "sigma", "delta"), "loss": ("sigma", "epsilon"),
           "moments": ("q", "sigma", "steps", "delta"), "clipping": ("C", "sigma", "record")}


@pytest.mark.parametrize("name, key",
                         [(name, key) for name, keys in SLIDERS.items() for key in keys])
def test_an_arrow_key_changes_the_figure_and_its_numbers(wide, page, name, key):
    wide.open(page())
    drawing, sentence = state(wide, name)
    before = each(wide, f"[data-live={name}] [data-key={key}]", "e.ariaValueText")[0]
    control = press(wide, name, key, "\ue014")  # right
    after = control.get_attribute("aria-valuetext")
    assert after != before
    assert wide.run("return arguments[0].parentElement.querySelector('output').textContent",
                    control) == after
    assert all(x != y for x, y in zip(state(wide, name), (drawing, sentence), strict=True))
    press(wide, name, key, "\ue012")  # and left again
    assert state(wide, name) == [drawing, sentence]


def test_a_convention_is_chosen_by_key_and_a_run_by_button(wide, page):
    wide.open(page())
    mu, epsilon = limits.poisson_clt_mu(256 / 60000, 1.3,
                                        3516), limits.subsampled_clt_mu(256 / 60000, 1.3, 3516)
    assert f"μ = {epsilon:.4g}" in state(wide, "tradeoff")[1]
    press(wide, "tradeoff", "law", "add")
    assert f"μ = {mu:.4g}" in state(wide, "tradeoff")[1] and "noise σC" in state(wide,
                                                                                 "tradeoff")[1]
    # enter
    wide.driver.find_elements("css selector", "[data-live=tradeoff] button")[2].send_keys("\ue007")
    press(wide, "tradeoff", "law", "replace")
    assert f"μ = {limits.subsampled_clt_mu(256 / 60000, 0.7, 10547):.4g}" in state(wide,
                                                                                   "tradeoff")[1]
    low, high = map(float, re.search(r"between ([\d.]+) and ([\d.]+) ",
                                     state(wide, "tradeoff")[1]).groups())
    assert low < 7.208338 < high


def test_the_sentences_hold_the_packages_numbers(wide, page):
    wide.open(page())
    assert "probability 0.3085" in state(wide, "loss")[1] and "δ(ε) is 0.1269" in state(wide,
                                                                                        "loss")[1]
    best = value("rdp values + Abadi tail bound (alpha", q=0.01, sigma=4.0, T=10000, delta=1e-5)
    assert f"λ = {best[1]:.0f}: ε = {best[0]:.4g}" in state(wide, "moments")[1]
    assert "ε = 4.377" in state(wide, "clipping")[1]


@pytest.mark.parametrize("relation, factor", [("add-remove", 1), ("replace", 2)])
def test_clipping_against_numpy(wide, relation, factor):
    script = ("const cloud = dpteachGrid.cloud;"
              "return [cloud, dpteachLive.clippedRelease(cloud, arguments[0])]")
    for norm in (0.3, 1.0, 9.0):
        moved = []
        for record in range(1, 21):
            cloud, found = wide.run(script, {"relation": relation, "C": norm, "sigma": 1.5,
                                             "record": record})
            cloud = np.array(cloud)
            clipped = cloud * np.minimum(1, norm / np.linalg.norm(cloud, axis=1))[:, None]
            np.testing.assert_allclose(found["sum"], clipped.sum(axis=0), rtol=1e-12)
            assert found["shortened"] == np.sum(np.linalg.norm(cloud, axis=1) > norm)
            np.testing.assert_allclose([found["sensitivity"], found["noise"]],
                                       [factor * norm, 1.5 * factor * norm])
            moved.append(found["moved"])
            np.testing.assert_allclose(np.linalg.norm(np.subtract(found["sum"], found["other"])),
                                       moved[-1], rtol=1e-9)
        assert max(moved) <= factor * norm * (1 + 1e-12)
        # some record attains it once one is clipped
        assert norm > 5 or max(moved) > factor * norm * (1 - 1e-9)


def test_no_position_of_a_control_breaks_a_figure(wide, page):
    """Each control at both ends and in the middle, with every choice: finite numbers, and three of
    them on an axis."""
    wide.open(page())
    problems = wide.run("""
        const found = [];
        for (const [name, figure] of Object.entries(dpteachLive.figures)) {
          const start = {}, three = (v) => [v[0], v.at(-1), v[v.length >> 1]];
          const ends = (c) => c.choices ? c.choices.map((x) => x[0]) : three(c.values);
          for (const c of figure.controls) start[c.key] = c.value;
          const choices = figure.controls.filter((c) => c.choices);
          for (const choice of choices.length ? ends(choices[0]) : [null])
            for (const a of figure.controls) for (const b of figure.controls)
              for (const x of ends(a)) for (const y of ends(b)) {
                const chosen = choice && { [choices[0].key]: choice };
                const values = { ...start, ...chosen, [a.key]: x, [b.key]: y };
                const drawn = figure.draw(values, 700);
                const text = drawn.summary + drawn.panels.join("");
                // lines across, one at a number
                const few = drawn.panels.some((p) => p.split('y1="0"').length < 4);
                if (few) found.push([name, values, "few numbers on the axis across"]);
                if (/NaN|undefined|null|Infinity|object/.test(text))
                    found.push([name, values, drawn.summary]);
              }
        }
        return found""")
    assert problems == []


def test_names_for_a_screen_reader(wide, page):
    wide.open(page())
    nameless = wide.run("""
        const named = (e) => e.labels && e.labels.length === 1 && e.labels[0].textContent;
        return [...document.querySelectorAll("input, select, button")].filter(
            (e) => !named(e) && !e.textContent).length""")
    labels = each(wide, ".live-drawing > svg", "[e.getAttribute('role'), e.ariaLabel]")
    ids = each(wide, "[id]", "e.id")
    assert nameless == 0 and len(ids) == len(set(ids))
    assert len(labels) == 2 * len(NAMES)
    assert all(role == "img" and len(label) > 40 for role, label in labels)
    assert wide.run("return document.querySelectorAll('[aria-live=polite]').length") == len(NAMES)


def test_the_console_stays_silent_and_nothing_is_asked_for_outside(page):
    with chromium(1280, 2400) as browser:
        browser.open(page())
        for name, key in (("tradeoff", "E"), ("loss", "q"), ("moments", "q"), ("clipping", "C")):
            press(browser, name, key, "\ue011\ue010")  # home, end
        assert browser.console() == []
        assert [url for url in browser.requests() if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_in_both_themes(page, theme):
    with chromium(390, 844, mobile=True, dark=theme == "dark") as browser:
        browser.open(page(theme))
        assert browser.run("return document.documentElement.scrollWidth") <= 390
        sizes = each(browser, ".live-drawing > svg", "e.getBoundingClientRect().width")
        assert min(sizes) > 280 and max(sizes) <= 390
        assert min(each(browser, "input, select, button", "e.clientHeight")) >= 24
        colours = browser.run("""
            const style = (q, k) => getComputedStyle(document.querySelector(q))[k];
            return [style("body", "backgroundColor"), style(".live-summary", "color"),
                    style("svg text", "fill"),
                    ...[1, 2, 3, 4].map((k) => style(`.live-panel .live-${k}`, "stroke"))]""")
        ground, *inks = (luminance(colour) for colour in colours)
        contrast = [(max(ground, ink) + 0.05) / (min(ground, ink) + 0.05) for ink in inks]
        assert min(contrast[:2]) >= 4.5 and min(contrast[2:]) >= 3, contrast


def luminance(colour):
    channels = np.array([int(x) for x in re.findall(r"\d+", colour)[:3]]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(np.array([0.2126, 0.7152, 0.0722]) @ linear)


def test_without_scripts_the_static_picture_stands(page):
    with chromium(1280, 2400) as browser:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        browser.open(page())
        pictures = browser.driver.find_elements("css selector", ".live img")
        assert len(pictures) == len(NAMES) and all(p.is_displayed() and p.size["height"] > 100
                                          for p in pictures)
        assert browser.driver.find_elements("css selector", ".live input") == []


def test_with_scripts_the_static_picture_is_gone(wide):
    assert wide.driver.find_elements("css selector", ".live img") == []


@pytest.mark.parametrize("bands, steps", [(1, 64), (8, 100), (32, 512), (1024, 64)])
def test_correlated_noise(wide, bands, steps):
    found = wide.run(f"return dpteachLive.correlated.deviations({bands}, {steps})")
    c = correlated.prefix_root(min(bands, steps))
    rms, largest = correlated.workload_error(c, steps)
    sens = correlated.sensitivity(c, steps, 1, 1)
    assert found[-1] == pytest.approx(sens * largest, rel=1e-9)
    assert np.sqrt(np.mean(np.square(found))) == pytest.approx(sens * rms, rel=1e-9)


@pytest.mark.parametrize("c, steps", [(0, 10), (0.5, 1), (0.98, 400), (0.999, 10_000), (1, 50)])
def test_hidden_iterates(wide, c, steps):
    found = wide.run(f"return dpteachLive.hidden.last({c}, {steps})")
    assert found == pytest.approx(hidden.hidden_mu(0.1, c, steps), rel=1e-9)


def test_weight():
    files = [LIVE.parent / "book.css",
             *(path for path in LIVE.iterdir() if path.suffix in (".js", ".css", ".svg"))]
    assert sum(path.stat().st_size for path in files) <= 400_000
