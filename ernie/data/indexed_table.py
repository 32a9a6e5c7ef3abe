"""Random access to the rows of a labeled file: tab-separated with a header line, or JSON lines."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from ernie.data.labeled.lines import as_row
from ernie.data.labeled.row import Fault, spelled
from ernie.data.raw import Place
from ernie.errors import UserError, about, nearest
from ernie.formatting import plural

_BLOCK = 1 << 20  # bytes scanned at a time
_BLANK = (b"\n", b"\r\n")
_ENOUGH = 10  # distinct texts from which on at least one is held out


class Table(Sequence[dict[str, str]]):
    """The rows of a `.tsv` or `.jsonl` file as dictionaries of text.

    Only the offset of each row and, after a split, a hash of each row are held in memory.  A header that lacks a
    `required` column raises UserError at once; a row that lacks one, or cannot be read, raises it with its line number
    when accessed.  Rows that agree in the columns `by` (default: all required ones) fall on the same side of a split.
    """

    def __init__(self, path: Path, required: Sequence[str], by: Sequence[str] = ()):
        self.path = path
        self._required = tuple(required)
        self._by = tuple(by) or self._required
        self._json = path.suffix == ".jsonl"
        if not self._json and path.suffix != ".tsv":
            raise UserError(f"{path}: expected a file that ends in .tsv or .jsonl")
        # Of each row, how many lines precede it and at which byte it starts; blank lines are no rows.
        self._lines, self._starts = self._index()
        self._columns = self._header()

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, i: int) -> dict[str, str]:  # type: ignore[override]
        if not 0 <= i < len(self):
            raise IndexError(i)
        with self.path.open("rb") as file:
            file.seek(int(self._starts[i]))
            return self._parse(i, file.readline())

    def __iter__(self) -> Iterator[dict[str, str]]:
        with self.path.open("rb") as file:
            if not self._json:
                file.readline()
            yield from map(self._parse, range(len(self)), (line for line in file if line not in _BLANK))

    def rows(self, held_out: bool, fraction: float = 0.1) -> Rows:
        """Return the rows on one side of a split by the hash of each row's text.

        The first call reads the whole file.
        """
        return Rows(self, np.flatnonzero(are_held_out(self._hashes, fraction) == held_out))

    @cached_property
    def _hashes(self) -> np.ndarray:
        """A 32-bit hash of the `by` columns of each row."""
        texts = ("\x1f".join(row[column] for column in self._by) for row in self)
        return np.array([hash_of(text) for text in texts], np.uint32)

    def place(self, i: int) -> Place:
        """Return the file and line of row `i`."""
        return Place(str(self.path), int(self._lines[i]) + 1)

    def _parse(self, i: int, raw: bytes) -> dict[str, str]:
        place = self.place(i)
        try:
            raw = raw if self._lines[i] else raw.removeprefix(codecs.BOM_UTF8)
            text = raw.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise UserError(f"{place}: is not UTF-8 text; save the file as UTF-8") from None
        return self._parse_json(text, place) if self._json else self._parse_tsv(text, place)

    def _index(self) -> tuple[np.ndarray, np.ndarray]:
        try:
            content = np.memmap(self.path, dtype=np.uint8, mode="r")
        except FileNotFoundError:
            raise UserError(f"{self.path}: there is no such file") from None
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror}") from None
        except ValueError:
            raise UserError(f"{self.path}: is empty") from None
        blocks = range(0, len(content), _BLOCK)
        ends = [np.flatnonzero(content[at : at + _BLOCK] == ord("\n")) + at + 1 for at in blocks]
        starts = np.concatenate(([0], *ends))
        starts = starts[:-1] if starts[-1] == len(content) else starts
        sizes = np.diff(starts, append=len(content))
        is_row = sizes > max(map(len, _BLANK))
        for line in np.flatnonzero(~is_row).tolist():
            is_row[line] = bytes(content[starts[line] : starts[line] + sizes[line]]) not in _BLANK
        lines = np.flatnonzero(is_row)
        lines = lines if self._json else lines[lines > 0]
        return lines, starts[lines]

    def _header(self) -> list[str]:
        if self._json:
            return []
        with self.path.open("rb") as file:
            raw = file.readline()
        try:
            columns = raw.decode("utf-8-sig").rstrip("\r\n").split("\t")
        except UnicodeDecodeError:
            raise UserError(f"{self.path}:1: is not UTF-8 text; save the file as UTF-8") from None
        for name in self._required:
            if name not in columns:
                raise UserError(f"{self.path}:1: there is no column '{name}'.{nearest(name, columns)}")
            if columns.count(name) > 1:
                raise UserError(f"{self.path}:1: the column '{name}' appears twice")
        return columns

    def _parse_tsv(self, text: str, place: Place) -> dict[str, str]:
        cells = text.split("\t")
        if len(cells) != len(self._columns):
            raise UserError(f"{place}: has {plural(len(cells), 'cell')}, the header has {len(self._columns)}")
        return dict(zip(self._columns, cells, strict=True))

    def _parse_json(self, text: str, place: Place) -> dict[str, str]:
        row = as_row(text, place)
        if isinstance(row, Fault):
            raise UserError(str(row))
        with about(place):
            needed = {name: row.text(name) for name in self._required}
        return {**{name: spelled(cell) for name, cell in row.items()}, **needed}


def hash_of(text: str, size: int = 4) -> int:
    """Return a hash of a text as an integer of `size` bytes; splits of rows and queries depend on it."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest(), "little")


def are_held_out(hashes: np.ndarray, fraction: float = 0.1) -> np.ndarray:
    """Return which texts are held out, by their `hash_of`: about a `fraction`, and at least one of ten distinct texts.

    Adding texts does not change the side of the others, except for a text that was held out only because no other was.
    """
    held_out = hashes < fraction * 2**32
    if fraction and not held_out.any() and len(np.unique(hashes)) >= _ENOUGH:
        return hashes == hashes.min()
    return held_out


class Rows(Sequence[dict[str, str]]):
    """A subset of the rows of a table."""

    def __init__(self, table: Table, chosen: np.ndarray):
        self.table = table
        self._chosen = chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, i: int) -> dict[str, str]:  # type: ignore[override]
        return self.table[int(self._chosen[i])]

    def place(self, i: int) -> Place:
        """Return the file and line of row `i`."""
        return self.table.place(int(self._chosen[i]))
