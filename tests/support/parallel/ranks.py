"""Run programs on several processes at once, as the launcher would start them."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from support import forked
from support.helpers import PYTHON_PATH


def run_ranks(program: Path, ranks: int, *words: str, seconds: float = 120, fresh: bool = False) -> list[Any]:
    """Run a program on each rank and return the JSON on the last line of each output.

    They are forks, or `fresh` interpreters, whose start and end are as Python has them.  Raises AssertionError with
    their errors when one fails, subprocess.TimeoutExpired when one takes too long.
    """
    with TemporaryDirectory() as folder:  # Paddle leaves an http.log in the current folder
        return _run([*forked.python(threads=1, fresh=fresh), str(program), *words], ranks, seconds, folder)


def _run(command: Sequence[str], ranks: int, seconds: float, folder: str) -> list[Any]:
    ports = [_free_port() for _ in range(ranks + 1)]
    endpoints = [f"127.0.0.1:{port}" for port in ports[1:]]
    processes = [
        subprocess.Popen(
            command,
            env={
                **os.environ,
                "PYTHONPATH": PYTHON_PATH,
                "PADDLE_TRAINER_ID": str(rank),
                "PADDLE_TRAINERS_NUM": str(ranks),
                "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
                "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
                "PADDLE_MASTER": f"127.0.0.1:{ports[0]}",
                "PADDLE_DISTRI_BACKEND": "gloo",
                "OMP_NUM_THREADS": "1",
            },
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        outputs = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
    statuses = [process.returncode for process in processes]
    failed = [f"rank {i}, status {statuses[i]}: {err[-3000:]}" for i, (_, err) in enumerate(outputs) if statuses[i]]
    assert not failed, "\n".join(failed)
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


def _free_port() -> int:
    """A free port that the system gives to no connection: those have ports from 32,768 on."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
            return int(probe.getsockname()[1])
