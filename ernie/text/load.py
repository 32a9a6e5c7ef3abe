"""Loading of tokenizers of any kind from a folder or file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ernie.errors import UserError
from ernie.saved import read_json
from ernie.text.engine_file import ENGINE_FILE, read_engine_file
from ernie.text.subword import MODEL_FILE, SentencePiece
from ernie.text.tokenizer import SETTINGS_FILE, Tokenizer
from ernie.text.wordpiece import VOCABULARY_FILE, WordPiece


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a tokenizer from a folder, a `vocab.txt`, a SentencePiece `.model` file or a `tokenizer.json`.

    A folder may be one that `Tokenizer.save` wrote, or that of a published checkpoint.  Whether a WordPiece vocabulary
    lower-cases is read from `do_lower_case` in the folder's tokenizer_config.json; without that key, a vocabulary
    without capitals does.  Raises UserError, naming the files it looked for, if there is no tokenizer.
    """
    path = Path(path)
    file = _find(path) if path.is_dir() else path
    if not file.exists():
        raise UserError(f"{path}: there is no such tokenizer folder or file. Make one with 'ernie tokenizer train'.")
    if file.suffix == ".model":
        return SentencePiece.read(file)
    lowercase = _settings(file.parent).get("do_lower_case")
    if file.name == ENGINE_FILE:
        return read_engine_file(file, lowercase)
    return WordPiece.read(file, lowercase)


def _find(folder: Path) -> Path:
    """Return the vocabulary or model file in a folder or, if it has neither, the `tokenizers` library's file.

    If it has both, as when one tokenizer was saved over another, it is the file of the last one.
    """
    found = [folder / name for name in (VOCABULARY_FILE, MODEL_FILE) if (folder / name).is_file()]
    if len(found) == 2 and _read_settings(folder).get("kind") == SentencePiece.kind:
        return found[1]
    if found:
        return found[0]
    models = sorted(folder.glob("*.model"))
    if len(models) == 1:
        return models[0]
    if (folder / ENGINE_FILE).is_file():
        return folder / ENGINE_FILE
    names = f"neither a {VOCABULARY_FILE} nor one .model file nor a {ENGINE_FILE}"
    raise UserError(f"{folder}: holds no tokenizer: there is {names} in it")


def _read_settings(folder: Path) -> dict[str, Any]:
    path = folder / SETTINGS_FILE
    if not path.is_file():
        return {}
    return read_json(path, {}, "The tokenizer's folder is damaged; fetch it or train it again.")


def _settings(folder: Path) -> dict[str, Any]:
    path, settings = folder / SETTINGS_FILE, _read_settings(folder)
    if not isinstance(settings.get("do_lower_case", True), bool):
        raise UserError(f"{path}: do_lower_case: expected true or false")
    if settings.get("strip_accents") not in (None, settings.get("do_lower_case", True)):
        raise UserError(
            f"{path}: strip_accents: accents are stripped exactly if text is lower-cased; no other setting is supported"
        )
    if (
        settings.get("tokenize_chinese_chars", True) is not True
        or settings.get("word_tokenizer_type", "basic") != "basic"
    ):
        raise UserError(
            f"{path}: tokenize_chinese_chars, word_tokenizer_type: text is split into words as BERT's is, with "
            "every Chinese character apart; no other setting is supported"
        )
    return settings
