"""The command line: the form that scripts rely on, and one line for bad input."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import dpteach
from dpteach.__main__ import main
from dpteach.accountants import NAMES
from dpteach.guarantees import KINDS

HEADLINE = "account --convention add-remove --q 0.01 --sigma 4 --steps 10000 --delta 1e-5".split()
MNIST = "--n 60000 --batch-size 256 --delta 1e-5"
RUN_A = f"account --relation replace-one {MNIST} --epochs 15 --sigma 1.3".split()
REPORT = ["report", *RUN_A[1:]]
CALIBRATE = f"calibrate --relation add-remove {MNIST} --epochs 15 --epsilon 2".split()
TRAIN = "train --relation add-remove --sigma 1.3 --epochs 0.01".split()


@pytest.fixture
def ask(capsys):
    """Run the command and give its exit code, output and errors."""

    def run(arguments):
        try:
            code = main(list(arguments))
        except SystemExit as stop:
            code = stop.code
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def ask_json(ask):
    def run(arguments):
        code, out, err = ask([*arguments, "--json"])
        assert (code, err) == (0, "")
        refuse = lambda text: pytest.fail(f"{text} isn't JSON")  # noqa: E731
        answer = json.loads(out, parse_constant=refuse)
        return answer, {row["name"]: row for row in answer.get("guarantees", ())}

    return run


def changed(command, **options):
    """The command with other values of some options; None leaves one out."""
    words = list(command)
    for name, value in options.items():
        place = words.index("--" + name.replace("_", "-"))
        words[place : place + 2] = [] if value is None else [words[place], value]
    return words


# --- account


@pytest.mark.parametrize("steps, epsilon, order", [("10000", 1.2586, 19), ("40000", 2.5759, 9)])
def test_headline(ask_json, steps, epsilon, order):
    answer, rows = ask_json(changed(HEADLINE, steps=steps))
    assert (answer["convention"], answer["sampling"]) == ("add-remove", "poisson")
    assert (answer["steps"], answer["delta"]) == (int(steps), 1e-5)
    moments = rows["moments"]
    assert (round(moments["epsilon"], 4), moments["order"]) == (epsilon, order)
    assert moments["orders"] == "integer" and moments["kind"] == "upper bound"


@pytest.mark.parametrize("epochs, sigma, steps, mu, epsilon, least", [
    ("15", "1.3", 3516, 0.2847, 1.069, 1.1912), ("60", "1.1", 14063, 0.7374, 3.087, 3.0084),
    ("45", "0.7", 10547, 1.5536, 7.355, 7.0980),
])  # fmt: skip
def test_the_three_runs(ask_json, epochs, sigma, steps, mu, epsilon, least):
    """The limits under replace-one; moments with real orders under add-remove."""
    run = changed(RUN_A, epochs=epochs, sigma=sigma)
    answer, rows = ask_json(run)
    assert (answer["sampling"], answer["steps"]) == ("fixed-size", steps)
    assert answer["noise_multiplier"] == 2 * float(sigma)
    assert (round(rows["clt"]["mu"], 4), round(rows["clt"]["epsilon"], 3)) == (mu, epsilon)
    moments = ask_json([*changed(run, relation="add-remove"), "--orders", "real"])[1]["moments"]
    assert least - 5e-5 <= moments["epsilon"] <= least + 0.003 and moments["orders"] == "real"


EXTREMES = [
    {"sigma": "0.05"}, {"sigma": "1000"}, {"q": "1e-9"}, {"q": "1"}, {"delta": "0.999"},
    {"steps": "0"}, {},
]  # fmt: skip


@pytest.mark.parametrize("changes", EXTREMES, ids=str)
def test_form_of_the_json(ask_json, changes):
    """No NaN, no infinity: each epsilon is a number, [low, high], or null with a reason."""
    answer, rows = ask_json(changed(HEADLINE, **changes))
    keys = {"convention", "sampling", "steps", "delta", "warnings", "guarantees", "assumptions"}
    assert keys <= set(answer) and tuple(rows) == NAMES
    for row in rows.values():
        epsilon = row["epsilon"]
        assert row["kind"] in KINDS and (epsilon is not None or row["reason"])
        if row["kind"] == "bracket" and epsilon is not None:
            assert len(epsilon) == 2 and epsilon[0] <= epsilon[1]
        elif epsilon is not None:
            assert type(epsilon) is float and epsilon >= 0


def test_other_words_for_one_run(ask_json):
    """--relation or --convention, --rate or --q; n with epochs or steps; 6e4 for 60000."""
    other = {"--q": "--rate", "--convention": "--relation", "10000": "1e4"}
    same = [other.get(word, word) for word in HEADLINE]
    assert ask_json(same) == ask_json(HEADLINE)
    by_epochs = ask_json([{"60000": "6e4", "256": "256.0"}.get(x, x) for x in RUN_A])
    by_steps = ask_json(" ".join(RUN_A).replace("--epochs 15", "--steps 3516").split())
    rate = f"--rate {256 / 60000!r} --steps 3516 --sigma 1.3 --delta 1e-5"
    answer, by_rate = ask_json(f"account --relation replace-one {rate}".split())
    assert by_epochs == by_steps and by_steps[1] == by_rate
    assert any("n isn't known" in text for text in answer["warnings"])
    assert by_epochs[0]["warnings"] == []


def test_table(ask):
    code, out, err = ask(HEADLINE)
    assert code == 0 and err == ""
    assert "add-remove neighbours, poisson batches, noise std 4 × clip_norm" in out
    row = next(line for line in out.splitlines() if line.startswith("moments"))
    assert re.search(r"upper bound +1\.25858 +order 19", row)  # 1.2585743, rounded up
    assert "warning: delta = 0.0001 is at least 1/n" in ask(changed(RUN_A, delta="1e-4"))[1]


@pytest.mark.parametrize("command", [HEADLINE, changed(HEADLINE, sigma="0.3", steps="1000")])
def test_columns_never_touch(ask, command):
    lines = ask(command)[1].splitlines()
    rows = [line for line in lines if line.split(" ")[0] in ("guarantee", *NAMES)]
    starts = {line.index(re.split(r"  +", line)[2]) for line in rows}
    assert len(rows) == 1 + len(NAMES) and len(starts) == 1


# --- refusals

BAD = [
    *[(changed(HEADLINE, q=v), "rate|--q") for v in ("1.5", "-0.1", "0", "nan", "a", "")],
    *[(changed(HEADLINE, sigma=v), "sigma") for v in ("0", "-1", "nan", "inf", "four", "1e5")],
    *[(changed(HEADLINE, steps=v), "steps") for v in ("-3", "1.5", "nan", "1e20", 5000 * "9")],
    *[(changed(HEADLINE, delta=v), "delta") for v in ("0", "1", "-1e-5", "nan", "1e-31")],
    (changed(HEADLINE, convention="both"), "convention"),
    (changed(HEADLINE, delta=None), "delta"),
    (changed(HEADLINE, steps=None), "steps"),
    ([*HEADLINE, "--orders", "all"], "orders"),
    ([*HEADLINE, "--epochs", "3"], "epochs|n = "),
    ([*HEADLINE, "--n", "100"], "batch-size"),
    ([*RUN_A, "--steps", "7"], "epochs = 15.0 .*steps are given"),
    ([*RUN_A, "--q", "0.01"], "rate = 0.01 .*it follows from n and batch-size"),
    *[(changed(RUN_A, epochs=v), "epochs") for v in ("-1", "nan", "inf", "a", "1e300")],
    *[(changed(RUN_A, n=v), r"\bn\b") for v in ("0", "-1", "1.5", "9" * 400)],
    *[(changed(RUN_A, batch_size=v), "batch-size") for v in ("0", "-1", "60001")],
    ([*RUN_A, "two\nlines"], "unrecognized"),
    ([*RUN_A, "--delta"], "delta"),
    (["account"], "relation"), ([], "command"), (["acount"], "acount"), (["calibrate"], "relation"),
    ([*CALIBRATE, "--sigma", "1"], "sigma = 1.0 isn't allowed"),
    ([*CALIBRATE, "--guarantee", "berry-esseen"], "must be symmetric"),
    ([*CALIBRATE, "--find", "steps"], "epochs = 15.0 isn't allowed"),
    ([*CALIBRATE, "--find", "batch-size"], "batch-size"),
    *[([*CALIBRATE, "--epsilon", v], "epsilon") for v in ("0", "nan")],
    *[([*REPORT, "--records-per-user", v], "records-per-user") for v in ("0", "1.5")],
    ([*REPORT, "--unit", "record", "--records-per-user", "5"], "records-per-user = 5 isn't"),
    ([*REPORT, "--tuning-runs", "-1"], "tuning-runs"),
    ([*REPORT, "--unit", ""], "unit"), ([*REPORT, "--clip-norm", "0"], "clip-norm"),
    *[([*TRAIN, option, v], option.strip("-")) for option, v in (
        ("--batch-size", "60001"), ("--seed", "-1"), ("--stop-after", "9"), ("--stop-after", "-1"),
        ("--delta", "2"), ("--records-per-user", "0"), ("--learning-rate", "0"),
    )],
    ([*TRAIN, "--steps", "9"], "epochs = 0.01 .*steps are given"),
]  # fmt: skip


@pytest.mark.parametrize("arguments, names", BAD, ids=lambda x: " ".join(x)[:60] if x else "")
def test_bad_input_is_one_line_and_code_2(ask, arguments, names):
    code, out, err = ask(arguments)
    assert code == 2 and out == "" and err.count("\n") == 1 and err.startswith("dpteach")
    assert re.search(names, err) and "Traceback" not in err, err


@pytest.mark.parametrize("output", ["", ".", "/dev/null", "no such folder/a.md", "x" * 5000])
def test_output_that_is_no_file_is_refused(ask, tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    code, out, err = ask([*REPORT, "--output", output])
    assert code == 2 and out == "" and err.count("\n") == 1 and "output" in err
    assert os.listdir(tmp_path) == []


def test_output_is_written_aside(ask, tmp_path, monkeypatch):
    file = tmp_path / "of a run.html"
    file.write_text("before")
    assert ask([*REPORT, "--format", "html", "--output", str(file)]) == (0, "", "")
    assert file.read_text("utf-8").startswith("<!DOCTYPE html>")
    file.write_text("before")
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(full))
    code, out, err = ask([*REPORT, "--output", str(file)])
    assert code == 2 and "No space left" in err and err.count("\n") == 1
    assert file.read_text() == "before" and os.listdir(tmp_path) == [file.name]


# --- the other commands


def test_report_agrees_with_account(ask, ask_json):
    code, out, err = ask([*REPORT, "--format", "json"])
    told, (asked, _) = json.loads(out), ask_json(RUN_A)
    assert (code, err) == (0, "") and set(asked["warnings"]) <= set(told["warnings"])
    assert {key: told[key] for key in asked if key != "warnings"} == {
        key: value for key, value in asked.items() if key != "warnings"
    }


def test_calibrate_prints_what_account_confirms(ask, ask_json):
    found, _ = ask_json(CALIBRATE)
    assert 1.999 <= found["epsilon"] <= 2 and found["kind"] == "bracket"
    run = changed(RUN_A, relation="add-remove", sigma=repr(found["value"]))
    assert ask_json(run)[1]["tensor-power"]["epsilon"][1] == found["epsilon"]
    code, out, _ = ask(CALIBRATE)
    assert code == 0 and out.startswith(f"sigma = {found['value']!r}\n")
    assert "bracket, its upper end" in out
    assert "warning: clt is asymptotic" in ask([*CALIBRATE, "--guarantee", "clt"])[1]


def test_who_has_several_records_is_a_user(ask):
    several = [*REPORT, "--records-per-user", "5"]
    assert "when one user with up to 5 records is replaced" in ask(several)[1]
    assert "when one device with up to 5 records" in ask([*several, "--unit", "device"])[1]
    assert "when one record is replaced" in ask(REPORT)[1]


def test_train_without_torch_says_what_to_install(ask, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, out, err = ask(TRAIN)
    assert (code, out, err.count("\n")) == (2, "", 1) and 'pip install "dpteach[torch]"' in err


@pytest.mark.parametrize("made", [2, 0])
def test_train_says_what_was_made(ask, made):
    """Some of three updates, a seed that's known; with none made nothing was released."""
    command = [*TRAIN, "--stop-after", str(made), "--seed", "3", "--format", "json"]
    code, out, err = ask(command)
    told = json.loads(out)
    assert code == 0 and "test accuracy" in err
    assert (told["steps"], told["n"], told["clip_norm"]) == (made, 60000, 1.5)
    assert (told["quoted"]["epsilon"] == 0) == (made == 0)
    assert any("the seed 3 is known" in text for text in told["warnings"])


def test_version(ask):
    assert ask(["--version"]) == (0, f"dpteach {dpteach.__version__}\n", "")


# --- as a program

COMMAND = [sys.executable, "-W", "error", "-m", "dpteach"]


@pytest.mark.parametrize("command", ["account", "calibrate", "report", "train"])
def test_help_teaches_and_its_examples_run(ask, command, tmp_path, monkeypatch):
    """Relations and kinds stand there; what it shows can be typed as it is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "history.json").write_text("[[1.3, 0.0042666667, 3516]]")
    text = ask([command, "--help"])[1]
    for words in ("sigma × clip_norm", "2 × sigma × clip_norm", "asymptotic", "examples:"):
        assert words in text
    examples = re.findall(r"^ +python -m dpteach (.*)$", text, re.MULTILINE)
    assert examples and all(example.startswith(command) for example in examples)
    if "--certificate run.json" in text:  # made by an example of another command
        pytest.importorskip("flint")
        certify = re.search(r"(certify .*-o run\.json)", ask(["certify", "--help"])[1])[1]
        assert ask(certify.split())[0] == 0
    for example in examples:
        code, out, err = ask(example.split())
        assert code == 0, err
        assert out or (tmp_path / "statement.html").read_text("utf-8").startswith("<!DOCTYPE html>")
        assert command != "train" or "3 updates" in out and "step 3/3" in err


@pytest.mark.parametrize("arguments", [HEADLINE, ["account", "--help"]], ids=" ".join)
def test_a_reader_that_goes_away_or_lacks_letters(arguments):
    """No traceback: not when the pipe is closed, not where the terminal has no Greek."""
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        program.stdout.close()
        assert program.stderr.read() == ""
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.isascii()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [HEADLINE, ["account", "--help"]], ids=" ".join)
def test_a_full_disk_or_closed_output_is_one_line(arguments):
    with open("/dev/full", "w") as full:
        streams = {"stdout": full, "stderr": subprocess.PIPE}
        done = subprocess.run([*COMMAND, *arguments], **streams, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "No space left" in done.stderr
    shell = ["sh", "-c", '"$@" >&-', "sh", *COMMAND, *arguments]
    done = subprocess.run(shell, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "closed" in done.stderr


def test_the_import_is_light():
    """Accounting loads neither torch nor matplotlib, nor scipy.stats, the slowest part of scipy."""
    heavy = "{'torch', 'matplotlib', 'scipy.stats'}"
    code = f"import sys, dpteach; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n"


PAGE = Path(dpteach.__file__).parents[1] / "book" / "what-to-do-when.md"


@pytest.mark.parametrize("line", re.findall(r"^python -m dpteach (.*)$",
                                            PAGE.read_text("utf-8"), re.MULTILINE))
def test_what_to_do_when_shows_commands_that_run(ask, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if line.startswith("verify"):
        pytest.importorskip("flint")
        certify = re.search(r"^python -m dpteach (certify .*)$", PAGE.read_text("utf-8"), re.M)[1]
        assert ask(shlex.split(certify))[0] == 0
    code, out, err = ask(shlex.split(line))
    assert code == 0, err
    assert out or (tmp_path / "run.json").exists()
