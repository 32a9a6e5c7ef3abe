"""An open-loop load generator: requests go out on a schedule made beforehand, whatever becomes of those before them.

  python benchmarks/offered_load.py --url http://127.0.0.1:8000/models/films/predict --bodies FILE --rate 200

FILE has a body a line.  The schedule is Poisson, or bursts with `--burst N`: N requests at once, as often as the rate
allows.  With several rates, and as many `--seconds`, one phase follows another.  Latency counts from the scheduled
time: a server that stalls is charged for all whom it keeps waiting, and so is the generator (its lag is told).  Prints
JSON: for each request its scheduled time, latency and status, 0 if there was no answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

UNANSWERED = 0  # the status of a request without an answer
_PATIENCE = 10.0  # seconds to wait for answers after the last request was sent


@dataclass
class Load:
    """What became of the requests: scheduled times, latencies and statuses, all in the order of the schedule."""

    scheduled: list[float]
    latencies: list[float]
    statuses: list[int]
    lag: list[float]  # how late each was sent
    cpu: float = 0.0  # seconds of the generator's own
    retry_after: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON data."""
        return vars(self)


def poisson(rate: float, seconds: float, seed: int, burst: int = 1) -> list[float]:
    """Return scheduled times, of bursts of so many requests each, from 0 on."""
    numbers, now, times = random.Random(seed), 0.0, list[float]()
    while (now := now + numbers.expovariate(rate / burst)) < seconds:
        times += [now] * burst
    return times


class _Connection(asyncio.Protocol):
    """One connection, which carries one request at a time."""

    def __init__(self, client: Client):
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._number: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, number: int, content: bytes) -> None:
        assert self._transport is not None
        self._number, self._received = number, b""
        self._transport.write(content)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, mark, body = self._received.partition(b"\r\n\r\n")
        if not mark or self._number is None:
            return
        lines = head.split(b"\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in lines[1:] if b": " in line)
        if b"content-length" in headers:
            is_whole = len(body) >= int(headers[b"content-length"])
        else:  # chunked
            is_whole = body.endswith(b"0\r\n\r\n")
        if is_whole:
            number, self._number = self._number, None
            self._client.answered(number, int(lines[0].split(b" ", 2)[1]), headers)
            if headers.get(b"connection") == b"close":
                assert self._transport is not None
                self._transport.close()
            else:
                self._client.idle.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self in self._client.idle:
            self._client.idle.remove(self)
        if self._number is not None:
            self._client.answered(self._number, UNANSWERED, {})


class Client:
    """Sends bodies to one URL on a schedule, each on a connection that is free, or else on a new one."""

    def __init__(self, url: str, bodies: Sequence[bytes], headers: Sequence[str] = ()):
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        head = [f"POST {parts.path or '/'} HTTP/1.1", f"Host: {parts.netloc}", "Content-Type: application/json"]
        head += headers
        self._requests = [
            "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body for body in bodies
        ]
        self.idle: list[_Connection] = []
        self._left = 0
        self._start = 0.0

    def answered(self, number: int, status: int, headers: dict[bytes, bytes]) -> None:
        """Take note of an answer."""
        if self._load.statuses[number] == -1:
            self._load.latencies[number] = time.perf_counter() - self._start - self._load.scheduled[number]
            self._load.statuses[number] = status
            if b"retry-after" in headers:
                self._load.retry_after[headers[b"retry-after"].decode()] += 1
            self._left -= 1
            if not self._left:
                self._done.set()

    async def run(self, times: Sequence[float]) -> Load:
        """Send a request at each of these times, in seconds from now; return what became of them."""
        n = len(times)
        self._load = Load(list(times), [0.0] * n, [-1] * n, [0.0] * n)
        self._left, self._done, opening = n, asyncio.Event(), set[asyncio.Task[None]]()
        loop, cpu = asyncio.get_running_loop(), time.process_time()
        self._start = time.perf_counter()
        for number, when in enumerate(times):
            if (wait := self._start + when - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            elif not number % 64:
                await asyncio.sleep(0)
            self._load.lag[number] = time.perf_counter() - self._start - when
            content = self._requests[number % len(self._requests)]
            if self.idle:
                self.idle.pop().send(number, content)
            else:
                task = loop.create_task(self._open(number, content))
                opening.add(task)
                task.add_done_callback(opening.discard)
        try:
            await asyncio.wait_for(self._done.wait(), _PATIENCE)
        except asyncio.TimeoutError:
            for number, status in enumerate(self._load.statuses):
                if status == -1:
                    self.answered(number, UNANSWERED, {})
        self._load.cpu = time.process_time() - cpu
        return self._load

    async def _open(self, number: int, content: bytes) -> None:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(self), self._host, self._port
            )
        except OSError:
            self.answered(number, UNANSWERED, {})
            return
        connection.send(number, content)


def main() -> None:
    """Send the requests and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--bodies", type=Path, required=True)
    parser.add_argument("--rate", type=float, nargs="+", required=True, help="requests a second")
    parser.add_argument("--seconds", type=float, nargs="+", default=[20.0])
    parser.add_argument("--burst", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--header", action="append", default=[])
    arguments = parser.parse_args()
    bodies = arguments.bodies.read_bytes().splitlines()
    client = Client(arguments.url, bodies, arguments.header)
    times, start = list[float](), 0.0
    for phase, (rate, seconds) in enumerate(zip(arguments.rate, arguments.seconds, strict=True)):
        seed = arguments.seed + 1000 * phase
        times += [start + when for when in poisson(rate, seconds, seed, arguments.burst)]
        start += seconds
    json.dump(asyncio.run(client.run(times)).as_json(), sys.stdout)


if __name__ == "__main__":
    main()
