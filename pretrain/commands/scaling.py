"""Fit a learning curve: how much text, and how large a model, an error needs.

Given a configuration, runs it on nested fractions of its corpus for several widths of the encoder, one after another.
Finished runs are kept: the command resumes where it was stopped.  Given folders of runs, or a TSV or CSV table
with the columns size and error, uses their measurements.  Prints the law, how well it predicted the largest size from
the others, what --error needs, with intervals, and where the runs do not support an answer.

  ernie scaling run.yaml --output runs/scaling --fractions 6 --widths 64 128 192 256 --error 3.0
  ernie scaling runs/a runs/b runs/c runs/d runs/e
  ernie scaling curve.tsv --error 2.5
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ernie.arguments import add_plugin, add_quiet, add_set, output_path
from ernie.renames import add_renamed_flag

if TYPE_CHECKING:
    from pretrain.config import PretrainConfig
    from pretrain.scaling.ladder import Rung

SUMMARY = "fit a learning curve: how much text and how large a model an error needs"
FRACTIONS, WIDTHS = 6, (64, 128, 192, 256)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("what", nargs="+", type=Path, metavar="WHAT", help="CONFIG.yaml, folders of runs, or TABLE.tsv")
    add_plugin(parser, "a module that the runs ask for, if you trust it")
    moved = "where the corpus of the folders of runs is now, if it was moved"
    parser.add_argument("--corpus", type=Path, metavar="DIR", help=moved)
    add_set(parser, "override a key of the configuration")
    parser.add_argument("--output", type=output_path, metavar="DIR", help="folder of the runs and the figure")
    parser.add_argument("--fractions", type=int, metavar="N", help=f"nested fractions, doubling ({FRACTIONS})")
    add_renamed_flag(parser, "--shards", "--fractions")
    widths = f"widths of the encoder ({', '.join(map(str, WIDTHS))})"
    parser.add_argument("--widths", type=int, nargs="+", action="extend", metavar="W", help=widths)
    parser.add_argument("--error", type=float, metavar="E", help="target loss, in nats per token")
    plan = "print the runs and the cost of each, then stop"
    parser.add_argument("--plan", action="store_const", const=True, help=plan)
    add_quiet(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run the command: 0, or the exit status of the first run that did not finish."""
    from ernie.atomic import make_folder
    from ernie.errors import UserError
    from pretrain.ledger import markdown
    from pretrain.scaling.answer import curve, needed, race, sizes, verdict
    from pretrain.scaling.draw import draw
    from pretrain.scaling.ladder import costs, ladder, remarks, table
    from pretrain.scaling.points import read_run, read_table

    if arguments.error is not None and not 0 < arguments.error < math.inf:
        raise UserError(f"--error: expected a number of nats above 0, found {arguments.error:g}")
    first, *others = arguments.what
    is_table = first.suffix in (".tsv", ".csv")
    if first.is_dir() or is_table:
        for name in ("set", "fractions", "widths", "plan"):
            if getattr(arguments, name) not in (None, []):
                raise UserError(f"--{name}: is for new runs, and {first} holds measurements; leave it out")
    if arguments.corpus is not None and not first.is_dir():
        raise UserError(
            "--corpus: is for folders of runs; that of a configuration is its key corpus (--set corpus=DIR)"
        )
    if first.is_dir():
        points = [read_run(run, arguments.corpus) for run in arguments.what]
    elif others:
        raise UserError(f"{others[0]}: several folders of runs can be given, but only one table or configuration")
    elif is_table:
        points = read_table(first)
    else:
        overridden = _Overridden(first, arguments.set)
        if arguments.output is None:
            raise UserError("where should the runs go? Give --output DIR")
        fractions = FRACTIONS if arguments.fractions is None else arguments.fractions
        rungs = ladder(arguments.output, fractions, arguments.widths or WIDTHS, overridden.fraction)
        overridden.config(rungs[0])  # reports mistakes once, before anything is run
        if arguments.plan:
            planned = costs(rungs, [overridden.config(rung) for rung in rungs])
            print(markdown(table(planned)))
            for found in remarks(planned):
                print(f"note: {found}", file=sys.stderr)
            return 0
        for number, rung in enumerate(rungs, 1):
            print(f"run {number} of {len(rungs)}: {rung.folder.name}", file=sys.stderr)
            if status := overridden.pretrain(rung, arguments.quiet):
                return status
        points = [read_run(rung.folder) for rung in rungs]
    fitted = curve(points)
    print(markdown(sizes(fitted)), end="\n\n")
    if raced := race(fitted):
        print(markdown(raced.rows()), end="\n\n")
    print(*verdict(fitted), sep="\n")
    if raced:
        print(*raced.verdict(), sep="\n")
    if arguments.error is not None:
        print(*needed(fitted, arguments.error), sep="\n")
    if arguments.output is not None:
        make_folder(arguments.output)
        draw(fitted, arguments.output / "scaling.png", arguments.error)
        print(arguments.output / "scaling.png")
    return 0


class _Overridden:
    """A configuration file, and the overrides that all runs share."""

    def __init__(self, file: Path, changes: Sequence[str]):
        self._file, self._changes = file, changes

    @property
    def fraction(self) -> float:
        """The fraction of the corpus that the largest run trains on."""
        from pretrain.config import load

        return load(self._file, self._changes).data.fraction

    def config(self, rung: Rung) -> PretrainConfig:
        """Return the configuration of a run."""
        from ernie.runtime import require_paddle

        require_paddle()

        from ernie.kernels.precision import resolve
        from pretrain.config import load

        config = load(self._file, [*self._changes, *rung.overrides()])
        return replace(config, train=replace(config.train, precision=resolve(config.train.precision)))

    def pretrain(self, rung: Rung, quiet: bool) -> int:
        """Train a run in its own process, which frees its memory at the end; return the exit status.

        Raises UserError if the run was started before with another configuration.
        """
        from ernie.data.shards import Corpus
        from ernie.train.run_folder import CONFIG, MODEL
        from pretrain.folder import check_same

        if (rung.folder / CONFIG).is_file():
            config = self.config(rung)
            check_same(config, Corpus.open(config.corpus, config.data.cache_mb), rung.folder, None)
            if (rung.folder / MODEL).is_dir():
                return 0
        words = ["pretrain", str(self._file), "--output", str(rung.folder), *(["--quiet"] if quiet else [])]
        words += [word for override in (*self._changes, *rung.overrides()) for word in ("--set", override)]
        command = [sys.executable, "-m", "ernie.cli", *words]
        # In its own session: a signal to this command is forwarded exactly once, and the run can save before it ends.
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
            try:
                return process.wait()
            except KeyboardInterrupt:
                process.terminate()
                process.wait()
                raise
