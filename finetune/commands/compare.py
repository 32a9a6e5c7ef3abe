"""Compare fine-tuning runs, or other models, on the same rows: is another one better, or may that be chance?

For each metric of the task: both scores, their difference with a 95 % interval (paired bootstrap), and p (approximate
randomization).  For kinds with a right answer for each row also McNemar's test.  On dev and test the answers of all
seeds are compared, as the runs have written them; on other splits those of the models that are kept, which answer anew.
More than two are compared with the first in one table, with p corrected for their number (Holm).

  ernie compare runs/base runs/large
  ernie compare runs/base runs/large --split test --output differing.jsonl
  ernie compare runs/base runs/large runs/other published-model --input rows.tsv
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ernie.arguments import add_decoding, add_plugin, add_precision, output_path

SUMMARY = "compare runs or models on the same rows, with paired significance"
WRITES_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    help_text = "the folder of a fine-tuning run; with --input, also of any model of the kind"
    parser.add_argument("run", nargs="+", type=Path, metavar="RUN", help=help_text)
    add_plugin(parser)
    parser.add_argument("--split", default="dev", metavar="NAME", help="a split of the runs' data (default: dev)")
    help_text = "files (or data sets) to compare on instead, read like that split's, if there is a run"
    parser.add_argument("--input", nargs="+", action="extend", default=[], metavar="FILE", help=help_text)
    add_decoding(parser)
    help_text = "metrics of the kind (default: those of the first run)"
    parser.add_argument("--metric", nargs="+", action="extend", default=[], metavar="NAME", help=help_text)
    parser.add_argument("--json", action="store_true", help="print JSON in place of text")
    parser.add_argument(
        "--output", type=output_path, metavar="FILE", help="write the rows with different answers, JSON lines"
    )
    add_precision(parser)


def main(arguments: argparse.Namespace) -> int:
    """Print the comparison."""
    from ernie.atomic import disk_guard
    from ernie.errors import UserError
    from ernie.runtime import require_paddle

    output: Path | None = arguments.output
    if output is not None and not output.absolute().parent.is_dir():
        raise UserError(f"--output: {output} cannot be written: there is no folder {output.parent}")
    if len(arguments.run) < 2:
        raise UserError(f"RUN: expected two folders or more, found {arguments.run[0]} alone")
    if arguments.set and not arguments.input:
        raise UserError("--set: changes how the rows of --input are read and answered; name them, or leave it out")
    require_paddle()

    from finetune.compare import compare
    from inference.answer_writer import as_json

    given = (arguments.precision, arguments.input, arguments.set)
    found = compare(arguments.run, arguments.split, arguments.metric, *given)
    print(json.dumps(found.as_dict(), indent=2) if arguments.json else "\n".join(found.lines()))
    if output is not None:
        with disk_guard(output, "the rows were not written"):
            output.write_text("".join(f"{as_json(record)}\n" for record in found.records()), encoding="utf-8")
    return 0
