"""Predict rows with a fine-tuned model: one output line per row, in order, as rows are read.

Input is TSV or CSV with a line of column names, JSON lines, Parquet, CoNLL, SQuAD's JSON, or plain lines of text.  The
file's name says which, or --format does.  `-` is standard input.  For standard input, pipes such as <(...) and .txt
files, the first line decides: JSON lines, TSV or CSV that names the column that the task reads, or lines of text.
Output is JSON lines, or TSV with --to tsv.

  ernie predict runs/sst2 --input reviews.tsv > answers.jsonl
  echo "a charming and often affecting journey" | ernie predict runs/sst2 --input -
  ernie predict runs/sst2 --input dev.tsv --keep sentence label --to tsv
  ernie predict runs/mrpc --input msr-para-test.tsv --like test
  ernie predict runs/sst2 --submission glue/
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import get_args

from ernie.arguments import add_decoding, add_plugin, add_precision
from ernie.data.labeled.row import Format, Row, RowOptions
from ernie.errors import UserError, about

SUMMARY = "predict with a fine-tuned model"
WRITES_DATA = True
_OUT = Path("standard output")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a fine-tuning run")
    add_plugin(parser)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--input", action="append", metavar="FILE|-", help="the rows to answer (repeatable)")
    chosen.add_argument("--split", metavar="NAME", help="a split of the run's own data")
    chosen.add_argument("--submission", type=Path, metavar="DIR", help="write the leaderboard's files there")
    parser.add_argument(
        "--format",
        choices=get_args(Format),
        default="auto",
        help="the input's format (default: from its name)",
    )
    help_text = "column names, if no line has them"
    parser.add_argument("--columns", nargs="+", action="extend", default=[], metavar="NAME", help=help_text)
    parser.add_argument(
        "--like",
        metavar="NAME",
        help="read the input as the run's data says for that split: its columns, delimiter, names and values",
    )
    parser.add_argument(
        "--faulty",
        choices=("stop", "skip"),
        help="skip: no line for rows that cannot be read or used, only their count (default: they stop the command)",
    )
    parser.add_argument(
        "--keep",
        nargs="+",
        action="extend",
        default=[],
        metavar="COLUMN",
        help="columns to repeat before the answer; `label` as `given_label` where the answer has one",
    )
    parser.add_argument(
        "--all-labels", action="store_true", help="give the probability of every label (classify and multilabel)"
    )
    parser.add_argument("--to", choices=("jsonl", "tsv"), default="jsonl", help="the output's format")
    parser.add_argument(
        "--batch-tokens",
        type=int,
        default=2048,
        metavar="N",
        help="most tokens computed at once (default: 2048; more for a GPU)",
    )
    add_decoding(parser)
    add_precision(parser)


def main(arguments: argparse.Namespace) -> int:
    """Write the answers to standard output."""
    from ernie.atomic import disk_guard
    from ernie.runtime import require_paddle
    from finetune.train.run_contents import load_model, read_run, split_rows

    if arguments.batch_tokens < 1:
        raise UserError(f"--batch-tokens: expected at least 1, found {arguments.batch_tokens}")
    options = _options(arguments)
    config = read_run(arguments.run, takes_input=True) if arguments.input is None else None
    require_paddle()

    from finetune.suite.submission import write_submission
    from inference.answer_writer import write_answers
    from inference.rows import FaultyRow, groups_as_available, in_groups, input_rows, is_unnamed
    from tasks.downstream.base import answer_columns

    model = load_model(arguments.run, arguments.set, arguments.precision)
    # Rows without a label are what is to be answered.
    options = options.keeping_empty(answer_columns(model.task))
    config = config and replace(config, data=config.data.keeping_empty(answer_columns(model.task)))
    if arguments.all_labels:
        if "all_labels" not in model.task.decoding_fields:
            kind = model.task.variant_name
            raise UserError(f"--all-labels: a model of the kind {kind} gives no probability of each label")
        model.change_decoding(all_labels=True)
    if arguments.submission is not None:
        assert config is not None
        written = write_submission(model, config, arguments.submission)
        print(*written, sep="\n")
        return 0

    tokenizer = model.tokenizer  # raises if there is none, which is not the fault of a row

    def validate(row: Row) -> object:
        return model.task.example(row, tokenizer)

    inputs: list[str] = arguments.input or []
    rows = (
        split_rows(config, arguments.split, validate)
        if config is not None
        else chain.from_iterable(input_rows(name, options, model.task, validate) for name in inputs)
    )
    groups = groups_as_available(rows) if any(map(is_unnamed, inputs)) else in_groups(rows)
    try:
        with disk_guard(_OUT, "the last answers are missing"):
            write_answers(model, groups, sys.stdout, arguments.to, arguments.keep, arguments.batch_tokens)
    except FaultyRow as error:
        option = "--faulty skip" if inputs else "the key data.faulty: skip"
        columns = "; --columns names the columns of a file without a line of names" if inputs else ""
        raise UserError(f"{error}\n({option} leaves out such rows, and counts them{columns})") from None
    return 0


def _options(arguments: argparse.Namespace) -> RowOptions:
    """Return how the input is read.  Raises UserError for options that exclude each other."""
    from finetune.train.run_contents import read_run

    given = RowOptions(format=arguments.format, columns=tuple(arguments.columns))
    like = arguments.like
    if arguments.faulty is not None and arguments.input is None:
        raise UserError("--faulty: is for --input; for the run's own data there is the key data.faulty")
    if given != RowOptions() and (like is not None or arguments.input is None):
        other = "--like" if like is not None else "--split" if arguments.split is not None else "--submission"
        raise UserError(f"{other}: the run's data says how rows are read; leave out --format and --columns")
    if like is None:
        return replace(given, faulty=arguments.faulty or given.faulty)
    if arguments.input is None:
        raise UserError("--like: is for --input")
    data = read_run(arguments.run).data
    with about("--like"):
        data.sources(like)
    options = data.options(like)
    return replace(options, faulty=arguments.faulty or options.faulty)
