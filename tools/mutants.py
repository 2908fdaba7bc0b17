"""Mutation testing: break the mathematics of dpteach in small ways and count what the tests notice.

    python tools/mutants.py                    # what isn't tested yet of the samples of all modules; resumes
    python tools/mutants.py laws moments       # some modules
    python tools/mutants.py --survivors laws   # the survivors alone, again, after a test was added
    python tools/mutants.py --report           # only write and show tests/mutation/results.json

A mutant is one module with one small change (the classes below). A worker collects the module's tests once, measures
which lines each test reaches and how long it takes, and then forks itself for each mutant: the child exchanges the
changed function's code in place and runs the tests that reach the changed line, until one fails. Tests that take more
than `SLOW` seconds of processor time are left out. A child that needs ten times the usual processor time counts as
killed, and so does one that runs out of memory. Changes outside of functions are made in a fresh import.

Numerical settings aren't changed: whole numbers from 100 on and fractions below 0.01 or from 100 on (sizes of grids,
tolerances, limits against overflow), texts of messages and of allowed ranges.

Of each module the `SAMPLE` mutants are taken whose hashed names come first: a sample that stays the same when other
lines change. Survivors must be listed, with the reason why they're equivalent, in tests/mutation/equivalent.json.
"""

import argparse
import ast
import builtins
import copy
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pickle
import platform
import resource
import signal
import sys
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "mutants"
FOLDER = ROOT / "tests" / "mutation"
SAMPLE = 200  # mutants of a module
SLOW = 0.5  # seconds of processor time: slower tests are left out
MEMORY = 6 * 2**30
MODULES = {  # and the tests that may notice
    "laws": ["laws", "guarantees"],
    "moments": ["moments"],
    "bounds": ["bounds"],
    "composition": ["composition"],
    "guarantees": ["guarantees"],
    "limits": ["limits", "accountants"],
    "tradeoff": ["tradeoff"],
    "lattice": ["lattice"],
    "tensor_power": ["tensor_power"],
}

# --- what is changed

BINARY = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
          ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
          ast.MatMult: ast.Mult}
COMPARE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
           ast.Is: ast.IsNot, ast.IsNot: ast.Is}
REVERSE = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt}
NAMES = {"min": "max", "minimum": "maximum", "floor": "ceil", "argmin": "argmax", "any": "all", "log1p": "log",
         "expm1": "exp", "sinh": "cosh", "log_ndtr": "ndtr", "sum": "prod"}
NAMES |= {new: old for old, new in NAMES.items() if new not in ("prod", "ndtr")}
SYMMETRIC = {"minimum", "maximum", "logaddexp", "min", "max", "real", "reals", "whole", "choice", "members", "text"}


def changes(node):
    """(class of mutation, changed copy) for one node of the syntax tree."""
    def changed(**fields):
        new = copy.copy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        return new

    match node:
        case ast.BinOp(op=op) if type(op) in BINARY:
            yield "operator", changed(op=BINARY[type(op)]())
            if isinstance(op, (ast.Add, ast.Sub, ast.Mult)):
                yield "term dropped", node.left
                yield "term dropped", node.right
        case ast.AugAssign(op=op) if type(op) in BINARY:
            yield "operator", changed(op=BINARY[type(op)]())
        case ast.Compare(ops=[op]):
            if type(op) in COMPARE:
                yield "boundary", changed(ops=[COMPARE[type(op)]()])
            if type(op) in REVERSE:
                yield "reversed", changed(ops=[REVERSE[type(op)]()])
        case ast.BoolOp(op=op):
            yield "and, or", changed(op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            yield "sign dropped", node.operand
        case ast.IfExp():
            yield "branches", changed(body=node.orelse, orelse=node.body)
        case ast.If() | ast.While():
            yield "condition", changed(test=ast.UnaryOp(ast.Not(), node.test))
        case ast.Constant(value=bool(value)):
            yield "constant", changed(value=not value)
        case ast.Constant(value=int(value)) if value < 100:  # larger: grid sizes, and limits against overflow
            yield "constant", changed(value=value + 1)
            yield "constant", changed(value=value - 1)
        case ast.Constant(value=float(value)) if value == 0:
            yield "constant", changed(value=1.0)
        case ast.Constant(value=float(value)) if 0.01 <= value < 100:  # the rest: tolerances, ends of searches
            yield "constant", changed(value=value * 2)
            yield "constant", changed(value=value * 0.9)
        case ast.Call(func=func, args=args):
            name = getattr(func, "attr", getattr(func, "id", ""))
            if name in NAMES:
                other = copy.copy(func)
                setattr(other, "attr" if hasattr(func, "attr") else "id", NAMES[name])
                if hasattr(func, "attr") or hasattr(builtins, NAMES[name]):
                    yield "function", changed(func=other)
            if name == "where" and len(args) == 3:
                yield "branches", changed(args=[args[0], args[2], args[1]])
            elif len(args) >= 2 and name not in SYMMETRIC and not any(isinstance(a, ast.Starred) for a in args[:2]):
                yield "arguments", changed(args=[args[1], args[0], *args[2:]])
        case ast.Return(value=ast.Tuple(elts=[first, second])):
            yield "arguments", changed(value=ast.Tuple([second, first], ast.Load()))


def sites(tree):
    """(node, qualified name, inside a function) of all that is changed: no annotation, decorator, name list, text."""
    def walk(node, path, inside):
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or isinstance(child, (ast.JoinedStr, ast.Raise)):
                    continue
                if isinstance(child, ast.Assign) and getattr(child.targets[0], "id", "") == "__all__":
                    continue
                named = isinstance(child, (ast.FunctionDef, ast.ClassDef))
                within = inside or (isinstance(node, ast.FunctionDef) and field == "body")
                yield child, path, within
                yield from walk(child, [*path, child.name] if named else path, within)

    yield from walk(tree, [], False)


def mutants(module):
    """All mutants of a module: dictionaries with name, class, line, whether inside a function, and the new tree."""
    source = (ROOT / "dpteach" / f"{module}.py").read_text("utf-8")
    tree, found, seen = ast.parse(source), [], {}
    for node, path, inside in sites(tree):
        for kind, new in changes(node):
            if isinstance(node, (ast.If, ast.While)):
                before, after = f"if {ast.unparse(node.test)}", f"if {ast.unparse(new.test)}"
            else:
                before, after = ast.unparse(node), ast.unparse(new)
            if before == after:
                continue
            name = f"{module}.{'.'.join(path)}: {before} → {after}"
            seen[name] = seen.get(name, 0) + 1
            name += f" #{seen[name]}" if seen[name] > 1 else ""
            found.append({"name": name, "class": kind, "line": node.lineno, "inside": inside, "at": (node, new)})
    return tree, found


def sample(module, size):
    tree, found = mutants(module)
    found.sort(key=lambda mutant: hashlib.sha256(mutant["name"].encode()).digest())
    return tree, found[:size] if size else found


def compiled(tree, mutant, file):
    """The module's code with one change."""
    old, new = mutant["at"]

    class Swap(ast.NodeTransformer):
        def visit(self, node):
            return ast.copy_location(new, node) if node is old else self.generic_visit(node)

    whole = copy.deepcopy(tree, {id(old): old, id(new): new})  # all but the place itself is copied
    return compile(ast.fix_missing_locations(Swap().visit(whole)), str(file), "exec", dont_inherit=True)


# --- running tests on it


def functions_of(code):
    for constant in code.co_consts:
        if hasattr(constant, "co_qualname"):
            yield (constant.co_qualname, constant.co_firstlineno), constant
            yield from functions_of(constant)


def exchange(module, code):
    """Give the imported module's functions the code of the changed one: everyone who imported them sees it."""
    fresh = dict(functions_of(code))

    def visit(value):
        for inner in ("fget", "__func__", "func"):  # property, class method, cached property
            value = getattr(value, inner, None) or value
        value = getattr(value, "__wrapped__", value)
        if hasattr(value, "__code__") and value.__code__.co_filename == module.__file__:
            value.__code__ = fresh.get((value.__code__.co_qualname, value.__code__.co_firstlineno), value.__code__)

    for value in list(vars(module).values()):
        visit(value)
        if isinstance(value, type) and value.__module__ == module.__name__:
            for member in list(vars(value).values()):
                visit(member)


def passes(item):
    """Whether one collected test passes; and the processor time it took."""
    from _pytest.runner import runtestprotocol

    begun = time.process_time()
    reports = runtestprotocol(item, nextitem=None, log=False)
    return not any(report.failed for report in reports), time.process_time() - begun


def forked(work):
    """The value of work() in a child of this process, or None when the child dies."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "wb") as out:
            pickle.dump(work(), out)
            out.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as read:
        data = read.read()
    os.waitpid(child, 0)
    return pickle.loads(data) if data else None


def baseline(items, file):
    """For each test that passes within SLOW: [processor time, lines of the module that it reaches]."""
    def measure(item):
        lines = set()

        def local(frame, event, _):
            lines.add(frame.f_lineno)
            return local

        signal.setitimer(signal.ITIMER_PROF, 2 * SLOW)  # tracing costs time, too
        sys.settrace(lambda frame, *_: local if frame.f_code.co_filename == file else None)
        good, took = passes(item)
        sys.settrace(None)
        return [round(took, 3), sorted(lines)] if good else "fails"

    found = {item.nodeid: forked(lambda item=item: measure(item)) for item in items}
    for name, result in found.items():
        if result == "fails":
            print(f"left out, since it fails without any change: {name}", file=sys.__stdout__)
    return {name: result for name, result in found.items() if isinstance(result, list) and result[0] <= SLOW}


class Worker:
    """A pytest plugin that runs mutants where pytest would run the tests."""

    def __init__(self, module, state, again, size):
        self.module, self.state, self.again, self.size = module, state, again, size
        self.file = ROOT / "dpteach" / f"{module}.py"

    def pytest_runtestloop(self, session):
        state = self.state
        if "baseline" not in state:
            state["baseline"] = baseline(session.items, str(self.file))
            save(self.module, state)
        tests = [item for item in session.items if item.nodeid in state["baseline"]]
        tree, chosen = sample(self.module, self.size)
        kills = {}
        for count, mutant in enumerate(chosen, 1):
            if state["results"].get(mutant["name"], "survived" if self.again else None) != (
                    "survived" if self.again else None):
                continue
            line = mutant["line"]
            reach = [t for t in tests if not mutant["inside"] or line in state["baseline"][t.nodeid][1]
                     or self._spans(mutant, state["baseline"][t.nodeid][1])]
            reach.sort(key=lambda t: -(1 + kills.get(t.nodeid, 0)) / (0.02 + state["baseline"][t.nodeid][0]))
            outcome = self.run(tree, mutant, reach)
            if outcome in state["baseline"]:
                kills[outcome] = kills.get(outcome, 0) + 1
            state["results"][mutant["name"]] = outcome
            save(self.module, state)
            if outcome == "survived" or count % 25 == 0:
                print(f"{self.module} {count}/{len(chosen)} {outcome if outcome == 'survived' else ''} "
                      f"{mutant['line']} {mutant['name'] if outcome == 'survived' else ''}", flush=True,
                      file=sys.__stdout__)
        return True

    @staticmethod
    def _spans(mutant, lines):
        """Whether a test reaches the statement: a long one reports the lines of its parts only."""
        node = mutant["at"][0]
        return any(node.lineno - 3 <= line <= node.end_lineno for line in lines)

    def run(self, tree, mutant, tests):
        """'survived', or the test that failed, or 'timeout', 'dead', 'import'."""
        def work():
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            code = compiled(tree, mutant, self.file)
            if not mutant["inside"]:
                return self.fresh(code, tests)
            exchange(sys.modules[f"dpteach.{self.module}"], code)
            return self.first_failure(tests)

        return forked(work) or "dead"

    def first_failure(self, tests):
        for item in tests:
            usual = self.state["baseline"][item.nodeid][0]
            signal.setitimer(signal.ITIMER_PROF, 2 + 10 * usual)
            good, _ = passes(item)
            signal.setitimer(signal.ITIMER_PROF, 0)
            if not good:
                return item.nodeid
        return "survived"

    def fresh(self, code, tests):
        """The same with everything imported anew, for changes that act at import."""
        names, worker = [item.nodeid for item in tests], self

        class Finder:
            @staticmethod
            def find_spec(name, path, target=None):
                if name == f"dpteach.{worker.module}":
                    return importlib.util.spec_from_file_location(name, worker.file, loader=Loader())

        class Loader:
            create_module = staticmethod(lambda spec: None)
            exec_module = staticmethod(lambda module: exec(code, vars(module)))

        class Inner:
            outcome = "import"

            def pytest_sessionstart(self, session):  # pytest's own finder is in place: ours must come before it
                old = [n for n in sys.modules if n.split(".")[0] == "dpteach" or n == "golden" or n[:5] == "test_"]
                for name in old:
                    del sys.modules[name]
                sys.meta_path.insert(0, Finder())

            def pytest_runtestloop(self, session):
                found = {item.nodeid: item for item in session.items}
                kept = [found[name] for name in names if name in found]
                if len(kept) == len(names):
                    self.outcome = worker.first_failure(kept)
                return True

        inner = Inner()
        collect(self.module, inner)
        return inner.outcome


def collect(module, plugin):
    import pytest

    paths = [f"tests/test_{name}.py" for name in MODULES[module]] + [f"dpteach/{module}.py"]
    return pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:nbval", "--no-header", *paths],
                       plugins=[plugin])


# --- state and report


def state_of(module):
    """What is known of the module as it is now, with the tests as they are now."""
    digest = hashlib.sha256((ROOT / "dpteach" / f"{module}.py").read_bytes()).hexdigest()
    files = [ROOT / "tests" / f"test_{name}.py" for name in MODULES[module]]
    tests = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    file = CACHE / f"{module}.json"
    state = json.loads(file.read_text()) if file.exists() else {}
    if state.get("module") != digest:
        state = {"module": digest, "results": {}}
    if state.get("tests") != tests:
        state.pop("baseline", None)
        state["tests"] = tests
    return state


def save(module, state):
    CACHE.mkdir(parents=True, exist_ok=True)
    aside = CACHE / f"{module}.tmp"
    aside.write_text(json.dumps(state))
    aside.replace(CACHE / f"{module}.json")


def start(module, again, size):
    """Run a module's mutants in a child, which imports what doesn't change before it starts."""
    child = os.fork()
    if child:
        return child
    os.chdir(ROOT)
    import hypothesis

    hypothesis.settings.register_profile(
        "mutants", derandomize=True, database=None, deadline=None, print_blob=False,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate])
    hypothesis.settings.load_profile("mutants")
    state = state_of(module)
    sys.stdout = open(os.devnull, "w")  # pytest's own words
    collect(module, Worker(module, state, again, size))
    os._exit(0)


def report(size):
    """Write and show the counts; returns the survivors that aren't listed."""
    listed = json.loads((FOLDER / "equivalent.json").read_text("utf-8"))
    rows, unlisted = {}, []
    for module in MODULES:
        state, (_, chosen) = state_of(module), sample(module, size)
        done = [m["name"] for m in chosen if m["name"] in state["results"]]
        survived = [name for name in done if state["results"][name] == "survived"]
        unlisted += [name for name in survived if name not in listed]
        rows[module] = {
            "mutants": len(mutants(module)[1]), "sampled": len(chosen), "run": len(done),
            "killed": len(done) - len(survived), "equivalent": sum(name in listed for name in survived),
            "survived": sum(name not in listed for name in survived)}
    total = {key: sum(row[key] for row in rows.values()) for key in next(iter(rows.values()))}
    result = {"date": date.today().isoformat(), "python": platform.python_version(),
              "numpy": importlib.metadata.version("numpy"), "scipy": importlib.metadata.version("scipy"),
              "sample": size, "modules": rows, "total": total,
              "killed_percent": round(100 * total["killed"] / max(1, total["run"]), 1),
              "killed_percent_without_equivalent":
                  round(100 * total["killed"] / max(1, total["run"] - total["equivalent"]), 1)}
    (FOLDER / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{'module':14}" + "".join(f"{key:>12}" for key in total))
    for name, row in [*rows.items(), ("all", total)]:
        print(f"{name:14}" + "".join(f"{value:12}" for value in row.values()))
    print(f"killed {result['killed_percent']} %, without the equivalent ones "
          f"{result['killed_percent_without_equivalent']} %")
    return unlisted


def main():
    parser = argparse.ArgumentParser(description="Mutation testing of dpteach's mathematics.")
    parser.add_argument("modules", nargs="*", help=f"of {', '.join(MODULES)}; all when none is named")
    parser.add_argument("--survivors", action="store_true", help="run survivors again")
    parser.add_argument("--report", action="store_true", help="only show what is known")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="mutants of a module, 0: all")
    parser.add_argument("--jobs", type=int, default=1, help="modules at a time")
    options = parser.parse_args()
    if unknown := set(options.modules) - set(MODULES):
        parser.error(f"no such module: {', '.join(sorted(unknown))}; choose from {', '.join(MODULES)}")
    waiting, running = [] if options.report else options.modules or list(MODULES), set()
    while waiting or running:
        while waiting and len(running) < options.jobs:
            running.add(start(waiting.pop(0), options.survivors, options.sample))
        running.discard(os.wait()[0])
    unlisted = report(options.sample)
    for name in unlisted:
        print("survived, not listed:", name)
    sys.exit(bool(unlisted))


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "tests")]
    main()
