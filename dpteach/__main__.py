"""Command line: ``python -m dpteach COMMAND``, explained in chapter 20.

conventions, or relations (a sigma means nothing without one):
  add-remove   neighbours differ by one record more or less; Poisson batches;
               noise std = sigma × clip_norm on the sum of clipped gradients
               (Abadi et al. 2016, TF-Privacy, Opacus).
  replace-one  neighbours differ in one record's value; batches are uniform subsets
               of exactly m; noise std = 2 × sigma × clip_norm on the sum
               (Dong, Roth and Su 2022, Algorithm 1).
  zero-out     one record is made blank, so that its gradient is 0; Poisson batches and
               noise as for add-remove.
The clipping norm doesn't enter epsilon: only the ratio of noise to sensitivity matters.

kinds: 'bracket' encloses the value and 'upper bound' is above it: these are guarantees.
'asymptotic' is a limit for many steps, which may be too small. Tables round each number
to the side on which it stays true.

The exit code is 0; 2 with one line on stderr where something is refused; 130 after Ctrl-C.
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
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import dpteach
from dpteach import domain
from dpteach.accountants import (
    NAMES,
    account,
    assumptions,
    phases_under,
    run_under,
    summary,
    warnings_for,
)
from dpteach.calibration import SOUGHT, calibrate, calibrate_risk
from dpteach.guarantees import shown
from dpteach.imports import NOISE_PER, read_dp_event, read_opacus
from dpteach.moments import ORDERS
from dpteach.report import (
    as_text,
    epsilon_text,
    percent,
    risk_of,
    statement,
    to_html,
    to_markdown,
)
from dpteach.run import RELATIONS, SAMPLINGS, NoisySGD, Phases

__all__ = ["main", "program"]

_TYPED = (
    "batch_size", "batches_per_epoch", "largest_batch", "tuning_runs", "clip_norm",
    "learning_rate", "stop_after", "dp_event", "noise_per",
)  # fmt: skip
_OPTION_OF = {"records_per_unit": "records-per-user"}  # argument of a function: what was typed
_OPTION_OF |= {name: name.replace("_", "-") for name in _TYPED}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        if message and file is not None:  # argparse's own hides that a disk is full
            file.write(message)


def _parser(imported: bool = False) -> argparse.ArgumentParser:
    """With an imported run the relation may be left out: it's the other library's."""
    purpose = "What a run of noisy SGD guarantees, by every accountant."
    top = _Parser(prog="dpteach", description=purpose)
    top.add_argument("--version", action="version", version=f"dpteach {dpteach.__version__}")
    commands = top.add_subparsers(dest="command", required=True, parser_class=_Parser)
    for name, (function, options) in _COMMANDS.items():
        purpose, _, examples = (inspect.getdoc(function) or "").partition("\n\n")
        one = commands.add_parser(
            name, help=purpose, description=purpose,
            epilog=(__doc__ or "").partition("\n\n")[2] + "\n" + examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        if name != "verify":  # a certificate says it itself
            one.add_argument(
                "--relation", "--convention", choices=RELATIONS, help="neighbours, with their"
                " sampling; with --opacus or --dp-event add-remove if you don't say",
                required=not (imported and "--opacus" in options),
            )  # fmt: skip
        for option, settings in options.items():
            one.add_argument(*option.split(), **settings)
    return top


def _facts(args: argparse.Namespace) -> dict[str, Any]:
    """What the user said of the run, by NoisySGD's names."""
    names: tuple[str, ...] = ("sigma", "n", "batch_size", "epochs", "rate", "steps", "clip_norm")
    names += ("sampling", "largest_batch", "batches_per_epoch")
    found = {name: getattr(args, name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _run(args: argparse.Namespace) -> NoisySGD | Phases:
    facts = _facts(args)
    told = {"phases": args.phases, "opacus": args.opacus, "dp_event": args.dp_event}
    sources = [name for name, value in told.items() if value is not None]
    if args.noise_per is not None:
        advice = "it says what the noise of --dp-event is a multiple of"
        domain.require("noise_per", args.noise_per, sources == ["dp_event"], "left out", advice)
    if not sources:
        return run_under(args.relation, **facts)
    typed = [f"--{name.replace('_', '-')}" for name in facts if name != "clip_norm"]
    extra = typed + [f"--{name.replace('_', '-')}" for name in sources[1:]]
    advice = f"--{sources[0].replace('_', '-')} says sigma, rate and steps"
    domain.require(extra[0] if extra else "", "given", not extra, "left out", advice)
    if args.phases is not None:
        return phases_under(args.relation, args.phases)
    if args.opacus is not None:
        return read_opacus(args.opacus)
    return read_dp_event(args.dp_event, args.relation, args.noise_per)


def _account(args: argparse.Namespace) -> str:
    """every guarantee of one run, side by side

    examples:
      python -m dpteach account --relation add-remove --q 0.01 --sigma 4 --steps 10000 --delta 1e-5
      python -m dpteach account --relation replace-one --n 60000 --batch-size 256 --epochs 15 \
--sigma 1.3 --delta 1e-5
      python -m dpteach account --relation add-remove --sampling random-allocation \
--batches-per-epoch 235 --epochs 15 --sigma 1.3 --delta 1e-5
      python -m dpteach account --relation add-remove --delta 1e-5 \
--phases 1.3:0.0042667:2000,1.6:0.0085333:1000
      python -m dpteach account --relation add-remove --n 60000 --batch-size 256 --epochs 15 \
--sigma 1.3 --delta 1e-5 --risk
      python -m dpteach account --opacus history.json --delta 1e-5
    """
    run = _run(args)
    found = summary(run, args.relation, args.delta, args.orders)
    if args.risk:
        guarantees = account(run, args.relation, args.orders)
        found["risk"] = risk_of(guarantees, found["guarantees"])
    return json.dumps(found, allow_nan=False) if args.json else _table(found)


def _table(found: dict[str, Any]) -> str:
    cells = [("guarantee", "kind", "epsilon", "notes")]
    for row in found["guarantees"]:
        rest = {k: v for k, v in row.items() if k not in ("name", "kind", "epsilon")}
        notes = ", ".join(f"{key} {as_text(value)}" for key, value in rest.items())
        cells.append((row["name"], row["kind"], epsilon_text(row), notes))
    widths = [max(map(len, column)) + 2 for column in zip(*cells, strict=True)]
    lines = [_question(found["assumptions"], found["steps"], found["delta"]), ""]
    lines += ["".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    if found.get("risk"):
        lines += ["", *_risk_lines(found["risk"])]
    return "\n".join(lines + [f"warning: {text}" for text in found["warnings"]])


def _risk_lines(found: dict[str, Any]) -> list[str]:
    """What an attacker can do, in words."""
    lines = [f"{found['sentence']} (By {found['of']}, {found['kind']}.)"]
    for row in found["true_positive_rate"]:
        falsely, share = f"{row['false_positive_rate']:.1%}", percent(row["at_most"])
        lines.append(f"of the absent {falsely} accused: at most {share} of the present found")
    for row in found["posterior"]:
        if row["false_positive_rate"] == 0.01:
            sure = percent(row["at_most"])
            lines.append(f"believed {row['prior']:.0%} before: then sure to at most {sure}")
    return lines + [f"warning: {text}" for text in found["warnings"]]


def _question(sentence: str, steps: int, delta: float) -> str:
    return f"{sentence}; steps T = {steps}; delta = {delta:g}"


def _calibrate(args: argparse.Namespace) -> str:
    """the noise, the steps or the batch size for a wished-for epsilon and delta

    examples: how much noise for epsilon at most 2? With a given noise, how many steps, how large
    a batch?
      python -m dpteach calibrate --relation add-remove --n 60000 --batch-size 256 --epochs 15 \
--epsilon 2 --delta 1e-5
      python -m dpteach calibrate --find steps --guarantee moments --relation add-remove \
--q 0.01 --sigma 1.3 --epsilon 2 --delta 1e-5
      python -m dpteach calibrate --find batch-size --relation replace-one --n 60000 \
--steps 3516 --sigma 1.3 --epsilon 2 --delta 1e-5
      python -m dpteach calibrate --relation add-remove --n 60000 --batch-size 256 --epochs 15 \
--advantage 0.1
    """
    if args.advantage is not None or args.tpr is not None:
        return _calibrate_risk(args)
    for name in ("epsilon", "delta"):
        given = getattr(args, name)
        domain.require(name, given, given is not None, "given", "or give advantage, or tpr and fpr")
    target = {"epsilon": args.epsilon, "delta": args.delta, "orders": args.orders}
    sought = args.find.replace("-", "_")
    found = calibrate(sought, args.guarantee, args.relation, **target, **_facts(args))
    sentence, steps = assumptions(found.run, args.relation), found.run.steps
    warnings = warnings_for(found.run, found.delta)
    if found.kind == "asymptotic":
        warnings.append(f"{found.guarantee} is asymptotic: a limit for many steps, not a guarantee")
    if args.json:
        facts = {"find": args.find, "value": found.value, "guarantee": found.guarantee}
        facts |= {"kind": found.kind, "epsilon": found.epsilon, "target": args.epsilon}
        facts |= {"delta": found.delta, "steps": steps, "assumptions": sentence}
        return json.dumps(facts | {"warnings": warnings}, allow_nan=False)
    kind = "bracket, its upper end" if found.kind == "bracket" else found.kind
    epsilon = shown(found.kind, found.epsilon)
    lines = [
        f"{args.find} = {found.value!r}",
        f"{found.guarantee} ({kind}): epsilon = {epsilon}, wanted at most {args.epsilon:g}",
        _question(sentence, steps, found.delta),
    ]
    return "\n".join(lines + [f"warning: {text}" for text in warnings])


_ONE_ALPHA = (
    "a promise about one false positive rate, or about the advantage, says little about smaller "
    "rates: choose it before you look"
)


def _calibrate_risk(args: argparse.Namespace) -> str:
    advice = "only sigma is sought for a risk"
    domain.require("find", args.find, args.find == "sigma", "sigma", advice)
    domain.require("epsilon", args.epsilon, args.epsilon is None, "left out", "a risk is given")
    found = calibrate_risk(
        args.relation, advantage=args.advantage, tpr=args.tpr, fpr=args.fpr,
        guarantee=args.guarantee, orders=args.orders, **_facts(args),
    )  # fmt: skip
    warnings = [_ONE_ALPHA] if args.delta is None else warnings_for(found.run, args.delta)
    what = "tpr" if args.advantage is None else "advantage"
    sentence = assumptions(found.run, args.relation)
    if args.json:
        facts = {"find": "sigma", "value": found.sigma, "guarantee": found.guarantee}
        facts |= {"kind": found.kind, what: found.reached, "target": found.target}
        facts |= {"fpr": args.fpr, "steps": found.run.steps, "assumptions": sentence}
        return json.dumps(facts | {"warnings": warnings}, allow_nan=False)
    kind = "bracket, its upper end" if found.kind == "bracket" else found.kind
    reached = shown(found.kind, found.reached)
    lines = [
        f"sigma = {found.sigma!r}",
        f"{found.guarantee} ({kind}): {what} = {reached}, wanted at most {found.target:g}",
        f"{sentence}; {found.run.steps} updates",
    ]
    return "\n".join(lines + [f"warning: {text}" for text in warnings])


def _statement(
    run: NoisySGD | Phases, args: argparse.Namespace, warnings: tuple[str, ...] = ()
) -> str:
    k, unit = args.records_per_user, args.unit
    if unit is None:
        unit = "user" if k > 1 else "record"
    facts = statement(
        run, args.relation, args.delta, orders=args.orders,
        unit=unit, records_per_unit=k, tuning_runs=args.tuning_runs, tuning=args.tuning,
    )  # fmt: skip
    facts["warnings"].extend(warnings)
    if getattr(args, "certificate", None) is not None:
        facts["proved"] = _proved(run, args)
    if args.format == "json":
        return json.dumps(facts, allow_nan=False)
    return {"md": to_markdown, "html": to_html}[args.format](facts)


def _proved(run: NoisySGD | Phases, args: argparse.Namespace) -> str:
    """The sentence that the certificate proves of this run; refused if it's about another."""
    found = _with_flint().proofs(args.certificate)
    fitting = [proof.sentence for proof in found if proof.fits(run, args.relation, args.delta)]
    advice = "make one with dpteach certify and the same options"
    domain.require("certificate", args.certificate, bool(fitting), "about this run", advice)
    return f"For one record and this run, by {Path(args.certificate).name}: {fitting[0]}."


def _report(args: argparse.Namespace) -> str:
    """the one-page privacy statement of a run

    examples: the third quotes a certificate, made by the second example of `certify`
      python -m dpteach report --relation add-remove --n 60000 --batch-size 256 --epochs 15 \
--sigma 1.3 --clip-norm 1.5 --delta 1e-5
      python -m dpteach report --relation replace-one --n 60000 --batch-size 256 --epochs 15 \
--sigma 1.3 --delta 1e-5 --unit user --records-per-user 2 --tuning-runs 4 --format html \
--output statement.html
      python -m dpteach report --relation replace-one --q 0.01 --steps 100 --sigma 1 --delta 1e-5 \
--certificate run.json
    """
    return _statement(_run(args), args)


def _certify(args: argparse.Namespace) -> str:
    """a certificate that epsilon lies in an interval, for `verify` (needs python-flint)

    examples: the second proves two intervals by one certificate
      python -m dpteach certify --relation add-remove --n 60000 --batch-size 256 --epochs 15 \
--sigma 1.3 --delta 1e-5 -o run-a.json
      python -m dpteach certify --relation replace-one --q 0.01 --steps 100 --sigma 1 \
--delta 1e-5 1e-8 -o run.json
    """
    certificate = _with_flint()
    found = certificate.certify(
        run_under(args.relation, **_facts(args)), args.relation, args.delta, width=args.width
    )
    return json.dumps(found, separators=(",", ":"))


def _verify(args: argparse.Namespace) -> str:
    """proves a certificate, or says which inequality fails (needs python-flint)

    examples: the second also asks whether a published upper bound is proved to be too small
      python -m dpteach verify run-a.json
      python -m dpteach verify run-a.json --upper 0.8
    """
    lines = []
    for proof in _with_flint().proofs(args.file):
        lines.append(proof.sentence)
        for side in ("upper", "lower"):
            if (number := getattr(args, side)) is not None:
                wrong = proof.refutes(number, as_bound=side)
                verdict = "it's wrong" if wrong else "this certificate doesn't refute it"
                lines.append(f"{number!r} as {side} bound at δ = {float(proof.delta):g}: {verdict}")
    return "\n".join(lines)


def _with_flint() -> Any:
    try:
        from dpteach import certificate
    except ImportError as error:
        advice = 'certificates need it; pip install "dpteach[verify]"'
        raise ImportError(f"{error}: {advice}") from None
    return certificate


def _train(args: argparse.Namespace) -> str:
    """train the tutorial network on MNIST (needs torch) and print the statement of what was done

    examples: three updates; 15 epochs if you don't say
      python -m dpteach train --relation add-remove --sigma 1.3 --epochs 0.01
    """
    length = {"epochs": 15} if args.epochs is None and args.steps is None else {}
    run = run_under(args.relation, **{**_facts(args), **length, "n": 60000})
    stop_after = run.steps if args.stop_after is None else args.stop_after
    advice = "the run has so many updates"
    domain.whole_number("stop_after", stop_after, f"[0, {run.steps}]", advice)
    _statement(replace(run, steps=1), args)  # bad input is refused before the work
    try:
        import torch  # here, since it takes seconds to load, and the other commands do without
    except ImportError as error:
        raise ImportError(f'{error}: training needs it; pip install "dpteach[torch]"') from None

    from dpteach import training
    from dpteach.training import mnist

    seed = secrets.randbits(62) if args.seed is None else args.seed
    seed = domain.whole_number("seed", seed, "[0, 4.6e18]")
    told = f"the seed {seed} is known: with it anyone can draw the same noise again"
    model, data = mnist.tutorial_cnn(torch.Generator().manual_seed(seed)), mnist.load()
    result = training.train(
        model, run, data.x_train, data.y_train, learning_rate=args.learning_rate, seed=seed,
        stop_after=stop_after, progress=sys.stderr is not None,
    )  # fmt: skip
    assert result.model is not None  # as after every training
    _tell(f"test accuracy {training.accuracy(result.model, data.x_test, data.y_test):.2f} %")
    known = () if args.seed is None else (told,)
    return _statement(replace(run, steps=result.steps), args, known)


def _plan(typed: str) -> list[tuple[float, float, int]]:
    """SIGMA:RATE:STEPS for each phase, with commas between."""
    try:
        parts = [phase.split(":") for phase in typed.split(",")]
        return [(float(sigma), float(rate), _whole(steps)) for sigma, rate, steps in parts]
    except ValueError:
        allowed = "SIGMA:RATE:STEPS for each phase, as in 1.3:0.004:2000,1.6:0.008:1000"
        refusal = f"{typed[:60]!r} isn't allowed: it must be {allowed}"
        raise argparse.ArgumentTypeError(refusal) from None


def _whole(typed: str) -> int:
    """A whole number in every form that the library takes: 10000, 1e4, 10000.0."""
    with suppress(ValueError):
        return int(typed)
    with suppress(ValueError):
        return domain.whole_number("it", float(typed))
    allowed = "it must be a whole number, as in 256 or 1e4"
    raise argparse.ArgumentTypeError(f"{typed[:60]!r} isn't allowed: {allowed}")


_Flags = dict[str, dict[str, Any]]  # option, with its other names: settings of add_argument
_NUMBER, _WHOLE = {"type": float}, {"type": _whole}
_NOISE = "noise std / sensitivity, in the relation named"
_SIGMA: _Flags = {"--sigma": {**_NUMBER, "help": _NOISE}}
_NEEDED: _Flags = {"--sigma": {**_NUMBER, "required": True, "help": _NOISE}}
_STEPS: _Flags = {
    "--epochs": {**_NUMBER, "help": "passes over the data: T = ceil(epochs × n / batch size)"},
    "--steps": {**_WHOLE, "help": "number of noisy updates T, instead of epochs"},
}
_EXPECTED = "records in a batch (expected number under add-remove)"
_SIZE: _Flags = {
    "--n": {**_WHOLE, "help": "number of records"},
    "--batch-size": {**_WHOLE, "help": _EXPECTED},
    "--rate --q": {**_NUMBER, "help": "sampling rate, instead of n and batch size"},
    **_STEPS,
}
_WAYS: _Flags = {
    "--sampling": {"choices": SAMPLINGS, "help": "how batches are drawn (default: the relation's)"},
    "--batches-per-epoch": {**_WHOLE, "help": "B, instead of n and batch size, where one epoch is"
                            " a unit: random-allocation, shuffled"},
    "--largest-batch": {**_WHOLE, "help": "most records in a truncated-poisson batch"},
    "--phases": {"type": _plan, "metavar": "PLAN", "help": "SIGMA:RATE:STEPS of each phase, with"
                 " commas between, instead of one run"},
}  # fmt: skip
_IMPORTS: _Flags = {
    "--opacus": {"metavar": "FILE", "help": "instead: JSON of an Opacus accountant's history,"
                 " [[noise multiplier, sample rate, steps], …]"},
    "--dp-event": {"metavar": "FILE", "help": "instead: an event of dp-accounting, its repr or"
                   " JSON"},
    "--noise-per": {"choices": NOISE_PER, "help": "under replace-one: what the event's noise"
                    " multiplier is a multiple of"},
}  # fmt: skip
_DELTA = "δ, in (0, 1); below 1/n"
_ORDERS: _Flags = {
    "--orders": {"choices": ORDERS, "default": "integer", "help": "of moments (default: integer)"},
}
_QUESTION: _Flags = {"--delta": {**_NUMBER, "required": True, "help": _DELTA}, **_ORDERS}
_RISK: _Flags = {"--risk": {"action": "store_true", "help": "say it in words: what a test finds"}}
_JSON: _Flags = {"--json": {"action": "store_true", "help": "print one JSON object, not text"}}
_WHOM = "whom the claim protects: record, user, device, … (default: record, or user if it has more)"
_PAGE: _Flags = {
    "--unit": {"help": _WHOM},
    "--records-per-user": {**_WHOLE, "default": 1, "help": "most that one unit has (default: 1)"},
    "--tuning-runs": {**_WHOLE, "help": "other trainings on the same data, counted by composition"},
    "--tuning": {"metavar": "TRIALS", "help": "the best of a random number of trainings was"
                 ' published: "geometric 0.1", "logarithmic 0.03", "poisson 10",'
                 ' "negative-binomial 0.5 0.06"'},
    "--format": {"choices": ("md", "html", "json"), "default": "md", "help": "(default: md)"},
    "--output": {"help": "file to write, instead of the terminal"},
}
_CLIP: _Flags = {"--clip-norm": {**_NUMBER, "default": 1.0, "help": "for the record (default: 1)"}}
_FIND = [name.replace("_", "-") for name in SOUGHT]
_TARGET: _Flags = {
    "--find": {"choices": _FIND, "default": "sigma", "help": "(default: sigma)"},
    "--guarantee": {"choices": NAMES, "default": NAMES[0], "help": f"(default: {NAMES[0]})"},
    "--epsilon": {**_NUMBER, "help": "the largest epsilon allowed, at --delta"},
    "--advantage": {**_NUMBER, "help": "instead: the largest advantage of an attack, δ(0)"},
    "--tpr": {**_NUMBER, "help": "instead: the largest true positive rate, at --fpr"},
    "--fpr": {**_NUMBER, "help": "false positive rate"},
    "--sigma": {**_NUMBER, "help": "as for account, where steps or batch size are sought"},
}
_AT: _Flags = {"--delta": {**_NUMBER, "help": _DELTA}}
_SEED = "makes the run repeatable, and the noise guessable (default: a secret seed)"
_TRAINING: _Flags = {
    "--batch-size": {**_WHOLE, "default": 256, "help": f"{_EXPECTED} (default: 256)"},
    "--clip-norm": {**_NUMBER, "default": 1.5, "help": "clipping norm C (default: 1.5)"},
    "--learning-rate": {**_NUMBER, "default": 0.25, "help": "η (default: 0.25)"},
    "--seed": {**_WHOLE, "help": _SEED},
    "--stop-after": {**_WHOLE, "help": "make only so many of the run's updates"},
    "--delta": {**_NUMBER, "default": 1e-5, "help": f"{_DELTA} (default: 1e-5)"},
}
_PROVED: _Flags = {"--certificate": {"help": "quote what this file proves of the run"}}
_CERTIFICATE: _Flags = {
    "--delta": {**_NUMBER, "required": True, "nargs": "+", "help": f"one or more {_DELTA}"},
    "--width": {**_NUMBER, "default": 5e-4, "help": "widest interval (default: 5e-4)"},
    "--output -o": {"help": _PAGE["--output"]["help"]},
}
_PROOF: _Flags = {
    "file": {"help": "a certificate that `certify` wrote"},
    "--upper": {**_NUMBER, "help": "a published upper bound: is it proved to be wrong?"},
    "--lower": {**_NUMBER, "help": "a published lower bound: is it proved to be wrong?"},
}
_COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], str], _Flags]] = {
    "account": (_account, _SIGMA | _SIZE | _WAYS | _IMPORTS | _QUESTION | _RISK | _JSON),
    "calibrate": (_calibrate, _TARGET | _SIZE | _AT | _ORDERS | _JSON),
    "report": (
        _report, _SIGMA | _SIZE | _WAYS | _IMPORTS | _CLIP | _QUESTION | _PAGE | _PROVED,
    ),
    "certify": (_certify, _NEEDED | _SIZE | _CERTIFICATE),
    "verify": (_verify, _PROOF),
    "train": (_train, _NEEDED | _STEPS | _ORDERS | _TRAINING | _PAGE),
}


def _checked_output(name: str | None) -> Path | None:
    """The file to write, refused before any work is done; a link is followed."""
    if name is None:
        return None
    path = Path(os.path.realpath(name.replace("\0", "")))
    short = len(os.fsencode(path.name)) <= 240  # the file written aside has a longer name
    new_or_old = os.path.isfile(path) or not os.path.exists(path)
    holds = bool(name) and "\0" not in name and short and new_or_old and path.parent.is_dir()
    domain.require("output", name, holds, "a file, new or old, in a folder that's there")
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
    typed = sys.argv[1:] if argv is None else argv
    imported = any(word.startswith(("--opacus", "--dp-event")) for word in typed)
    args = _parser(imported).parse_args(typed)
    if getattr(args, "relation", "") is None:
        args.relation = "add-remove"  # as both libraries' accountants mean it
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
    """`main` for a shell: silent when a pipe's reader goes away, one line when the disk is full."""
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
