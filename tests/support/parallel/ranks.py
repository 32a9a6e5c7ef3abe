"""Run programs on several processes at once, as the launcher would start them."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

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
    with ExitStack() as files:
        outputs = [[files.enter_context(TemporaryFile("w+")) for _ in range(2)] for _ in range(ranks)]
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
                stdout=out,
                stderr=err,
            )
            for rank, (out, err) in enumerate(outputs)
        ]
        try:
            _wait(processes, seconds)
            statuses = [process.poll() for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        failed = [
            f"rank {i}, status {status}: {_text(outputs[i][1])[-3000:]}" for i, status in enumerate(statuses) if status
        ]
        assert not failed, "\n".join(failed)
        return [json.loads(_text(out).splitlines()[-1]) for out, _ in outputs]


def _wait(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    """Wait until all have ended, or one has failed: the others may wait for it in vain."""
    end = time.monotonic() + seconds
    while any(process.poll() is None for process in processes) and not any(process.poll() for process in processes):
        if time.monotonic() > end:
            raise subprocess.TimeoutExpired(processes[0].args, seconds)
        time.sleep(0.02)


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _free_port() -> int:
    """A free port that the system gives to no connection: those have ports from 32,768 on."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
            return int(probe.getsockname()[1])
