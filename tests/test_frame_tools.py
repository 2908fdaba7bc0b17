"""The two commands' own parts: plain words for failures, the count at the end, the layout."""

import re
import subprocess
import tomllib
from importlib.metadata import distributions

import install
import pytest
import run_tests
import yaml
from frame import ROOT
from packaging.specifiers import SpecifierSet


@pytest.mark.parametrize("output, word", [
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
     "disk is full"),
    ("Failed to establish a new connection: [Errno -3] Temporary failure in name resolution\n"
     "ERROR: No matching distribution found for numpy==2.4.6", "network"),
    ("ERROR: No matching distribution found for torch==2.13.0", "no build for this Python"),
    ("The virtual environment was not created successfully because ensurepip is not available.",
     "python3-venv"),
    ("PermissionError: [Errno 13] Permission denied: '/opt/book/.venv'", "own this folder"),
])
def test_a_failed_install_is_explained(output, word):
    assert word in install.plain_words(output)


def test_an_unknown_failure_is_not_explained_wrongly():
    assert install.plain_words("Segmentation fault") == ""


def executable(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def old_python(path):
    executable(path, '#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" && exit 0\nexit 1\n')


def run_install(folder, **env):
    (folder / "tools").mkdir(exist_ok=True)
    (folder / "tools" / "install.sh").write_text((ROOT / "tools" / "install.sh").read_text())
    return subprocess.run(["/bin/sh", "tools/install.sh"], cwd=folder, env=env,
                          capture_output=True, text=True)


def test_a_python_that_is_too_old_is_named(tmp_path):
    old_python(tmp_path / "bin" / "python3")
    result = run_install(tmp_path, PATH=str(tmp_path / "bin"))
    assert result.returncode == 1
    assert "3.11 or newer" in result.stderr and "Python 3.9.2, which is too old" in result.stderr


def test_no_python_at_all_is_said(tmp_path):
    result = run_install(tmp_path, PATH=str(tmp_path))
    assert result.returncode == 1 and "No Python of version 3.11" in result.stderr


def test_a_python_of_ones_own_choice_is_checked_too(tmp_path):
    old_python(tmp_path / "bin" / "mine")
    result = run_install(tmp_path, PATH="/usr/bin:/bin", PYTHON=str(tmp_path / "bin" / "mine"))
    assert result.returncode == 1 and "isn't a Python of version 3.11" in result.stderr


def test_a_newer_python_is_found_behind_an_old_one(tmp_path):
    old_python(tmp_path / "bin" / "python3")
    executable(tmp_path / "bin" / "python3.12",
               '#!/bin/sh\n[ "$1" = -c ] && exit 0\necho "installing with $0 $1"\n')
    result = run_install(tmp_path, PATH=str(tmp_path / "bin"))
    assert "python3.12 tools/install.py" in result.stdout


@pytest.mark.parametrize("code, line, expected", [
    (0, "312 passed in 200.11s (0:03:20)", (312, 0)),
    (1, "2 failed, 310 passed in 200.11s", (310, 2)),
    (1, "1 failed, 2 passed, 3 errors in 1.0s", (2, 4)),
    (2, "310 passed in 1.0s", (310, 1)),          # a crash after the tests
    (0, "All checks passed!", (1, 0)),            # a stage that doesn't count
    (1, "Found 3 errors.", (0, 1)),
])
def test_what_passed_and_failed_is_counted(code, line, expected):
    assert run_tests.counts(code, ["something\n", line + "\n"]) == expected


def test_make_alone_lists_the_targets():
    result = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True)
    makefile = (ROOT / "Makefile").read_text()
    for target in ("book", "test", "lint", "serve", "clean", "outputs", "bench"):
        assert re.search(rf"^make {target} ", result.stdout, re.MULTILINE)
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def pins(name):
    lines = [line.split("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    return dict(re.split("==", line) for line in lines if line)


def test_requirements_are_pinned_and_agree_with_the_constraints():
    wanted, all_pins = pins("requirements.txt"), pins("constraints.txt")
    assert wanted.items() <= all_pins.items()
    assert wanted["torch"] == "2.13.0" and wanted["jupyter-book"] == "1.0.4.post1"


def test_every_pinned_package_takes_the_oldest_python():
    """README asks for Python 3.11, and systems ship early releases of it."""
    refuse = [(found.name, found.version) for found in distributions()
              if not SpecifierSet(found.metadata.get("Requires-Python") or "").contains("3.11.0")]
    assert refuse == []


def test_every_sphinx_extension_of_the_book_is_required():
    config = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["extra_extensions"]
    required = {name.replace("_", "-") for name in pins("requirements.txt")}
    outside = {name.replace("_", "-") for name in config if not name.startswith("sphinx.")}
    assert outside and outside <= required


def test_requirements_say_what_each_is_for():
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if "==" in line]
    headed = {"pytest==9.2.0"}
    assert [line for line in lines if "#" not in line and line not in headed] == []


def test_the_package_carries_its_data_and_licences():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "MIT" in project["project"]["license"]
    assert project["tool"]["setuptools"]["package-data"]["dpteach"] == ["data/*"]
    assert project["project"]["optional-dependencies"]["torch"]
    for name in ("LICENSE", "LICENSE-text", "CITATION.cff", "CONTRIBUTING.md", "README.md"):
        assert (ROOT / name).exists(), name
    assert (ROOT / "dpteach" / "training" / "data" / "MNIST-LICENSE.md").exists()
