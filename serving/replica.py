"""What a replica knows of its supervisor: its number, and a socket on which it says that it is ready."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

VARIABLE = "ERNIE_REPLICA"  # the number of a replica from 0, and the file of its socket


@dataclass(frozen=True)
class Replica:
    """One of several processes; its `file` can be read from as soon as the supervisor has gone."""

    index: int
    file: int

    @classmethod
    def of_environment(cls) -> Replica | None:
        """Return what this process is, None if it is no replica."""
        if (given := os.environ.pop(VARIABLE, None)) is None:
            return None
        index, file = given.split()
        return cls(int(index), int(file))

    def say_ready(self) -> None:
        """Tell the supervisor that every model computes."""
        with suppress(OSError):  # it has gone
            os.write(self.file, b"ready")
