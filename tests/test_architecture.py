"""House rules of the package and the repository: imports point one way, public names are
documented, types and spelling hold, links lead somewhere, and one version stands everywhere."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path
           for path in sorted((ROOT / "dpteach").rglob("*.py")) if not path.stem.startswith("__")}
# processes, files
NO_EXAMPLE = {"distributed_step", "train_distributed", "Mnist", "cached", "folder"}
NO_EXAMPLE |= {"Account", "Bracket"}  # made by `account` and by `TensorPower`
# as `sigma`
NO_EXAMPLE |= {"alpha", "alphas", "delta", "epsilon", "epsilons", "mu", "rate", "steps"}
INTERFACE = {"delta", "epsilon", "f", "details"}  # documented in `Guarantee`, for all guarantees


def run_tool(*command):
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def test_imports_point_one_way():
    """The contracts stand in pyproject.toml."""
    run_tool("-c", "from importlinter.cli import lint_imports_command as main; main()",
             "--no-cache")


def test_the_package_loads_neither_torch_nor_matplotlib():
    loaded = run_tool("-c", "import sys, dpteach; dpteach.account; print(*sys.modules)").split()
    assert "dpteach.accountants" in loaded
    assert not {"torch", "matplotlib", "scipy.stats", "dpteach.training"} & set(loaded)


def test_no_private_name_crosses_a_module():
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpteach"):
                assert not [alias.name for alias in node.names if alias.name.startswith("_")], name


def public(name):
    """(name, object) of a module's public functions and classes."""
    module = importlib.import_module(name)
    found = [(entry, getattr(module, entry)) for entry in getattr(module, "__all__", ())]
    return [(entry, value) for entry, value in found
            if inspect.isfunction(value) or inspect.isclass(value)]


def undocumented(entry, value):
    """What a public name's docstring lacks."""
    text = value.__doc__ or ""
    # dataclass's own text
    if not text.strip() or (text.startswith(f"{entry}(") and inspect.isclass(value)):
        return [f"{entry}: no docstring"]
    lacking = []
    if ">>>" not in text and entry not in NO_EXAMPLE and not (inspect.isclass(value)
                                                              and issubclass(value, Exception)):
        lacking = [f"{entry}: no example"]
    methods = [part for part, method in vars(value).items()
               if inspect.isfunction(method) and part[0] != "_"]
    return lacking + [f"{entry}.{part}" for part in methods
                      if inspect.isclass(value) and part not in INTERFACE
                      and not inspect.getdoc(getattr(value, part))]


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"dpteach.verify"}))  # chapter 11 shows it
def test_public_names_are_listed_and_documented(name):
    assert [problem for entry, value in public(name)
            for problem in undocumented(entry, value)] == []
    tree = ast.parse(MODULES[name].read_text("utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert {entry for entry in defined
            if entry[0] != "_"} <= set(importlib.import_module(name).__all__)


def test_types_hold():
    """mypy, strict, over the whole package."""
    run_tool("-m", "mypy", "--cache-dir", ".cache/mypy")


def test_spelling():
    run_tool("-m", "codespell_lib", "book", "dpteach", "tools", "README.md", "CONTRIBUTING.md",
             "CHANGELOG.md")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_relative_links_lead_to_a_file(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text("utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_one_version_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M).group(1)
    released = re.search(r"^date-released: (\S+)$", (ROOT / "CITATION.cff").read_text(),
                         re.M).group(1)
    newest = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M).groups()
    package = importlib.import_module("dpteach").__version__
    assert {project, citation, package, newest[0]} == {project} and newest[1] == released


def test_each_pin_is_exact_and_says_what_it_is_for():
    def pin(line):
        name, version = line.split("==")
        return name.lower().replace("_", "-"), version

    constrained = dict(pin(line) for line in (ROOT / "constraints.txt").read_text().splitlines()
                       if "==" in line)
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            found = re.fullmatch(r"([\w.-]+==[\w.]+)\s+# \S.*", line)
            assert found, f"{line}: write name==version  # what it's for"
            name, version = pin(found.group(1))
            assert constrained.get(name) == version, line
