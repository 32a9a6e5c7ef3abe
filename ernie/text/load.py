"""Tokenizers from and to folders, whichever kind they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ernie.errors import UserError
from ernie.text.subword import MODEL_FILE, SentencePiece
from ernie.text.tokenizer import SETTINGS_FILE, Tokenizer
from ernie.text.wordpiece import VOCABULARY_FILE, WordPiece


def load_tokenizer(path: str | Path, lowercase: bool | None = None) -> Tokenizer:
    """Load a tokenizer from a folder, a `vocab.txt` or a SentencePiece `.model` file.

    A folder may be one that `Tokenizer.save` wrote, or that of a published checkpoint.  `lowercase` decides for a
    WordPiece vocabulary whose folder does not say (`do_lower_case` in tokenizer_config.json); left out, it does.
    Raises UserError that says what was looked for.
    """
    path = Path(path)
    if path.is_dir():
        settings = _settings(path)
        if (path / VOCABULARY_FILE).is_file():
            told = settings.get("do_lower_case")
            return WordPiece.read(path / VOCABULARY_FILE, _choose(lowercase, told))
        models = [path / MODEL_FILE] if (path / MODEL_FILE).is_file() else sorted(path.glob("*.model"))
        if len(models) == 1:
            return SentencePiece.read(models[0])
        raise UserError(f"{path}: holds no tokenizer: there is neither a {VOCABULARY_FILE} nor one .model file in it")
    if not path.exists():
        raise UserError(f"{path}: there is no such tokenizer folder or file. Make one with 'ernie tokenizer train'.")
    if path.suffix == ".model":
        return SentencePiece.read(path)
    return WordPiece.read(path, _choose(lowercase, _settings(path.parent).get("do_lower_case")))


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / SETTINGS_FILE
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise UserError(f"{path}: is not readable JSON") from None


def _choose(asked: bool | None, told: bool | None) -> bool:
    if asked is not None:
        return asked
    return True if told is None else told
