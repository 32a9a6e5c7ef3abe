"""Our translator as a SimulEval agent: their tool drives it, and its scores agree with ours."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest
from support.helpers import ROOT
from support.toys import GERMAN
from support.trained import trained

from ernie.decode.latency import average_lagging, length_adaptive_average_lagging
from ernie.decode.translator import TokenTranslator
from ernie.errors import Remark
from ernie.kernels.precision import current, resolve

pytest.importorskip("simuleval")

from inference.simuleval_agent import TranslatorAgent

SOURCES = ("blue red green blue", "red", "green blue blue red", "red green red green blue")


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict], dict[str, float]]:
    """SimulEval's record of each sentence and its scores, at a distance of two tokens."""
    folder = tmp_path_factory.mktemp("simuleval")
    trained("translate").model.save(folder / "run" / "model")
    (folder / "source.txt").write_text("".join(f"{line}\n" for line in SOURCES), encoding="utf-8")
    targets = (" ".join(GERMAN[word] for word in line.split()) for line in SOURCES)
    (folder / "target.txt").write_text("".join(f"{line}\n" for line in targets), encoding="utf-8")
    words = ["--agent-class", "inference.simuleval_agent.TranslatorAgent", "--run", "run/model", "--wait-k", "2"]
    words += ["--source", "source.txt", "--target", "target.txt", "--output", "scores"]
    words += ["--quality-metrics", "BLEU", "--latency-metrics", "AL", "LAAL", "--no-progress-bar"]
    done = subprocess.run(
        [sys.executable, "-c", "from simuleval.cli import main; main()", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    lines = (folder / "scores" / "instances.log").read_text(encoding="utf-8").splitlines()
    header, values = ((folder / "scores" / "scores.tsv").read_text(encoding="utf-8").split("\n"))[:2]
    return [json.loads(line) for line in lines], {
        name: float(value) for name, value in zip(header.split("\t"), values.split("\t"), strict=True) if name
    }


def test_simuleval_gets_whole_translations(scored) -> None:
    records, scores = scored
    assert [record["prediction"] for record in records] == [
        " ".join(GERMAN[word] for word in line.split()) for line in SOURCES
    ]
    assert scores["BLEU"] == pytest.approx(100)


def test_words_come_before_the_source_ends(scored) -> None:
    records, _ = scored
    first = records[0]
    assert first["delays"][0] < first["source_length"]
    assert first["delays"] == sorted(first["delays"])


def test_simuleval_measures_the_same_latency(scored) -> None:
    records, scores = scored
    for name, measure in (("AL", average_lagging), ("LAAL", length_adaptive_average_lagging)):
        ours = [measure(r["delays"], r["source_length"], len(r["reference"].split())) for r in records]
        assert scores[name] == pytest.approx(statistics.mean(ours), abs=1e-3)


def agent_of(run: Path, *options: str) -> TranslatorAgent:
    """The agent with these options of a command."""
    parser = ArgumentParser()
    TranslatorAgent.add_args(parser)
    return TranslatorAgent(parser.parse_args(["--run", str(run), *options]))


def test_a_sentence_that_is_too_long_is_translated_as_far_as_it_fits(tmp_path: Path) -> None:
    trained("translate").model.save(tmp_path / "model")
    agent = agent_of(tmp_path, "--wait-k", "2")
    agent.states.source = ["red", "blue"] * 100
    with pytest.warns(Remark, match=r"a sentence is translated up to its word [1-9]\d: "):
        action = agent.policy()
    assert action.finished
    assert action.content.startswith("rot blau rot blau")


@pytest.mark.parametrize(("given", "computed_in"), [(None, "auto"), ("fp32", "fp32")])
def test_the_agent_computes_in_the_precision_of_the_command(
    given: str | None, computed_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained("translate").model.save(tmp_path / "model")
    agent = agent_of(tmp_path, "--wait-k", "1", *(["--precision", given] if given else []))
    seen = []
    advance = TokenTranslator.advance
    monkeypatch.setattr(TokenTranslator, "advance", lambda *given: (seen.append(current()), advance(*given))[1])
    agent.states.source = ["red"]
    agent.policy()
    assert {*seen} == {"fp32" if computed_in == "fp32" else resolve("auto")}
