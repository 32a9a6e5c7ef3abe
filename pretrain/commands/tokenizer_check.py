"""Look for faults in a vocabulary: duplicates, missing special tokens, entries that no text can reach.

ernie tokenizer check vocab.txt
ernie tokenizer check runs/first/model/tokenizer
"""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "look for duplicates and other faults in a vocabulary"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", type=Path, metavar="PATH", help="a vocab.txt, a .model file, or a tokenizer's folder")


def main(arguments: argparse.Namespace) -> int:
    """Run the command: 0 if nothing was found, 1 otherwise."""
    from ernie.text.load import load_tokenizer
    from ernie.text.vocabulary import check_vocabulary

    findings = check_vocabulary(arguments.path)
    for finding in findings:
        print(finding)
    if findings:
        return 1
    tokenizer = load_tokenizer(arguments.path)
    case = "lower-cases" if tokenizer.lowercase else "keeps capitals"
    print(f"{arguments.path}: {tokenizer.kind}, {tokenizer.vocab_size:,} entries, {case}: nothing wrong found")
    return 0
