"""Where a corpus is written to: a folder of this machine, or one in an object store."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from ernie.atomic import check_free, put
from ernie.data import remote
from ernie.data.remote import Address, address_of
from ernie.data.work_folder import WorkFolder
from ernie.errors import UserError

_MANIFEST = "corpus.json"
_UNFINISHED = "unfinished.json"  # marks a folder in a store that is being filled


def cache_folder() -> Path:
    """Return the folder for what can be made or fetched again: ERNIE_CACHE, or `ernie` among the user's caches."""
    if own := os.environ.get("ERNIE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ernie"


def place_in_cache(kind: str, address: Address) -> Path:
    """Return the folder in the cache that belongs to an address."""
    return cache_folder() / kind / hashlib.sha256(address.url.rstrip("/").encode()).hexdigest()[:32]


class Destination(Protocol):
    """A place that a corpus is written to.  It is filled in `place` beside it, or in the cache."""

    place: Path

    def check(self) -> None:
        """Raise UserError unless a corpus may be written there."""

    def begin(self, work: WorkFolder) -> None:
        """Prepare the place, before anything is written."""

    def take(self, work: WorkFolder, names: Iterable[str]) -> None:
        """Take complete files out of the folder that is being filled, if they can be taken one by one."""

    def finish(self, work: WorkFolder, names: Iterable[str]) -> None:
        """Take all files, those of `names` and last of all the manifest: from then on there is a corpus."""


def destination_of(output: str | Path, own: Iterable[str], overwrite: bool) -> Destination:
    """Return the destination that an `output` names; `own` are the files and folders of a corpus."""
    address = address_of(output)
    if address is not None and (folder := remote.local_path(address)) is not None:
        output, address = folder, None  # which can be replaced at once
    return _Folder(Path(output), set(own), overwrite) if address is None else _Store(address, set(own), overwrite)


class _Folder:
    """A folder of this machine, to which a complete corpus is moved."""

    def __init__(self, place: Path, own: set[str], overwrite: bool):
        self.place = place
        self._own, self._overwrite = own, overwrite

    def __str__(self) -> str:
        return str(self.place)

    def check(self) -> None:
        check_free(self.place, "corpus", _MANIFEST, self._own, self._overwrite)

    def begin(self, work: WorkFolder) -> None:
        pass

    def take(self, work: WorkFolder, names: Iterable[str]) -> None:
        pass

    def finish(self, work: WorkFolder, names: Iterable[str]) -> None:
        put(work.path, self.place, self.check)


class _Store:
    """A folder in an object store.  Each complete file is written there, compared, and removed from this machine."""

    def __init__(self, address: Address, own: set[str], overwrite: bool):
        self.place = place_in_cache("builds", address)
        self._address, self._own, self._overwrite = address, own, overwrite

    def __str__(self) -> str:
        return str(self._address)

    def check(self) -> None:
        names = sorted(remote.sizes_below(self._address))
        if not names:
            return
        if not {_MANIFEST, _UNFINISHED} & set(names):
            raise UserError(f"{self}: is not empty and holds no corpus. Give a new folder as --output.")
        if foreign := [name for name in names if name.split("/")[0] not in {*self._own, _UNFINISHED}]:
            raise UserError(f"{self}: holds '{foreign[0]}', too, which would be lost. Give a new folder as --output.")
        if _MANIFEST in names and not self._overwrite:
            raise UserError(f"{self}: holds a corpus already. Give --overwrite to replace it, or another --output.")

    def begin(self, work: WorkFolder) -> None:
        # What is there is no corpus from now on: its files are replaced one by one.
        remote.write_text("{}", self._address / _UNFINISHED)
        remote.delete(self._address / _MANIFEST)
        found = remote.sizes_below(self._address) if work.moved else {}
        for name in work.moved:
            if found.get(name) != work.files[name]["bytes"]:
                where = self._address / name
                raise UserError(f"{where}: is not there any more as it was written. Remove {work.path} to begin anew")

    def take(self, work: WorkFolder, names: Iterable[str]) -> None:
        for name in names:
            remote.write(work.path / name, self._address / name)
            work.move(name)

    def finish(self, work: WorkFolder, names: Iterable[str]) -> None:
        names = set(names)
        self.take(work, sorted(names - work.moved))
        for name in set(remote.sizes_below(self._address)) - names - {_UNFINISHED}:  # of one that was there before
            remote.delete(self._address / name)
        remote.write(work.path / _MANIFEST, self._address / _MANIFEST)
        remote.delete(self._address / _UNFINISHED)
        shutil.rmtree(work.path)
