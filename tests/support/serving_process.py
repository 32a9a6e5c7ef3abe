"""A server in a process of its own, as `ernie serve` starts it."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from support import forked
from support.echoing import until
from support.helpers import ROOT
from support.toys import tiny_encoder


def save_model(folder: Path) -> Path:
    """Save a tiny encoder, which was never trained."""
    tiny_encoder().save_pretrained(folder)
    return folder


class Server:
    """A running server; its log has a JSON object a line."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path):
        self.process, self._log, self.folder = process, log, log.parent
        self.url = ""

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines() if line.startswith("{") and line.endswith("}")]

    @property
    def text(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def says(self, message: str) -> bool:
        """Whether an event's message contains these words."""
        return any(message in line["message"] for line in self.log)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30, **options)

    def status(self, seconds: float = 30.0) -> int:
        """The exit status, once the process has ended."""
        return self.process.wait(seconds)


@contextmanager
def serving(folder: Path, *words: str, announced: str = r"serving .* at (https?://[\d.:]+)") -> Iterator[Server]:
    """A server of the model `loud` in a folder, ready; it is killed at the end unless it has ended."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"log-{time.monotonic_ns()}.txt"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*forked.python(), "-m", "ernie.cli", "serve", *words, "--set", "log=json"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "FORKED_PYTHON": forked.interpreter()},
            stdin=subprocess.DEVNULL,
            stderr=stderr,
        )
    server = Server(process, log)
    try:
        until(lambda: process.poll() is not None or re.search(announced, server.text), 60)
        assert process.poll() is None, server.text
        if found := re.search(announced, server.text):
            server.url = found[1] if found.groups() else ""
        yield server
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def half_a_request(server: Server, body: bytes) -> socket.socket:
    """Send a request without the last byte of its body, which goes on as long as the server waits for that."""
    host, port = httpx.URL(server.url).host, httpx.URL(server.url).port
    connection = socket.create_connection((host, port or 80))
    head = f"POST /models/loud/encode HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body[:-1])
    connection.settimeout(30)
    return connection
