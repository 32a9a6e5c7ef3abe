"""Search the settings of a fine-tuning, and keep the best model.

The configuration has a block `tune`: keys with ranges or lists of values, and how many trials or hours there are.  The
trials of a sampler are trained, pruned where they do badly, and kept: run again, the command goes on where it stopped,
also with more trials.  The folder is then that of a run with the best settings.

  ernie tune reviews.yaml --model runs/first --output runs/tuned
  ernie tune reviews.yaml --model runs/first --trials 50 --output runs/tuned
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from importlib.util import find_spec

from ernie.arguments import add_output, add_quiet, add_seed, overridden
from finetune.commands.finetune import add_task

SUMMARY = "search the settings of a fine-tuning"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_task(parser)
    add_output(parser)
    add_seed(parser)
    parser.add_argument("--seeds", type=int, metavar="N", help="under how many seeds each setting is tried")
    parser.add_argument("--trials", type=int, metavar="N", help="how many settings are tried (also `tune.trials`)")
    parser.add_argument("--hours", type=float, metavar="H", help="how long it may compute (also `tune.hours`)")
    add_quiet(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run it: return 0 when the search has ended; TrainingFailed, raised when every trial failed, gives 1."""
    from ernie.errors import UserError, about
    from ernie.runtime import require_paddle
    from finetune.config import load

    config = load(arguments.config, arguments.set, arguments.data)
    config = overridden(config, arguments, "output", "seed", "seeds", "model")
    if config.tune is None:
        raise UserError(f"{arguments.config}: has no block `tune`, which says what is searched")
    with about("tune"):
        config = replace(config, tune=overridden(config.tune, arguments, "trials", "hours"))
    if config.output is None:
        raise UserError("where should the search go? Give --output DIR, or the key `output`")
    if config.parallel.processes > 1:
        raise UserError("parallel: a search trains in one process; leave it out")
    if find_spec("optuna") is None:
        raise UserError("ernie tune needs Optuna: pip install 'ernie-continual[tune]'")
    require_paddle()

    from ernie.yaml_tree import dump_plain
    from finetune.config import nested
    from finetune.report.card import score_table
    from finetune.train.search import tune

    def say(sentence: str) -> None:
        if not arguments.quiet:
            print(sentence, file=sys.stderr, flush=True)

    result, search = tune(config, config.output, say, arguments.quiet)
    print("\n".join(score_table(result)))
    print(f"\nbest settings, of trial {search.best.number}:\n\n{dump_plain(nested(search.best.settings))}", end="")
    say(f"written to {config.output}; open {config.output}/report.html in a browser")
    return 0
