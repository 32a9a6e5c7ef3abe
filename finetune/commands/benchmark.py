"""Run a suite of benchmarks with one encoder: every task whose data is on this machine, and one table at the end.

SUITE is glue, zh (the nine Chinese tasks of the ERNIE 2.0 paper), clue, or a folder of configurations.  A task's rows
come from the files of its block `local` under --data, or else from the hub.  Tasks without data are listed with the
reason.  Run again, it runs only what is missing.

  ernie benchmark glue --model runs/first --data GLUE --seeds 5 --output runs/glue
  ernie benchmark clue --model runs/first --data CLUE --tasks tnews,ocnli --output runs/clue
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ernie.arguments import add_jobs, add_output, add_quiet, add_set, checked_jobs
from ernie.atomic import make_folder, put_text
from ernie.errors import UserError

_RESULTS = "results.json"
SUMMARY = "run a suite of benchmarks: glue, zh, clue or a folder of configurations"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("suite", metavar="SUITE", help="glue, zh, clue, or a folder of configurations")
    parser.add_argument("--model", required=True, metavar="M", help="folder or name of the encoder")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the folder with the files of the blocks `local`")
    parser.add_argument("--seeds", type=int, metavar="N", help="how many seeds (default: those of each file, 1)")
    parser.add_argument("--tasks", metavar="A,B", help="these tasks only")
    add_set(parser, "override a key in all tasks, for example train.epochs=1")
    add_output(parser, "folder for each task's run, results.md and results.json")
    add_jobs(parser)
    add_quiet(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run it: return 0 when every available task has scores, 1 when one of them failed."""
    from ernie.runtime import require_paddle

    if arguments.seeds is not None and arguments.seeds < 1:
        raise UserError(f"--seeds: expected at least 1, found {arguments.seeds}")
    if arguments.data is not None and not arguments.data.is_dir():
        raise UserError(f"--data: there is no folder {arguments.data}")
    jobs = checked_jobs(arguments)
    require_paddle()

    from finetune.report.suite_table import as_dict, markdown
    from finetune.suite.run import Suite, run_suite

    chosen = [name.strip() for name in arguments.tasks.split(",")] if arguments.tasks else []
    suite = Suite.read(arguments.suite, chosen, arguments.set)
    _check_output(arguments.output, suite.name, arguments.model)

    def say(sentence: str) -> None:
        if not arguments.quiet:
            print(sentence, file=sys.stderr, flush=True)

    place, data = arguments.output, arguments.data
    outcomes = list(run_suite(suite, arguments.model, place, data, arguments.seeds, say, arguments.quiet, jobs))
    page = markdown(suite.name, arguments.model, outcomes)
    if any(outcome.scores for outcome in outcomes) or not (place / _RESULTS).exists():
        make_folder(place)
        put_text(place / "results.md", page)
        results = as_dict(suite.name, arguments.model, outcomes)
        put_text(place / _RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    print(page, end="")
    if not any(outcome.scores or outcome.failed for outcome in outcomes):
        raise UserError("no task of the suite has its data on this machine; the reasons are in the table")
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def _check_output(place: Path, suite: str, model: str) -> None:
    """Raise UserError when the folder holds results of another suite or model, which would be overwritten."""
    from ernie.json_file import read_json

    if not (place / _RESULTS).is_file():
        return
    found = read_json(place / _RESULTS, {"suite": (str,), "model": (str,)}, "Choose another --output.")
    if (found["suite"], found["model"]) != (suite, model):
        results = f"results of the suite {found['suite']} with the model {found['model']}"
        raise UserError(f"{place}: holds {results}. Choose another --output.")
