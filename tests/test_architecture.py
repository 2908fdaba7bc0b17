"""House rules of the package and the repository: imports point one way, public names are documented, files stay small,
types and spelling hold, links lead somewhere, and one version stands everywhere."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from links import local_links
from size import LONGEST, code_lines, parts
from upgrade import constraints_text, pinned_text

ROOT = Path(__file__).resolve().parent.parent
MODULES = {path.stem: path for path in sorted((ROOT / "dpteach").glob("*.py")) if path.stem != "__init__"}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}

# What a module may import from the package, besides `_validate`: each line's modules build on the lines above.
ALLOWED = {
    "_validate": set(),
    "laws": set(),
    "run": {"laws"},
    "guarantees": {"laws"},
    "bounds": {"laws", "moments"},
    "moments": {"laws", "guarantees"},
    "composition": {"laws", "guarantees"},
    "tradeoff": {"laws", "guarantees"},
    "lattice": {"laws"},
    "tensor_power": {"laws", "guarantees", "lattice"},
    "limits": {"laws", "guarantees", "tradeoff"},
    "accountants": {"run", "laws", "guarantees", "moments", "composition", "tradeoff", "tensor_power", "limits"},
    "audit": {"guarantees", "laws"},
    "calibration": {"run", "laws", "guarantees", "moments", "accountants"},
    "report": {"run", "guarantees", "moments", "accountants", "calibration"},
    "exercises": set(),
    "notebook": set(),
    "plotting": set(),
    "_cache": set(),
    "sampling": {"run"},
    "mnist": set(),
    "clipping": set(),
    "training": {"run", "_cache", "sampling", "mnist", "clipping"},
    "distributed": {"run", "_cache", "sampling", "mnist", "clipping", "training"},
    "__main__": {"run", "moments", "accountants", "calibration", "report", "audit", "mnist", "training"},
}
WITH_TORCH = {"_cache", "sampling", "mnist", "clipping", "training", "distributed"}


def imported(nodes):
    """Full names of the modules that import statements among `nodes` ask for."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            own = node.module == "dpteach"
            names |= {f"dpteach.{alias.name}" for alias in node.names} if own else {node.module}
    return names


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_one_way(name):
    found = {full.split(".")[1] for full in imported(ast.walk(TREES[name])) if full.startswith("dpteach.")}
    assert name in ALLOWED, "a new module needs a line in the table"
    assert found <= ALLOWED[name] | {"_validate"}


def test_the_table_has_no_circle():
    order = list(ALLOWED)
    late = {"bounds"}  # stands beside moments, which doesn't import it
    assert all(order.index(below) < order.index(name) for name in order if name not in late for below in ALLOWED[name])
    assert "bounds" not in set().union(*ALLOWED.values())


@pytest.mark.parametrize("name", sorted(set(MODULES) - WITH_TORCH))
def test_torch_is_loaded_only_where_something_is_trained(name):
    at_import = [node for node in TREES[name].body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    top = {full.split(".")[0] for full in imported(at_import)}
    assert not top & {"torch", "opacus", "dp_accounting"}
    loaded = {full.split(".")[1] for full in imported(at_import) if full.startswith("dpteach.")}
    assert not loaded & WITH_TORCH


def test_modules_and_parts_stay_small():
    assert {name: lines for name in MODULES if (lines := code_lines(MODULES[name])) > LONGEST} == {}
    listed = [name for _, names, _, _ in parts() for name in names]
    assert sorted(listed) == sorted(MODULES), "each module belongs to one part"
    for name, _, lines, limit in parts():
        assert lines <= limit, f"{name}: {lines} lines of code"


def test_mathematics_needs_nothing_but_itself():
    """Who reads the mathematics needn't read the rest: its modules import each other alone."""
    mathematics = set(parts()[0][1])
    assert all(ALLOWED[name] <= mathematics for name in mathematics)


def test_what_counts_as_code(tmp_path):
    path = tmp_path / "module.py"
    path.write_text('"""A module.\n\nIts text."""\n\n# a comment\nx = (1,\n     2)  # two lines\n\n\ndef f():\n'
                    '    """Says.\n\n    More.\n    """\n    return """a\nb"""\n')
    assert code_lines(path) == 2 + 1 + 2


def public(name):
    """(name, object) of a module's public functions and classes."""
    module = importlib.import_module(f"dpteach.{name}")
    found = [(entry, getattr(module, entry)) for entry in getattr(module, "__all__", ())]
    return [(entry, value) for entry, value in found if inspect.isfunction(value) or inspect.isclass(value)]


INTERFACE = {"delta", "epsilon", "f", "details"}  # documented in `Guarantee`, for all guarantees
NO_EXAMPLE = {"distributed.distributed_step", "distributed.train_distributed", "mnist.Mnist"}  # processes, files
DOCUMENTED = [name for name in MODULES if name != "__main__" and not name.startswith("_")]
API = (ROOT / "book" / "api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCUMENTED)
def test_public_names_are_documented(name):
    lacking = []
    for entry, value in public(name):
        text = value.__doc__ or ""
        if not text.strip() or (text.startswith(f"{entry}(") and inspect.isclass(value)):  # dataclass's own text
            lacking.append(f"{entry}: no docstring")
        elif inspect.isclass(value) and issubclass(value, Exception) or f"{name}.{entry}" in NO_EXAMPLE:
            continue
        elif ">>>" not in text:
            lacking.append(f"{entry}: no example")
        if inspect.isclass(value):
            methods = [part for part, method in vars(value).items() if inspect.isfunction(method) and part[0] != "_"]
            methods = [part for part in methods if part not in INTERFACE]
            lacking += [f"{entry}.{part}" for part in methods if not inspect.getdoc(getattr(value, part))]
    assert lacking == []
    assert f"automodule:: dpteach.{name}\n   :members:" in API, "book/api.md has no section for this module"


@pytest.mark.parametrize("name", DOCUMENTED)
def test_public_names_are_listed(name):
    listed = set(importlib.import_module(f"dpteach.{name}").__all__)
    defined = {node.name for node in TREES[name].body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert {entry for entry in defined if not entry.startswith("_")} <= listed | {"main"}


def run_tool(*command):
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr)[-4000:]


def test_types_hold():
    """mypy, strict, over the whole package."""
    code, text = run_tool("mypy", "--cache-dir", ".cache/mypy")
    assert code == 0, text


def test_spelling():
    code, text = run_tool("codespell_lib", "book", "dpteach", "tools", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
    assert code == 0, text


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "book").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_to_a_file(page):
    assert [link for link in local_links(page) if not (page.parent / link).exists()] == []


def test_a_dead_link_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("[a](gone.md#part) ![b](gone.svg) [c](https://example.org) [d](#here)\n```\n[e](no.md)\n```\n")
    assert local_links(page) == ["gone.md", "gone.svg"]


def test_one_version_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M).group(1)
    released = re.search(r"^date-released: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M).group(1)
    newest = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M).groups()
    package = importlib.import_module("dpteach").__version__
    assert {project, citation, package, newest[0]} == {project} and newest[1] == released


def pins():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_each_pin_is_exact_and_says_what_it_is_for():
    constrained = {line.split("==")[0].lower().replace("_", "-"): line.split("==")[1]
                   for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}  # fmt: skip
    for line in pins():
        found = re.fullmatch(r"([\w.-]+)==([\w.]+)\s+# \S.*", line)
        assert found, f"{line}: write name==version  # what it's for"
        assert constrained.get(found.group(1).lower().replace("_", "-")) == found.group(2), line


def test_an_upgrade_keeps_what_each_pin_is_for():
    found = {"Beta": "2.0", "alpha": "1.1", "torch": "3.0+cpu"}
    report = {"install": [{"metadata": {"name": name, "version": version}} for name, version in found.items()]}
    before = "# Top\n\nalpha==1.0   # arrays\nbeta==1.9 # fits\n"
    assert pinned_text(before, report) == "# Top\n\nalpha==1.1   # arrays\nbeta==2.0 # fits\n"
    assert constraints_text("# Kept\nalpha==1.0\n", report) == "# Kept\nalpha==1.1\nBeta==2.0\ntorch==3.0\n"
