"""The texts that a build keeps and drops, as JSON lines beside the corpus."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import zstandard

from ernie.atomic import disk_guard, make_folder, replacing
from ernie.data import remote
from ernie.data.compressed import COMPRESSIONS, compression
from ernie.data.raw import SPAN_KINDS, Dropped, RawDocument
from ernie.data.remote import Address
from ernie.data.work_folder import WorkFolder
from ernie.errors import UserError, about

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
            if not file.lower().removesuffix(compression(file)).endswith(".jsonl"):
                ends = ", ".join(f".jsonl{suffix}" for suffix in COMPRESSIONS)
                raise UserError(f"{name}: expected a name that ends in .jsonl, or {ends}; found '{file}'")
        if len(self.files) == 2 and _place(self.files["kept"]) == _place(self.files["dropped"]):
            raise UserError(f"dropped: {self.kept} is the file of the kept texts; give another one")

    @property
    def files(self) -> dict[str, str]:
        """The files that are wanted, by what they hold."""
        return {name: file for name, file in (("kept", self.kept), ("dropped", self.dropped)) if file is not None}

    def check(self, output: str | Path, given: Sequence[str], inputs: Sequence[str], overwrite: bool) -> None:
        """Raise UserError for a file that cannot be written, or would be lost or read as text.

        `given` are the files, folders and patterns of the recipe, `inputs` the names of what is read.
        """
        for name, file in self.files.items():
            with about(f"texts.{name}: {file}"):
                place = _place(file)
                if _is_in(place, _place(str(output))):
                    raise UserError("lies in the corpus, which is replaced; give a place beside it")
                if place in map(_place, inputs) or any(_may_be_read(place, each) for each in given):
                    raise UserError("is read as text, or would be by the next build; give another place")
                _check_writable(place, overwrite)

    def packed(self, name: str, rows: Sequence[dict[str, Any]]) -> bytes:
        """Return rows as they are in a file."""
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        return _PACKED[compression(self.files[name])](lines.encode("utf-8", "replace")) if rows else b""

    def export(self, work: WorkFolder) -> None:
        """Copy the complete files to their places; after an error none is there that was not before."""
        done: list[Path | Address] = []
        try:
            for name, file in self.files.items():
                with about(f"texts.{name}: {file}"):
                    place, made = _place(file), work.path / name
                    if not made.stat().st_size:
                        work.file(name).write(_PACKED[compression(file)](b""))
                    _copy(made, place)
                    done.append(place)
        except BaseException:
            for place in done:
                remote.delete(place) if isinstance(place, Address) else place.unlink(missing_ok=True)
            raise


def _place(file: str) -> Path | Address:
    """Return where a file is: an address, or an absolute path."""
    address = remote.address_of(file)
    if address is None:
        return Path(file).resolve()
    local = remote.local_path(address)
    return address if local is None else local.resolve()


def _is_in(place: Path | Address, folder: Path | Address) -> bool:
    if isinstance(place, Address) and isinstance(folder, Address):
        return f"{place.url}/".startswith(f"{folder.url.rstrip('/')}/")
    return isinstance(place, Path) and isinstance(folder, Path) and folder in place.parents


def _may_be_read(place: Path | Address, given: str) -> bool:
    """Whether a file lies in a folder that is read, or is meant by a pattern."""
    folder = _place(given)
    if isinstance(place, Path) and isinstance(folder, Path):
        return (folder.is_dir() and folder in place.parents) or fnmatch(str(place), str(folder))
    return _is_in(place, folder)


def _check_writable(place: Path | Address, overwrite: bool) -> None:
    if isinstance(place, Address):
        if remote.sizes_below(place):
            if not overwrite:
                raise UserError("exists. Give --overwrite to replace it, or another name")
            return
        remote.write_text("", place)
        remote.delete(place)
        return
    if place.exists() and (not overwrite or not place.is_file()):
        raise UserError("exists. Give --overwrite to replace it, or another name")
    folder = make_folder(place.parent)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError("may not be written: permission denied")


def _copy(made: Path, place: Path | Address) -> None:
    if isinstance(place, Address):
        remote.write(made, place)
        return
    try:
        with disk_guard(place, "the texts were not written"), replacing(place) as partial:
            shutil.copyfile(made, partial)
    except PermissionError as error:
        raise UserError(f"may not be written: {error.strerror}") from None


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
