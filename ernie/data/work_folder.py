"""A folder that is being filled, with files that grow: what was saved survives a crash and is gone on from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from ernie.atomic import final_name, no_room, partial_folder, put_text
from ernie.errors import Remark, UserError
from ernie.sha256 import file_sha256

SAVED_EVERY = 5.0  # seconds
_STATE = "unfinished.json"


class WorkFolder:
    """The temporary folder for `place`, see ernie.atomic, with files that only grow.

    `save` keeps how far these are, with a `state` of the caller's.  When a process was killed, the next WorkFolder for
    the same place with the same `signature` goes on from there: its files are as they were then, and `state` is the one
    that was saved.  Without a signature nothing is kept.  What is found damaged is made anew.  As a context manager it
    is removed at the end, and after an error left as `leave` does.
    """

    def __init__(self, place: Path, signature: str = ""):
        self.path = partial_folder(place, partial(_is_of, signature))
        self.state: dict[str, Any] | None = None
        self.files: dict[str, dict[str, Any]] = {}  # those that are complete: bytes and SHA-256
        self.moved: set[str] = set()  # of these, what is elsewhere already
        self._leaving: set[str] = set()  # and here, too, until that is saved
        self._signature = signature
        self._open: dict[str, GrowingFile] = {}
        self._last = time.monotonic()
        if self.path.exists():
            self._restore()

    def __enter__(self) -> WorkFolder:
        self.create()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.leave(keep=error is not None and not no_room(error))

    def create(self) -> None:
        """Create the folder if it is not there.  Raises UserError where it may not be."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if no_room(error):
                raise
            raise UserError(f"{final_name(str(self.path))}: may not be written: {error.strerror}") from None

    def file(self, name: str) -> GrowingFile:
        """Return the file of this name, opened, or new and empty."""
        if name not in self._open:
            path = self.path / name
            path.parent.mkdir(exist_ok=True)
            self._open[name] = GrowingFile(path)
        return self._open[name]

    def complete(self, name: str) -> None:
        """Close a file to which nothing is added any more."""
        self.files[name] = self._open.pop(name).close()

    def move(self, name: str) -> None:
        """Have a complete file, which is elsewhere now, removed as soon as that is saved."""
        self.moved.add(name)
        self._leaving.add(name)

    def remove(self, name: str) -> None:
        """Close and remove a file that is not needed any more."""
        self._open.pop(name).close()
        (self.path / name).unlink()

    def save(self, state: Mapping[str, Any]) -> None:
        """Keep what is in the files, and a state as plain data, unless that was done some seconds ago."""
        if not self._signature or time.monotonic() - self._last < SAVED_EVERY:
            return
        grown = {name: file.written() for name, file in self._open.items()}
        content = {"signature": self._signature, "files": self.files, "moved": sorted(self.moved)}
        content |= {"grown": grown, "state": state}
        put_text(self.path / _STATE, json.dumps(content))
        while self._leaving:
            (self.path / self._leaving.pop()).unlink()
        self.state, self._last = dict(state), time.monotonic()

    def finish(self) -> None:
        """Remove what only a crash needs; all files are complete or removed."""
        assert not self._open
        (self.path / _STATE).unlink(missing_ok=True)

    def forget(self) -> None:
        """Have nothing kept of what was saved so far."""
        self.state = None

    def leave(self, keep: bool) -> None:
        """Close all files after an error.  What was saved is kept if wanted, with a note of it; else all is removed."""
        for file in self._open.values():
            file.abandon()
        self._open.clear()
        if keep and self.state is not None:
            warnings.warn(f"what is finished is kept in {self.path}: the same command goes on from there", Remark, 2)
        else:
            shutil.rmtree(self.path, ignore_errors=True)

    def _restore(self) -> None:
        content = json.loads((self.path / _STATE).read_text(encoding="utf-8"))
        try:
            for name, written in content["files"].items():
                if name not in content["moved"] and file_sha256(self.path / name) != written["sha256"]:
                    raise ValueError(f"{name} is not what was written")
            self._open = {name: GrowingFile(self.path / name, written) for name, written in content["grown"].items()}
        except (OSError, ValueError) as error:
            warnings.warn(f"{self.path}: is made anew, since what was left there is damaged: {error}", Remark, 2)
            self.leave(keep=False)
            return
        self.files, self.moved, self.state = content["files"], set(content["moved"]), content["state"]


def _is_of(signature: str, folder: Path) -> bool:
    """Whether a folder was left by an interrupted process, with this signature."""
    try:
        left = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(signature) and isinstance(left, dict) and left.get("signature") == signature


class GrowingFile:
    """A file that tracks the size and checksum of what was written to it.

    It goes on after what was `written`.  Raises ValueError if that is not there.
    """

    def __init__(self, path: Path, written: Mapping[str, Any] | None = None):
        # Unbuffered, so that a full disk fails in `write` and leaves nothing to fail in `close`.
        self._file: BinaryIO = path.open("wb" if written is None else "r+b", buffering=0)
        self._digest = hashlib.sha256()
        self._bytes = 0
        if written is not None:
            self._go_on(written, path.name)

    def write(self, content: bytes) -> None:
        """Append bytes."""
        rest = memoryview(content)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._digest.update(content)
        self._bytes += len(content)

    def written(self) -> dict[str, Any]:
        """Return the size and SHA-256 of what is in the file, when it is on the disk."""
        os.fsync(self._file.fileno())
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}

    def close(self) -> dict[str, Any]:
        """Close the file; return as `written`."""
        found = self.written()
        self._file.close()
        return found

    def abandon(self) -> None:
        """Close the file as it is."""
        self._file.close()

    def _go_on(self, written: Mapping[str, Any], name: str) -> None:
        left = written["bytes"]
        while left and (block := self._file.read(min(left, 1 << 20))):
            self._digest.update(block)
            left -= len(block)
        self._bytes = written["bytes"]
        if left or self._digest.hexdigest() != written["sha256"]:
            self._file.close()
            raise ValueError(f"{name} is not what was written")
        self._file.truncate(self._bytes)
