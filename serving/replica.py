"""What a replica knows of its supervisor: its number, and a socket on which it says that it is ready and goes on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

BEAT = 1.0  # seconds between two signs of life
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

    async def say_ready(self, goes_on: Callable[[], bool]) -> None:
        """Tell the supervisor that every model computes, and from then on again as long as the engine goes on."""
        os.set_blocking(self.file, False)  # a supervisor that does not read keeps nobody waiting
        while True:
            if goes_on():
                with suppress(OSError):  # it has gone, or does not read
                    os.write(self.file, b".")
            await asyncio.sleep(BEAT)
