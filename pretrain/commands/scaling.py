"""Fit a learning curve: how much text, and how large a model, an error needs.

Given a configuration, runs it on nested shares of its corpus by several widths of the encoder, one after another; what
is done is kept, so that the command goes on where it was stopped.  Given folders of runs, or a TSV with the columns
size and error, takes what these measured.  Prints the law, how well it predicted the largest size from the others,
what --error needs, with intervals, and where the runs do not support an answer.

  ernie scaling run.yaml --output runs/scaling --shards 6 --widths 64 128 192 256 --error 3.0
  ernie scaling runs/a runs/b runs/c runs/d runs/e
  ernie scaling curve.tsv --error 2.5
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ernie.arguments import add_quiet, add_set

if TYPE_CHECKING:
    from pretrain.scaling.ladder import Rung

SUMMARY = "fit a learning curve: how much text and how large a model an error needs"
WIDTHS = (64, 128, 192, 256)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("what", nargs="+", type=Path, metavar="WHAT", help="CONFIG.yaml, folders of runs, or TABLE.tsv")
    add_set(parser, "override a key of the configuration")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder of the runs and the figure")
    parser.add_argument("--shards", type=int, default=6, metavar="N", help="shares of the text, each double (6)")
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS, metavar="W", help="of the encoder")
    parser.add_argument("--error", type=float, metavar="E", help="in nats a token: what does it need?")
    parser.add_argument("--plan", action="store_true", help="print the runs that it would take, and stop")
    add_quiet(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run it: 0, or the status of a run that did not come to its end."""
    from ernie.errors import UserError
    from pretrain.ledger import markdown
    from pretrain.scaling.answer import curve, needed, sizes, verdict, widths
    from pretrain.scaling.draw import draw
    from pretrain.scaling.ladder import ladder
    from pretrain.scaling.points import read_run, read_table

    what: list[Path] = arguments.what
    if what[0].suffix == ".tsv":
        points = read_table(what[0])
    elif what[0].is_dir():
        points = [read_run(run) for run in what]
    else:
        if arguments.output is None:
            raise UserError("where should the runs go? Give --output DIR")
        rungs = ladder(arguments.output, arguments.shards, arguments.widths)
        for number, rung in enumerate(rungs, 1):
            print(f"run {number} of {len(rungs)}: {rung.folder.name}", file=sys.stderr)
            if not arguments.plan and (status := _pretrain(what[0], rung, arguments)):
                return status
        if arguments.plan:
            return 0
        points = [read_run(rung.folder) for rung in rungs]
    found = curve(points)
    print(markdown(sizes(found)), end="\n\n")
    if table := widths(found):
        print(markdown(table), end="\n\n")
    print(*verdict(found), sep="\n")
    if arguments.error is not None:
        print(*needed(found, arguments.error), sep="\n")
    if arguments.output is not None:
        arguments.output.mkdir(parents=True, exist_ok=True)
        draw(found, arguments.output / "scaling.png")
        print(arguments.output / "scaling.png")
    return 0


def _pretrain(config: Path, rung: Rung, arguments: argparse.Namespace) -> int:
    """The exit status of a run in a process of its own, whose memory is given back when it is done."""
    if (rung.folder / "model").is_dir():
        return 0
    words = ["pretrain", str(config), "--output", str(rung.folder), *(["--quiet"] if arguments.quiet else [])]
    words += [word for override in (*arguments.set, *rung.overrides()) for word in ("--set", override)]
    command = [sys.executable, "-m", "ernie.cli", *words]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
