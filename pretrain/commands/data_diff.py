"""Say how two corpora differ, in a sentence for each difference: settings, tokenizer, counts, statistics, documents.

A document is the same if its tokens, sentences and marks are; where the text at a place has changed, it says so.  The
exit status is that of the program diff: 0 where the corpora are the same, 1 where they differ, 2 in trouble.

examples:
  ernie data diff corpus-january corpus-february
  ernie data diff A B > differences.txt || echo other
"""

from __future__ import annotations

import argparse

from ernie.data.shards import Corpus
from pretrain.corpus.look.difference import differing

SUMMARY = "say how two corpora differ"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    for name in ("a", "b"):
        parser.add_argument(name, metavar=name.upper(), help="a corpus")


def main(arguments: argparse.Namespace) -> int:
    """Run the command: 0 if the corpora are the same, 1 otherwise."""
    one, other = Corpus.open(arguments.a), Corpus.open(arguments.b)
    print(f"A is {arguments.a}, B is {arguments.b}")
    status = 0
    for sentence in differing(one, other):
        status = 1
        print(sentence)
    if not status:
        print("they are the same")
    return status
