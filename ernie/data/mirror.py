"""A corpus in an object store, of which this machine has a copy of the small files and of some shards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from filelock import FileLock

from ernie.atomic import disk_guard, make_folder, replacing
from ernie.data.destination import place_in_cache
from ernie.data.remote import Address, sizes_below
from ernie.errors import UserError
from ernie.sha256 import file_sha256

CACHE_MB = 20_000
_MB = 10**6


class Mirror:
    """The copy of a corpus at an address, in the cache; its shards take at most `limit` bytes.

    A shard is fetched when it is asked for, or in the background when it is expected, and is compared with its
    checksums.  One is fetched at a time, so that the limit holds.  Those that were not used for the longest time are
    removed to make room.  Processes share the copy.
    """

    def __init__(self, address: Address, limit: int):
        self.address, self.limit = address, limit
        self.folder = place_in_cache("corpora", address)
        self.sizes: dict[str, int] = {}  # of shards, in bytes, by their stems
        self._files: dict[str, dict[str, Any]] = {}
        self._shards: dict[str, list[str]] = {}  # the names of their files
        self._expected: set[str] = set()  # stems of shards

    def open(self) -> None:
        """Fetch the manifest.  Raises UserError if there is no corpus at the address."""
        make_folder(self.folder)
        with self._lock("corpus"):
            content = _content(self.address / "corpus.json")
            manifest = self.folder / "corpus.json"
            if manifest.exists() and manifest.read_bytes() != content:  # of another corpus, which was there before
                for path in self.folder.iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            with replacing(manifest) as partial:
                partial.write_bytes(content)

    def check(self, files: Mapping[str, dict[str, Any]]) -> None:
        """Compare the sizes of all files with those that were written, and fetch those that belong to no shard.

        Raises UserError for one that is missing or differs.
        """
        self._files = dict(files)
        found = sizes_below(self.address)
        for name, written in self._files.items():
            if name not in found or found[name] not in (None, written["bytes"]):
                what = "is missing" if name not in found else f"has {found[name]:,} bytes, not {written['bytes']:,}"
                raise UserError(f"{self.address / name}: {what}. The corpus cannot be used: write it there again")
            if name.startswith(("train/", "held_out/")):
                stem = name.rpartition(".")[0]
                self._shards.setdefault(stem, []).append(name)
                self.sizes[stem] = self.sizes.get(stem, 0) + written["bytes"]
            else:
                with self._lock("corpus"):
                    self._fetch(name)

    @contextmanager
    def shard(self, stem: str) -> Iterator[None]:
        """Have the files of a shard, such as train/shard-00000, in the folder; no process removes them meanwhile.

        Raises UserError if they cannot be fetched or are not those that were written.
        """
        names = self._shards[stem]
        with self._lock("shards"):
            if not all((self.folder / name).exists() for name in names):
                with disk_guard(self.folder, "the shard is not fetched"):
                    self._make_room(stem)
                    for name in names:
                        self._fetch(name)
            for name in names:
                os.utime(self.folder / name)
            yield

    def expect(self, stems: Iterable[str]) -> None:
        """Fetch shards in the background that will be asked for soon.  Others are removed before these are."""
        stems = list(stems)
        new = [stem for stem in stems if stem not in self._expected]
        self._expected = set(stems)
        for stem in new:
            self._fetchers.submit(self._fetch_ahead, stem)

    def has(self, stem: str) -> bool:
        """Whether a shard that was fetched has not been removed since."""
        return (self.folder / f"{stem}.ids").exists()

    def check_room(self, needed: int, what: str, advice: str) -> None:
        """Raise UserError if shards of `needed` bytes do not fit."""
        if needed > self.limit:
            raise UserError(
                f"data.cache_mb: {what} of {self.address} take {-(-needed // _MB):,} MB, and the cache holds "
                f"{self.limit // _MB:,}. {advice}"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**{key: value for key, value in vars(self).items() if key != "_fetchers"}, "_expected": set()}

    @cached_property
    def _fetchers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="shards")

    def _fetch_ahead(self, stem: str) -> None:
        if stem in self._expected:
            try:
                with self.shard(stem):
                    pass
            except UserError:  # whoever needs the shard tries again, and says so
                self._expected.discard(stem)

    def _fetch(self, name: str) -> None:
        """Copy a file into the folder unless it is there.  Raises UserError if it is not what was written."""
        path, address = self.folder / name, self.address / name
        if path.exists():
            return
        make_folder(path.parent)
        with replacing(path) as partial:
            with address.open() as source, partial.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
            if file_sha256(partial) != self._files[name]["sha256"]:
                what = "is not what was written (its SHA-256 differs)"
                raise UserError(f"{address}: {what}. The corpus cannot be used: write it there again")

    def _make_room(self, wanted: str) -> None:
        """Remove the shards that were not used for the longest time until there is room for another."""
        held = {stem: used for stem in self.sizes if stem != wanted and (used := self._used(stem))}
        total = self.sizes[wanted] + sum(self.sizes[stem] for stem in held)
        for stem in sorted(held, key=lambda stem: (stem in self._expected, held[stem])):
            if total <= self.limit:
                return
            for name in self._shards[stem]:
                (self.folder / name).unlink(missing_ok=True)
            total -= self.sizes[stem]

    def _used(self, stem: str) -> int:
        """Return when a shard was fetched or used last; 0 if nothing of it is here."""
        paths = [self.folder / name for name in self._shards[stem]]
        return max((path.stat().st_mtime_ns for path in paths if path.exists()), default=0)

    def _lock(self, name: str) -> FileLock:
        return FileLock(make_folder(self.folder / "locks") / f"{name}.lock")


def _content(address: Address) -> bytes:
    with address.open() as file:
        return file.read()
