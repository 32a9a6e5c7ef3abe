"""Compare two fine-tuning runs on the same rows: is the second one better, or may that be chance?

For each metric of the task: both scores, their difference with a 95 % interval (paired bootstrap), and p (approximate
randomization).  For kinds with a right answer for each row also McNemar's test.  On dev the answers of all seeds are
compared, as the runs have written them; on other splits those of the models that are kept, which answer anew.

  ernie compare runs/base runs/large
  ernie compare runs/base runs/large --split test --output differing.jsonl
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ernie.arguments import add_plugin, add_precision, output_path

SUMMARY = "compare two runs on the same rows, with paired significance"
WRITES_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("first", type=Path, metavar="RUN", help="the folder of a fine-tuning run")
    parser.add_argument("second", type=Path, metavar="RUN", help="another run of the kind, with the same rows")
    add_plugin(parser)
    parser.add_argument("--split", default="dev", metavar="NAME", help="a split of the runs' data (default: dev)")
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
    require_paddle()

    from finetune.compare import compare
    from inference.answer_writer import as_json

    found = compare((arguments.first, arguments.second), arguments.split, arguments.metric, arguments.precision)
    print(json.dumps(found.as_dict(), indent=2) if arguments.json else "\n".join(found.lines()))
    if output is not None:
        with disk_guard(output, "the rows were not written"):
            output.write_text("".join(f"{as_json(record)}\n" for record in found.records()), encoding="utf-8")
    return 0
