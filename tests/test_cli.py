"""The command line: the form that scripts rely on, and one line for bad input."""

import json
import os
import subprocess
import sys

import pytest

import dpteach
from dpteach.__main__ import main

HEADLINE = "account --convention add-remove --q 0.01 --sigma 4 --steps 10000 --delta 1e-5".split()
MNIST = "--n 60000 --batch-size 256 --delta 1e-5"
RUN_A = f"account --convention replace-one {MNIST} --epochs 15 --sigma 1.3".split()
NAMES = {
    "moments",
    "clt",
    "rdp",
    "tensor-power",
    "berry-esseen",
    "strong-composition",
    "optimal-composition",
    "edgeworth",
}
KINDS = {"exact", "bracket", "upper bound", "lower bound", "asymptotic"}


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
        answer = json.loads(out)
        return answer, {row["name"]: row for row in answer["guarantees"]}

    return run


@pytest.mark.parametrize("steps, epsilon, order", [(10000, 1.2586, 19), (40000, 2.5759, 9)])
def test_headline(ask_json, steps, epsilon, order):
    arguments = [str(steps) if x == "10000" else x for x in HEADLINE]
    answer, rows = ask_json(arguments)
    assert (answer["convention"], answer["sampling"]) == ("add-remove", "poisson")
    assert (answer["steps"], answer["delta"]) == (steps, 1e-5)
    moments = rows["moments"]
    assert (round(moments["epsilon"], 4), moments["order"], moments["orders"]) == (
        epsilon,
        order,
        "integer",
    )
    assert moments["kind"] == "upper bound" and rows["clt"]["kind"] == "asymptotic"


@pytest.mark.parametrize(
    "epochs, sigma, steps, mu, epsilon",
    [
        (15, 1.3, 3516, 0.2847, 1.069),
        (60, 1.1, 14063, 0.7374, 3.087),
        (45, 0.7, 10547, 1.5536, 7.355),
    ],
)
def test_replace_one(ask_json, epochs, sigma, steps, mu, epsilon):
    arguments = f"account --convention replace-one {MNIST} --epochs {epochs} --sigma {sigma}"
    answer, rows = ask_json(arguments.split())
    assert (answer["convention"], answer["sampling"], answer["steps"]) == (
        "replace-one",
        "fixed-size",
        steps,
    )
    assert answer["noise_multiplier"] == 2 * sigma
    assert (round(rows["clt"]["mu"], 4), round(rows["clt"]["epsilon"], 3)) == (mu, epsilon)


@pytest.mark.parametrize(
    "epochs, sigma, least", [(15, 1.3, 1.1912), (60, 1.1, 3.0084), (45, 0.7, 7.0980)]
)
def test_real_orders(ask_json, epochs, sigma, least):
    arguments = (
        f"account --convention add-remove {MNIST} --epochs {epochs} --sigma {sigma} --orders real"
    )
    _, rows = ask_json(arguments.split())
    assert least - 5e-5 <= rows["moments"]["epsilon"] <= least + 0.003
    assert rows["moments"]["orders"] == "real" and rows["moments"]["order"] % 1 != 0


@pytest.mark.parametrize("arguments", [HEADLINE, RUN_A], ids=["add-remove", "replace-one"])
def test_form_of_the_json(ask_json, arguments):
    answer, _ = ask_json(arguments)
    assert {"convention", "sampling", "steps", "delta", "warnings", "guarantees"} <= set(answer)
    assert isinstance(answer["steps"], int) and all(
        isinstance(text, str) for text in answer["warnings"]
    )
    assert {row["name"] for row in answer["guarantees"]} == NAMES
    for row in answer["guarantees"]:
        assert (
            {"name", "kind", "epsilon"} <= set(row)
            and row["name"] in NAMES
            and row["kind"] in KINDS
        )
        epsilon = row["epsilon"]
        if row["kind"] == "bracket" and epsilon is not None:
            assert len(epsilon) == 2 and epsilon[0] <= epsilon[1]
        else:
            assert epsilon is None or isinstance(epsilon, float)
        assert epsilon is not None or row["reason"]


def test_null_with_a_reason(ask_json):
    _, rows = ask_json(
        "account --convention add-remove --q 0.01 --sigma 0.03 --steps 10 --delta 1e-5".split()
    )
    assert rows["clt"]["epsilon"] is None and "sigma" in rows["clt"]["reason"]


def test_steps_with_n_and_q_with_steps(ask_json):
    """n, batch size, epochs; n, batch size, steps; q and steps: three ways to say one run."""
    _, by_epochs = ask_json(RUN_A)
    _, by_steps = ask_json(" ".join(RUN_A).replace("--epochs 15", "--steps 3516").split())
    rate = f"--q {256 / 60000!r} --steps 3516 --sigma 1.3 --delta 1e-5"
    answer, by_rate = ask_json(f"account --convention replace-one {rate}".split())
    assert by_epochs == by_steps == by_rate
    assert any("n isn't known" in text for text in answer["warnings"])


def test_warning_for_a_large_delta(ask_json, ask):
    arguments = [x if x != "1e-5" else "1e-4" for x in RUN_A]
    answer, _ = ask_json(arguments)
    assert any("at least 1/n" in text for text in answer["warnings"])
    assert "warning: delta = 0.0001 is at least 1/n" in ask(arguments)[1]
    assert ask_json(RUN_A)[0]["warnings"] == []


def test_table(ask):
    code, out, err = ask(HEADLINE)
    assert code == 0 and err == ""
    assert "add-remove neighbours, poisson batches, noise std 4 × clip_norm" in out
    row = next(line for line in out.splitlines() if line.startswith("moments"))
    assert "upper bound" in row and "1.25857" in row and "order 19" in row
    assert "asymptotic" in next(line for line in out.splitlines() if line.startswith("clt"))


def changed(option, value):
    arguments = list(HEADLINE)
    arguments[arguments.index(option) + 1] = value
    return arguments


def replaced(option, value):
    return [value if before == option else x for before, x in zip(["", *RUN_A], RUN_A, strict=False)]


BAD = [
    *[(changed("--q", v), r"\bq\b") for v in ("1.5", "-0.1", "0", "nan", "inf", "a", "")],
    *[(changed("--sigma", v), "sigma") for v in ("0", "-1", "nan", "inf", "four", "1e-300", "1e300")],
    *[(changed("--steps", v), "steps") for v in ("0", "-3", "1.5", "nan", "1e4000", "1e20", 21 * "1", 5000 * "9")],
    *[(changed("--delta", v), "delta") for v in ("0", "1", "1.5", "-1e-5", "nan", "1e-320")],
    (changed("--convention", "both"), "convention"),
    (HEADLINE[:-2], "delta"),
    (HEADLINE + ["--orders", "all"], "orders"),
    (HEADLINE + ["--epochs", "3"], "epochs"),
    (HEADLINE + ["--n", "100"], "batch-size"),
    (RUN_A + ["--steps", "7"], "steps"),
    (RUN_A + ["--q", "0.01"], r"\bq = 0.01 contradicts batch-size/n"),
    *[(replaced("--epochs", v), "epochs") for v in ("0", "-1", "nan", "inf", "a")],
    (replaced("--epochs", "1e300"), "steps = 234.*fewer epochs"),
    *[(replaced("--n", v), r"\bn\b") for v in ("0", "-1", "1.5", "9" * 400)],
    *[(replaced("--batch-size", v), "batch-size") for v in ("0", "-1", "60001")],
    (RUN_A + ["two\nlines"], "unrecognized"),
    (RUN_A + ["--delta"], "delta"),
    (["account"], "convention"),
    ([], "command"),
    (["acount"], "acount"),
]


@pytest.mark.parametrize(
    "arguments, names", BAD, ids=lambda x: " ".join(x) if isinstance(x, list) else ""
)
def test_bad_input_is_one_line_and_code_2(ask, arguments, names):
    import re

    for extra in ([], ["--json"]):
        code, out, err = ask([*arguments, *extra])
        assert code == 2 and out == ""
        assert err.count("\n") == 1 and err.endswith("\n") and "Traceback" not in err
        assert re.search(names, err), err


def test_as_a_program():
    """In a new Python: exit codes and streams are what a shell sees."""
    command = [sys.executable, "-m", "dpteach"]
    good = subprocess.run([*command, *HEADLINE, "--json"], capture_output=True, text=True)
    assert good.returncode == 0 and good.stderr == "" and json.loads(good.stdout)["steps"] == 10000
    bad = subprocess.run([*command, *changed("--q", "2")], capture_output=True, text=True)
    assert bad.returncode == 2 and bad.stdout == "" and len(bad.stderr.splitlines()) == 1


def test_extremes_are_answered_in_strict_json(ask):
    """No NaN, no infinity, no warning: each epsilon is a finite number, or null with a reason."""
    refuse = lambda text: pytest.fail(f"{text} isn't JSON")  # noqa: E731
    extremes = (("--sigma", "1e-5"), ("--sigma", "1e10"), ("--q", "1e-300"), ("--q", "1"), ("--delta", "0.999"))
    for option, value in extremes:
        code, out, err = ask([*changed(option, value), "--json"])
        assert (code, err) == (0, ""), err
        for row in json.loads(out, parse_constant=refuse)["guarantees"]:
            assert row["epsilon"] is not None or row["reason"]


@pytest.mark.parametrize("arguments", [HEADLINE, ["--help"], ["account", "--help"]], ids=" ".join)
def test_a_reader_that_goes_away_or_lacks_letters(arguments):
    """No traceback: not when the pipe is closed at once, not where the terminal's encoding has no Greek."""
    command = [sys.executable, "-W", "error", "-m", "dpteach", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        program.stdout.close()
        assert program.stderr.read() == ""
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.isascii()


def test_no_torch_for_accounting():
    code = (
        "import sys, dpteach.__main__ as m; m.main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *HEADLINE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- every command

REPORT = ["report", *RUN_A[1:]]
CALIBRATE = f"calibrate --convention add-remove {MNIST} --epochs 15 --epsilon 2".split()


def help_of(command):
    done = subprocess.run([sys.executable, "-m", "dpteach", command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("command", ["account", "calibrate", "report", "train"])
def test_help_teaches_and_its_examples_run(command, tmp_path):
    """Conventions and kinds stand there; what it shows can be typed as it is."""
    text = help_of(command)
    for words in ("conventions", "sigma × clip_norm", "2 × sigma × clip_norm", "asymptotic", "examples:"):
        assert words in text
    examples = [line.split()[1:] for line in text.splitlines() if line.strip().startswith("python -m dpteach")]
    assert examples and all(example[:3] == ["-m", "dpteach", command] for example in examples)
    for example in examples:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, *example], capture_output=True, text=True, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
        assert done.stdout or (tmp_path / "statement.html").read_text("utf-8").startswith("<!DOCTYPE html>")
        if command == "train":
            assert "3 updates" in done.stdout and "step 3/3" in done.stderr and "test accuracy" in done.stderr


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("epochs, sigma", [(15, 1.3), (60, 1.1), (45, 0.7)])
def test_report_agrees_with_account(ask, ask_json, relation, epochs, sigma):
    same = f"--convention {relation} {MNIST} --epochs {epochs} --sigma {sigma}".split()
    code, out, err = ask(["report", *same, "--format", "json"])
    told = json.loads(out)
    asked, _ = ask_json(["account", *same])
    assert (code, err) == (0, "") and told["guarantees"] == asked["guarantees"]
    for key in ("convention", "sampling", "steps", "delta", "noise_multiplier", "sampling_rate", "assumptions"):
        assert told[key] == asked[key]
    assert set(asked["warnings"]) <= set(told["warnings"])


def test_calibrate_prints_what_account_confirms(ask, ask_json):
    code, out, err = ask([*CALIBRATE, "--json"])
    found = json.loads(out)
    assert (code, err) == (0, "") and 1.999 <= found["epsilon"] <= 2 and found["kind"] == "bracket"
    same = f"account --convention add-remove {MNIST} --epochs 15 --sigma {found['value']!r}".split()
    assert ask_json(same)[1]["tensor-power"]["epsilon"][1] == found["epsilon"]
    code, out, _ = ask(CALIBRATE)
    assert code == 0 and out.startswith(f"sigma = {found['value']!r}\n") and "bracket, its upper end" in out
    code, out, _ = ask([*CALIBRATE, "--guarantee", "clt"])
    assert code == 0 and "warning: clt is asymptotic" in out


def test_output_is_written_aside(ask, tmp_path, monkeypatch):
    file = tmp_path / "of a run.html"
    file.write_text("before")
    assert ask([*REPORT, "--format", "html", "--output", str(file)]) == (0, "", "")
    assert file.read_text("utf-8").startswith("<!DOCTYPE html>") and os.listdir(tmp_path) == [file.name]
    file.write_text("before")
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(full))
    code, out, err = ask([*REPORT, "--output", str(file)])
    assert code == 2 and "No space left" in err and err.count("\n") == 1
    assert file.read_text() == "before" and os.listdir(tmp_path) == [file.name]


@pytest.mark.parametrize("output", ["", ".", "/dev/null", "no such folder/a.md", "x" * 5000])
def test_output_that_is_no_file_is_refused(ask, tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    code, out, err = ask([*REPORT, "--output", output])
    assert code == 2 and out == "" and err.count("\n") == 1 and "output" in err
    assert os.listdir(tmp_path) == []


TRAIN = "train --convention add-remove --sigma 1.3 --epochs 0.01".split()
MORE_BAD = [
    (["calibrate"], "convention"),
    ([*CALIBRATE, "--sigma", "1"], "sigma = 1.0 isn't allowed"),
    ([*CALIBRATE, "--epsilon", "0"], "epsilon"),
    ([*CALIBRATE, "--epsilon", "nan"], "epsilon"),
    ([*CALIBRATE, "--guarantee", "pld"], "guarantee"),
    ([*CALIBRATE, "--guarantee", "berry-esseen"], "isn't symmetric"),
    ([*CALIBRATE, "--find", "steps"], "epochs = 15.0 isn't allowed"),
    (["calibrate", *"--convention add-remove --n 60000 --batch-size 256 --delta 1e-5 --epsilon 2 --find steps".split()],
     "sigma"),
    ([*CALIBRATE, "--find", "batch-size"], "batch-size"),
    ([*REPORT, "--records-per-user", "0"], "records-per-user"),
    ([*REPORT, "--tuning-runs", "-1"], "tuning-runs"),
    ([*REPORT, "--unit", ""], "unit"),
    ([*REPORT, "--clip-norm", "0"], "clip-norm"),
    ([*REPORT, "--format", "pdf"], "format"),
    ([*TRAIN, "--batch-size", "60001"], "batch-size"),
    ([*TRAIN, "--seed", "-1"], "seed"),
    ([*TRAIN, "--learning-rate", "0"], "learning-rate"),
    *[([*TRAIN, "--stop-after", v], f"stop-after = {v} ") for v in ("0", "9", "-1")],
    ([*TRAIN, "--batch-size", "256.5"], "batch-size"),
    ([*REPORT, "--unit", "record", "--records-per-user", "5"], "records-per-user = 5 isn't allowed"),
    ([*TRAIN, "--steps", "9"], "steps"),
    ([*TRAIN[:-1], "0"], "epochs"),
    ([*TRAIN, "--delta", "2"], "delta"),
    ([*TRAIN, "--records-per-user", "0"], "records-per-user"),
]


@pytest.mark.parametrize("arguments, names", MORE_BAD, ids=lambda x: " ".join(x) if isinstance(x, list) else "")
def test_other_commands_refuse_in_one_line(ask, arguments, names):
    code, out, err = ask(arguments)
    assert code == 2 and out == "" and err.count("\n") == 1 and names in err, err


def test_whole_numbers_as_the_library_takes_them(ask_json):
    plain = ask_json(replaced("--epochs", "15"))
    assert ask_json([{"60000": "6e4", "256": "256.0"}.get(x, x) for x in RUN_A]) == plain
    assert ask_json(changed("--steps", "1e4"))[0]["steps"] == 10000


def test_who_has_several_records_is_a_user(ask):
    several = [*REPORT, "--records-per-user", "5"]
    assert "when one user with up to 5 records is replaced" in ask(several)[1]
    assert "when one device with up to 5 records is replaced" in ask([*several, "--unit", "device"])[1]
    assert "when one record is replaced" in ask(REPORT)[1]


def test_train_without_torch_says_what_to_install(ask, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, out, err = ask(TRAIN)
    assert (code, out, err.count("\n")) == (2, "", 1) and 'pip install "dpteach[torch]"' in err


def test_help_of_train_shows_its_defaults():
    text = " ".join(help_of("train").split())
    assert "below 1/n (default: 1e-5)" in text and "(expected number under add-remove) (default: 256)" in text


def test_version(ask):
    assert ask(["--version"]) == (0, f"dpteach {dpteach.__version__}\n", "")


def test_train_says_what_was_made(ask):
    """Two of three updates, a seed that's known, no page before the work is done."""
    code, out, err = ask([*TRAIN, "--stop-after", "2", "--seed", "3", "--format", "json"])
    told = json.loads(out)
    assert code == 0 and "test accuracy" in err
    assert (told["steps"], told["n"], told["clip_norm"]) == (2, 60000, 1.5)
    assert any("the seed 3 is known" in text for text in told["warnings"])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [HEADLINE, REPORT, ["account", "--help"], ["--help"]], ids=" ".join)
def test_a_full_disk_or_closed_output_is_one_line(arguments):
    command = [sys.executable, "-m", "dpteach", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "No space left" in done.stderr
    shell = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, text=True)
    assert shell.returncode == 2 and shell.stderr.count("\n") == 1 and "closed" in shell.stderr
