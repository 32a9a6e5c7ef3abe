"""Whether SIGHUP is a wish for new configuration, or the terminal's end."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from ernie.runtime import SIGHUP


class Terminal:
    """The standard streams that are a terminal when a server starts; under `nohup` its end does not count."""

    def __init__(self, files: Sequence[int] = (0, 1, 2)) -> None:
        is_watched = SIGHUP is not None and signal.getsignal(SIGHUP) != signal.SIG_IGN
        self._files = [file for file in files if is_watched and _is_terminal(file)]

    @property
    def is_gone(self) -> bool:
        """Whether there was a terminal that has been closed."""
        return not all(map(_is_terminal, self._files))

    def leave(self) -> None:
        """Write to the null device instead: writing to a closed terminal is an error."""
        with Path(os.devnull).open("r+b") as nothing:
            for file in self._files:
                os.dup2(nothing.fileno(), file)


def _is_terminal(file: int) -> bool:
    try:
        return os.isatty(file)
    except OSError:
        return False
