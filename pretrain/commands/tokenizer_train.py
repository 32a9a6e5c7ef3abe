"""Train a tokenizer on text: a WordPiece or a SentencePiece vocabulary.

Reads what 'ernie data build' reads.  The same text and settings give the same vocabulary.  Of a large input a sample is
learned from: the first documents of every file or, with --sampling, documents drawn from all of the text.

examples:
  ernie tokenizer train --input books/ --vocab-size 30000 --output tok
  ernie tokenizer train --input news.jsonl.gz --kind sentencepiece --vocab-size 16000 --cased --output tok
  ernie tokenizer train --input 's3://bucket/**/*.jsonl.gz' --sampling reservoir --seed 1 --output tok
  ernie tokenizer train tokenizer.yaml --set vocab_size=8000 --output tok
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from ernie import config as configuration
from ernie.arguments import add_config, add_output, add_overwrite, add_quiet, add_set
from ernie.atomic import check_free, disk_guard, partial_folder, put
from ernie.data.raw import Dropped
from ernie.data.read import Input, find_inputs
from ernie.data.stream_copy import streams_copied
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.text.subword import MODEL_FILE
from ernie.text.tokenizer import SETTINGS_FILE, Tokenizer
from ernie.text.train import train_sentencepiece, train_wordpiece
from ernie.text.wordpiece import VOCABULARY_FILE, WordPiece
from pretrain.corpus.draw import Draw
from pretrain.corpus.sample import sample
from pretrain.corpus.tokenizer_config import TokenizerConfig

_PROGRESS_INTERVAL = 5.0  # seconds
SUMMARY = "train a WordPiece or SentencePiece tokenizer on text"
_DEFAULTS = {field.name: field.default for field in fields(TokenizerConfig)}
_YES_OR_NO = {"auto": "auto", "yes": True, "no": False}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_config(parser, "YAML file with the settings", optional=True)
    parser.add_argument(
        "--input",
        nargs="+",
        action="extend",
        metavar="PATH",
        help="files, folders, patterns, addresses, data sets as hf:NAME[:CONFIG][:SPLIT], or - for standard input",
    )
    add_output(parser, "folder to write the tokenizer to")
    add: Callable[..., object] = partial(_add, parser)
    add("kind", "", choices=("wordpiece", "sentencepiece"))
    add("vocab_size", "entries, special ones included", type=int, metavar="N")
    parser.add_argument(
        "--cased", action="store_true", default=None, help="keep upper and lower case apart (default: lower-case all)"
    )
    add(
        "strip_accents",
        "of a WordPiece vocabulary; auto: if it lower-cases, except from text where accents are parts of letters, as "
        "in Japanese, Hindi and Thai",
        choices=tuple(_YES_OR_NO),
    )
    parser.add_argument(
        "--byte-fallback",
        action="store_true",
        default=None,
        help="a SentencePiece model splits characters that it lacks into bytes (default: they are unknown)",
    )
    parser.add_argument(
        "--user-symbols",
        nargs="+",
        action="extend",
        metavar="SYMBOL",
        help="entries that are kept whole in any text, such as [URL]",
    )
    add("sample_mb", "MB of text to learn from at most", type=float, metavar="N")
    add(
        "sampling",
        "which documents of a larger input: the first of every file; or drawn from all, each alike (reservoir) or by "
        "the hash of its text (hash)",
        choices=("first", "reservoir", "hash"),
    )
    add("seed", "which documents are drawn", type=int, metavar="N")
    add_set(parser, "override a key of the settings: read.format=tagged, read.fields.text=body")
    add_overwrite(parser, "tokenizer")
    add_quiet(parser, "nothing on standard error")


def _add(parser: argparse.ArgumentParser, key: str, help: str, **more: Any) -> None:
    """Add the option of a key, whose default is that of the settings."""
    name = f"--{key.replace('_', '-')}"
    parser.add_argument(name, default=None, help=f"{help} (default: {_DEFAULTS[key]})".lstrip(), **more)


def main(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    _check_output(arguments.output, arguments.overwrite)
    config = _config(arguments)
    say = None if arguments.quiet else partial(print, file=sys.stderr, flush=True)
    with streams_copied(find_inputs(config.input), arguments.output) as inputs:
        texts = _Texts(inputs, config, say)
        try:
            with disk_guard(arguments.output, "the tokenizer was not written"):
                tokenizer = _train(config, texts, arguments.output, arguments.overwrite)
        except UserError as error:
            raise UserError("\n".join([str(error), *texts.problems])) from None
    if not arguments.quiet:
        lines = [texts.summary, *texts.problems]
        if tokenizer.vocab_size > config.vocab_size:
            lines.append(f"special tokens and characters alone need more entries than {config.vocab_size:,}")
        elif tokenizer.vocab_size < config.vocab_size:
            lines.append(f"this text gives no more entries, though {config.vocab_size:,} were asked for")
        if isinstance(tokenizer, WordPiece) and config.strip_accents == "auto" and tokenizer.strip_accents is False:
            lines.append(
                "accents are kept, as they are parts of letters here (か is not が); --strip-accents yes strips"
            )
        print(*(f"tokenizer train: {line}" for line in lines), sep="\n", file=sys.stderr)
    print(f"{arguments.output}: {tokenizer.kind}, {tokenizer.vocab_size:,} entries")
    return 0


def _config(arguments: argparse.Namespace) -> TokenizerConfig:
    """Return the settings: the file's, overridden by the options, then by --set."""
    given = {name: getattr(arguments, name) for name in _DEFAULTS if getattr(arguments, name, None) is not None}
    if "strip_accents" in given:
        given["strip_accents"] = _YES_OR_NO[given["strip_accents"]]
    tree = configuration.read(arguments.config, arguments.set, given)
    if tree.get("input") is None:
        raise UserError("the input is missing: give --input PATH, or the key `input` in a CONFIG")
    return configuration.build(TokenizerConfig, tree)


def _check_output(output: Path, overwrite: bool) -> None:
    check_free(output, "tokenizer", SETTINGS_FILE, (SETTINGS_FILE, VOCABULARY_FILE, MODEL_FILE), overwrite)


class _Texts:
    """The paragraphs of a sample's documents, counted as they are read; `say` gets a line of progress now and then."""

    def __init__(self, inputs: Sequence[Input], config: TokenizerConfig, say: Callable[[str], None] | None):
        size = int(config.sample_mb * 1e6)
        self._config = config
        self._draw: Draw | None = None
        if config.sampling == "first":
            self._source = sample(inputs, config.read, size, self._drop)
        else:
            self._draw = Draw(size, config.sampling, config.seed)
            self._source = self._draw.of(inputs, config.read, self._drop, self._progress)
        self._say = say
        self._documents = self._bytes = 0
        self._dropped = self._left_out = 0
        self._first: Dropped | None = None
        self._started = self._said = time.monotonic()

    @property
    def summary(self) -> str:
        """What was learned from, and how it was chosen if all of the text was read for that."""
        learned = f"learned from {plural(self._documents, 'document')}, {self._bytes / 1e6:.1f} MB"
        if self._draw is None:
            return learned
        read = f"{plural(self._draw.documents, 'document')}, {self._draw.bytes / 1e6:.1f} MB"
        return f"{learned}, of {read} (sampling: {self._config.sampling}, seed {self._config.seed})"

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

    def _progress(self) -> None:
        if self._say is not None and (now := time.monotonic()) - self._said > _PROGRESS_INTERVAL:
            self._said = now
            self._say(f"tokenizer train: {(self._draw.bytes if self._draw else self._bytes) / 1e6:.1f} MB read")

    def __iter__(self) -> Iterator[str]:
        for document in self._source:
            self._documents += 1
            self._bytes += len(document.text.encode())
            yield from filter(str.strip, (document.title, *document.text.split("\n")))
            self._progress()
        if self._say is not None and self._said > self._started:
            self._say(f"tokenizer train: all {self._bytes / 1e6:.1f} MB read; learning the entries")


def _train(config: TokenizerConfig, texts: _Texts, output: Path, overwrite: bool) -> Tokenizer:
    """Train in a folder beside the output, so that an error leaves no half-written tokenizer there."""
    train: Callable[..., Tokenizer] = partial(train_sentencepiece, byte_fallback=config.byte_fallback)
    if config.kind == "wordpiece":
        strips = None if config.strip_accents == "auto" else config.strip_accents
        train = partial(train_wordpiece, strip_accents=strips)
    folder = partial_folder(output)
    folder.mkdir(parents=True)
    try:
        symbols, lowercase = config.user_symbols, not config.cased
        tokenizer = train(texts, vocab_size=config.vocab_size, lowercase=lowercase, folder=folder, user_symbols=symbols)
        put(folder, output, partial(_check_output, output, overwrite))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tokenizer
