"""Serving under load: our server beside others around the same engine, offered more and more requests.

  python benchmarks/serving_load.py --arm overhead sweep [--peers PYTHON] [--records DIR]

The engine is a classifier of MiniLM's shape in float32, with random weights: speed does not depend on them.  Nine
tenths of the texts have the lengths of SST-2 (benchmarks/lengths.json), one tenth 64 to 256 tokens.  Requests arrive by
a Poisson process whose times are made beforehand; latency counts from these times (benchmarks/offered_load.py).  All
sides share the same cores with the generator, whose processor time is told.  PYTHON is the interpreter of an
environment with mosec, litserve, bentoml and ray[serve], which finds this checkout on its path.

`overhead`: processor time a request outside the engine, by a server whose engine computes nothing.
`saturated`: rows/s under more load than can be answered, beside `compute` on packed batches of the same rows.
`sweep`: latency and answers in time (100 ms) at parts of the capacity that `saturated` found, for each side in turn.

Set before the first run: the TARGETS below.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from record_files import cached_record

HERE = Path(__file__).resolve().parent
LENGTHS = json.loads((HERE / "lengths.json").read_text(encoding="utf-8"))["sst2"]
WORDS = 30000
ROWS = 4000
TARGETS = {
    "overhead": "0.3 ms of processor time a request",
    "saturated": "95 % of the offline packed batch",
    "sweep": "twice the requests/s of the best other side with a p99 of 100 ms",
}
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)
SIDES = {
    "ours": ("", "/models/model/predict"),
    "mosec": ("serving_mosec.py", "/inference"),
    "litserve": ("serving_litserve.py", "/predict"),
    "bentoml": ("serving_bentoml.py", "/predict"),
    "ray": ("serving_ray.py", "/predict"),
}
PORT = 8731


def main() -> None:
    """Run the arms that have no record yet, and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=["ours"])
    parser.add_argument("--peers", metavar="PYTHON", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--records", type=Path, default=Path("runs/benchmarks/serving"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        model, bodies = Path(name) / "model", Path(name) / "bodies"
        subprocess.run([sys.executable, HERE / "peers" / "serving_engine.py", model], check=True)
        lengths = write_bodies(bodies)
        for arm in arguments.arm:
            make = partial(ARMS[arm], model, bodies, lengths, arguments)
            record = cached_record(arguments.records / f"{arm}-0.json", make)
            print(f"- {arm} (target: {TARGETS[arm]}): {json.dumps(record)}")


def write_bodies(file: Path) -> list[int]:
    """Write a body a line; return the tokens of each text."""
    numbers = random.Random(0)
    sst2 = [length for lengths in LENGTHS for length in lengths]
    lengths = [numbers.choice(sst2) if numbers.random() < 0.9 else numbers.randint(64, 256) for _ in range(ROWS)]
    with file.open("w", encoding="utf-8") as lines:
        for length in lengths:
            text = " ".join(f"w{numbers.randrange(5, WORDS)}" for _ in range(max(1, length - 2)))
            lines.write(json.dumps({"inputs": [text]}) + "\n")
    return lengths


@contextmanager
def server(side: str, model: Path, arguments: argparse.Namespace) -> Iterator[subprocess.Popen[bytes]]:
    """Run the server of a side, ready to answer."""
    script, path = SIDES.get(side, (side, "/models/model/predict"))
    command = [sys.executable, "-m", "ernie.cli", "serve", f"model={model}", "--precision", "fp32", "--port", str(PORT)]
    if script:
        interpreter = sys.executable if side.endswith(".py") else arguments.peers
        command = [interpreter, str(HERE / "peers" / script), str(model), str(PORT)]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        body = json.dumps({"inputs": ["w5 w6"]}).encode()
        end = time.monotonic() + 90
        while True:
            with suppress(OSError):
                request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", body)
                request.add_header("content-type", "application/json")
                urllib.request.urlopen(request, timeout=5).read()
                break
            if time.monotonic() > end or process.poll() is not None:
                sys.exit(f"the server of {side} does not answer")
            time.sleep(0.2)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        time.sleep(1)


def offer(side: str, bodies: Path, rate: float, seconds: float, *headers: str, seed: int = 0) -> dict[str, Any]:
    """Offer so many requests a second; return what became of them."""
    path = SIDES.get(side, ("", "/models/model/predict"))[1]
    command = [sys.executable, str(HERE / "offered_load.py"), "--url", f"http://127.0.0.1:{PORT}{path}"]
    command += ["--bodies", str(bodies), "--rate", str(rate), "--seconds", str(seconds), "--seed", str(seed)]
    for header in headers:
        command += ["--header", header]
    load: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return load


def processor_seconds(process: int) -> float:
    """Return the processor time of a process and its descendants so far."""
    total = 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rsplit(") ", 1)[1].split()
            if int(fields[3]) == process or folder.name == str(process):  # of the same session
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def overhead(model: Path, bodies: Path, lengths: list[int], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the milliseconds of processor time a request of a server whose engine computes nothing."""
    found = []
    with server("serving_nothing.py", model, arguments) as process:
        offer("", bodies, 300, 5)
        idle = processor_seconds(process.pid)
        time.sleep(arguments.seconds)
        idle = processor_seconds(process.pid) - idle
        for turn in range(arguments.turns):
            before = processor_seconds(process.pid)
            load = offer("", bodies, 500, arguments.seconds, seed=turn)
            used = processor_seconds(process.pid) - before - idle
            found.append({"ms": 1000 * used / len(load["statuses"]), **summary(load)})
    return {"median ms": statistics.median(each["ms"] for each in found), "turns": found}


def saturated(model: Path, bodies: Path, lengths: list[int], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the rows/s of our server under more load than it can answer, and of packed batches without it."""
    turns = []
    for turn in range(arguments.turns):
        offline = json.loads(
            subprocess.run(
                [sys.executable, HERE / "peers" / "serving_offline.py", model, bodies, str(arguments.seconds)],
                check=True,
                capture_output=True,
            ).stdout
        )
        with server("ours", model, arguments):
            headers = ("x-timeout: 2",)
            load = offer("ours", bodies, 1.5 * offline["rows/s"], arguments.seconds, *headers, seed=turn)
        ends = [
            w + t for w, t, s in zip(load["scheduled"], load["latencies"], load["statuses"], strict=True) if s == 200
        ]
        inside = [end for end in ends if 2 <= end < arguments.seconds]
        served = len(inside) / (arguments.seconds - 2)
        cpu = load["cpu"] / arguments.seconds
        turns.append({"served": served, "offline": offline["rows/s"], "generator's cores": cpu, **summary(load)})
    return {"median part": statistics.median(each["served"] / each["offline"] for each in turns), "turns": turns}


def sweep(model: Path, bodies: Path, lengths: list[int], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the latencies of each side at parts of our own capacity; the sides take turns at each load."""
    capacity = json.loads((arguments.records / "saturated-0.json").read_text(encoding="utf-8"))
    rate = statistics.median(each["served"] for each in capacity["turns"])
    found: dict[str, dict[str, list[Any]]] = {side: {} for side in arguments.sides}
    for load in LOADS:
        for turn in range(arguments.turns):
            for side in arguments.sides:
                with server(side, model, arguments):
                    offer(side, bodies, 0.3 * rate, 3)
                    headers = ("x-timeout: 0.1",) if side == "ours" else ()
                    offered = offer(side, bodies, load * rate, arguments.seconds, *headers, seed=turn)
                found[side].setdefault(str(load), []).append(summary(offered))
                print(side, load, found[side][str(load)][-1], file=sys.stderr, flush=True)
    return {"capacity": rate, "sides": found}


def summary(load: dict[str, Any]) -> dict[str, Any]:
    """Return quantiles of the latencies of answered requests in ms, and how many there were of each status."""
    answered = sorted(t for t, s in zip(load["latencies"], load["statuses"], strict=True) if s == 200)
    counts = {str(status): load["statuses"].count(status) for status in sorted({*load["statuses"]})}
    quantiles = {
        f"p{100 * q:g}": round(1000 * answered[min(len(answered) - 1, int(q * len(answered)))], 2)
        for q in (0.5, 0.9, 0.99, 0.999)
        if answered
    }
    in_time = sum(t <= 0.1 for t in answered) / max(1, len(load["statuses"]))
    lag = sorted(load["lag"])[int(0.99 * (len(load["lag"]) - 1))]
    refusals = [t for t, s in zip(load["latencies"], load["statuses"], strict=True) if s == 429]
    refused = round(1000 * sorted(refusals)[int(0.99 * (len(refusals) - 1))], 2) if refusals else None
    return {
        "statuses": counts,
        **quantiles,
        "in time": round(in_time, 4),
        "p99 of refusals": refused,
        "p99 of lag": round(1000 * lag, 2),
    }


ARMS = {"overhead": overhead, "saturated": saturated, "sweep": sweep}


if __name__ == "__main__":
    main()
