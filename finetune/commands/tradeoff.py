"""Compare what finished models cost and what they give: score, size, and time on this machine.

Each model is scored and timed in fp32, bf16 and int8, as far as the machine has them, on a split of the first run's
data or on other files.  One table goes to standard output.  With --output a page has it as a figure, too: score against
time, and which models no other outdoes.

  ernie tradeoff runs/student runs/teacher
  ernie tradeoff runs/6-layers runs/3-layers runs/2-layers --split test --output sizes
  ernie tradeoff published-model runs/student --input rows.tsv
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ernie.arguments import add_plugin, add_set, output_path
from ernie.errors import UserError

SUMMARY = "compare finished models: score, size, and time on this machine in each precision"
WRITES_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    help_text = "the folder of a fine-tuning run; after the first one, and with --input, also of any model of the kind"
    parser.add_argument("run", nargs="+", type=Path, metavar="RUN", help=help_text)
    add_plugin(parser)
    parser.add_argument("--split", default="dev", metavar="NAME", help="a split of the first run's data (default: dev)")
    help_text = "files (or data sets) to score on instead, read like that split's, if there is a run"
    parser.add_argument("--input", nargs="+", action="extend", default=[], metavar="FILE", help=help_text)
    add_set(parser, "change which columns of the rows are read, as task.text=body")
    help_text = "a folder for tradeoff.json and a page with the table and the figure"
    parser.add_argument("--output", type=output_path, metavar="DIR", help=help_text)


def main(arguments: argparse.Namespace) -> int:
    """Print the table."""
    from ernie.atomic import put_text
    from ernie.data.labeled.read import read_split
    from ernie.report.markdown import cell
    from ernie.runtime import require_paddle
    from finetune.train.run_contents import load_model, read_run, rows_to_score

    first, output = arguments.run[0], arguments.output
    if not arguments.input:
        read_run(first, takes_input=True)
    _check_output(output)
    sources, options = rows_to_score(first, arguments.split, arguments.input)
    require_paddle()

    from finetune.config import decoding_overrides
    from finetune.prepare import prepare
    from finetune.report.tradeoff import measure_tradeoff
    from tasks.downstream.base import LogitsTask

    model = load_model(first, arguments.set)
    if other := [
        key for key in decoding_overrides(type(model.task), arguments.set) if key not in model.task.column_fields
    ]:
        raise UserError(f"--set: task.{other[0]}: only columns can be changed here, so that models answer as they do")
    if not isinstance(model.task, LogitsTask):
        raise UserError(f"{first}: a model of the kind {model.task.variant_name} has no logits, and cannot be compared")
    rows = read_split(f"split {arguments.split}", sources, options)
    split = prepare(model.task, rows, model.tokenizer, skip=options.faulty == "skip")
    if not split.labeled:
        raise UserError(f"{', '.join(sources)}: the rows have no labels to score against")
    found = measure_tradeoff(_named(arguments.run), model.task, split.rows, arguments.plugin)
    head, *lines = (f"| {' | '.join(map(cell, cells))} |" for cells in found.table())
    print("\n".join([head, f"|{'---|' * len(found.table()[0])}", *lines, "", found.explained]))
    if output is not None:
        from finetune.report.tradeoff_figure import page_of

        output.mkdir(parents=True, exist_ok=True)
        found.write(output)
        put_text(output / "report.html", page_of(found, output.resolve().name))
    return 0


def _named(folders: list[Path]) -> dict[str, Path]:
    """Return the folders by name: the last part of each path, or all of it where two end alike."""
    names = [folder.resolve().name for folder in folders]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UserError("RUN: the same folder is given twice")
    return {
        name if names.count(name) == 1 else str(folder): folder for name, folder in zip(names, folders, strict=True)
    }


def _check_output(output: Path | None) -> None:
    """Raise UserError for a folder that holds something else, such as a run with a report of its own."""
    if output is None or not output.exists():
        return
    if not output.is_dir() or {path.name for path in output.iterdir()} - {"tradeoff.json", "report.html"}:
        raise UserError(f"{output}: holds something else; choose another --output")
