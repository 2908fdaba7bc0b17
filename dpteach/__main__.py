"""Command line: ``python -m dpteach account | calibrate | report | train``. Exit code 0, or 2 and one line on stderr;
130 after Ctrl-C.

conventions (a sigma means nothing without one):
  add-remove   neighbours differ by one record more or less; Poisson batches; noise std = sigma × clip_norm
               on the sum of clipped gradients (Abadi et al. 2016, TF-Privacy, Opacus).
  replace-one  neighbours differ in one record's value; batches are uniform subsets of exactly m; noise std =
               2 × sigma × clip_norm on the sum (Dong, Roth and Su 2022, Algorithm 1).
The clipping norm doesn't enter epsilon: only the ratio of noise to sensitivity matters.

kinds: 'bracket' encloses the value and 'upper bound' is above it: these are guarantees. 'asymptotic' is a limit for
many steps, which may be too small.
"""

from __future__ import annotations

import argparse
import inspect
import io
import json
import os
import secrets
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import dpteach
from dpteach import domain
from dpteach.accountants import NAMES, convention, run_under, summary, warnings_for
from dpteach.calibration import SOUGHT, calibrate
from dpteach.moments import ORDERS
from dpteach.report import _show, statement, to_html, to_markdown
from dpteach.run import RELATIONS, NoisySGD

__all__ = ["main", "program"]

_OPTION_OF = {"sampling_rate": "q", "records_per_unit": "records-per-user"}  # argument of a function: what was typed
_TYPED = ("batch_size", "tuning_runs", "clip_norm", "learning_rate", "stop_after")
_OPTION_OF |= {name: name.replace("_", "-") for name in _TYPED}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        if message and file is not None:  # argparse's own hides that a disk is full
            file.write(message)


def _parser() -> argparse.ArgumentParser:
    top = _Parser(prog="dpteach", description="What a run of noisy SGD guarantees, by every accountant.")
    top.add_argument("--version", action="version", version=f"dpteach {dpteach.__version__}")
    commands = top.add_subparsers(dest="command", required=True, parser_class=_Parser)
    for name, (function, options) in _COMMANDS.items():
        purpose, _, examples = (inspect.getdoc(function) or "").partition("\n\n")
        epilog = (__doc__ or "").partition("\n\n")[2] + "\n" + examples
        form = argparse.RawDescriptionHelpFormatter
        one = commands.add_parser(name, help=purpose, description=purpose, epilog=epilog, formatter_class=form)
        one.add_argument("--convention", choices=RELATIONS, required=True, help="neighbours, with their sampling")
        for option, settings in options.items():
            one.add_argument(option, **settings)
    return top


def _facts(args: argparse.Namespace) -> dict[str, Any]:
    """What the user said of the run, by NoisySGD's names."""
    typed = {"sampling_rate": "q"}
    names = ("sigma", "n", "batch_size", "epochs", "sampling_rate", "steps", "clip_norm")
    found = {name: getattr(args, typed.get(name, name), None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _run(args: argparse.Namespace) -> NoisySGD:
    return run_under(args.convention, **_facts(args))


def _account(args: argparse.Namespace) -> str:
    """every guarantee of one run, side by side

    examples:
      python -m dpteach account --convention add-remove --q 0.01 --sigma 4 --steps 10000 --delta 1e-5
      python -m dpteach account --convention replace-one --n 60000 --batch-size 256 --epochs 15 --sigma 1.3 --delta 1e-5
    """
    found = summary(_run(args), args.convention, args.delta, args.orders)
    return json.dumps(found, allow_nan=False) if args.json else _table(found)


def _table(found: dict[str, Any]) -> str:
    lines = [f"{found['assumptions']}; steps T = {found['steps']}; delta = {found['delta']:g}", ""]
    lines.append(f"{'guarantee':<20}{'kind':<14}{'epsilon':<24}notes")
    for row in found["guarantees"]:
        notes = ", ".join(f"{k} {_show(v)}" for k, v in row.items() if k not in ("name", "kind", "epsilon"))
        lines.append(f"{row['name']:<20}{row['kind']:<14}{_show(row['epsilon']):<24}{notes}")
    lines += [f"warning: {text}" for text in found["warnings"]]
    return "\n".join(line.rstrip() for line in lines)


def _calibrate(args: argparse.Namespace) -> str:
    """the noise, the steps or the batch size for a wished-for epsilon and delta

    examples: how much noise for epsilon at most 2? How many steps, how large a batch, with a given noise?
      python -m dpteach calibrate --convention add-remove --n 60000 --batch-size 256 --epochs 15 \
--epsilon 2 --delta 1e-5
      python -m dpteach calibrate --find steps --guarantee moments --convention add-remove --q 0.01 --sigma 1.3 \
--epsilon 2 --delta 1e-5
      python -m dpteach calibrate --find batch-size --convention replace-one --n 60000 --steps 3516 --sigma 1.3 \
--epsilon 2 --delta 1e-5
    """
    target = {"epsilon": args.epsilon, "delta": args.delta}
    sought = args.find.replace("-", "_")
    found = calibrate(sought, args.guarantee, args.convention, orders=args.orders, **target, **_facts(args))
    warnings = warnings_for(found.run, found.delta)
    if found.kind == "asymptotic":
        warnings.append(f"{found.guarantee} is asymptotic: a limit for many steps, not a guarantee")
    if args.json:
        facts = {"find": args.find, "value": found.value, "guarantee": found.guarantee, "kind": found.kind}
        facts |= {"epsilon": found.epsilon, "target": args.epsilon, "delta": found.delta, "steps": found.run.steps}
        facts |= {"assumptions": convention(found.run, args.convention), "warnings": warnings}
        return json.dumps(facts, allow_nan=False)
    kind = "bracket, its upper end" if found.kind == "bracket" else found.kind
    lines = [
        f"{args.find} = {found.value!r}",
        f"{found.guarantee} ({kind}): epsilon = {found.epsilon:.6g}, wanted at most {args.epsilon:g}",
        f"{convention(found.run, args.convention)}; steps T = {found.run.steps}; delta = {found.delta:g}",
    ]
    return "\n".join(lines + [f"warning: {text}" for text in warnings])


def _statement(run: NoisySGD, args: argparse.Namespace, warnings: tuple[str, ...] = ()) -> str:
    unit = args.unit if args.unit is not None else "user" if args.records_per_user > 1 else "record"
    whom = {"unit": unit, "records_per_unit": args.records_per_user, "tuning_runs": args.tuning_runs}
    facts = statement(run, args.convention, args.delta, orders=args.orders, **whom)
    facts["warnings"].extend(warnings)
    if args.format == "json":
        return json.dumps(facts, allow_nan=False)
    return {"md": to_markdown, "html": to_html}[args.format](facts)


def _report(args: argparse.Namespace) -> str:
    """the one-page privacy statement of a run

    examples:
      python -m dpteach report --convention add-remove --n 60000 --batch-size 256 --epochs 15 --sigma 1.3 \
--clip-norm 1.5 --delta 1e-5
      python -m dpteach report --convention replace-one --n 60000 --batch-size 256 --epochs 15 --sigma 1.3 \
--delta 1e-5 --unit user --records-per-user 2 --tuning-runs 4 --format html --output statement.html
    """
    return _statement(_run(args), args)


def _train(args: argparse.Namespace) -> str:
    """train the tutorial network on MNIST (needs torch) and print the statement of what was done

    examples: three updates; 15 epochs if you don't say
      python -m dpteach train --convention add-remove --sigma 1.3 --epochs 0.01
    """
    length = {"epochs": 15} if args.epochs is None and args.steps is None else {}
    run = run_under(args.convention, **{**_facts(args), **length, "n": 60000})
    stop_after = run.steps if args.stop_after is None else args.stop_after
    domain.whole_number("stop_after", stop_after, f"[1, {run.steps}]", "the run has so many updates")
    _statement(run.but(steps=1), args)  # bad input is refused before the work
    try:
        import torch  # here, since it takes seconds to load, and the other commands do without
    except ImportError as error:
        raise ImportError(f'{error}: training needs it; pip install "dpteach[torch]"') from None

    from dpteach import training
    from dpteach.training import mnist

    seed = secrets.randbits(62) if args.seed is None else args.seed
    known = () if args.seed is None else (f"the seed {seed} is known: with it anyone can draw the same noise again",)
    seed = domain.whole_number("seed", seed, "[0, 4.6e18]")
    model, data = mnist.tutorial_cnn(torch.Generator().manual_seed(seed)), mnist.load()
    options = {"learning_rate": args.learning_rate, "seed": seed, "stop_after": stop_after}
    result = training.train(model, run, data.x_train, data.y_train, progress=sys.stderr is not None, **options)
    assert result.model is not None  # as after every training
    _tell(f"test accuracy {training.accuracy(result.model, data.x_test, data.y_test):.2f} %")
    return _statement(run.but(steps=result.steps), args, known)


def _whole(typed: str) -> int:
    """A whole number in every form that the library takes: 10000, 1e4, 10000.0."""
    with suppress(ValueError):
        return int(typed)
    with suppress(ValueError):
        return domain.whole_number("it", float(typed))
    raise argparse.ArgumentTypeError(f"{typed[:60]!r} isn't allowed: it must be a whole number, as in 256 or 1e4")


_Flags = dict[str, dict[str, Any]]  # option: settings of add_argument
_NUMBER, _WHOLE = {"type": float}, {"type": _whole}
_SIGMA: _Flags = {"--sigma": {**_NUMBER, "required": True, "help": "noise std / sensitivity, in the convention named"}}
_STEPS: _Flags = {
    "--epochs": {**_NUMBER, "help": "passes over the data: T = ceil(epochs × n / batch size)"},
    "--steps": {**_WHOLE, "help": "number of noisy updates T, instead of epochs"},
}
_SIZE: _Flags = {
    "--n": {**_WHOLE, "help": "number of records"},
    "--batch-size": {**_WHOLE, "help": "records in a batch (expected number under add-remove)"},
    "--q": {**_NUMBER, "help": "sampling rate, instead of n and batch size"},
    **_STEPS,
}
_QUESTION: _Flags = {
    "--delta": {**_NUMBER, "required": True, "help": "δ, in (0, 1); below 1/n"},
    "--orders": {"choices": ORDERS, "default": "integer", "help": "orders of the moments (default: integer)"},
}
_JSON: _Flags = {"--json": {"action": "store_true", "help": "print one JSON object instead of text"}}
_PAGE: _Flags = {
    "--unit": {"help": "whom the claim protects: record, user, device, … (default: record, or user if it has several)"},
    "--records-per-user": {**_WHOLE, "default": 1, "help": "most records that one unit has (default: 1)"},
    "--tuning-runs": {**_WHOLE, "help": "other trainings on the same data, counted by composition"},
    "--format": {"choices": ("md", "html", "json"), "default": "md", "help": "default: md (Markdown)"},
    "--output": {"help": "file to write, instead of the terminal"},
}
_CLIP: _Flags = {"--clip-norm": {**_NUMBER, "default": 1.0, "help": "clipping norm C, for the record (default: 1)"}}
_TARGET: _Flags = {
    "--find": {"choices": [s.replace("_", "-") for s in SOUGHT], "default": "sigma", "help": "default: sigma"},
    "--guarantee": {"choices": NAMES, "default": "tensor-power", "help": "whose epsilon (default: tensor-power)"},
    "--epsilon": {**_NUMBER, "required": True, "help": "the largest epsilon allowed"},
    "--sigma": {**_NUMBER, "help": "as for account, where steps or batch size are sought"},
}
_TRAINING: _Flags = {
    "--batch-size": {**_WHOLE, "default": 256, "help": f"{_SIZE['--batch-size']['help']} (default: 256)"},
    "--clip-norm": {**_NUMBER, "default": 1.5, "help": "clipping norm C (default: 1.5)"},
    "--learning-rate": {**_NUMBER, "default": 0.25, "help": "η (default: 0.25)"},
    "--seed": {**_WHOLE, "help": "makes the run repeatable, and the noise guessable (default: a secret seed)"},
    "--stop-after": {**_WHOLE, "help": "make only so many of the run's updates"},
    "--delta": {**_NUMBER, "default": 1e-5, "help": f"{_QUESTION['--delta']['help']} (default: 1e-5)"},
}
_COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], str], _Flags]] = {
    "account": (_account, _SIGMA | _SIZE | _QUESTION | _JSON),
    "calibrate": (_calibrate, _TARGET | _SIZE | _QUESTION | _JSON),
    "report": (_report, _SIGMA | _SIZE | _CLIP | _QUESTION | _PAGE),
    "train": (_train, _SIGMA | _STEPS | _QUESTION | _TRAINING | _PAGE),
}


def _checked_output(name: str | None) -> Path | None:
    """The file to write, refused before any work is done; a link is followed."""
    if name is None:
        return None
    path = Path(os.path.realpath(name.replace("\0", "")))
    fits = len(os.fsencode(path.name)) <= 240 and "\0" not in name  # the file written aside has a longer name
    if not name or not fits or os.path.exists(path) and not path.is_file() or not os.path.isdir(path.parent):
        raise ValueError(f"output = {name!r} isn't allowed: it must be a file, new or old, in a folder that's there")
    return path


def _deliver(text: str, path: Path | None) -> None:
    """Print, or write aside and rename: a file that was there stays whole until the new one is."""
    if path is None:
        print(text)
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(aside, "x", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise ValueError(f"output = {str(path)!r} can't be written: {error.strerror}") from None


def _tell(text: str) -> None:
    if sys.stderr is not None:  # closed: print would take stdout
        print(text, file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code is 0, or 2 for bad input."""
    args = _parser().parse_args(argv)
    try:
        path = _checked_output(getattr(args, "output", None))
        _deliver(_COMMANDS[args.command][0](args), path)
    except (ValueError, ImportError) as error:
        text = " ".join(str(error).split())
        for name, option in _OPTION_OF.items():
            text = text.replace(name, option)
        _tell(f"dpteach {args.command}: {text}")
        return 2
    return 0


def program() -> int:
    """`main` for a shell: silent when a pipe's reader goes away, one line when the disk is full or stdout is closed."""
    if hasattr(signal, "SIGPIPE"):  # not on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        if sys.stdout is None:
            raise OSError("it's closed")
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        try:
            return main()
        finally:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would try again at exit
        _tell(f"dpteach: can't write to stdout: {error.strerror or error}")
        return 2
    except KeyboardInterrupt:
        _tell("\ndpteach: interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(program())
