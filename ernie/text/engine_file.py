"""The `tokenizer.json` of the `tokenizers` library, which newer published checkpoints have instead of a `vocab.txt`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ernie.errors import UserError, about
from ernie.saved import read_json
from ernie.text.wordpiece import WordPiece

ENGINE_FILE = "tokenizer.json"


def read_engine_file(path: Path, lowercase: bool | None = None) -> WordPiece:
    """Read a WordPiece tokenizer; `lowercase` overrides the file's setting.

    Raises UserError when the file is damaged or holds another kind of tokenizer.
    """
    data = read_json(path, {}, "The folder is damaged; fetch it again.")
    model = data.get("model")
    if not isinstance(model, dict) or model.get("type", "WordPiece") != "WordPiece" or "vocab" not in model:
        raise UserError(f"{path}: is not a WordPiece tokenizer; no other kind can be read from a {ENGINE_FILE}")
    ids = model["vocab"]
    if not isinstance(ids, dict) or not all(isinstance(number, int) for number in ids.values()):
        raise UserError(f"{path}: its vocabulary does not name the id of each token")
    tokens = sorted(ids, key=ids.get)  # type: ignore[arg-type]
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise UserError(f"{path}: its ids are not the numbers from 0 to {len(tokens) - 1}")
    normalizer: Any = data.get("normalizer", {"lowercase": False})
    if not _is_of(normalizer, "BertNormalizer") or not _is_of(data.get("pre_tokenizer", {}), "BertPreTokenizer"):
        raise UserError(f"{path}: does not normalize and split text as BERT's does; only such tokenizers can be read")
    if normalizer.get("handle_chinese_chars", True) is False:
        raise UserError(
            f"{path}: handle_chinese_chars: every Chinese character is a word of its own; false is not supported"
        )
    if lowercase is None:
        lowercase = bool(normalizer.get("lowercase", True))
    if normalizer.get("strip_accents") not in (None, lowercase):
        raise UserError(
            f"{path}: strip_accents: accents are stripped exactly if text is lower-cased; no other setting is supported"
        )
    with about(path):
        return WordPiece(tokens, lowercase)


def _is_of(part: Any, kind: str) -> bool:
    return isinstance(part, dict) and part.get("type", kind) == kind
