"""Arms of benchmarks/serving_load.py whose requests are answered one by one."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import compress, pairwise
from pathlib import Path
from typing import Any

from serving_sides import (
    HERE,
    IN_TIME,
    KSERVE,
    OURS,
    PORT,
    Bench,
    NoAnswer,
    Running,
    Side,
    Work,
    classifier,
    encoder,
    inputs_a_batch,
    milliseconds,
    offer,
    offline,
    say,
    server,
    summary,
)

from serving.cost import CostModel
from serving.dispatcher import Dispatcher, Job, Lane
from serving.simulation import Item, simulate

ENOUGH, HOPELESS = 0.99, 0.5  # parts of all requests that are answered in time
SHARES = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.1)  # of the capacity, one after another
OVERLOAD = 1.5
PATIENT = ("x-timeout: 2",)
DEADLINE = ("x-timeout: 0.1",)
PREDICT = "/models/model/predict"
PATH = Side(OURS, PREDICT, DEADLINE, beats=True)
CLASSIFY = {
    "ours": PATH,
    "mosec": Side("{python} {peers}/serving_mosec.py {model} {port}", "/inference"),
    "litserve": Side("{python} {peers}/serving_litserve.py {model} {port}", "/predict"),
    "bentoml": Side("{python} {peers}/serving_bentoml.py {model} {port}", "/predict"),
    "ray": Side("{python} {peers}/serving_ray.py {model} {port}", "/predict"),
    "pytriton": Side(
        "{python} {peers}/serving_pytriton.py {model} {port}", "/v2/models/classifier/infer", protocol=KSERVE
    ),
}
EMBED = {
    "ours": Side(OURS, "/v1/embeddings", DEADLINE, beats=True),
    "infinity": Side(
        "{programs}/infinity_emb v2 --model-id {model} --served-model-name model --engine torch --device cpu"
        " --no-bettertransformer --url-prefix /v1 --port {port} --log-level error",
        "/v1/embeddings",
    ),
}
NOTHING = Side("{python} {peers}/serving_nothing.py {model} {port}", PREDICT)


def overhead(bench: Bench) -> dict[str, Any]:
    """The milliseconds of processor time a request of a server whose engine computes nothing."""
    work, turns, seconds = classifier(bench), [], bench.seconds(15)
    with server(bench, NOTHING, {"model": work.model}, body=work.first_body(NOTHING)) as running:
        offer(NOTHING, work, 300, bench.seconds(5))
        idle = running.processor_seconds()
        time.sleep(seconds)
        idle = running.processor_seconds() - idle
        for turn in range(bench.turns):
            before = running.processor_seconds()
            load = offer(NOTHING, work, 500, seconds, seed=turn)
            used = running.processor_seconds() - before - idle
            turns.append({"ms": 1000 * used / len(load["statuses"]), **summary(load)})
            say(f"{turns[-1]['ms']:.3f} ms a request")
    return {"idle cores": idle / seconds, "turns": turns}


def saturated(bench: Bench) -> dict[str, Any]:
    """The rows/s of our server under more load than it can answer, and of packed batches without it."""
    work, turns, seconds = classifier(bench), [], bench.seconds(15)
    for turn in range(bench.turns):
        capacity = offline(work, seconds)
        with server(bench, PATH, {"model": work.model}):
            load = offer(PATH, work, OVERLOAD * capacity, seconds, PATIENT, seed=turn)
        served = rate_of_answers(load, work, min(2.0, seconds / 2), seconds)
        turns.append({"served": served, "offline": capacity, **summary(load)})
        say(f"{served:.1f} rows/s, {capacity:.1f} offline")
    return {"turns": turns}


def rate_of_answers(
    load: Mapping[str, Any], work: Work, start: float, end: float, within: float = float("inf")
) -> float:
    """How many requests are answered in a second of this time, so many seconds after they were due at most.

    A request counts by its tokens, and one of the mean length as 1: short ones are refused less often than long ones.
    """
    mean, total = statistics.mean(work.lengths), 0.0
    answers = zip(load["scheduled"], load["latencies"], load["statuses"], strict=True)
    for n, (when, took, status) in enumerate(answers):
        if status == 200 and took <= within and start <= when + took < end:
            total += work.lengths[n % len(work.lengths)] / mean
    return total / (end - start)


def classify(bench: Bench) -> dict[str, Any]:
    """What each server around the same engine makes of more and more requests/s."""
    pythons = {**dict.fromkeys(CLASSIFY, bench.peers), "ours": sys.executable, "pytriton": bench.triton}
    return compared(CLASSIFY, classifier(bench), pythons, bench)


def embed(bench: Bench) -> dict[str, Any]:
    """What our server and infinity make of more and more requests/s for vectors of the same model."""
    return compared(EMBED, encoder(bench), {"ours": sys.executable, "infinity": bench.infinity}, bench)


def compared(sides: Mapping[str, Side], work: Work, pythons: Mapping[str, str | None], bench: Bench) -> dict[str, Any]:
    """What each side makes of more and more requests/s, and the highest rate of which it answers enough in time.

    A side starts anew for each sweep.  Between the last rate of which it answers enough and the next one, or below the
    lowest, it is tried twice more, in turns with the others.
    """
    capacity = offline(work, bench.seconds(10))
    found: dict[str, dict[str, list[Any]]] = {name: {} for name, python in pythons.items() if python}
    bursts: dict[str, Any] = {}
    failed: dict[str, str] = {}

    def tried(running: Running, name: str, rate: float, seed: int) -> dict[str, Any]:
        before = running.metrics() if sides[name].beats else {}
        load = offer(sides[name], work, rate, bench.seconds(min(12.0, max(8.0, 400 / rate))), seed=seed)
        result = summary(load)
        if sides[name].beats:
            result["texts a batch"] = inputs_a_batch(before, running.metrics())
        found[name].setdefault(str(round(rate, 1)), []).append(result)
        say(f"{name} {rate:.1f}/s: {result['in time']:.3f} in time, p99 {result.get('p99')} ms")
        return result

    def started(name: str) -> Any:
        return server(bench, sides[name], {"model": work.model}, pythons[name], work.first_body(sides[name]))

    for name, side in sides.items():
        if name not in found:
            continue
        try:
            with started(name) as running:
                offer(side, work, 0.1 * capacity, bench.seconds(4))  # warms up
                bursts[name] = summary(offer(side, work, 0.2 * capacity, bench.seconds(10), burst=8))
                for share in (*SHARES, OVERLOAD):
                    if tried(running, name, share * capacity, 0)["in time"] < HOPELESS:
                        break
        except NoAnswer as error:
            say(f"{name}: {error}")
            failed[name] = str(error)
            del found[name]
    for step in range(2):
        for name in found:
            if rate := between(found[name]):
                with started(name) as running:
                    offer(sides[name], work, 0.5 * rate, bench.seconds(3))
                    tried(running, name, rate, step + 1)
    rates = {name: highest(each) for name, each in found.items()}
    return {"capacity": capacity, "rates": rates, "sides": found, "bursts": bursts, "failed": failed}


def between(tried: Mapping[str, Sequence[Mapping[str, Any]]]) -> float | None:
    """The rate halfway between the highest of which enough are answered in time and the next, None beyond the last.

    It is half of the lowest one if even of that too few are answered in time.
    """
    low = highest(tried)
    above = sorted(rate for rate in map(float, tried) if rate > low)
    if not above:
        return None
    return (low * above[0]) ** 0.5 if low else above[0] / 2


def highest(tried: Mapping[str, Sequence[Mapping[str, Any]]]) -> float:
    """The highest rate up to which enough requests are answered in time, 0 if there is none."""
    good = 0.0
    for rate in sorted(map(float, tried)):
        if statistics.median(turn["in time"] for turn in tried[str(rate)]) < ENOUGH:
            break
        good = rate
    return good


def optimum(bench: Bench) -> dict[str, Any]:
    """The latencies at half and at 80 % of the capacity, and those of an ideal server at the same arrivals."""
    work, points = classifier(bench), []
    capacity = offline(work, bench.seconds(10))
    for turn in range(bench.turns):
        with server(bench, PATH, {"model": work.model}) as running:
            offer(PATH, work, 0.3 * capacity, bench.seconds(5), PATIENT)
            for share, burst in ((0.5, 1), (0.8, 1), (0.5, 8)):
                before = running.metrics()
                load = offer(PATH, work, share * capacity, bench.seconds(25), PATIENT, seed=turn, burst=burst)
                metrics = running.metrics()
                fixed, per_token = (metrics[f'ernie_cost_{which}_seconds{{work="model/predict"}}'] for which in COST)
                ideal = simulated(load["scheduled"], work.lengths, fixed, per_token)
                points.append(
                    {
                        **{"share": share, "burst": burst, "fixed": fixed, "per token": per_token},
                        **{"texts a batch": inputs_a_batch(before, metrics), "ideal": ideal, **summary(load)},
                    }
                )
                say(f"{share:.0%}, bursts of {burst}: p99 {points[-1]['p99']} ms, ideal {ideal['p99']} ms")
    return {"capacity": capacity, "points": points}


COST = ("fixed", "token")


def simulated(scheduled: Sequence[float], lengths: Sequence[int], fixed: float, per_token: float) -> dict[str, Any]:
    """The latencies of an engine that takes exactly what the fit says, with nothing around it, eager and ragged."""
    lane = Lane("ideal", CostModel([(1, fixed + per_token), (1000, fixed + 1000 * per_token)]))
    jobs = [Job(lane, [Item(lengths[n % len(lengths)])], when, when + 60) for n, when in enumerate(scheduled)]
    found = simulate(jobs, Dispatcher())
    assert len(found.answered) == len(jobs)
    return {f"p{100 * q:g}": milliseconds(found.latencies, q) for q in (0.5, 0.9, 0.99)}


WINDOW = 0.5  # seconds
PHASES = (10.0, 15.0, 10.0)


def overload(bench: Bench) -> dict[str, Any]:
    """What becomes of requests while there are half as many again as can be answered, and after that."""
    work, turns = classifier(bench), []
    before, during, after = map(bench.seconds, PHASES)
    for turn in range(bench.turns):
        packed = offline(work, bench.seconds(8))
        with server(bench, PATH, {"model": work.model}) as running:
            load = offer(PATH, work, OVERLOAD * packed, bench.seconds(10), PATIENT, seed=turn)
            capacity = rate_of_answers(load, work, bench.seconds(10) / 4, bench.seconds(10))
            rates = [0.5 * capacity, OVERLOAD * capacity, 0.5 * capacity]
            offer(PATH, work, rates, [2, 2, 2], seed=turn)
            memory = running.memory()
            load = offer(PATH, work, rates, [before, during, after], seed=turn)
            grown = running.memory() / memory - 1
        fall = before + during
        start = before + during / 5  # it has found out by then
        inside = [start <= when < fall for when in load["scheduled"]]
        middle = {key: list(compress(load[key], inside)) for key in KEYS}
        admitted = [took for took, status in zip(middle["latencies"], middle["statuses"], strict=True) if status != 429]
        normal = max(latency for _, latency in windows(load, 0.0, before))
        slow = [end for end, latency in windows(load, fall, fall + after) if latency > normal]
        turns.append(
            {
                **{"capacity": capacity, "offline": packed, "memory": grown},
                "goodput": rate_of_answers(load, work, start, fall, IN_TIME) / capacity,
                "admitted in time": sum(took <= IN_TIME for took in admitted) / max(1, len(admitted)),
                "normal again": max(slow, default=fall) - fall,
                **summary({**middle, "cpu": load["cpu"] * during / (fall + after)}),
            }
        )
        say(str({key: turns[-1][key] for key in ("goodput", "admitted in time", "p99 of refusals", "normal again")}))
    return {"turns": turns}


KEYS = ("scheduled", "latencies", "statuses", "lag")


def windows(load: Mapping[str, Any], start: float, end: float) -> list[tuple[float, float]]:
    """The end of each window of time, and the 99th percentile of the latencies of the requests that are due in it."""
    edges = [start + WINDOW * n for n in range(int((end - start) / WINDOW) + 1)]
    found = []
    for low, high in pairwise(edges):
        due = zip(load["scheduled"], load["latencies"], load["statuses"], strict=True)
        inside = sorted(took for when, took, status in due if low <= when < high and status == 200)
        if inside:
            found.append((high, inside[int(0.99 * (len(inside) - 1))]))
    return found


def generator(bench: Bench) -> dict[str, Any]:
    """The latencies that our generator and k6 see, in turns, at the same server and rate."""
    work, turns = classifier(bench), []
    rate, seconds = 0.3 * offline(work, bench.seconds(5)), bench.seconds(12)
    assert bench.k6 is not None
    with server(bench, PATH, {"model": work.model}):
        offer(PATH, work, rate, bench.seconds(5), PATIENT)
        for turn in range(bench.turns):
            ours = summary(offer(PATH, work, rate, seconds, PATIENT, seed=turn))
            file = bench.folder / "k6.json"
            environment = {
                **os.environ,
                **{"URL": f"http://127.0.0.1:{PORT}{PREDICT}", "BODIES": str(work.bodies)},
                **{"RATE": str(round(rate)), "SECONDS": str(round(seconds)), "K6_NO_USAGE_REPORT": "true"},
            }
            command = [bench.k6, "run", "--quiet", "--summary-export", str(file), str(HERE / "peers" / "serving_k6.js")]
            subprocess.run(command, env=environment, check=True, capture_output=True)
            found = json.loads(Path(file).read_text(encoding="utf-8"))["metrics"]["http_req_duration"]
            theirs = {"p50": found["p(50)"], "p90": found["p(90)"], "p99": found["p(99)"]}
            turns.append({"ours": ours, "k6": theirs})
            say(f"p50 {ours['p50']} and {theirs['p50']:.2f} ms, p99 {ours['p99']} and {theirs['p99']:.2f} ms")
    return {"rate": rate, "turns": turns}
