"""Score search on judged queries: nDCG, MRR, MAP and recall by words, by vectors, by both, and ranked again.

The data are a folder of the form that BEIR uses: corpus.jsonl, queries.jsonl and qrels/test.tsv.  An index is searched
as it is; its documents need the ids of the judgments.  From a model an index of corpus.jsonl is made for the while.

  ernie search evaluate runs/scifact-index --data scifact/
  ernie search evaluate runs/vectors --data scifact/ --rerank runs/relevance
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
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="a folder as BEIR has it")
    parser.add_argument("--split", default="test", metavar="NAME", help="the judgments qrels/NAME.tsv (default: test)")
    add_search(parser)
    add_quiet(parser)


def main(arguments: argparse.Namespace) -> int:
    """Print the scores as JSON."""
    from ernie.errors import UserError, check_exists
    from ernie.runtime import require_paddle

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
