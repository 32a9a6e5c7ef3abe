"""Compare tokenizers on texts: tokens a word and a character, what they do not cover, and speed, for each language.

Reads what 'ernie data build' reads: a sample of it, some from every input.  A word is what stands between spaces; in
scripts written without spaces every letter is one.  The speed is that of one pass in one process.

examples:
  ernie tokenizer compare tok bert/vocab.txt --input wiki/
  ernie tokenizer compare tok-8k tok-16k tok-32k --input en.txt zh.txt --by input --html tokenizers.html
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from ernie import config as configuration
from ernie.arguments import add_set
from ernie.atomic import disk_guard, make_folder, put_text
from ernie.data.raw import Dropped, RawDocument, ReadOptions
from ernie.data.read import find_inputs
from ernie.data.stream_copy import streams_copied
from ernie.errors import Remark, UserError
from ernie.formatting import plural
from ernie.model.pretrained import tokenizer_at
from pretrain.corpus.config import MOST_MB
from pretrain.corpus.language import document_language, identified_language
from pretrain.corpus.look.tokenizers import Texts, comparison_page, described_as, grouped, measured, of, rows
from pretrain.corpus.sample import sample

SUMMARY = "compare tokenizers on texts: length, coverage, speed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "tokenizers", nargs="+", metavar="TOKENIZER", help="folders of tokenizers, vocab.txt or .model files"
    )
    parser.add_argument(
        "--input",
        nargs="+",
        action="extend",
        required=True,
        metavar="TEXT",
        help="files, folders, patterns, addresses, data sets as hf:NAME[:CONFIG][:SPLIT], or - for standard input",
    )
    parser.add_argument(
        "--by",
        choices=("language", "input", "all"),
        default="language",
        help="a table for the texts of each language, or of each file, or one for all; without the package py3langid "
        "languages of one script are taken for one (default: %(default)s)",
    )
    parser.add_argument(
        "--sample-mb", type=float, default=5.0, metavar="N", help="MB of text that are read (default: %(default)s)"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots, too")
    add_set(parser, "how the input is read: read.format=tagged, read.fields.text=body")


def main(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    if not 0 < arguments.sample_mb <= MOST_MB:
        raise UserError(f"--sample-mb: expected a number above 0, at most {MOST_MB:,}, found {arguments.sample_mb}")
    if len(set(arguments.tokenizers)) < len(arguments.tokenizers):
        raise UserError("a tokenizer is given twice; give each once")
    tokenizers = {name: tokenizer_at(Path(name)) for name in arguments.tokenizers}
    groups = _groups(arguments)
    found = measured(tokenizers, groups)
    print(*_aligned([[name, *described_as(tokenizer)] for name, tokenizer in tokenizers.items()]), sep="\n")
    for group in groups:
        print("", group, *_aligned(rows(of(found, group))), sep="\n")
    if arguments.html is not None:
        make_folder(arguments.html.parent)
        with disk_guard(arguments.html, "the page was not written"):
            put_text(arguments.html, comparison_page(tokenizers, found))
        print("", arguments.html, sep="\n")
    return 0


@dataclass(frozen=True)
class _Recipe:
    """The keys that --set may override."""

    read: ReadOptions = field(default_factory=ReadOptions)


def _groups(arguments: argparse.Namespace) -> list[Texts]:
    """Return the texts of the sample in groups.  Raises UserError if there is none."""
    options = configuration.build(_Recipe, configuration.read(None, arguments.set)).read
    dropped: list[Dropped] = []
    language_of = identified_language if find_spec("py3langid") else document_language
    group_of: dict[str, Callable[[RawDocument], str]] = {
        "language": lambda document: language_of(document.text, "en"),
        "input": lambda document: document.place.file,
        "all": lambda document: "all",
    }
    with (
        tempfile.TemporaryDirectory(prefix="ernie-compare-") as folder,
        streams_copied(find_inputs(arguments.input), Path(folder) / "texts") as inputs,
    ):
        texts = sample(inputs, options, int(arguments.sample_mb * 1e6), dropped.append)
        groups = grouped(texts, group_of[arguments.by])
    if dropped:
        first = f"{dropped[0].place}: {dropped[0].detail}"
        warnings.warn(f"{plural(len(dropped), 'record')} could not be used. The first: {first}", Remark, stacklevel=2)
    if not groups:
        raise UserError("there is no text to compare tokenizers on")
    return groups


def _aligned(lines: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join([name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))])
        for name, *cells in lines
    ]
