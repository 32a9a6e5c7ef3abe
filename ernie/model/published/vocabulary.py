"""The tokenizer of a published checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ernie.errors import UserError
from ernie.model.published.folder import read_json
from ernie.text.engine_file import ENGINE_FILE
from ernie.text.load import load_tokenizer
from ernie.text.tokenizer import SETTINGS_FILE, Tokenizer
from ernie.text.wordpiece import VOCABULARY_FILE


def read_tokenizer(folder: Path, vocab_size: int) -> tuple[Tokenizer | None, list[str]]:
    """The tokenizer in a folder, and a sentence for what differs from its own framework's.

    Raises UserError when it has more tokens than the model, `vocab_size`.
    """
    if not any(list(folder.glob(name)) for name in (VOCABULARY_FILE, "*.model", ENGINE_FILE)):
        return None, [f"holds no vocabulary (neither {VOCABULARY_FILE} nor {ENGINE_FILE}); the model has no tokenizer"]
    tokenizer = load_tokenizer(folder)
    if tokenizer.vocab_size > vocab_size:
        raise UserError(
            f"{folder}: the vocabulary has {tokenizer.vocab_size} tokens, the model only {vocab_size}: they do not "
            "belong together"
        )
    return tokenizer, _differences(folder, tokenizer)


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
