"""Fine-tune an encoder on one downstream task, described by one YAML file.

Every seed and every point of the grid is trained, and scored on the dev split and on all other splits that have labels.
The best model, its scores and its card go into the run's folder.  Run again, it trains only what is missing.

  ernie finetune glue/sst2 --model runs/first --output runs/sst2
  ernie finetune reviews.yaml --model runs/first --seeds 5 --set train.lr.peak=3e-5 --output runs/reviews
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ernie.arguments import (
    add_config,
    add_jobs,
    add_output,
    add_processes,
    add_quiet,
    add_seed,
    add_set,
    checked_jobs,
    overridden,
)

SUMMARY = "fine-tune an encoder on one downstream task"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_task(parser)
    add_output(parser)
    add_seed(parser)
    parser.add_argument("--seeds", type=int, metavar="N", help="how many seeds (also the key `seeds`)")
    add_processes(parser)
    add_jobs(parser)
    add_quiet(parser)


def add_task(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a configuration, its model and its data."""
    add_config(parser, "YAML file, see docs/howto/finetuning/task.md", part="finetune")
    parser.add_argument("--model", metavar="M", help="folder or name of the encoder (also the key `model`)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the folder with the files of the block `local`")
    add_set(parser, "override a key, for example train.lr.peak=3e-5")


def main(arguments: argparse.Namespace) -> int:
    """Run it: return 0 when everything was trained; TrainingFailed, raised when training diverged, gives 1."""
    from ernie.errors import UserError
    from ernie.kernels.precision import precision
    from ernie.parallel.launch import check_restarts, count, launch, ranks
    from ernie.runtime import require_paddle
    from finetune.config import load

    config = load(arguments.config, arguments.set, arguments.data)
    config = overridden(config, arguments, "output", "seed", "seeds", "model")
    output = config.output
    if output is None:
        raise UserError("where should the run go? Give --output DIR, or the key `output`")
    config.check_is_no_search()
    layout, jobs = config.parallel.over(count(arguments.processes)), checked_jobs(arguments)
    if jobs > 1 and layout.processes > 1:
        raise UserError("--jobs: trains each trial on one process, and the run asks for several; leave it out")
    check_restarts(arguments.max_restarts, layout.processes)
    require_paddle()

    from ernie.parallel.mesh import Mesh
    from finetune.report.card import score_table
    from finetune.train.run import run, sizes
    from finetune.train.run_contents import check_folder
    from finetune.train.warm_start import load_encoder

    def say(sentence: str) -> None:
        if not arguments.quiet:
            print(sentence, file=sys.stderr, flush=True)

    if layout.processes != ranks():
        layout.check(sizes(load_encoder(config).config, layout))
        check_folder(output)
        return launch(arguments.words, layout.processes, output, arguments.max_restarts)
    mesh = Mesh.connect(layout)
    with mesh.watch:
        with precision(config.train.precision, config.train.amp_level):
            result = run(config, output, say, arguments.quiet or not mesh.is_first, mesh, jobs=jobs)
        if mesh.is_first:
            print("\n".join(score_table(result)))
            if result.point:
                print(f"\nbest of the grid: {result.point}")
        say(f"written to {output}; open {output}/report.html in a browser")
    return 0
