"""Look at a corpus: statistics, and documents in which words, phrases and entities are marked.

Documents are shown as their tokens read, with colors on a terminal and with brackets elsewhere.  `--html` writes the
same as one page with plots.  Given a recipe instead of a corpus, a sample of its input is built in a temporary
folder and shown: a recipe can be tried before the whole corpus is built.

examples:
  ernie data show corpus
  ernie data show corpus --document 17 --split held_out
  ernie data show corpus --source 'wiki/*.jsonl' --count 5 --seed 1 --html corpus.html
  ernie data show corpus.yaml --source books/river.txt:120
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from ernie.arguments import add_set
from ernie.atomic import disk_guard, make_folder, put_text
from ernie.data.shards import SPLITS, Corpus
from ernie.errors import UserError
from ernie.terminal import print_styled, takes_colors
from pretrain.corpus.look.choose import Chosen, choose
from pretrain.corpus.look.shown import document_lines, legend, statistics_lines
from pretrain.corpus.look.statistics import Statistics, statistics

SUMMARY = "look at the documents and the statistics of a corpus"
_MOST_PARTS = 12  # sources, or folders of them, that are named


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("corpus", type=Path, metavar="CORPUS", help="a corpus, or the YAML file of a recipe")
    parser.add_argument("--split", choices=SPLITS, default=SPLITS[0], help="(default: %(default)s)")
    parser.add_argument(
        "--document",
        nargs="+",
        action="extend",
        type=int,
        default=[],
        metavar="N",
        help="numbers of documents in the split, from 0",
    )
    parser.add_argument(
        "--source",
        metavar="NAME",
        help="documents of a file, of a pattern of files, or at FILE:LINE, as reports name it",
    )
    parser.add_argument("--count", type=int, default=3, metavar="N", help="documents drawn (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which ones are drawn (default: %(default)s)")
    parser.add_argument(
        "--sentences",
        type=int,
        default=40,
        metavar="N",
        help="sentences shown of a document, 0 for all (default: %(default)s)",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page instead of printing")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="(default: colors on a terminal)"
    )
    add_set(parser, "override a key of the recipe")


def main(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    for name in ("count", "sentences", "seed"):
        if getattr(arguments, name) < 0:
            raise UserError(f"--{name}: expected at least 0, found {getattr(arguments, name)}")
    with ExitStack() as stack:
        corpus = _open(arguments, stack)
        found = statistics(corpus, _MOST_PARTS)
        chosen = choose(corpus, arguments.split, arguments.document, arguments.source, arguments.count, arguments.seed)
        if arguments.html is not None:
            _write_page(arguments, corpus, found, chosen)
        else:
            _print(arguments, corpus, found, chosen)
    return 0


def _open(arguments: argparse.Namespace, stack: ExitStack) -> Corpus:
    """Return the corpus, or one of a sample of the recipe's input, which goes with the stack."""
    if not arguments.corpus.is_file():
        if arguments.set:
            raise UserError("--set: is for a recipe, and a corpus is as it was built")
        return Corpus.open(arguments.corpus)
    if arguments.split != "train":
        raise UserError("--split: of a recipe's sample nothing is held out; build the corpus to see what is")
    from pretrain.corpus.look.trial import trial_corpus  # local: only a recipe needs what builds a corpus

    return stack.enter_context(trial_corpus(arguments.corpus, arguments.set))


def _print(arguments: argparse.Namespace, corpus: Corpus, found: Statistics, chosen: Chosen) -> None:
    colors = takes_colors() if arguments.color == "auto" else arguments.color == "always"
    for line in statistics_lines(found):
        print(line)
    print(chosen.how)
    print_styled(legend(colors))
    print()
    for number in chosen.numbers:
        for parts in document_lines(corpus, chosen, number, arguments.sentences, colors):
            print_styled(parts)


def _write_page(arguments: argparse.Namespace, corpus: Corpus, found: Statistics, chosen: Chosen) -> None:
    from pretrain.corpus.look.web_page import corpus_page  # local: loads matplotlib

    make_folder(arguments.html.parent)
    text = corpus_page(corpus, found, chosen, arguments.sentences, arguments.corpus.resolve().name)
    with disk_guard(arguments.html, "the page was not written"):
        put_text(arguments.html, text)
    print(arguments.html)
