"""A corpus on disk: flat files of tokens, memory-mapped and read one document at a time.

A corpus is a folder with `corpus.json`, `sources.json`, a copy of the tokenizer in `tokenizer/`, and the splits
`train/` and `held_out/`.  Shard 7 of a split is five files without headers:

shard-00007.ids    uint16, or uint32 for vocabularies above 65,536
shard-00007.flags  one byte per token
shard-00007.ends   int32: the end of each sentence, counted from its document's first token
shard-00007.marks  one byte per sentence
shard-00007.docs   int64: one row of DOC_COLUMNS per document
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ernie.config import build, from_dict
from ernie.data import seeded_rng
from ernie.data.document import Document
from ernie.data.index import damaged, read_index
from ernie.data.mirror import CACHE_MB, Mirror
from ernie.data.remote import address_of
from ernie.formatting import plural
from ernie.sha256 import file_sha256
from ernie.text.tokenizer import Tokenizer

SPLITS = ("train", "held_out")
SUFFIXES = ("ids", "flags", "ends", "marks", "docs")
# The document's end offsets in tokens and sentences of the shard; its source: index into sources.json, and line.
DOC_COLUMNS = ("token_end", "sentence_end", "source", "line")
_SOURCES = "sources.json"  # the names of the files that were read
_BLOCK = 1 << 20  # documents that are counted at once, so that memory stays bounded


def dtypes(vocab_size: int) -> dict[str, np.dtype[Any]]:
    """Return the dtype of each file of a shard, little-endian on every machine."""
    ids = "<u2" if vocab_size <= 2**16 else "<u4"
    return {suffix: np.dtype(code) for suffix, code in zip(SUFFIXES, (ids, "u1", "<i4", "u1", "<i8"), strict=True)}


class Corpus:
    """A corpus written by `ernie data build`: two splits of documents and the tokenizer used to build them.

    Open one with `Corpus.open`.  Only counts are held in memory; unpickling reopens the corpus by its path.  Of one at
    an address, `folder` has a copy, see `Mirror`.
    """

    def __init__(self, folder: Path, index: dict[str, Any], mirror: Mirror | None = None):
        self.folder = folder
        self.index = index
        self.mirror = mirror
        vocab_size = index["tokenizer"]["vocab_size"]
        self.train = Split(folder, "train", index["splits"]["train"], vocab_size, mirror)
        self.held_out = Split(folder, "held_out", index["splits"]["held_out"], vocab_size, mirror)

    @classmethod
    def open(cls, folder: str | Path, cache_mb: int = CACHE_MB) -> Corpus:
        """Open the corpus in `folder`, which may be at an address: then at most `cache_mb` MB of shards are kept here.

        Raises UserError when it is not a corpus, has another format version, or a file's size is not the recorded one.
        The contents of the files are not read; see `verify`.
        """
        if (address := address_of(folder)) is not None:
            mirror = Mirror(address, cache_mb * 10**6)
            mirror.open()
            index = read_index(mirror.folder)
            mirror.check(index["files"])
            return cls(mirror.folder, index, mirror)
        folder = Path(folder)
        index = read_index(folder)
        for name, written in index["files"].items():
            size = _size(folder / name)
            if size != written["bytes"]:
                found = "is missing" if size is None else f"has {size:,} bytes, was written with {written['bytes']:,}"
                raise damaged(folder / name, found)
        return cls(folder, index)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the corpus was built with.  Raises UserError when its files have changed since."""
        from ernie.text.load import load_tokenizer  # local, since data workers need no tokenizer library

        tokenizer = load_tokenizer(self.folder / "tokenizer")
        if tokenizer.fingerprint != self.index["tokenizer"]["fingerprint"]:
            raise damaged(self.folder / "tokenizer", "does not hold the tokenizer that the corpus was built with")
        return tokenizer

    @property
    def language(self) -> str:
        return self.index["language"]

    @property
    def report(self) -> dict[str, Any]:
        """The build's statistics of kept and dropped documents."""
        return self.index["report"]

    @property
    def recipe(self) -> dict[str, Any]:
        """The settings of the build, without the places of its input and tokenizer; empty in earlier corpora."""
        return self.index.get("recipe", {})

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the contents: equal for corpora of the same texts, wherever these and the corpora are stored."""
        return _digest({name: written for name, written in self.index["files"].items() if name != _SOURCES})

    def is_known_as(self, fingerprint: str) -> bool:
        """Whether a fingerprint is this corpus's, also one that was recorded when names of files were part of it."""
        return fingerprint in (self.fingerprint, _digest(self.index["files"]))

    def verify(self) -> None:
        """Compare the SHA-256 of every file with the recorded one.  Raises UserError naming the first that differs.

        The files of a corpus at an address are compared when they are fetched.
        """
        if self.mirror is not None:
            return
        for name, written in self.index["files"].items():
            if file_sha256(self.folder / name) != written["sha256"]:
                raise damaged(self.folder / name, "is not what was written (its SHA-256 differs)")

    def check_cache(self, mixed: int) -> None:
        """Raise UserError if a corpus at an address has more in use at a time than the cache holds.

        That is twice the shards of which `mixed` are mixed at a time, in both splits, or all where this is 0.
        """
        if self.mirror is None:
            return
        needed = 0
        for split in SPLITS:
            sizes = sorted(size for stem, size in self.mirror.sizes.items() if stem.startswith(f"{split}/"))
            needed += sum(sizes[-2 * mixed :] if mixed else sizes)
        if mixed:
            what = f"twice {plural(mixed, 'shard')} of each split, of which data.shuffle_shards mixes the documents"
            self.mirror.check_room(needed, what, "Give it more, or mix fewer")
        else:
            advice = "Give it more, or mix the documents of some shards at a time: --set data.shuffle_shards=4"
            self.mirror.check_room(needed, "all shards", advice)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.mirror is not None:
            return Corpus.open, (self.mirror.address.url, self.mirror.limit // 10**6)
        return Corpus.open, (self.folder,)


class Split(Sequence[Document]):
    """The documents of one split of a corpus, as views into the memory-mapped files: constant time, no copies.

    The arrays of a document are read-only, and its ids have the dtype of the file (see `dtypes`).
    """

    def __init__(
        self, folder: Path, name: str, shards: list[dict[str, int]], vocab_size: int, mirror: Mirror | None = None
    ):
        self.name = name
        self._mirror = mirror
        self.folder = folder / name
        self._shards = shards
        self._dtypes = dtypes(vocab_size)
        # The index of the first document of each shard, then the total number of documents.
        self._firsts = np.cumsum([0, *(shard["documents"] for shard in shards)]).tolist()
        self._opened: list[_Shard | None] = [None] * len(shards)

    def __len__(self) -> int:
        return self._firsts[-1]

    def __getitem__(self, i: int) -> Document:  # type: ignore[override]
        i = range(len(self))[i]
        shard, row = self._locate(i)
        docs = shard.docs
        stop, last = int(docs[row, 0]), int(docs[row, 1])
        start, first = (int(docs[row - 1, 0]), int(docs[row - 1, 1])) if row else (0, 0)
        return Document(
            i, shard.ids[start:stop], shard.flags[start:stop], shard.ends[first:last], shard.marks[first:last]
        )

    @property
    def documents_of_shards(self) -> list[int]:
        """The number of documents of each shard."""
        return [shard["documents"] for shard in self._shards]

    def expect(self, shards: Sequence[int]) -> None:
        """Prepare for documents of these shards, as far as they are elsewhere."""
        if self._mirror is not None:
            self._mirror.expect([self._stem(number) for number in shards])

    @property
    def tokens(self) -> int:
        """The number of tokens of all documents."""
        return sum(shard["tokens"] for shard in self._shards)

    @property
    def sentences(self) -> int:
        """The number of sentences of all documents."""
        return sum(shard["sentences"] for shard in self._shards)

    def totals(self, indices: np.ndarray) -> np.ndarray:
        """Return the numbers of tokens and of sentences, (2,), that the documents at `indices` have together."""
        found = np.zeros(2, np.int64)
        numbers = np.searchsorted(self._firsts, indices, side="right") - 1
        for number in np.unique(numbers).tolist():
            shard, _ = self._locate(self._firsts[number])
            rows, ends = indices[numbers == number] - self._firsts[number], shard.docs[:, :2]
            found += ends[rows].sum(axis=0) - ends[rows[rows > 0] - 1].sum(axis=0)
        return found

    def rows(self) -> Iterator[np.ndarray]:
        """Yield rows (d, 4) of the documents, in order, a bounded number at a time.

        A row has a document's number of tokens, of sentences, its index into `sources`, and its line.
        """
        for first in self._firsts[:-1]:
            docs = self._locate(first)[0].docs
            for start in range(0, len(docs), _BLOCK):
                rows = docs[start : start + _BLOCK].copy()
                rows[:, :2] = np.diff(rows[:, :2], axis=0, prepend=docs[start - 1 : start, :2] if start else 0)
                yield rows

    def source(self, i: int) -> str:
        """Return the source of document `i`, as 'file:line'."""
        shard, row = self._locate(range(len(self))[i])
        return f"{self.sources[int(shard.docs[row, 2])]}:{int(shard.docs[row, 3])}"

    @cached_property
    def sources(self) -> list[str]:
        """The names of the files that the documents of both splits were read from."""
        path = self.folder.parent / _SOURCES
        try:
            return build(list[str], from_dict(json.loads(path.read_text(encoding="utf-8")), str(path)))
        except (OSError, ValueError) as error:
            raise damaged(path, f"cannot be read: {error}") from None

    def _locate(self, i: int) -> tuple[_Shard, int]:
        number = bisect_right(self._firsts, i) - 1
        shard = self._opened[number]
        if shard is None:
            shard = self._opened[number] = self._open(number)
        return shard, i - self._firsts[number]

    def _stem(self, number: int) -> str:
        return f"{self.name}/{shard_stem(number)}"

    def _open(self, number: int) -> _Shard:
        if self._mirror is not None:
            for other, opened in enumerate(self._opened):
                # What the cache has removed stays on the disk until it is closed.
                if opened is not None and not self._mirror.has(self._stem(other)):
                    self._opened[other] = None
            with self._mirror.shard(self._stem(number)):
                return self._mapped(number)
        return self._mapped(number)

    def _mapped(self, number: int) -> _Shard:
        stem = self.folder / shard_stem(number)
        arrays = [_memory_map(stem.with_suffix(f".{suffix}"), self._dtypes[suffix]) for suffix in SUFFIXES]
        arrays[-1] = arrays[-1].reshape(-1, len(DOC_COLUMNS))
        found, expected = len(arrays[-1]), self._shards[number]["documents"]
        if found != expected:
            raise damaged(stem.with_suffix(f".{SUFFIXES[-1]}"), f"has {found:,} documents, expected {expected:,}")
        return _Shard(*arrays)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": [None] * len(self._shards)}


class Subset(Sequence[Document]):
    """A random subset of a split's documents: each smaller fraction is contained in every larger one."""

    def __init__(self, split: Split, fraction: float):
        self._split = split
        self._count = max(1, round(fraction * len(split)))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: int) -> Document:  # type: ignore[override]
        return self._split[self._index(i)]

    def source(self, i: int) -> str:
        """Return the source of document `i`, as 'file:line'."""
        return self._split.source(self._index(i))

    @property
    def tokens(self) -> int:
        """The number of tokens of all documents."""
        return int(self._totals[0])

    @property
    def sentences(self) -> int:
        """The number of sentences of all documents."""
        return int(self._totals[1])

    @cached_property
    def _totals(self) -> np.ndarray:
        found = np.zeros(2, np.int64)
        for first in range(0, self._count, _BLOCK):
            found += self._split.totals(self._indices(np.arange(first, min(first + _BLOCK, self._count))))
        return found

    def _index(self, i: int) -> int:
        return int(self._indices(np.array([range(self._count)[i]]))[0])

    def _indices(self, positions: np.ndarray) -> np.ndarray:
        """Return the split's indices of the documents at these positions."""
        return seeded_rng.permute(positions, len(self._split), seeded_rng.key("share"))


class _Shard(NamedTuple):
    ids: np.ndarray
    flags: np.ndarray
    ends: np.ndarray
    marks: np.ndarray
    docs: np.ndarray


def shard_stem(number: int) -> str:
    """Return the name of a shard's files, without the suffix."""
    return f"shard-{number:05d}"


def _digest(files: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(files).encode(), digest_size=16).hexdigest()


def _memory_map(path: Path, dtype: np.dtype[Any]) -> np.ndarray:
    try:
        # A plain array view: slicing np.memmap itself is several times slower.
        return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
    except (OSError, ValueError) as error:
        raise damaged(path, f"cannot be read: {error}") from None


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None
