"""The two commands' own parts: the install, the count at the end, the layout."""

import re
import shutil
import subprocess
import tomllib
from importlib.metadata import distributions

import pytest
import run_tests
import yaml
from frame import ROOT
from packaging.specifiers import SpecifierSet


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


def make(folder, target, path, python=""):
    for name in ("Makefile", "requirements.txt", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return subprocess.run(["make", target, *([f"PYTHON={python}"] if python else [])], cwd=folder,
                          text=True,
                          env={"PATH": f"{path}:/usr/bin:/bin"}, capture_output=True)


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_python_that_is_too_old_is_refused(tmp_path):
    executable(tmp_path / "bin" / "mine", "exit 1")
    done = make(tmp_path, "install", tmp_path / "bin", tmp_path / "bin" / "mine")
    assert done.returncode and "No Python of version 3.11 or newer" in done.stderr


def test_an_install_is_instant_when_nothing_changed(tmp_path):
    executable(tmp_path / ".venv" / "bin" / "python", 'echo "$@" >> calls')
    assert make(tmp_path, "install", tmp_path).returncode == 0
    calls = (tmp_path / "calls").read_text()
    assert "install -q --disable-pip-version-check -r requirements.txt -c constraints.txt" in calls
    assert make(tmp_path, "install",
                tmp_path).returncode == 0 and (tmp_path / "calls").read_text() == calls
    (tmp_path / ".venv" / "installed").write_text("older pins")
    assert make(tmp_path, "install",
                tmp_path).returncode == 0 and (tmp_path / "calls").read_text() == 2 * calls


def test_make_alone_lists_the_targets():
    result = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True)
    makefile = (ROOT / "Makefile").read_text()
    for target in ("book", "test", "lint", "serve", "clean", "outputs", "bench"):
        assert re.search(rf"^make {target} ", result.stdout, re.MULTILINE)
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_every_pinned_package_takes_the_oldest_python():
    """README asks for Python 3.11, and systems ship early releases of it."""
    refuse = [(found.name, found.version) for found in distributions()
              if not SpecifierSet(found.metadata.get("Requires-Python") or "").contains("3.11.0")]
    assert refuse == []


def test_every_sphinx_extension_of_the_book_is_required():
    config = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["extra_extensions"]
    pinned = re.findall(r"^([\w-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    required = {name.replace("_", "-") for name in pinned}
    outside = {name.replace("_", "-") for name in config if not name.startswith("sphinx.")}
    assert outside and outside <= required


def test_the_package_carries_its_data_and_licences():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "MIT" in project["project"]["license"]
    assert project["tool"]["setuptools"]["package-data"]["dpteach.training"] == ["data/*"]
    assert project["project"]["optional-dependencies"]["torch"]
    for name in ("LICENSE", "LICENSE-text", "CITATION.cff", "CONTRIBUTING.md", "README.md"):
        assert (ROOT / name).exists(), name
    assert (ROOT / "dpteach" / "training" / "data" / "MNIST-LICENSE.md").exists()
