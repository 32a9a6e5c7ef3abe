"""Score search on judged queries: nDCG, MRR, MAP and recall by words, by vectors, by both, and ranked again.

Or score the vectors of a model: by pairs of texts with a score of how alike they are, or by clusters of labeled texts.

The data are a folder of the form that BEIR uses: corpus.jsonl, queries.jsonl and qrels/test.tsv.  An index is searched
as it is; its documents need the ids of the judgments.  From a model an index of corpus.jsonl is made for the while.

  ernie search evaluate runs/scifact-index --data scifact/
  ernie search evaluate runs/vectors --data scifact/ --rerank runs/relevance
  ernie search evaluate runs/vectors --pairs sts/dev.tsv --rename text=sentence1 text_pair=sentence2
  ernie search evaluate runs/vectors --clusters news.tsv
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from ernie.arguments import add_quiet
from inference.commands.search_query import add_search

SUMMARY = "score search on judged queries"
WRITES_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("searched", type=Path, metavar="INDEX|MODEL", help="an index, or a model to make one with")
    judged = parser.add_mutually_exclusive_group(required=True)
    judged.add_argument("--data", type=Path, metavar="DIR", help="judged queries: a folder as BEIR has it")
    judged.add_argument("--pairs", metavar="FILE", help="rows with the columns text, text_pair and score")
    judged.add_argument("--clusters", metavar="FILE", help="rows with the columns text and label")
    parser.add_argument(
        "--rename", nargs="+", action="extend", default=[], metavar="NAME=COLUMN", help="columns under other names"
    )
    parser.add_argument("--split", default="test", metavar="NAME", help="the judgments qrels/NAME.tsv (default: test)")
    add_search(parser)
    add_quiet(parser)


def main(arguments: argparse.Namespace) -> int:
    """Print the scores as JSON."""
    from ernie.errors import UserError, check_exists
    from ernie.runtime import require_paddle

    rename = dict(each.partition("=")[::2] for each in arguments.rename)
    if arguments.data is not None and rename:
        raise UserError("--rename: is for --pairs and --clusters; leave it out")
    if not all(name and column for name, column in rename.items()):
        raise UserError(f"--rename: expected NAME=COLUMN, such as text=sentence1, found {' '.join(arguments.rename)}")
    if arguments.data is None:
        return _score_vectors(arguments, rename)
    if not arguments.data.is_dir():
        raise UserError(f"{arguments.data}: there is no such folder")
    require_paddle()

    from inference.search.evaluation import CORPUS, Judged, evaluate
    from inference.search.index import IndexSettings, make_index
    from inference.search.searching import By, LoadedIndex, SearchIndex, is_index, load_encoder

    judged = Judged.read(arguments.data, arguments.split)
    with tempfile.TemporaryDirectory() as folder:
        index, model = arguments.searched, arguments.model
        if not is_index(index):
            check_exists(index)
            if model is not None:
                raise UserError("--model: is for an index, whose model has moved; leave it out")
            encoder = load_encoder(index, arguments.precision)
            quiet = arguments.quiet or not sys.stderr.isatty()
            corpus = [str(arguments.data / CORPUS)]
            make_index(corpus, Path(folder) / "index", IndexSettings(), encoder, str(index), quiet=quiet)
            index = Path(folder) / "index"
        loaded = LoadedIndex.load(index, arguments.precision, model, None, arguments.plugin)
        ways: list[By] = ["bm25"] if loaded.encoder is None else ["bm25", "dense", "hybrid"]
        found: dict[str, Any] = {way: evaluate(SearchIndex(loaded), judged, way) for way in ways}
        scores: dict[str, Any] = {"queries": len(judged.queries), **found}
        if arguments.rerank is not None:
            again = LoadedIndex.load(index, arguments.precision, model, arguments.rerank, arguments.plugin)
            scores["rerank"] = evaluate(SearchIndex(again), judged, ways[-1])
    print(json.dumps(scores, indent=2), flush=True)
    return 0


def _score_vectors(arguments: argparse.Namespace, rename: dict[str, str]) -> int:
    """Print scores of a model's vectors."""
    from ernie.data.labeled.read import read_split
    from ernie.data.labeled.row import RowOptions
    from ernie.errors import UserError, check_exists
    from ernie.runtime import require_paddle

    if arguments.rerank is not None or arguments.model is not None:
        raise UserError("--rerank and --model: are for --data; leave them out")
    check_exists(arguments.searched)
    rows = read_split("the rows", [arguments.pairs or arguments.clusters], RowOptions(rename=rename)).rows
    require_paddle()

    from inference.search.evaluation import cluster_scores, pair_scores
    from inference.search.searching import load_encoder

    encoder = load_encoder(arguments.searched, arguments.precision)
    found = pair_scores(encoder, rows) if arguments.pairs is not None else cluster_scores(encoder, rows)
    print(json.dumps(found, indent=2), flush=True)
    return 0
