"""Make an index of texts to search in: their passages by words (BM25) and, with a model, by vectors.

Sources are files and folders: plain text (.txt, .md), and rows (.jsonl, .json, .csv, .tsv, .parquet).  A file of text
is one document, and so is each row.  Long documents are cut into passages that overlap, at the ends of sentences where
possible.  The same command updates an index when texts have changed: only new passages are encoded.

  ernie search index texts/ --output runs/texts-index
  ernie search index texts/ --model runs/vectors --output runs/texts-index
  ernie search index faq.csv --text question answer --model runs/vectors --output runs/faq
"""

from __future__ import annotations

import argparse
import sys

from ernie.arguments import add_output, add_overwrite, add_precision, add_quiet

SUMMARY = "make an index of texts to search in"
WRITES_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="a file, or a folder of files")
    add_output(parser, "the index's folder")
    parser.add_argument("--model", metavar="MODEL", help="an encoder, or a run of the kind embed (default: words only)")
    parser.add_argument(
        "--text", nargs="+", action="extend", metavar="COLUMN", help="columns with the text of a row (default: text)"
    )
    parser.add_argument("--title", default="title", metavar="COLUMN", help="the column with its title (default: title)")
    parser.add_argument("--id", default="", metavar="COLUMN", help="the column with its id (default: _id or id)")
    parser.add_argument(
        "--keep",
        nargs="+",
        action="extend",
        default=[],
        metavar="COLUMN",
        help="columns of a row to give back with its passages, such as an address",
    )
    parser.add_argument("--lines", action="store_true", help="each line of a file of text is a document")
    parser.add_argument(
        "--length", type=int, default=0, metavar="N", help="most tokens of a passage (default: 256, or what fits)"
    )
    parser.add_argument(
        "--overlap", type=int, metavar="N", help="tokens shared with the passage before (default: an eighth)"
    )
    parser.add_argument(
        "--vectors",
        choices=("auto", "exact", "hnsw", "ivf"),
        default="auto",
        help="how vectors are compared: all, or by FAISS's graph or lists (default: exact up to 200,000, then hnsw)",
    )
    parser.add_argument(
        "--dimensions",
        type=int,
        default=0,
        metavar="N",
        help="numbers of each vector to keep, of a model that was trained for it (default: all)",
    )
    parser.add_argument("--query-prompt", metavar="TEXT", help="text before each query (default: the model's own)")
    parser.add_argument("--passage-prompt", metavar="TEXT", help="text before each passage (default: the model's own)")
    parser.add_argument(
        "--faulty",
        choices=("stop", "skip"),
        default="stop",
        help="skip: leave out rows that cannot be read, and count them",
    )
    add_overwrite(parser, "index by another model")
    add_precision(parser)
    add_quiet(parser)


def main(arguments: argparse.Namespace) -> int:
    """Make the index, and print what it holds."""
    from ernie.runtime import require_paddle

    require_paddle()

    from ernie.formatting import plural
    from inference.search.index import IndexSettings, make_index
    from inference.search.passages import Reading
    from inference.search.searching import load_encoder

    reading = Reading(
        tuple(arguments.text or ("text",)),
        arguments.title,
        arguments.id,
        arguments.lines,
        tuple(arguments.keep),
        arguments.faulty,
    )
    settings = IndexSettings(
        reading,
        arguments.length,
        arguments.overlap,
        arguments.vectors,
        arguments.query_prompt,
        arguments.passage_prompt,
        arguments.dimensions,
    )
    encoder = None if arguments.model is None else load_encoder(arguments.model, arguments.precision)
    made = make_index(
        arguments.sources,
        arguments.output,
        settings,
        encoder,
        arguments.model,
        arguments.overwrite,
        arguments.quiet or not sys.stderr.isatty(),
    )
    info = made.info
    cut = f", {info.cut_documents:,} of them in several" if info.cut_documents else ""
    print(f"{arguments.output}: {plural(info.passages, 'passage')} of {plural(info.documents, 'document')}{cut}")
    if info.model is not None:
        old = f"; {made.reused:,} had theirs already" if made.reused else ""
        print(f"{plural(info.passages - made.reused, 'passage')} encoded by {info.model}{old}")
    if made.dropped:
        print(f"{plural(made.dropped, 'passage')} of the index before are no longer there")
    if info.recall is not None:
        print(f"{info.vectors} finds {info.recall:.1%} of the 10 nearest passages")
    return 0
