"""The tokenizer of a published checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ernie.errors import UserError
from ernie.model.published.folder import read_json
from ernie.text.load import load_tokenizer
from ernie.text.tokenizer import SETTINGS_FILE, Tokenizer
from ernie.text.wordpiece import VOCABULARY_FILE, WordPiece

_ENGINE_FILE = "tokenizer.json"  # of the `tokenizers` library; newer folders have it alone


def read_tokenizer(folder: Path, vocab_size: int) -> tuple[Tokenizer | None, list[str]]:
    """The tokenizer in a folder, and a sentence for what differs from its own framework's.

    Raises UserError when it has more tokens than the model, `vocab_size`.
    """
    if (folder / VOCABULARY_FILE).is_file() or list(folder.glob("*.model")):
        tokenizer = load_tokenizer(folder)
    elif (folder / _ENGINE_FILE).is_file():
        tokenizer = _from_engine_file(folder / _ENGINE_FILE)
    else:
        return None, [f"holds no vocabulary (neither {VOCABULARY_FILE} nor {_ENGINE_FILE}); the model has no tokenizer"]
    if tokenizer.vocab_size > vocab_size:
        raise UserError(
            f"{folder}: the vocabulary has {tokenizer.vocab_size} tokens, the model only {vocab_size}: they do not "
            "belong together"
        )
    return tokenizer, _differences(folder, tokenizer)


def _from_engine_file(path: Path) -> Tokenizer:
    data = read_json(path)
    model, normalizer = data.get("model") or {}, data.get("normalizer") or {}
    if model.get("type", "WordPiece") != "WordPiece" or not isinstance(model.get("vocab"), dict):
        raise UserError(f"{path}: is no WordPiece tokenizer; only such ones can be read from a tokenizer.json")
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    if [model["vocab"][token] for token in tokens] != list(range(len(tokens))):
        raise UserError(f"{path}: its ids are not the numbers from 0 to {len(tokens) - 1}")
    try:
        return WordPiece(tokens, bool(normalizer.get("lowercase", True)))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _differences(folder: Path, tokenizer: Tokenizer) -> list[str]:
    """Settings of the WordPiece tokenizers that ours does not have."""
    path = folder / SETTINGS_FILE
    settings: dict[str, Any] = read_json(path) if path.is_file() else {}
    notes = []
    if settings.get("tokenize_chinese_chars", True) is False:
        notes.append("its tokenizer leaves Chinese characters in words; here each stands alone")
    if settings.get("strip_accents") not in (None, tokenizer.lowercase):
        notes.append("its tokenizer's strip_accents differs from its lower-casing; here they go together")
    return notes
