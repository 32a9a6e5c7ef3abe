"""The texts that a build keeps and drops, as JSON lines beside the corpus."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from ernie.atomic import make_folder, replacing
from ernie.data import remote
from ernie.data.compressed import COMPRESSIONS, compression
from ernie.data.raw import SPAN_KINDS, Dropped, RawDocument
from ernie.data.work_folder import WorkFolder
from ernie.errors import UserError

# Compressed content may follow compressed content in all of these.
_PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda content: gzip.compress(content, 6, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: zstandard.ZstdCompressor().compress(content),
}


@dataclass(frozen=True)
class TextsConfig:
    """Files for the texts of a build: those that are `kept`, as the filters leave them, and those that are `dropped`.

    Each is JSON lines, compressed by its name (.jsonl, .jsonl.gz, .jsonl.zst), and may be at an address.
    """

    kept: str | None = None
    dropped: str | None = None

    def __post_init__(self) -> None:
        for name, file in self.files.items():
            if not file.removesuffix(compression(file)).endswith(".jsonl"):
                ends = ", ".join(f".jsonl{suffix}" for suffix in COMPRESSIONS)
                raise UserError(f"{name}: expected a name that ends in .jsonl, or {ends}; found '{file}'")
        if self.kept is not None and self.kept == self.dropped:
            raise UserError(f"dropped: {self.kept} is the file of the kept texts; give another one")

    @property
    def files(self) -> dict[str, str]:
        """The files that are wanted, by what they hold."""
        return {name: file for name, file in (("kept", self.kept), ("dropped", self.dropped)) if file is not None}

    def check(self, output: Path, overwrite: bool) -> None:
        """Raise UserError for a file that exists, unless it may be overwritten, or lies in the corpus."""
        for name, file in self.files.items():
            if (address := remote.address_of(file)) is not None:
                if not overwrite and remote.sizes_below(address):
                    raise UserError(f"texts.{name}: {address} exists. Give --overwrite to replace it, or another name")
                continue
            path = Path(file)
            if output.resolve() in path.resolve().parents:
                raise UserError(f"texts.{name}: {file} lies in the corpus, which is replaced; give a place beside it")
            if path.exists() and (not overwrite or not path.is_file()):
                raise UserError(f"texts.{name}: {file} exists. Give --overwrite to replace it, or another name")

    def packed(self, name: str, rows: Sequence[dict[str, Any]]) -> bytes:
        """Return rows as they are in a file."""
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        return _PACKED[compression(self.files[name])](lines.encode("utf-8", "replace")) if rows else b""

    def export(self, work: WorkFolder) -> None:
        """Move the complete files to their places."""
        for name, file in self.files.items():
            made = work.release(name)
            if (address := remote.address_of(file)) is not None:
                remote.write(made, address)
                made.unlink()
                continue
            make_folder(Path(file).parent)
            with replacing(Path(file)) as partial:
                shutil.move(made, partial)


def kept_row(document: RawDocument, language: str) -> dict[str, Any]:
    """Return the row of a document, from which reading makes it again."""
    row: dict[str, Any] = {"text": document.text, "source": str(document.place), "language": language}
    if document.title:
        row["title"] = document.title
    if document.url:
        row["url"] = document.url
    if document.headings:
        row["headings"] = sorted(document.headings)
    if document.spans is not None:
        row["spans"] = [[start, end, SPAN_KINDS[kind]] for start, end, kind in document.spans.tolist()]
    return row


def dropped_row(item: RawDocument | Dropped, dropped: Dropped) -> dict[str, Any]:
    """Return the row of a document as it was read, without a text if it could not be, and why it is dropped."""
    row: dict[str, Any] = {"reason": dropped.reason, "detail": dropped.detail, "source": str(dropped.place)}
    if isinstance(item, RawDocument):
        row |= {"text": item.text}
        row |= {name: found for name, found in (("title", item.title), ("url", item.url)) if found}
    return row
