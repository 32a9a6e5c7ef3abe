"""The index of a corpus, corpus.json: its schema and how to read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ernie.config import ConfigError, build, from_dict
from ernie.errors import UserError
from ernie.json_file import read_json

FORMAT = 1
_REBUILD = "The corpus cannot be used: rebuild it with 'ernie data build'."


@dataclass(frozen=True)
class _FileEntry:
    bytes: int
    sha256: str


@dataclass(frozen=True)
class _ShardEntry:
    documents: int
    sentences: int
    tokens: int


@dataclass(frozen=True)
class _TokenizerEntry:
    fingerprint: str
    vocab_size: int


@dataclass(frozen=True)
class _Splits:
    train: list[_ShardEntry]
    held_out: list[_ShardEntry]


@dataclass(frozen=True)
class _Index:
    """The schema of corpus.json, which `read_index` validates against."""

    format: int
    language: str
    tokenizer: _TokenizerEntry
    splits: _Splits
    report: dict[str, Any]
    files: dict[str, _FileEntry]
    recipe: dict[str, Any] = field(default_factory=dict)  # earlier corpora lack it


def read_index(folder: Path) -> dict[str, Any]:
    """Read the index of the corpus in `folder`.  Raises UserError when there is none that this version can read."""
    path = folder / "corpus.json"
    if not path.is_file():
        raise UserError(
            f"{folder}: is not a corpus: it holds no corpus.json. Make one with 'ernie data build --output {folder}'."
        )
    index = read_json(path, {"format": (int,)}, _REBUILD)
    if index["format"] != FORMAT:
        raise damaged(path, f"is of corpus format {index['format']}, this version reads {FORMAT}")
    try:
        build(_Index, from_dict(index, str(path)))
    except ConfigError as error:
        raise UserError(f"{error}\n{_REBUILD}") from None
    return index


def damaged(path: Path, what: str) -> UserError:
    """Return the error for a corrupted or modified file of a corpus."""
    return UserError(f"{path}: {what}. {_REBUILD}")
