"""Train a tokenizer on text: a WordPiece or a SentencePiece vocabulary.

Reads what 'ernie data build' reads.  The same text and settings give the same vocabulary.  A large input
is sampled across all its files.

examples:
  ernie tokenizer train --input books/ --vocab-size 30000 --output tok
  ernie tokenizer train --input news.jsonl.gz --kind sentencepiece --vocab-size 16000 --cased --output tok
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from ernie import config as configuration
from ernie.arguments import add_output, add_overwrite, add_quiet, add_set
from ernie.atomic import check_free, disk_guard, partial_folder, put
from ernie.data.raw import Dropped, ReadOptions
from ernie.data.read import Input, find_inputs
from ernie.data.stream_copy import streams_copied
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.text.subword import MODEL_FILE
from ernie.text.tokenizer import SETTINGS_FILE, Tokenizer
from ernie.text.train import train_sentencepiece, train_wordpiece
from ernie.text.wordpiece import VOCABULARY_FILE, WordPiece
from pretrain.corpus.config import MOST_MB
from pretrain.corpus.sample import sample

_PROGRESS_INTERVAL = 5.0  # seconds
_MOST = 100_000_000  # entries: more than any real vocabulary has
SUMMARY = "train a WordPiece or SentencePiece tokenizer on text"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--input",
        nargs="+",
        action="extend",
        required=True,
        metavar="PATH",
        help="files, folders, patterns, addresses, data sets as hf:NAME[:CONFIG][:SPLIT], or - for standard input",
    )
    add_output(parser, "folder to write the tokenizer to")
    parser.add_argument(
        "--kind", choices=("wordpiece", "sentencepiece"), default="wordpiece", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--vocab-size",
        type=int,
        default=30_000,
        metavar="N",
        help="entries, special ones included (default: %(default)s)",
    )
    parser.add_argument(
        "--cased", action="store_true", help="keep upper and lower case apart (default: lower-case all)"
    )
    parser.add_argument(
        "--strip-accents",
        choices=("auto", "yes", "no"),
        default="auto",
        help="of a WordPiece vocabulary; auto: if it lower-cases, except from text where accents are parts of letters, "
        "as in Japanese, Hindi and Thai (default: %(default)s)",
    )
    parser.add_argument(
        "--sample-mb",
        type=float,
        default=100.0,
        metavar="N",
        help="MB of text to learn from at most (default: %(default)s)",
    )
    add_set(parser, "how the input is read, as for 'ernie data build': read.format=tagged, read.fields.text=body")
    add_overwrite(parser, "tokenizer")
    add_quiet(parser, "nothing on standard error")


def main(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    _check_output(arguments)
    if not 0 < arguments.vocab_size <= _MOST or not 0 < arguments.sample_mb <= MOST_MB:
        raise UserError(f"--vocab-size and --sample-mb: expected numbers above 0, at most {_MOST:,} and {MOST_MB:,}")
    if arguments.kind != "wordpiece" and arguments.strip_accents != "auto":
        raise UserError("--strip-accents: only a WordPiece vocabulary strips accents; leave it out")
    options = configuration.build(_Recipe, configuration.read(None, arguments.set)).read
    say = None if arguments.quiet else partial(print, file=sys.stderr, flush=True)
    with streams_copied(find_inputs(arguments.input), arguments.output) as inputs:
        texts = _Texts(inputs, options, int(arguments.sample_mb * 1e6), say)
        try:
            with disk_guard(arguments.output, "the tokenizer was not written"):
                tokenizer = _train(arguments, texts)
        except UserError as error:
            raise UserError("\n".join([str(error), *texts.problems])) from None
    if not arguments.quiet:
        lines = [f"learned from {plural(texts.documents, 'document')}, {texts.bytes / 1e6:.1f} MB", *texts.problems]
        if tokenizer.vocab_size > arguments.vocab_size:
            lines.append(f"special tokens and characters alone need more entries than {arguments.vocab_size:,}")
        elif tokenizer.vocab_size < arguments.vocab_size:
            lines.append(f"this text gives no more entries, though {arguments.vocab_size:,} were asked for")
        if isinstance(tokenizer, WordPiece) and arguments.strip_accents == "auto" and tokenizer.strip_accents is False:
            lines.append(
                "accents are kept, as they are parts of letters here (か is not が); --strip-accents yes strips"
            )
        print(*(f"tokenizer train: {line}" for line in lines), sep="\n", file=sys.stderr)
    print(f"{arguments.output}: {tokenizer.kind}, {tokenizer.vocab_size:,} entries")
    return 0


def _check_output(arguments: argparse.Namespace) -> None:
    own = (SETTINGS_FILE, VOCABULARY_FILE, MODEL_FILE)
    check_free(arguments.output, "tokenizer", SETTINGS_FILE, own, arguments.overwrite)


@dataclass(frozen=True)
class _Recipe:
    """The keys that --set may override."""

    read: ReadOptions = field(default_factory=ReadOptions)


class _Texts:
    """The paragraphs of a sample's documents, counted as they are read; `say` gets a line of progress now and then."""

    def __init__(self, inputs: Sequence[Input], options: ReadOptions, size: int, say: Callable[[str], None] | None):
        self._source = sample(inputs, options, size, self._drop)
        self._say = say
        self.documents = 0
        self.bytes = 0
        self._dropped = self._left_out = 0
        self._first: Dropped | None = None

    @property
    def problems(self) -> list[str]:
        """A sentence about documents that could not be used, and one about what is no document, if there were any."""
        said = []
        if self._first is not None:
            dropped = plural(self._dropped, "document")
            said.append(f"{dropped} could not be used. The first: {self._first.place}: {self._first.detail}")
        if self._left_out:
            said.append(f"{self._left_out:,} records that are no documents, such as redirects, were left out")
        return said

    def _drop(self, item: Dropped) -> None:
        if item.by_kind:
            self._left_out += 1
            return
        self._dropped += 1
        self._first = self._first or item

    def __iter__(self) -> Iterator[str]:
        started = said = time.monotonic()
        for document in self._source:
            self.documents += 1
            self.bytes += len(document.text.encode())
            yield from filter(str.strip, (document.title, *document.text.split("\n")))
            if self._say is not None and (now := time.monotonic()) - said > _PROGRESS_INTERVAL:
                said = now
                self._say(f"tokenizer train: {self.bytes / 1e6:.1f} MB read")
        if self._say is not None and said > started:
            self._say(f"tokenizer train: all {self.bytes / 1e6:.1f} MB read; learning the entries")


def _train(arguments: argparse.Namespace, texts: _Texts) -> Tokenizer:
    """Train in a folder beside the output, so that an error leaves no half-written tokenizer there."""
    train: Callable[..., Tokenizer] = train_sentencepiece
    if arguments.kind == "wordpiece":
        strips = {"auto": None, "yes": True, "no": False}[arguments.strip_accents]
        train = partial(train_wordpiece, strip_accents=strips)
    folder = partial_folder(arguments.output)
    folder.mkdir(parents=True)
    try:
        tokenizer = train(texts, vocab_size=arguments.vocab_size, lowercase=not arguments.cased, folder=folder)
        put(folder, arguments.output, partial(_check_output, arguments))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tokenizer
