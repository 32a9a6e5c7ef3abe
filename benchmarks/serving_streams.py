"""Arms of benchmarks/serving_load.py about sessions: streams of sound and text over WebSockets."""

from __future__ import annotations

import json
import random
import string
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from serving_sides import HERE, OURS, PORT, READY, Bench, Running, Side, inputs_a_batch, milliseconds, say, server

RATE, CHUNK = 8000, 0.32  # samples a second, and seconds of a chunk of the recognizer
WARM = 2.0  # seconds of a session that do not count
SESSIONS = (10, 20, 35, 50, 75, 100, 150, 200, 250, 300, 400, 500, 600, 800)
VOICES = (2, 4, 8, 12, 16, 18, 20, 24, 28, 32, 40, 48, 64)
IN_TIME = 100.0  # ms
LATE = 0.01  # the part of all pieces of sound that may come after they should be played
TRANSLATED, WORDS = 64, 16  # sessions, and words that each translates
SOUND = 10.0  # seconds of a voice's text

TALKS, SPEECH, PIECE = 8, 3.0, 0.04  # sessions that speak at once, seconds of what each says, and of a message
ROUNDS = 12

Plan = list[list[tuple[float, "int | str | None"]]]

STREAM = Side(OURS, READY, beats=True)
CHAIN = Side("{python} {peers}/serving_ours.py {config} --port {port} --set grace_seconds=0", READY, beats=True)
SHERPA = Side("{python} {peers}/serving_sherpa.py {port}", "")
ALONE = ("--set", "limits.batch_tokens=1")  # a step advances one stream


def streamed(bench: Bench, plan: Plan, *options: str, path: str = "/models/model/stream") -> dict[str, Any]:
    """What becomes of the sessions of a plan."""
    file = bench.folder / "plan.json"
    file.write_text(json.dumps(plan), encoding="utf-8")
    url = f"ws://127.0.0.1:{PORT}{path}"
    command = [sys.executable, str(HERE / "paced_streams.py"), "--url", url, "--plan", str(file), *options]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def recognition(bench: Bench) -> dict[str, Any]:
    """The latency of a chunk by the number of sessions in real time, with batches, without, and of sherpa-onnx."""
    sides: dict[str, Any] = {}
    for name, options in (("together", ()), ("one by one", ALONE)):
        with server(bench, STREAM, {"model": bench.model("recognizer")}, options=options) as running:
            sides[name] = searched(SESSIONS, lambda count: listened(bench, count, running), name)
    if bench.sherpa:
        with server(bench, SHERPA, {}, bench.sherpa):
            sides["sherpa"] = searched(SESSIONS, lambda count: listened(bench, count, None, "sherpa"), "sherpa")
    return {"sides": sides}


def searched(counts: Iterable[int], measure: Callable[[int], dict[str, Any]], name: str) -> dict[str, Any]:
    """More and more sessions until they are too many twice, then two numbers in between; the most that are not."""
    found: dict[int, dict[str, Any]] = {}

    def tried(count: int) -> bool:
        found[count] = measure(count)
        if not found[count]["good"]:  # the machine may have been busy
            found[count] = measure(count)
        say(f"{name}, {count} sessions: { ({key: found[count][key] for key in ('p50', 'p99', 'good')}) }")
        return bool(found[count]["good"])

    low = high = 0
    for count in counts:
        if not tried(count):
            high = count
            break
        low = count
    for _ in range(2):
        if high - low > max(1, low // 20):
            middle = (low + high) // 2
            if tried(middle):
                low = middle
            else:
                high = middle
    return {"most": low, "counts": {str(count): found[count] for count in sorted(found)}}


def listened(bench: Bench, count: int, running: Running | None = None, dialect: str = "ernie") -> dict[str, Any]:
    """The latencies of the chunks of so many sessions in real time, each from when its last sample was due to be sent.

    Every chunk but the first has words, and they come with the next one, which the last vectors of a chunk look at.
    """
    numbers, pieces = random.Random(count), round(bench.seconds(12) / CHUNK)
    begins = [numbers.random() * CHUNK for _ in range(count)]
    plan: Plan = [
        [*((begin + CHUNK * n, round(RATE * CHUNK)) for n in range(pieces)), (begin + CHUNK * pieces, None)]
        for begin in begins
    ]
    before = running.metrics() if running else {}
    path = "/models/model/stream" if running else "/"
    load = streamed(bench, plan, "--dialect", dialect, path=path)
    after = running.metrics() if running else {}
    latencies, missing = list[float](), 0
    for begin, session in zip(begins, load["sessions"], strict=True):
        outputs = [when for when, _ in session["outputs"]]
        missing += session["problem"] is not None or len(outputs) < pieces - 1
        due = [begin + CHUNK * n for n in range(1, pieces)]
        found = [when - at for when, at in zip(outputs, due, strict=False)]
        latencies += [took for took, at in zip(found, due, strict=False) if at >= min(WARM, bench.seconds(12) / 3)]
    result = {f"p{100 * q:g}": milliseconds(latencies, q) for q in (0.5, 0.9, 0.99)}
    return {
        **result,
        "good": not missing and result["p99"] is not None and result["p99"] <= IN_TIME,
        "missing": missing,
        **({"streams a step": inputs_a_batch(before, after)} if running else {}),
        **sent(load),
    }


def sent(load: Mapping[str, Any]) -> dict[str, Any]:
    """How late pieces were sent, and what the generator took of the processor."""
    lag = [late for session in load["sessions"] for late in session["lag"]]
    return {"p99 of lag": milliseconds(lag, 0.99), "generator's cores": round(load["cpu"] / load["seconds"], 3)}


def translation(bench: Bench) -> dict[str, Any]:
    """The tokens/s of sessions together and one after another, and whether both have the same texts."""
    numbers, turns = random.Random(0), []
    plan: Plan = []
    for _ in range(TRANSLATED):
        text = " ".join(f"w{numbers.randint(5, 7999)}" for _ in range(WORDS)) + "\n"
        plan.append([(0.0, text), (0.0, None)])
    with server(bench, STREAM, {"model": bench.model("translator")}) as running:
        streamed(bench, plan)  # warms up
        for _ in range(bench.turns):
            before = running.metrics()
            together = streamed(bench, plan)
            streams = inputs_a_batch(before, running.metrics())
            apart = streamed(bench, plan, "--apart")
            texts = [[session["text"] for session in load["sessions"]] for load in (together, apart)]
            problems = sum(session["problem"] is not None for load in (together, apart) for session in load["sessions"])
            speeds = {
                name: sum(len(text.split()) for text in own) / load["seconds"]
                for name, load, own in (("together", together, texts[0]), ("one after another", apart, texts[1]))
            }
            turns.append(
                {
                    **{"tokens/s": speeds, "same": texts[0] == texts[1], "different texts": len({*texts[0]})},
                    **{"problems": problems, "streams a step": streams, **sent(together)},
                }
            )
            say(f"{speeds}, the same texts: {texts[0] == texts[1]}")
    return {"turns": turns}


def voices(bench: Bench) -> dict[str, Any]:
    """How many voices speak in real time, and how soon 8 of them are heard."""
    with server(bench, STREAM, {"model": bench.model("voice")}):
        spoken(bench, 2, 0)
        found = searched(VOICES, lambda count: spoken(bench, count, count), "voices")
        rounds = [spoken(bench, 8, seed) for seed in range(5)]
    first = [second for each in rounds for second in each["first"]]
    return {**found, "first at 8": {f"p{100 * q:g}": milliseconds(first, q) for q in (0.5, 0.95)}}


def spoken(bench: Bench, count: int, seed: int) -> dict[str, Any]:
    """When the first sound of so many voices came, and how many pieces came after they should be played."""
    numbers = random.Random(seed)
    plan: Plan = []
    for _ in range(count):
        at = numbers.random() * bench.seconds(SOUND) / 4
        text = "".join(line(numbers) for _ in range(max(1, round(bench.seconds(SOUND) / 2.4))))
        plan.append([(at, text), (at, None)])
    load = streamed(bench, plan)
    first, slack, problems = list[float](), list[float](), 0
    for [(at, _), _], session in zip(plan, load["sessions"], strict=True):
        problems += session["problem"] is not None or not session["outputs"]
        if session["outputs"]:
            first.append(session["outputs"][0][0] - at)
            slack += ahead(session["outputs"])
    late = sum(each < 0 for each in slack) / max(1, len(slack))
    return {
        **{f"p{100 * q:g}": milliseconds(first, q) for q in (0.5, 0.95, 0.99)},
        "good": not problems and late <= LATE,
        **{"late": late, "problems": problems, "first": first, **sent(load)},
    }


def interpreter(bench: Bench) -> dict[str, Any]:
    """When those who speak at once see their first word, and hear the first sound of its translation.

    The sessions are as those of the server's page: followed, and with messages of 40 ms.
    """
    models = {
        name: {"path": str(bench.model(name)), "precision": "fp32"} for name in ("listener", "interpreter", "voice")
    }
    config = bench.folder / "serve.yaml"  # JSON is YAML, too
    config.write_text(json.dumps({"models": models, "chains": {"all": list(models)}}), encoding="utf-8")
    found: dict[str, list[float]] = {"first word": [], "first final word": [], "first sound": []}
    problems, rounds = 0, max(1, round(ROUNDS * bench.scale))
    with server(bench, CHAIN, {"config": config}) as running:
        talked(bench, -1)  # warms up
        before = running.metrics()
        for seed in range(rounds):
            times, bad, load = talked(bench, seed)
            problems += bad
            for name, own in times.items():
                found[name] += own
            say(f"round {seed + 1} of {rounds}: { {name: milliseconds(own, 0.95) for name, own in times.items()} }")
        streams = inputs_a_batch(before, running.metrics())
    quantiles = {name: {f"p{100 * q:g}": milliseconds(own, q) for q in (0.5, 0.95)} for name, own in found.items()}
    return {**quantiles, "chunk": 1000 * CHUNK, "problems": problems, "streams a step": streams, **sent(load)}


def talked(bench: Bench, seed: int) -> tuple[dict[str, list[float]], int, dict[str, Any]]:
    """The latencies of a round in seconds, how many sessions had a problem, and what became of all.

    A word counts from the end of its sound, and the sound of the translation from the end of all that was said.
    """
    numbers, pieces = random.Random(seed), round(SPEECH / PIECE)
    begins = [numbers.random() * SPEECH / 3 for _ in range(TALKS)]
    plan: Plan = [
        [*((begin + PIECE * n, round(RATE * PIECE)) for n in range(1, pieces + 1)), (begin + SPEECH, None)]
        for begin in begins
    ]
    load = streamed(bench, plan, "--dialect", "followed", path="/models/all/stream")
    times: dict[str, list[float]] = {"first word": [], "first final word": [], "first sound": []}
    bad = 0
    for begin, session in zip(begins, load["sessions"], strict=True):
        heard = [(when, step) for when, step in session["steps"] if step["stage"] == 0]
        final = next(((when, step["words"][0]["end"]) for when, step in heard if step.get("words")), None)
        if session["problem"] is not None or final is None or not session["outputs"]:
            bad += 1
            continue
        shown = next(when for when, step in heard if step.get("words") or step.get("tentative"))
        times["first word"].append(shown - begin - final[1])
        times["first final word"].append(final[0] - begin - final[1])
        times["first sound"].append(session["outputs"][0][0] - begin - SPEECH)
    return times, bad, load


def line(numbers: random.Random) -> str:
    """A line of 48 letters, which is spoken for 2.4 s."""
    return " ".join("".join(numbers.choices(string.ascii_lowercase, k=6)) for _ in range(8)) + "\n"


def ahead(outputs: Sequence[tuple[float, int]]) -> list[float]:
    """How many seconds before its turn each piece of sound but the first was there, if the first is played at once."""
    ends, found = outputs[0][0], list[float]()
    for (_, size), (when, _) in pairwise(outputs):
        ends += size / 2 / RATE
        found.append(ends - when)
    return found
