"""Find hard negatives for pairs: passages of an index that are near a text and do not belong to it.

Rows are written as JSON lines, with a column `negatives` for the kind embed.  A passage that scores nearly as high as
the row's own is probably right, too, and is dropped.  With --rerank these scores are those of a run of the kind rank,
which are also written, as `teacher_scores`.

  ernie search mine runs/texts-index --input pairs.jsonl --output mined.jsonl
  ernie search mine runs/texts-index --input pairs.jsonl --output mined.jsonl --from 10 --rerank runs/relevance
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ernie.arguments import output_path
from inference.commands.search_query import add_search

SUMMARY = "find hard negatives for training sentence vectors"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("index", type=Path, metavar="INDEX", help="the folder of an index")
    parser.add_argument("--input", required=True, metavar="FILE", help="the rows, of texts and what belongs to them")
    parser.add_argument(
        "--output", required=True, type=output_path, metavar="FILE", help="the file of JSON lines to write"
    )
    parser.add_argument("--text", default="text", metavar="COLUMN", help="the column of the texts (default: text)")
    parser.add_argument(
        "--text-pair", default="text_pair", metavar="COLUMN", help="that of what belongs to them (default: text_pair)"
    )
    parser.add_argument("--count", type=int, default=5, metavar="N", help="most negatives of a row (default: 5)")
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="N", help="the first rank (default: 1)")
    parser.add_argument("--to", dest="last", type=int, default=50, metavar="N", help="the last rank (default: 50)")
    parser.add_argument(
        "--most",
        type=float,
        default=0.95,
        metavar="PART",
        help="drop what scores at least this part of the row's own passage; 0 keeps all (default: 0.95)",
    )
    parser.add_argument("--by", choices=("hybrid", "dense", "bm25"), help="how candidates are ranked (default: hybrid)")
    add_search(parser)


def main(arguments: argparse.Namespace) -> int:
    """Write the rows, and say what was dropped."""
    from ernie.runtime import require_paddle

    require_paddle()

    from ernie.atomic import disk_guard, make_folder, replacing
    from ernie.data.labeled.read import read_split
    from ernie.data.labeled.row import RowOptions
    from inference.answer_writer import as_json
    from inference.search.mining import Counts, Mining, mined, summary
    from inference.search.searching import LoadedIndex, SearchIndex

    mining = Mining(
        arguments.text,
        arguments.text_pair,
        arguments.count,
        arguments.first,
        arguments.last,
        arguments.most,
        arguments.by,
    )
    rows = read_split("the rows", [arguments.input], RowOptions()).rows
    index = SearchIndex(
        LoadedIndex.load(arguments.index, arguments.precision, arguments.model, arguments.rerank, arguments.plugin)
    )
    counts, place = Counts(), arguments.output
    make_folder(place.absolute().parent)
    with (
        disk_guard(place, "the rows were not written"),
        replacing(place) as partial,
        partial.open("w", encoding="utf-8") as file,
    ):
        for row in mined(index, rows, mining, counts):
            file.write(as_json(row) + "\n")
    print(f"{place}: {summary(counts, mining)}", file=sys.stderr)
    return 0
