"""Check a fine-tuning configuration before it costs anything: data, labels, tokenizer, model, one step.

Opens every split, makes examples of its rows, shows one as the model sees it, takes one training step on a few rows,
and lists what it checked.

  ernie check glue/sst2 --model runs/first
"""

from __future__ import annotations

import argparse

from ernie.arguments import overridden
from finetune.commands.finetune import add_task

SUMMARY = "check a fine-tuning configuration: its data, model and one step"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_task(parser)


def main(arguments: argparse.Namespace) -> int:
    """Print what was checked."""
    from ernie.runtime import require_paddle
    from finetune.config import load

    config = load(arguments.config, arguments.set, arguments.data)
    config = overridden(config, arguments, "model")
    require_paddle()

    from finetune.check_config import check

    print(f"ok: {arguments.config} has no unknown or mistyped key", flush=True)
    for line in check(config):
        print(line, flush=True)
    return 0
