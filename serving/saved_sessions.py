"""Sessions in files, which another process resumes."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from ernie.decode.states import strip_prefix, with_prefix
from ernie.decode.stream import load_state, save_state, state_from
from ernie.errors import UserError, about

_TOKEN = re.compile(r"[A-Za-z0-9_-]{32}")


@dataclass(frozen=True)
class SavedStage:
    """A stage: the arrays of its state, the input that waits for it, and how far that has ended (see Stage)."""

    arrays: Mapping[str, np.ndarray]
    inbox: Any
    ends: bool
    ended: bool

    def state(self, decoder: Any) -> Any:
        """Return the state of a decoder's stream.  Raises UserError for one of another kind, or of another version."""
        with about("the saved session"):
            return state_from(decoder, self.arrays)


@dataclass(frozen=True)
class SavedSession:
    """A session: the names of its streams, how much input it has received (see Session), and its stages."""

    names: tuple[str, ...]
    received: int
    stages: tuple[SavedStage, ...]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole session as arrays by name."""
        texts = [stage.inbox if isinstance(stage.inbox, str) else None for stage in self.stages]
        ends = [(stage.ends, stage.ended) for stage in self.stages]
        found = {"session": np.array(json.dumps([self.names, self.received, texts, ends]))}
        for n, stage in enumerate(self.stages):
            if texts[n] is None:
                found[f"inbox.{n}"] = stage.inbox
            found |= with_prefix(f"stage.{n}", stage.arrays)
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> SavedSession:
        """Restore a session from its `arrays`."""
        names, received, texts, ends = json.loads(str(arrays["session"]))
        stages = (
            SavedStage(
                strip_prefix(f"stage.{n}", arrays), arrays[f"inbox.{n}"] if texts[n] is None else texts[n], *ends[n]
            )
            for n in range(len(names))
        )
        return cls(tuple(names), received, tuple(stages))


class SessionFolder:
    """A folder of sessions that wait to be resumed, for at most `seconds`; each of them once.

    Servers that share the folder take over each other's sessions.  A token is the name of a file there: nobody can
    guess it.
    """

    def __init__(self, folder: Path, seconds: float = 3600.0):
        self._folder, self._seconds = folder, seconds

    def check(self) -> None:
        """Make the folder, and raise UserError if nothing can be written there."""
        try:
            self._make()
            with TemporaryFile(dir=self._folder):
                pass
        except OSError as error:
            raise UserError(f"sessions_folder: {self._folder}: cannot be written to: {error.strerror}") from None

    def save(self, session: SavedSession) -> str:
        """Write a session; return its token."""
        self._make()
        self._forget_old()
        token = secrets.token_urlsafe(24)
        save_state(session, self._path(token))
        return token

    def take(self, token: str) -> SavedSession:
        """Return a session that was saved, and forget it.  Raises UserError if there is none under this token."""
        unknown = UserError("this token is of no session that is kept here: it was resumed before, or is too old")
        if not _TOKEN.fullmatch(token):
            raise unknown
        path = self._path(token)
        taken = path.with_suffix(".taken.npz")
        try:
            path.rename(taken)  # only one process succeeds
        except OSError:
            raise unknown from None
        try:
            found: SavedSession = load_state(SavedSession, taken)
        finally:
            taken.unlink(missing_ok=True)
        return found

    def _make(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _path(self, token: str) -> Path:
        return self._folder / f"{token}.npz"

    def _forget_old(self) -> None:
        oldest = time.time() - self._seconds
        for path in self._folder.glob("*.npz"):
            try:
                if path.stat().st_mtime < oldest:
                    path.unlink()
            except OSError:  # another process was faster
                continue
