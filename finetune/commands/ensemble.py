"""Make one model of several fine-tuned ones, which answers with the mean of their probabilities.

Each RUN is a run, a model's folder or an ensemble, all of the same kind, labels and tokenizer; their encoders may
differ.  FOLDER gets copies, and loads like any other model.  It costs as much as all of them together.

  ernie ensemble runs/sst2-base runs/sst2-large --output models/sst2
  ernie evaluate models/sst2 --input dev.tsv
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from ernie.arguments import add_output, add_plugin

SUMMARY = "make one model of several fine-tuned ones, which answer together"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="runs or folders of models, two or more")
    add_plugin(parser)
    add_output(parser, "the folder to write, which must not be there")


def main(arguments: argparse.Namespace) -> int:
    """Write the ensemble."""
    from ernie.atomic import check_absent, disk_guard, make_folder, partial_folder, put, put_text
    from ernie.config import to_dict
    from ernie.errors import UserError
    from ernie.runtime import require_paddle
    from ernie.train.origin import origin
    from tasks.downstream.saved import member_folders, model_of

    output: Path = arguments.output
    check_absent(output)
    places = [place for run in arguments.runs for place in member_folders(model_of(run)) or [model_of(run)]]
    if len({place.resolve() for place in places}) < len(places):
        raise UserError("RUN: the same model is given twice")
    if len(places) < 2:
        raise UserError(f"{arguments.runs[0]}: is one model; an ensemble has two or more")
    require_paddle()

    from finetune.train.run_contents import write_ensemble
    from inference.task_model import TaskModel, check_members

    task, differing = check_members({str(place): TaskModel.load(place, precision="fp32") for place in places})
    for name in differing:
        value = json.dumps(to_dict(getattr(task, name)), ensure_ascii=False)
        print(f"note: the models differ in {name}, which is {value} in the ensemble; --set task.{name} changes it")
    members = {f"member-{number}": place for number, place in enumerate(places, 1)}
    make_folder(output.parent)
    partial = partial_folder(output)
    try:
        with disk_guard(output, "no ensemble was written"):
            partial.mkdir()
            write_ensemble(partial, task, members)
            record = {"members": {name: str(place) for name, place in members.items()}, **origin()}
            put_text(partial / "origin.json", json.dumps(record, indent=2) + "\n")
            put(partial, output, lambda: check_absent(output))
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(output)
    return 0
