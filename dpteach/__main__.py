"""Command line: ``python -m dpteach account …``. Exit code 2 and one line on stderr for bad input."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import Any, NoReturn

from dpteach.accountants import account, answer, convention, warnings_for
from dpteach.moments import ORDERS
from dpteach.run import RELATIONS, NoisySGD

__all__ = ["main", "program"]

_EPILOG = """\
conventions (a sigma means nothing without one):
  add-remove   neighbours differ by one record more or less; Poisson batches; noise std = sigma × clip_norm
               on the sum of clipped gradients (Abadi et al. 2016, TF-Privacy, Opacus).
  replace-one  neighbours differ in one record's value; batches are uniform subsets of exactly m; noise std =
               2 × sigma × clip_norm on the sum (Dong, Roth and Su 2022, Algorithm 1).
The clipping norm doesn't enter: only the ratio of noise to sensitivity matters.

examples:
  python -m dpteach account --convention add-remove --q 0.01 --sigma 4 --steps 10000 --delta 1e-5
  python -m dpteach account --convention replace-one --n 60000 --batch-size 256 --epochs 15 --sigma 1.3 --delta 1e-5
"""


_OPTION_OF = {"sampling_rate": "q", "batch_size": "batch-size"}  # argument of NoisySGD: what the user typed


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def _parser() -> argparse.ArgumentParser:
    top = _Parser(prog="dpteach", description="What a run of noisy SGD guarantees, by every accountant.")
    commands = top.add_subparsers(dest="command", required=True, parser_class=_Parser)
    one = commands.add_parser(
        "account",
        help="every guarantee of one run, side by side",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_run_arguments(one)
    one.add_argument("--delta", type=float, required=True, help="δ, in (0, 1); below 1/n")
    one.add_argument("--orders", choices=ORDERS, default="integer", help="orders of the moments (default: integer)")
    one.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return top


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--convention", choices=RELATIONS, required=True, help="neighbouring relation, with its sampling"
    )
    parser.add_argument("--sigma", type=float, required=True, help="noise std / sensitivity, in the convention named")
    parser.add_argument("--n", type=int, help="number of records")
    parser.add_argument("--batch-size", type=int, help="records in a batch (expected number under add-remove)")
    parser.add_argument("--epochs", type=float, help="passes over the data: T = ceil(epochs × n / batch size)")
    parser.add_argument("--q", type=float, help="sampling rate, instead of n and batch size")
    parser.add_argument("--steps", type=int, help="number of noisy updates T, instead of epochs")


def _run(args: argparse.Namespace) -> NoisySGD:
    make = NoisySGD.abadi16 if args.convention == "add-remove" else NoisySGD.drs22
    return make(
        sigma=args.sigma,
        n=args.n,
        batch_size=args.batch_size,
        epochs=args.epochs,
        sampling_rate=args.q,
        steps=args.steps,
    )


def _answer(args: argparse.Namespace) -> dict[str, Any]:
    run = _run(args)
    warnings = warnings_for(run, args.delta)
    rows = [answer(guarantee, args.delta) for guarantee in account(run, args.convention, args.orders)]
    return {
        "convention": args.convention,
        "sampling": run.sampling,
        "steps": run.steps,
        "delta": args.delta,
        "noise_multiplier": run.noise_multiplier,
        "sampling_rate": run.sampling_rate,
        "warnings": warnings,
        "guarantees": rows,
        "assumptions": convention(run, args.convention),
    }


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key} {_cell(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_cell, value)) + "]"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "none" if value is None else str(value)


def _table(answer: dict[str, Any]) -> str:
    lines = [f"{answer['assumptions']}; steps T = {answer['steps']}; delta = {answer['delta']:g}", ""]
    lines.append(f"{'guarantee':<20}{'kind':<14}{'epsilon':<24}notes")
    for row in answer["guarantees"]:
        notes = ", ".join(f"{k} {_cell(v)}" for k, v in row.items() if k not in ("name", "kind", "epsilon"))
        lines.append(f"{row['name']:<20}{row['kind']:<14}{_cell(row['epsilon']):<24}{notes}")
    lines += [f"warning: {text}" for text in answer["warnings"]]
    return "\n".join(line.rstrip() for line in lines)


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code is 0, or 2 for bad input."""
    args = _parser().parse_args(argv)
    try:
        answer = _answer(args)
    except ValueError as error:
        text = " ".join(str(error).split())
        for name, option in _OPTION_OF.items():
            text = text.replace(name, option)
        print(f"dpteach {args.command}: {text}", file=sys.stderr)
        return 2
    print(json.dumps(answer, allow_nan=False) if args.json else _table(answer))
    return 0


def program() -> int:
    """`main` for a shell: silent when a pipe's reader goes away, legible where the terminal lacks a letter."""
    if hasattr(signal, "SIGPIPE"):  # not on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if sys.stdout:
        sys.stdout.reconfigure(errors="replace")
    return main()


if __name__ == "__main__":
    sys.exit(program())
