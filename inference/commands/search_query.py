"""Find the passages of an index that answer queries, by vectors, by words, or by both.

With --rerank a fine-tuned model of the kind rank sorts the best passages again.  Queries are arguments, or the lines or
rows of a file, whose column is `query` or `text`; `-` is standard input.  What is printed for people names the file and
the line of each passage.  With --input, a line of JSON is printed for each query.

  ernie search query runs/texts-index "who finds the river"
  ernie search query runs/texts-index --input queries.jsonl --rerank runs/relevance > answers.jsonl
  ernie search query runs/texts-index --input queries.tsv --documents --top 1000 --to trec > run.txt
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ernie.arguments import add_plugin, add_precision

if TYPE_CHECKING:
    from ernie.data.labeled.row import Row
    from inference.search.searching import Hit

SUMMARY = "find the passages of an index that answer queries"
WRITES_DATA = True
_OUT = Path("standard output")
_SHOWN = 400  # characters of a passage


def add_search(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of every command that searches."""
    parser.add_argument("--rerank", metavar="RUN", help="a run of the kind rank, which sorts the best passages again")
    parser.add_argument("--model", metavar="MODEL", help="where the index's model is now, if it has moved")
    add_plugin(parser)
    add_precision(parser)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("index", type=Path, metavar="INDEX", help="the folder of an index")
    parser.add_argument("queries", nargs="*", metavar="QUERY", help="what to search for")
    parser.add_argument("--input", metavar="FILE|-", help="a file of queries")
    parser.add_argument("--top", type=int, default=5, metavar="N", help="passages for each query (default: 5)")
    parser.add_argument(
        "--by",
        choices=("hybrid", "dense", "bm25"),
        help="rank by vectors (dense), words (bm25), or both (default: hybrid, if the index has vectors)",
    )
    parser.add_argument("--documents", action="store_true", help="give each document once, by its best passage")
    parser.add_argument(
        "--to", choices=("text", "jsonl", "trec"), help="the output's format (default: text, or jsonl with --input)"
    )
    add_search(parser)


def main(arguments: argparse.Namespace) -> int:
    """Print what was found."""
    from ernie.errors import UserError
    from ernie.runtime import require_paddle

    if bool(arguments.queries) == (arguments.input is not None):
        raise UserError("give queries as arguments, or a file of them by --input")
    require_paddle()

    from ernie.atomic import disk_guard
    from inference.answer_writer import as_json
    from inference.rows import groups_as_available, in_groups, is_unnamed
    from inference.search.searching import LoadedIndex, SearchIndex

    loaded = LoadedIndex.load(
        arguments.index, arguments.precision, arguments.model, arguments.rerank, arguments.plugin or ()
    )
    index = SearchIndex(loaded)
    form = arguments.to or ("jsonl" if arguments.input is not None else "text")
    with disk_guard(_OUT, "the last answers are missing"):
        if arguments.input is None:
            groups = iter([[(query, str(number)) for number, query in enumerate(arguments.queries, 1)]])
        else:
            group = groups_as_available if is_unnamed(arguments.input) else in_groups
            groups = ([*map(_query, rows)] for rows in group(_rows(arguments.input)))
        for queries in groups:
            found = index.search([text for text, _ in queries], arguments.top, arguments.by, arguments.documents)
            for (text, name), hits in zip(queries, found, strict=True):
                if form == "jsonl":
                    answer = {"query": text, "id": name, "hits": [hit.as_dict(n) for n, hit in enumerate(hits, 1)]}
                    print(as_json(answer))
                else:
                    print(*(_trec(name, hits) if form == "trec" else _shown(text, hits)), sep="\n")
            sys.stdout.flush()
    return 0


def _rows(name: str) -> Iterator[Row]:
    from ernie.data.labeled.row import RowOptions
    from inference.rows import file_rows

    return file_rows(name, RowOptions(), "query")


def _query(row: Row) -> tuple[str, str]:
    """Return the query of a row, and its id."""
    from ernie.errors import about
    from inference.search.searching import checked_query

    with about(str(row.place)):
        text = checked_query(row.text("query" if "query" in row or "text" not in row else "text"))
        name = next((row.text(column) for column in ("_id", "id") if column in row), str(row.place.line))
        return text, name


def _trec(name: str, hits: list[Hit]) -> Iterator[str]:
    """Yield the lines of a query in a run of TREC: query, Q0, document, rank, score, and who found it.

    An id comes once, by its best passage, as trec_eval demands.
    """
    best: dict[str, Hit] = {}
    for hit in hits:
        best.setdefault(hit.passage.id, hit)
    for rank, hit in enumerate(best.values(), 1):
        yield f"{name} Q0 {hit.passage.id} {rank} {hit.score:.6f} ernie"


def _shown(query: str, hits: list[Hit]) -> Iterator[str]:
    """Yield lines for people."""
    yield query if hits else f"{query}\n  nothing was found"
    for rank, hit in enumerate(hits, 1):
        passage, scores = hit.passage, ", ".join(f"{name} {value:.4g}" for name, value in hit.scores.items())
        title = f"{passage.title}: " if passage.title else ""
        text = " ".join(f"{title}{passage.text}".split())
        yield f"{rank:3}. {text[:_SHOWN]}{'…' if len(text) > _SHOWN else ''}"
        yield f"     {passage.file}:{passage.line} ({scores})"
