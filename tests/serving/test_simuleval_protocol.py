"""SimulEval's remote evaluator, as examples/simuleval_remote.py starts it, evaluates served models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from support.echoing import until
from support.helpers import ROOT
from support.served import served, service_of_streams
from support.sessions import sound
from support.toys import GERMAN
from support.trained import trained

from ernie.decode.wait_k import WaitK
from inference.translator import TextTranslator
from serving.service import Service
from serving.sessions import SessionLimits

pytest.importorskip("simuleval")
soundfile = pytest.importorskip("soundfile")
SOURCES = ("blue red green blue", "red", "green blue blue red", "red green red green blue")


def make_service(limits: SessionLimits | None = None) -> Service:
    chains = {"interpreter": ("listen", "translate"), "dubber": ("listen", "translate", "speak")}
    return service_of_streams(chains, limits, translate=TextTranslator(trained("translate").model, WaitK(2, 0.0)))


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Service, str]]:
    service = make_service()
    with served(service) as address:
        yield service, address


def evaluate(
    folder: Path, *words: str, command: str = str(ROOT / "examples" / "simuleval_remote.py")
) -> subprocess.CompletedProcess[str]:
    """Run SimulEval in a folder, by default its remote evaluator."""
    measures = ["--quality-metrics", "BLEU", "--latency-metrics", "AL", "--no-progress-bar", "--output", "scores"]
    return subprocess.run(
        [sys.executable, command, *words, *measures],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
    )


def remote(address: str, path: str, source: str = "text", target: str = "text") -> list[str]:
    """The arguments for a served model."""
    return [
        *("--remote-address", "127.0.0.1", "--remote-port", f"{address.rpartition(':')[2]}/{path}"),
        *("--source", "source.txt", "--target", "target.txt", "--dataloader", f"{source}-to-{target}"),
        *("--source-type", source, "--target-type", target),
    ]


def records(folder: Path) -> list[dict[str, Any]]:
    """What SimulEval notes of each sentence."""
    return [json.loads(line) for line in (folder / "scores" / "instances.log").read_text().splitlines()]


def write_sources(folder: Path, lines: Sequence[str], targets: Sequence[str]) -> None:
    (folder / "source.txt").write_text("".join(f"{line}\n" for line in lines))
    (folder / "target.txt").write_text("".join(f"{line}\n" for line in targets))


def german(line: str) -> str:
    return " ".join(GERMAN[word] for word in line.split())


def test_a_served_translator_is_evaluated_as_in_the_evaluators_own_process(
    shared: tuple[Service, str], tmp_path: Path
) -> None:
    write_sources(tmp_path, SOURCES, [german(line) for line in SOURCES])
    done = evaluate(tmp_path, *remote(shared[1], "simuleval/translate"))
    assert done.returncode == 0, done.stderr
    served_ones = records(tmp_path)
    assert [record["prediction"] for record in served_ones] == [german(line) for line in SOURCES]
    trained("translate").model.save(tmp_path / "run" / "model")
    (tmp_path / "local.py").write_text("from simuleval.cli import main; main()")
    agent = ["--agent-class", "inference.simuleval_agent.TranslatorAgent", "--run", "run/model", "--wait-k", "2"]
    done = evaluate(
        tmp_path,
        *agent,
        "--source",
        "source.txt",
        "--target",
        "target.txt",
        "--precision",
        "fp32",
        command=str(tmp_path / "local.py"),
    )
    assert done.returncode == 0, done.stderr
    for own, found in zip(records(tmp_path), served_ones, strict=True):
        assert (found["prediction"], found["delays"]) == (own["prediction"], own["delays"])
    until(lambda: not shared[0].sessions.live)


def write_sounds(folder: Path, rate: int = 8000) -> list[str]:
    """Write sounds of colors, and what they are; returns that."""
    lines = ["blue red green", "red blue"]
    for n, line in enumerate(lines):
        soundfile.write(folder / f"{n}.wav", np.repeat(sound(line.split()), rate // 8000), rate)
    write_sources(folder, [str(folder / f"{n}.wav") for n in range(len(lines))], [german(line) for line in lines])
    return lines


@pytest.mark.parametrize("rate", [8000, 16000])
def test_a_chain_is_evaluated_on_sound(shared: tuple[Service, str], tmp_path: Path, rate: int) -> None:
    lines = write_sounds(tmp_path, rate)
    words = remote(shared[1], "simuleval/interpreter", "speech")
    done = evaluate(tmp_path, *words, "--source-segment-size", "80")
    assert done.returncode == 0, done.stderr
    assert [record["prediction"] for record in records(tmp_path)] == [german(line) for line in lines]
    until(lambda: not shared[0].sessions.live)


def test_a_chain_that_speaks_is_evaluated(shared: tuple[Service, str], tmp_path: Path) -> None:
    write_sounds(tmp_path)
    words = remote(shared[1], "simuleval/dubber", "speech", "speech")
    done = evaluate(tmp_path, *words, "--source-segment-size", "80", "--no-scoring")
    spoken = sorted((tmp_path / "scores" / "wavs").iterdir())
    assert [path.name for path in spoken] == ["0_pred.wav", "1_pred.wav"], done.stderr
    samples, rate = soundfile.read(spoken[0])
    assert (rate, len(samples) > 400, np.abs(samples).max() > 0.01) == (8000, True, True)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("simuleval/nobody", "there is no model 'nobody' here"),
        ("simuleval/vectors", "takes no streams"),
        ("simuleval/listen", "content: this model takes sound, found text; evaluate it with --source-type speech"),
        ("nowhere", ""),
    ],
)
def test_an_evaluation_that_cannot_be_ends_with_the_sentence(
    shared: tuple[Service, str], tmp_path: Path, path: str, sentence: str
) -> None:
    write_sources(tmp_path, SOURCES[:1], [german(SOURCES[0])])
    done = evaluate(tmp_path, *remote(shared[1], path))
    assert done.returncode != 0
    assert sentence in done.stderr
    until(lambda: not shared[0].sessions.live)


class Evaluator:
    """A client that sends the evaluator's messages."""

    def __init__(self, address: str, path: str):
        self.http = httpx.Client(base_url=f"{address}/simuleval/{path}", timeout=60)

    def reset(self) -> httpx.Response:
        return self.http.post("/reset")

    def put(self, content: Any, finished: bool = False, **values: Any) -> httpx.Response:
        segment = {"index": 0, "content": content, "finished": finished, "is_empty": False, "data_type": "text"}
        return self.http.put("/input", json={**segment, "tgt_lang": None, "config": {}, **values})

    def get(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get("/output").json()
        return found

    def translate(self, line: str) -> str:
        self.reset()
        found, words = list[str](), line.split()
        for n, word in enumerate(words):
            self.put(word, n == len(words) - 1)
            found.append(str(self.get()["content"]))
        return " ".join(filter(None, found))


def test_evaluations_of_several_names_go_on_beside_one_another(shared: tuple[Service, str]) -> None:
    found: dict[int, list[str]] = {}

    def evaluate_all(n: int) -> None:
        evaluator = Evaluator(shared[1], f"translate/{n}")
        found[n] = [evaluator.translate(line) for line in SOURCES]

    threads = [threading.Thread(target=evaluate_all, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(found.values()) == [[german(line) for line in SOURCES]] * 8
    until(lambda: not shared[0].sessions.live)


def test_a_reset_ends_what_was_before(shared: tuple[Service, str]) -> None:
    evaluator = Evaluator(shared[1], "translate/once")
    evaluator.put("green")
    evaluator.put("green")
    evaluator.get()
    assert len(shared[0].sessions.live) == 1
    assert evaluator.translate("red") == "rot"
    assert evaluator.get() == {"content": "", "finished": True, "is_empty": False, "data_type": "text"}
    assert not shared[0].sessions.live


@pytest.mark.parametrize(
    ("path", "content", "values", "sentence"),
    [
        ("translate", [0.1, 0.2], {}, "content: this model takes text, found samples"),
        ("translate", 3, {}, "the request: Expected `str | array`, got `int` - at `$.content`"),
        ("listen", [0.1, "x"], {"sample_rate": 8000}, "the request: Expected `float`, got `str`"),
        ("listen", [0.1, 0.2], {}, "sample_rate: expected 1,000 to 1,000,000 samples a second, found -1"),
        ("listen", [1e300] * 9, {"sample_rate": 8000}, "holds samples that are not numbers"),
    ],
)
def test_a_faulty_segment_is_told_until_the_reset(
    shared: tuple[Service, str], path: str, content: Any, values: dict[str, Any], sentence: str
) -> None:
    evaluator = Evaluator(shared[1], f"{path}/faulty")
    evaluator.reset()
    answer = evaluator.put(content, **values)
    assert answer.status_code == 422
    for found in (answer.json(), evaluator.get(), evaluator.get()):
        assert found.pop("data_type") is None
        assert next(iter(found)).startswith(sentence), found
    assert not shared[0].sessions.live
    evaluator.reset()
    assert "finished" in evaluator.get()


def test_an_evaluation_whose_client_is_gone_ends() -> None:
    service = make_service(SessionLimits(idle_seconds=0.5))
    with served(service) as address:
        evaluator = Evaluator(address, "translate")
        evaluator.put("red")
        assert len(service.sessions.live) == 1
        until(lambda: not service.sessions.live)
        assert "nothing was sent for 0.5 s" in evaluator.get()
        assert evaluator.put("blue").status_code == 408


def test_paths_beyond_the_limit_are_forgotten_or_refused() -> None:
    service = make_service(SessionLimits(sessions=2))
    with served(service) as address:
        for n in range(2):
            Evaluator(address, f"translate/{n}").put("red")
        for n in range(2, 40):  # each is told that there are too many sessions, and is forgotten
            assert Evaluator(address, f"translate/{n}").put("red").status_code == 429
        for n in range(2):
            evaluator = Evaluator(address, f"translate/{n}")
            evaluator.put("blue", finished=True)
            assert evaluator.get()["content"] == "rot blau"
        assert not service.sessions.live
