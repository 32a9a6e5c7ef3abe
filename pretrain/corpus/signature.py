"""The signature of a build, by which an interrupted one is known again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ernie import __version__
from ernie.data import parts
from ernie.data.read import Input
from ernie.text.tokenizer import Tokenizer
from pretrain.corpus.config import CorpusConfig

_LONGEST = 1000  # characters of a file's name


def signature_of(config: CorpusConfig, inputs: Sequence[Input], tokenizer: Tokenizer) -> str:
    """Return a hash of what decides the content of a corpus: recipe, tokenizer, inputs, and the version of ernie.

    Of the inputs, and of files that the recipe names, it has the size and the time of the last change.
    """
    recipe = config.settings()
    named = [(path, path.stat().st_size, path.stat().st_mtime_ns) for path in _files(recipe)]
    digest = hashlib.sha256()
    for what in (__version__, parts.PART, recipe, config.texts, named, tokenizer.fingerprint, *inputs):
        digest.update(repr(what).encode(errors="replace"))
    return digest.hexdigest()


def _files(value: object) -> Iterator[Path]:
    """Yield the files that the settings of a recipe name."""
    if isinstance(value, str) and 0 < len(value) < _LONGEST and "\0" not in value and Path(value).is_file():
        yield Path(value)
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _files(item)
