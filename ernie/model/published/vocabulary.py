"""Loading the tokenizer of a published checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ernie.errors import UserError
from ernie.model.published.folder import read_object
from ernie.report.words import plural
from ernie.saved import check_not_lfs_pointer
from ernie.text.engine_file import ENGINE_FILE
from ernie.text.load import load_tokenizer
from ernie.text.tokenizer import SETTINGS_FILE, Tokenizer
from ernie.text.wordpiece import VOCABULARY_FILE

CONFIG_FILE, ADDED_FILE = "config.json", "added_tokens.json"
_KINDS = ("", "BertTokenizer", "ErnieTokenizer", "ErnieMTokenizer", "PreTrainedTokenizer")
_SHOWN = 3


def read_tokenizer(folder: Path, vocab_size: int) -> tuple[Tokenizer | None, list[str]]:
    """Load the tokenizer in a folder; return it, and notes on differences from that of its own framework.

    One that this library does not have is noted, too: the weights are of use without it.  Raises UserError when it has
    more tokens than the model's `vocab_size`, or its file was not downloaded.
    """
    files = [file for name in (VOCABULARY_FILE, "*.model", ENGINE_FILE) for file in folder.glob(name)]
    for file in files:
        check_not_lfs_pointer(file)
    if not files:
        return None, [f"holds no vocabulary (neither {VOCABULARY_FILE} nor {ENGINE_FILE}); the model has no tokenizer"]
    try:
        tokenizer = load_tokenizer(folder)
    except UserError as error:
        return None, [f"its tokenizer cannot be used, and the model has none ({error})"]
    if tokenizer.vocab_size > vocab_size:
        raise UserError(
            f"{folder}: the vocabulary has {tokenizer.vocab_size} tokens, the model only {vocab_size}: they do not "
            "belong together"
        )
    return tokenizer, _differences(folder, tokenizer)


def _differences(folder: Path, tokenizer: Tokenizer) -> list[str]:
    """Return notes on settings that our WordPiece tokenizer does not support."""
    settings = _settings(folder / SETTINGS_FILE)
    notes = []
    kind = str(settings.get("tokenizer_class") or _settings(folder / CONFIG_FILE).get("tokenizer_class") or "")
    words = settings.get("word_tokenizer_type", "basic")
    if kind.removesuffix("Fast") not in _KINDS or words != "basic":
        notes.append(f"its tokenizer is a {kind or words}, which splits text into words in another way than ours")
    if extra := _added(folder, tokenizer):
        shown = ", ".join(extra[:_SHOWN]) + (", ..." if len(extra) > _SHOWN else "")
        notes.append(f"its tokenizer has {plural(len(extra), 'more token')} ({shown}), which ours does not know")
    if settings.get("tokenize_chinese_chars", True) is False:
        notes.append("its tokenizer leaves Chinese characters in words; here each stands alone")
    if settings.get("do_basic_tokenize", True) is False:
        notes.append("its tokenizer does not part words from punctuation (do_basic_tokenize is false); ours does")
    return notes


def _settings(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}


def _added(folder: Path, tokenizer: Tokenizer) -> list[str]:
    """Return the tokens that were added after the end of a vocabulary."""
    added = [str(token) for token in _settings(folder / ADDED_FILE)]
    by_id = _settings(folder / SETTINGS_FILE).get("added_tokens_decoder")
    listed = _settings(folder / ENGINE_FILE).get("added_tokens")
    descriptions = list(by_id.values()) if isinstance(by_id, dict) else []
    descriptions += listed if isinstance(listed, list) else []
    added += [str(token.get("content")) for token in descriptions if isinstance(token, dict)]
    known = set(tokenizer.tokens)
    return [token for token in dict.fromkeys(added) if token not in known]
