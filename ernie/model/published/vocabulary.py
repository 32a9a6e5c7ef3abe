"""Loading the tokenizer of a published checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ernie.errors import UserError
from ernie.json_file import check_regular
from ernie.model.pretrained import TOKENIZER_FOLDER
from ernie.model.published.formats import read_object
from ernie.text.engine_file import ENGINE_FILE
from ernie.text.load import read_tokenizer_files
from ernie.text.tokenizer import SETTINGS_FILE, Tokenizer
from ernie.text.wordpiece import VOCABULARY_FILE

CONFIG_FILE = "config.json"
_MOST_BYTES, _MOST_PER_TOKEN = 16 << 20, 1024  # bytes of a vocabulary's file, and of it for each token
_KINDS = ("", "BertTokenizer", "ErnieTokenizer", "ErnieMTokenizer", "PreTrainedTokenizer")


def read_tokenizer(folder: Path, vocab_size: int) -> tuple[Tokenizer | None, list[str]]:
    """Load the tokenizer in a folder; return it, and notes on differences from that of its own framework.

    One that this library does not have is noted, too: the weights are of use without it.  Raises UserError when it has
    more tokens than the model's `vocab_size`, or its file was not downloaded.
    """
    if (own := folder / TOKENIZER_FOLDER).is_dir() and not check_tokenizer_files(folder, vocab_size):
        folder = own  # where a tokenizer that the format does not have is written
    if not check_tokenizer_files(folder, vocab_size):
        return None, [f"holds no vocabulary (neither {VOCABULARY_FILE} nor {ENGINE_FILE}); the model has no tokenizer"]
    try:
        tokenizer, notes = read_tokenizer_files(folder, vocab_size)
    except UserError as error:
        return None, [f"its tokenizer cannot be used, and the model has none ({error})"]
    if tokenizer.vocab_size > vocab_size:
        raise UserError(
            f"{folder}: the vocabulary has {tokenizer.vocab_size} tokens, the model only {vocab_size}: they do not "
            "belong together"
        )
    return tokenizer, notes + _differences(folder)


def check_tokenizer_files(folder: Path, vocab_size: int) -> bool:
    """Return whether a folder has a tokenizer's files.

    Raises UserError for one that was not downloaded, or is far too large for a model's `vocab_size`, before it is read.
    """
    files = [file for name in (VOCABULARY_FILE, "*.model", ENGINE_FILE) for file in folder.glob(name)]
    most = _MOST_BYTES + _MOST_PER_TOKEN * vocab_size
    for file in files:
        check_regular(file)
        if (size := file.stat().st_size) > most:
            raise UserError(f"{file}: has {size:,} bytes; a vocabulary of {vocab_size:,} tokens has at most {most:,}")
    return bool(files)


def _differences(folder: Path) -> list[str]:
    """Return notes on settings that our WordPiece tokenizer does not support."""
    settings = _settings(folder / SETTINGS_FILE)
    notes = []
    kind = str(settings.get("tokenizer_class") or _settings(folder / CONFIG_FILE).get("tokenizer_class") or "")
    words = settings.get("word_tokenizer_type", "basic")
    if kind.removesuffix("Fast") not in _KINDS or words != "basic":
        notes.append(f"its tokenizer is a {kind or words}, which splits text into words in another way than ours")
    if settings.get("do_basic_tokenize", True) is False:
        notes.append("its tokenizer does not part words from punctuation (do_basic_tokenize is false); ours does")
    return notes


def _settings(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}
