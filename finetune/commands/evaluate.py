"""Score a fine-tuned model on a labeled split of its data, or on other files of the same kind.

ernie evaluate runs/sst2 --split dev
ernie evaluate runs/sst2 --input more_reviews.tsv
ernie evaluate runs/msra-ner --split test --by-label
ernie evaluate runs/de-en --set task.beam=4
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ernie.arguments import add_decoding, add_plugin, add_precision, add_quiet

SUMMARY = "score a fine-tuned model on labeled rows"
WRITES_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a fine-tuning run")
    add_plugin(parser)
    parser.add_argument("--split", default="dev", metavar="NAME", help="a split of the run's data (default: dev)")
    help_text = "files (or data sets) to score instead, read like that split's, if there is a run"
    parser.add_argument("--input", nargs="+", action="extend", metavar="FILE|-", help=help_text)
    parser.add_argument(
        "--by-label",
        action="store_true",
        help="also give precision, recall, f1 and the number of targets of each label, tag or type of entity",
    )
    help_text = "also give the 95 %% interval of each score, by 1,000 draws of the rows"
    parser.add_argument("--intervals", action="store_true", help=help_text)
    parser.add_argument("--answers", type=Path, metavar="FILE", help="write the answers there, as JSON lines")
    add_decoding(parser)
    add_precision(parser)
    add_quiet(parser, "say nothing but the scores")


def main(arguments: argparse.Namespace) -> int:
    """Print the scores as JSON."""
    from ernie.atomic import disk_guard
    from ernie.data.labeled.read import read_split
    from ernie.errors import UserError
    from ernie.runtime import require_paddle
    from finetune.train.run_contents import load_model, rows_to_score

    if arguments.answers is not None and not arguments.answers.absolute().parent.is_dir():
        raise UserError(
            f"--answers: {arguments.answers} cannot be written: there is no folder {arguments.answers.parent}"
        )
    files = ["/dev/stdin" if name == "-" else name for name in arguments.input or ()]
    sources, options = rows_to_score(arguments.run, arguments.split, files)
    require_paddle()

    from finetune.prepare import describe, prepare
    from inference.answer_writer import as_json
    from tasks.downstream.base import answer_columns
    from tasks.downstream.hooks import ScoresByLabel
    from tasks.downstream.resampling import intervals
    from tasks.downstream.scoring import score_answers, signatures

    model = load_model(arguments.run, arguments.set, arguments.precision)
    if arguments.by_label and not isinstance(model.task, ScoresByLabel):
        raise UserError(f"--by-label: a model of the kind {model.task.variant_name} has no labels to score one by one")
    # Not the split's own name: the rows of `train` are evaluated here, not trained on.
    name = "the rows" if arguments.input else f"split {arguments.split}"
    rows = read_split(name, sources, options)
    split = prepare(model.task, rows, model.tokenizer, skip=options.faulty == "skip")
    if not split.labeled:
        column = "', '".join(answer_columns(model.task))
        raise UserError(f"{', '.join(sources)}: the rows have nothing in a column '{column}' to score against")
    if not arguments.quiet:
        print("\n".join([describe(split), *(f"note: {remark}" for remark in split.remarks)]), file=sys.stderr)
    answers = model.answers(split.examples)
    scores: dict[str, Any] = {"rows": len(split), **score_answers(model.task, split.rows, answers)}
    if found := signatures(model.task, split.rows):
        scores["signatures"] = found
    if arguments.by_label and isinstance(model.task, ScoresByLabel):
        scores["by_label"] = model.task.scores_by_label(split.rows, answers)
    if arguments.intervals:
        scores["intervals"] = intervals(model.task, split.rows, answers)
    print(json.dumps(scores, indent=2, ensure_ascii=False), flush=True)
    if arguments.answers is not None:
        lines = map(as_json, answers)
        with disk_guard(arguments.answers, "the answers were not written"):
            arguments.answers.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return 0
