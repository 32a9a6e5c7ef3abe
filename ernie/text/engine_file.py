"""The `tokenizer.json` of the `tokenizers` library, which published folders have beside or instead of `vocab.txt`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ernie.errors import UserError
from ernie.json_file import read_json

ENGINE_FILE = "tokenizer.json"
_USUAL = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}  # of BERT's WordPiece


@dataclass(frozen=True)
class EngineFile:
    """The contents of such a file: the id of each token, the normalizer's settings, the list of added tokens.

    `unknown` is the token for words that the vocabulary cannot spell.
    """

    path: Path
    ids: dict[str, int]
    lowercase: bool
    strip_accents: bool | None
    tokenize_chinese_chars: bool
    added: Any
    unknown: Any

    @property
    def tokens(self) -> list[str]:
        """The vocabulary in id order.  Raises UserError if there are ids without a token."""
        tokens = sorted(self.ids, key=self.ids.__getitem__)
        if [self.ids[token] for token in tokens] != list(range(len(tokens))):
            raise UserError(f"{self.path}: its ids are not the numbers from 0 to {len(tokens) - 1}")
        return tokens


def read_engine_file(path: Path) -> EngineFile:
    """Read the file of a WordPiece tokenizer.

    Raises UserError when the file is damaged or holds another kind of tokenizer.
    """
    data = read_json(path, {}, "The folder is damaged; fetch it again.")
    model = data.get("model")
    if not isinstance(model, dict) or model.get("type", "WordPiece") != "WordPiece" or "vocab" not in model:
        raise UserError(f"{path}: is not a WordPiece tokenizer; no other kind can be read from a {ENGINE_FILE}")
    ids = model["vocab"]
    if not isinstance(ids, dict) or not all(isinstance(number, int) for number in ids.values()):
        raise UserError(f"{path}: its vocabulary does not name the id of each token")
    for key, usual in _USUAL.items():
        if (found := model.get(key, usual)) != usual:
            raise UserError(
                f"{path}: its {key} is {found!r}, that of BERT's {usual!r}; only such tokenizers can be read"
            )
    normalizer: Any = data.get("normalizer", {"lowercase": False})
    as_bert = _is_of(normalizer, "BertNormalizer") and normalizer.get("clean_text", True) is not False
    if not as_bert or not _is_of(data.get("pre_tokenizer", {}), "BertPreTokenizer"):
        raise UserError(f"{path}: does not normalize and split text as BERT's does; only such tokenizers can be read")
    accents = normalizer.get("strip_accents")
    return EngineFile(
        path=path,
        ids=ids,
        lowercase=bool(normalizer.get("lowercase", True)),
        strip_accents=accents if isinstance(accents, bool) else None,
        tokenize_chinese_chars=normalizer.get("handle_chinese_chars", True) is not False,
        added=data.get("added_tokens"),
        unknown=model.get("unk_token"),
    )


def _is_of(part: Any, kind: str) -> bool:
    return isinstance(part, dict) and part.get("type", kind) == kind
