"""Fine-tune an encoder on one downstream task, described by one YAML file.

Every seed and every point of the grid is trained, scored on the dev split and, where they have labels, on the other
splits; the best model, its scores and its card land in the run's folder.  Given again, the command goes on with what
is missing.

  ernie finetune configs/finetune/glue/sst2.yaml --model runs/first --output runs/sst2
  ernie finetune reviews.yaml --model runs/first --seeds 5 --set train.rate.peak=3e-5 --output runs/reviews
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

SUMMARY = "fine-tune an encoder on one downstream task"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_config(parser)
    parser.add_argument("--output", type=Path, metavar="DIR", help="the run's folder (also the key `output`)")
    parser.add_argument("--seed", type=int, metavar="N", help="overrides the key `seed`")
    parser.add_argument("--seeds", type=int, metavar="N", help="how many seeds (also the key `seeds`)")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def add_config(parser: argparse.ArgumentParser) -> None:
    """The arguments that name a configuration, its model and its data."""
    parser.add_argument("config", type=Path, metavar="CONFIG", help="YAML file, see docs/finetuning.md")
    parser.add_argument("--model", metavar="M", help="folder or name of the encoder (also the key `model`)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the folder with the files of the block `local`")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key, see the config (repeatable)"
    )


def main(arguments: argparse.Namespace) -> int:
    """Run it: 0 when everything was trained, 1 when training broke down."""
    from ernie.errors import UserError
    from ernie.runtime import require_paddle
    from finetune.config import load

    config = load(arguments.config, arguments.set, arguments.data)
    given = {name: getattr(arguments, name) for name in ("output", "seed", "seeds", "model")}
    config = replace(config, **{key: value for key, value in given.items() if value is not None})
    if config.output is None:
        raise UserError("where should the run go? Give --output DIR, or the key `output`")
    require_paddle()

    from ernie.train.trainer import TrainingStopped
    from finetune.card import score_table
    from finetune.run import run

    def say(sentence: str) -> None:
        if not arguments.quiet:
            print(sentence, file=sys.stderr, flush=True)

    try:
        result = run(config, config.output, say, arguments.quiet)
    except TrainingStopped as error:
        print(f"ernie: {error}", file=sys.stderr)
        return 1
    print("\n".join(score_table(result.as_dict())))
    if result.point:
        print(f"\nbest of the grid: {result.point}")
    say(f"written to {config.output}")
    return 0
