"""The calculator in a real Chromium: against the command line, and how it behaves for a reader.

The page is made here from its own files and opened from disk.
"""

import json
import math
import os

import numpy as np
import pytest
from browser import chromium
from frame import ROOT

from dpteach.__main__ import main
from dpteach.accountants import account, run_under
from dpteach.guarantees import shown
from dpteach.laws import PoissonLaw, SubsampledLaw

LIVE = ROOT / "book" / "_static" / "live"
PAGE = """<!DOCTYPE html><html lang="en" data-theme="{theme}"><head><meta charset="utf-8">
<title>Calculator</title><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="{live}/live.css">
<style>:root {{ --pst-color-text-base: #222832; --pst-color-background: #fff;
  --pst-color-border: #d1d5da; --pst-color-text-muted: #48566b; --pst-color-surface: #f3f4f5;
  --pst-color-primary: #0a7d91 }} * {{ box-sizing: border-box }} body {{ margin: 8px }}</style>
</head><body><main class="bd-article"><div class="live" id="calc"></div></main>{scripts}
</body></html>"""
QUESTIONS = int(os.environ.get("DPTEACH_QUESTIONS", 30))  # of the random ones; 200 by hand
RUN_A = "relation=add-remove&n=60000&batch_size=256&epochs=15&sigma=1.3&clip_norm=1.5&delta=1e-5"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    scripts = "".join(f'<script src="{(LIVE / name).as_uri()}"></script>'
                      for name in ("maths.js", "power.js", "draw.js", "calculator.js"))
    path = tmp_path_factory.mktemp("calculator") / "page.html"
    path.write_text(PAGE.format(theme="light", live=LIVE.as_uri(), scripts=scripts), "utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser(address):
    with chromium(1280, 1600) as opened:
        opened.open(address)
        yield opened


def asked(browser, typed):
    """The calculator's rows and warnings for what's typed, or its refusal."""
    return browser.run(
        "try { const c = dpteachLive.calculator, ask = c.question(arguments[0]), "
        "found = c.answer(ask); return { rows: found.rows, low: found.power.low, "
        "high: found.power.high, statement: c.statement(ask, found) }; } "
        "catch (error) { return { refused: error.message }; }", typed)


def random_question(rng):
    relation = ("add-remove", "replace-one")[rng.integers(2)]
    sigma, rate = float(np.exp(rng.uniform(-0.5, 2))), float(10 ** rng.uniform(-4, -0.3))
    steps, delta = int(10 ** rng.uniform(0, 4)), float(10 ** rng.uniform(-9, -2))
    return dict(relation=relation, sigma=float(f"{sigma:.3g}"), rate=float(f"{rate:.3g}"),
                steps=steps, delta=float(f"{delta:.2g}"))


def typed(question):
    return {name: value if isinstance(value, str) else repr(value)
            for name, value in question.items()} | {"clip_norm": "1"}


@pytest.mark.parametrize("number", range(QUESTIONS))
def test_it_agrees_with_the_command_line(browser, capsys, number):
    """Closed forms to the last of six digits; both brackets enclose one number, so they meet."""
    question = random_question(np.random.default_rng(number))
    found = asked(browser, typed(question))
    rows = {row[0]: row for row in found["rows"]}
    words = [f"--{name}" if i % 2 == 0 else typed(question)[name]
             for name in question for i in range(2)]
    assert main(["account", *words, "--json"]) == 0
    theirs = {row["name"]: row for row in json.loads(capsys.readouterr().out)["guarantees"]}
    for name in ("moments", "rdp", "clt"):
        assert rows[name][1] == theirs[name]["kind"]
        expected = float(shown(theirs[name]["kind"], theirs[name]["epsilon"]))
        assert float(rows[name][2]) == pytest.approx(expected, rel=1e-5)  # one unit in the last
    low, high = theirs["tensor-power"]["epsilon"]
    assert found["low"] <= high * (1 + 1e-9) + 1e-12 and low <= found["high"] * (1 + 1e-9)
    assert found["high"] - found["low"] <= max(3e-3 * found["high"], 1e-7)


@pytest.mark.parametrize("sigma, epochs", [(1.3, 15), (1.1, 60), (0.7, 45)])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_the_runs_of_the_book(browser, relation, sigma, epochs):
    found = asked(browser, dict(relation=relation, n="60000", batch_size="256", sigma=str(sigma),
                                epochs=str(epochs), delta="1e-5", clip_norm="1"))
    run = run_under(relation, n=60000, batch_size=256, epochs=epochs, sigma=sigma)
    ours = account(run, relation)["tensor-power"]
    assert found["low"] == pytest.approx(ours.lower.epsilon(1e-5), rel=1e-4)
    assert found["high"] == pytest.approx(ours.epsilon(1e-5), rel=1e-4)
    assert found["low"] < found["high"] < found["low"] * 1.0005


def test_without_sampling_it_is_exact(browser):
    found = asked(browser, dict(relation="add-remove", rate="1", steps="10", sigma="2",
                                delta="1e-6", clip_norm="1"))
    exact = account(run_under("add-remove", rate=1.0, steps=10, sigma=2.0), "add-remove")
    assert found["low"] == found["high"] == pytest.approx(exact["clt"].epsilon(1e-6), rel=1e-9)


def test_the_tangents_are_those_of_the_law(browser):
    """Q(L > ε), whose sum with masses dpteach computes otherwise."""
    for law, name in ((PoissonLaw(0.1, 0.8, "remove"), "remove"),
                      (PoissonLaw(0.1, 0.8, "add"), "add"), (SubsampledLaw(0.1, 0.8), "replace")):
        for epsilon in (-2.0, -0.05, 0.01, 0.5, 3.0):
            h = 1e-5  # Q(L > ε) = -dH/dy at y = e^ε
            y = math.exp(epsilon)
            slope = -(law.delta(math.log(y + h)) - law.delta(math.log(y - h))) / (2 * h)
            found = browser.run(
                f"return dpteachLive.lossTailUnderQ('{name}', 0.1, 0.8, {epsilon})")
            assert found == pytest.approx(float(slope), abs=2e-6)


@pytest.mark.parametrize("change, said", [
    ({"sigma": "0.01"}, "sigma = 0.01 isn't allowed: it must be a number in [0.05, 1e3]; it's noise"
                        " standard deviation / sensitivity"),
    ({"sigma": ""}, "sigma = nothing"), ({"sigma": "x"}, "sigma = x"), ({"sigma": "NaN"}, "sigma"),
    ({"delta": "1"}, "delta = 1 isn't allowed"), ({"delta": "-1"}, "delta"),
    ({"delta": "Infinity"}, "delta"), ({"steps": "0", "epochs": ""}, "steps = 0"),
    ({"steps": "1.5", "epochs": ""}, "a whole number in [1, 1e9]"), ({"steps": "3"}, "left out"),
    ({"rate": "0.1"}, "rate = 0.1 isn't allowed: it must be left out"),
    ({"batch_size": "70000"}, "batch_size = 70000"), ({"n": ""}, "n = nothing"),
    ({"n": "1e400"}, "n = 1e400"), ({"relation": "both"}, "relation = both"),
    ({"epochs": "", "steps": ""}, "epochs = nothing"), ({"clip_norm": "0"}, "clip_norm"),
])
def test_bad_input_gets_the_command_line_s_sentence(browser, change, said):
    good = dict(pair.split("=") for pair in RUN_A.split("&"))
    found = asked(browser, good | change)
    assert said in found["refused"] and "isn't allowed: it must be" in found["refused"]


def test_the_statement(browser):
    found = asked(browser, dict(pair.split("=") for pair in RUN_A.split("&")))["statement"]
    assert "3516 updates, Poisson batches of 256 records expected" in found
    assert "It is (0.865, 1e-5)-differentially private" in found
    assert "asymptotic" in found and "warning: " in found


def fields(browser):
    return browser.run("return Object.fromEntries([...document.querySelectorAll('#calc "
                       "input, #calc select')].map((x) => [x.name, x.value]))")


def test_the_address_holds_the_question(browser, address):
    """What's typed goes there, and a link opens it."""
    browser.open("about:blank")
    browser.open(f"{address}#relation=replace-one&rate=0.01&steps=100&sigma=2&delta=1e-6")
    assert fields(browser)["sigma"] == "2" and fields(browser)["n"] == ""
    first = browser.run("return document.querySelector('.calc-table').textContent")
    browser.run("const x = document.querySelector('[name=sigma]'); x.value = '3';"
                "x.form.dispatchEvent(new Event('submit', { cancelable: true }))")
    link = browser.run("return location.href")
    assert "sigma=3" in link and "relation=replace-one" in link
    second = browser.run("return document.querySelector('.calc-table').textContent")
    assert first != second
    browser.open("about:blank")
    browser.open(link)
    assert browser.run("return document.querySelector('.calc-table').textContent") == second


def test_a_refusal_takes_the_place_of_the_answer(browser, address):
    browser.open("about:blank")
    browser.open(f"{address}#{RUN_A.replace('sigma=1.3', 'sigma=0')}")
    told = browser.run("return [document.querySelector('[role=alert]').textContent, "
                       "document.querySelector('.calc-table').offsetParent === null]")
    assert told[0].startswith("sigma = 0 isn't allowed") and told[1] is True


def test_labels_pictures_and_narrow_screens(browser, address):
    browser.open("about:blank")
    browser.open(f"{address}#{RUN_A}")
    assert browser.run("return [...document.querySelectorAll('#calc input, #calc "
                       "select')].every((x) => x.labels.length === 1 && x.tabIndex === 0)")
    assert browser.run("return document.querySelectorAll('.live-drawing > svg[aria-label]').length"
                       ) == 2
    try:
        browser.resize(390, 844, mobile=True)
        assert browser.run("return document.documentElement.scrollWidth") <= 390
    finally:
        browser.resize(1280, 1600)
