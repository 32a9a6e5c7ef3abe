"""Arms of benchmarks/serving_load.py about what a server has to live through."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from paced_streams import Dialect, frame
from serving_requests import PATH, PREDICT
from serving_sides import (
    PORT,
    READY,
    Bench,
    Running,
    Side,
    Work,
    classifier,
    metrics,
    offer,
    offline,
    say,
    server,
)

CANCELS, WARM_UP = 10_000, 3_000
AT_ONCE = 40
RELOADS = 50
LEFT = ("ernie_sessions", "ernie_waiting_requests", "ernie_waiting_tokens", "ernie_preparing_characters")
SERVED = (
    "{python} {peers}/serving_ours.py model={model} words={words} german={german} --precision fp32 --port {port}"
    " --set grace_seconds=0"
)
RESET = struct.pack("ii", 1, 0)  # to close by a reset, as a process that is killed
UPGRADE = (
    b"GET /models/%b/stream HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
PATIENT = ("x-timeout: 10",)


def cancels(bench: Bench) -> dict[str, Any]:
    """What is left after thousands of clients that went away at random points, and what others noticed."""
    work = classifier(bench)
    count, warm = (max(50, round(bench.scale * each)) for each in (CANCELS, WARM_UP))
    side = Side(SERVED, READY, beats=True)
    models = {"model": work.model, "words": bench.model("recognizer"), "german": bench.model("translator")}
    with server(bench, side, models) as running:
        body = work.first_body(PATH)
        asyncio.run(went_away(warm, body, 0))
        settled(running)
        calls, memory = running.metrics()["ernie_open_calls"], running.memory()
        began = time.monotonic()
        points, others = asyncio.run(went_away(count, body, 1))
        seconds = time.monotonic() - began
        left = settled(running)
        left["ernie_open_calls"] = running.metrics()["ernie_open_calls"] - calls
        grown = running.memory() / memory - 1
        say(f"{count} clients went away in {seconds:.0f} s; left: {left}; memory {grown:+.2%}; others: {others}")
        running.get(READY)
    return {"clients": count, "points": points, "left": left, "memory": grown, "others": others, "seconds": seconds}


def settled(running: Running) -> dict[str, float]:
    """What is left after half a minute at most."""
    left: dict[str, float] = {}
    for _ in range(150):
        found = running.metrics()
        left = {name: found[name] for name in LEFT}
        if not any(left.values()):
            break
        time.sleep(0.2)
    time.sleep(1)
    return left


async def went_away(count: int, body: bytes, seed: int) -> tuple[dict[str, int], dict[str, int]]:
    """Where so many clients went away, and the statuses of requests of others meanwhile."""
    numbers, points, others = random.Random(seed), Counter[str](), Counter[str]()
    left = iter(range(count))

    async def clients() -> None:
        for _ in left:
            points[await one(numbers, body)] += 1

    async def honest() -> None:
        while True:
            others[str(await asked(body))] += 1
            await asyncio.sleep(0.02)

    other = asyncio.ensure_future(honest())
    await asyncio.gather(*(clients() for _ in range(AT_ONCE)))
    other.cancel()
    with suppress(asyncio.CancelledError):
        await other
    return dict(points), dict(others)


async def asked(body: bytes) -> int:
    """The status of a request that waits for its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(request(body))
    line = await reader.readline()
    writer.close()
    return int(line.split()[1]) if line else 0


def request(body: bytes) -> bytes:
    """A request with a body."""
    head = b"POST %b HTTP/1.1\r\nHost: a\r\nx-timeout: 10\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (PREDICT.encode(), len(body)) + body


async def one(numbers: random.Random, body: bytes) -> str:
    """Be a client that goes away; return where."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", PORT)
    except OSError:
        return "not connected"
    try:
        if numbers.random() < 0.3:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        return await (of_http if numbers.random() < 0.5 else of_socket)(numbers, writer, body)
    finally:
        writer.transport.abort() if numbers.random() < 0.5 else writer.close()


async def of_http(numbers: random.Random, writer: asyncio.StreamWriter, body: bytes) -> str:
    """Send a part of a request, or all of it, and wait a little."""
    whole = request(body)
    point = numbers.choice(["before the head", "in the head", "in the body", *["before the answer"] * 3])
    sizes = {"before the head": 0, "in the head": 30, "in the body": len(whole) - len(body) // 2}
    writer.write(whole[: sizes.get(point, len(whole))])
    await asyncio.sleep(numbers.choice([0.0, 0.001, 0.01, 0.03]))
    return point


async def of_socket(numbers: random.Random, writer: asyncio.StreamWriter, body: bytes) -> str:
    """Bring a session to a random state."""
    dialect, model = Dialect(), numbers.choice(["words", "german"])
    upgrade = UPGRADE % model.encode()
    points = ["in the handshake", "before the start", "after the start", "in a frame", "in the input", "after the end"]
    point = numbers.choice(points)
    reached = points.index(point)
    writer.write(upgrade[:40] if not reached else upgrade)
    await asyncio.sleep(numbers.choice([0.0, 0.005]))
    if reached >= 2:
        writer.write(dialect.begins[0])
    piece = dialect.noise(0, 2560)
    if model == "german":
        text = " ".join(f"w{numbers.randint(5, 7999)}" for _ in range(8)) + "\n"
        piece = frame(1, json.dumps({"type": "text", "text": text}).encode())
    if reached == 3:
        writer.write(piece[: len(piece) // 2])
    for _ in range(numbers.randint(1, 4) if reached >= 4 else 0):
        writer.write(piece)
        await asyncio.sleep(numbers.choice([0.0, 0.01, 0.03]))
    if reached == 5:
        writer.write(dialect.ends)
        await asyncio.sleep(numbers.choice([0.0, 0.01, 0.03]))
    if numbers.random() < 0.2 and reached:
        writer.write(frame(8, (1000).to_bytes(2, "big")))
    return f"session {point}"


def reloads(bench: Bench) -> dict[str, Any]:
    """The statuses of requests during hot reloads of a model, and during a rolling restart of two replicas."""
    work = classifier(bench)
    capacity = offline(work, bench.seconds(5))
    found: dict[str, Any] = {"hot": hot(bench, work, 0.25 * capacity)}
    if bench.nginx is not None:
        found["rolling"] = rolling(bench, work, 0.15 * capacity)
    return found


def hot(bench: Bench, work: Work, rate: float) -> dict[str, Any]:
    """Reload again and again under load."""
    statuses, done = Counter[str](), list[float]()
    with server(bench, PATH, {"model": work.model}) as running:

        def reload() -> None:
            for _ in range(max(2, round(bench.scale * RELOADS))):
                start = time.monotonic()
                running.get("/models/model/reload", b"", timeout=120)
                done.append(time.monotonic() - start)

        offer(PATH, work, rate, bench.seconds(3), PATIENT)
        thread = threading.Thread(target=reload)
        thread.start()
        latencies = list[float]()
        while thread.is_alive():
            load = offer(PATH, work, rate, bench.seconds(10), PATIENT, seed=len(latencies))
            statuses.update(map(str, load["statuses"]))
            latencies += load["latencies"]
        thread.join()
        say(f"{len(done)} reloads, {sum(done) / len(done):.1f} s each: {dict(statuses)}")
    return {"reloads": len(done), "seconds": done, "statuses": dict(statuses), "p99": p99(latencies)}


def p99(latencies: list[float]) -> float:
    """The 99th percentile in ms."""
    return round(1000 * sorted(latencies)[int(0.99 * (len(latencies) - 1))], 2)


def rolling(bench: Bench, work: Work, rate: float) -> dict[str, Any]:
    """Replace two replicas behind nginx under load."""
    options = ["--set", "replicas=2", "--set", "grace_seconds=2"]
    side, replicas = Side(PATH.command.replace("{port}", str(PORT + 1)), PREDICT), (PORT + 1, PORT + 2)
    places, body = {"model": work.model}, work.first_body(side)
    with balancer(bench, replicas), server(bench, side, places, None, body, options) as running:
        for port in replicas:
            while not started(port):
                time.sleep(0.2)
        before = [started(port) for port in replicas]
        offer(PATH, work, rate, bench.seconds(5), PATIENT)
        began, statuses, latencies, seconds = time.monotonic(), Counter[str](), list[float](), 0.0
        os.kill(running.process.pid, signal.SIGHUP)
        while not seconds and time.monotonic() - began < 300:
            load = offer(PATH, work, rate, bench.seconds(10), PATIENT, seed=len(latencies))
            statuses.update(map(str, load["statuses"]))
            latencies += load["latencies"]
            now = [started(port) for port in replicas]
            if all(when and when != first for when, first in zip(now, before, strict=True)):
                seconds = time.monotonic() - began
        say(f"both replicas are new after {seconds:.0f} s: {dict(statuses)}")
    return {"replaced": bool(seconds), "statuses": dict(statuses), "p99": p99(latencies)}


def started(port: int) -> float:
    """When the process of a port was started, 0 if there is none."""
    with suppress(OSError):
        return metrics(port)["process_start_time_seconds"]
    return 0.0


@contextmanager
def balancer(bench: Bench, ports: tuple[int, ...]) -> Iterator[None]:
    """Run nginx before servers, as docs/howto/operating.md has it."""
    assert bench.nginx is not None
    folder = bench.folder / "nginx"
    folder.mkdir(exist_ok=True)
    servers = "".join(f"server 127.0.0.1:{port} max_fails=0; " for port in ports)
    paths = "".join(
        f"{name}_temp_path {folder}/{name}; " for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"""daemon off; error_log {folder}/error.log; pid {folder}/nginx.pid;
events {{ worker_connections 1024; }}
http {{ access_log off; {paths}
upstream ernie {{ least_conn; {servers}keepalive 64; }}
server {{ listen 127.0.0.1:{PORT};
location / {{ proxy_pass http://ernie; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_connect_timeout 1s;
proxy_next_upstream error timeout http_503 non_idempotent; }} }} }}
""",
        encoding="utf-8",
    )
    process = subprocess.Popen([bench.nginx, "-c", folder / "nginx.conf", "-p", folder], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)
