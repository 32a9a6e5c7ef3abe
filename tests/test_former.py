"""What commit 0506553 wrote, with the keys of that time, is read, used and continued (see tests/former/make.py)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ernie.cli import main
from ernie.data.shards import Corpus
from ernie.decode.stream import Stream, load_state
from ernie.model.weights import read_arrays
from ernie.text.load import load_tokenizer
from finetune.train.run_contents import read_inputs
from inference.recognizer import SpeechRecognizer
from inference.speaker import TextSpeaker
from inference.task_model import TaskModel
from inference.translator import TextTranslator

KEPT = Path(__file__).parent / "former"
KINDS = ("classify", "tag", "translate", "transcribe", "synthesize")


@pytest.fixture
def former(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the files, in which relative paths begin, as they did when these were written."""
    shutil.copytree(KEPT, tmp_path / "former")
    monkeypatch.chdir(tmp_path / "former")
    yield tmp_path / "former"


def steps(run: str) -> list[Any]:
    """The losses and samples of a run's steps."""
    records = map(json.loads, Path(run, "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [(one["step"], one["loss"], one["samples"]) for one in records if one["kind"] == "step"]


def is_alike(ours: Any, theirs: Any) -> bool:
    """Whether two answers are equal, numbers up to their rounding."""
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(is_alike(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(is_alike, ours, theirs))
    if isinstance(theirs, float):
        return ours == pytest.approx(theirs, abs=2e-4)
    return ours == theirs


def assert_same_weights(found: str, expected: str) -> None:
    ours, theirs = read_arrays(Path(found)), read_arrays(Path(expected))
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        np.testing.assert_allclose(ours[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_tokenizer_and_a_corpus_are_read() -> None:
    tokenizer, corpus = load_tokenizer(KEPT / "tokenizer"), Corpus.open(KEPT / "corpus")
    assert corpus.tokenizer.fingerprint == tokenizer.fingerprint
    corpus.verify()
    assert len(corpus.train) + len(corpus.held_out) == 40


@pytest.mark.parametrize("kind", KINDS)
def test_a_fine_tuned_model_answers_as_it_did(kind: str) -> None:
    rows = [json.loads(line) for line in (KEPT / f"{kind}-dev.jsonl").read_text(encoding="utf-8").splitlines()]
    found: list[Any] = list(TaskModel.load(KEPT / kind).predict(rows))
    expected = json.loads((KEPT / "answers.json").read_text(encoding="utf-8"))[kind]
    if kind == "synthesize":
        assert [len(answer["audio"]["array"]) for answer in found] == expected
        return
    for ours, theirs in zip(found, expected, strict=True):
        theirs.pop("seconds", None)  # when a word begins is found in another way since
        assert {key for key in theirs if not is_alike(ours[key], theirs[key])} == set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_run_is_evaluated(kind: str, former: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", kind, "--split", "dev"]) == 0
    scores = json.loads((former / kind / "scores.json").read_text(encoding="utf-8"))["scores"]["dev"]
    shown = capsys.readouterr().out
    for name in scores:
        assert name in shown


def test_old_files_are_refused_until_they_are_migrated(former: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "pretrain.yaml", "--output", "new"]) == 2
    error = capsys.readouterr().err
    assert "data.lanes: was renamed to data.data_shards: `ernie migrate pretrain.yaml` rewrites it" in error
    assert "objectives.knowledge_masking.mask: was renamed to tasks.knowledge_masking.mask_replace_prob" in error
    files = ["pretrain.yaml", *(f"{kind}.yaml" for kind in KINDS)]
    assert main(["migrate", "--check", *files]) == 1
    assert main(["migrate", *files]) == 0
    assert main(["migrate", "--check", *files]) == 0
    assert main(["pretrain", "pretrain.yaml", "--check"]) == 0


def test_a_stopped_pretraining_goes_on_as_it_would_have(former: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["migrate", "pretrain.yaml"])
    assert main(["pretrain", "pretrain.yaml", "--output", "pretrained-stopped", "--quiet"]) == 0
    assert [found[0] for found in steps("pretrained-stopped")] == list(range(8))
    for found, expected in zip(steps("pretrained-stopped"), steps("pretrained"), strict=True):
        assert found[2] == expected[2]  # the same samples
        assert found[1] == pytest.approx(expected[1], rel=1e-5)
    last = "checkpoints/step-00000008"
    for file in ("model/model.safetensors", "heads.safetensors", "optimizer.safetensors"):
        assert_same_weights(f"pretrained-stopped/{last}/{file}", f"pretrained/{last}/{file}")
    origin = json.loads(Path("pretrained-stopped/origin.json").read_text(encoding="utf-8"))
    assert origin["resumed"][0]["changed"] == []


def test_a_finished_pretraining_is_verified_extended_and_reported(
    former: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "pretrained", "--quiet"]) == 0
    assert main(["report", "pretrained"]) == 0
    main(["migrate", "pretrain.yaml"])
    assert main(["pretrain", "pretrain.yaml", "--output", "pretrained", "--quiet", "--set", "data.fraction=1"]) == 2
    assert "data.fraction: was 0.9, is 1.0" in capsys.readouterr().err
    more = ("--set", "schedule.steps_per_task=5", "--allow-change", "schedule")
    assert main(["pretrain", "pretrain.yaml", "--output", "pretrained", "--quiet", "--allow-change", "data.share"]) == 2
    assert "--allow-change data.share: data.share was renamed to data.fraction" in capsys.readouterr().err
    assert main(["pretrain", "pretrain.yaml", "--output", "pretrained", "--quiet", *more]) == 0
    assert len(steps("pretrained")) == 10


def test_a_stopped_fine_tuning_goes_on_as_it_would_have(former: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["migrate", "classify.yaml"])
    assert main(["finetune", "classify.yaml", "--output", "classify-stopped"]) == 0
    assert "resumes after step 3" in capsys.readouterr().err
    assert_same_weights("classify-stopped/model/model.safetensors", "classify/model/model.safetensors")
    ours, theirs = (json.loads(Path(run, "scores.json").read_text()) for run in ("classify-stopped", "classify"))
    assert ours["scores"] == theirs["scores"]
    for found, expected in zip(ours["trials"][0]["curve"], theirs["trials"][0]["curve"], strict=True):
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)


def test_a_finished_fine_tuning_is_not_run_again(former: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["migrate", "classify.yaml"])
    assert main(["finetune", "classify.yaml", "--output", "classify"]) == 0
    assert "was done before" in capsys.readouterr().err


def test_fingerprints_of_files_have_todays_names_of_their_keys(former: Path) -> None:
    file = former / "transcribe" / "origin.json"
    origin = json.loads(file.read_text(encoding="utf-8"))
    origin["inputs"]["task.language"] = "of an ARPA file"  # as a run with a language model has it
    file.write_text(json.dumps(origin), encoding="utf-8")
    expected = {**origin["inputs"], "task.language_model": "of an ARPA file"}
    del expected["task.language"]
    assert read_inputs(former / "transcribe") == expected


def test_a_fine_tuned_run_is_where_another_starts(former: Path) -> None:
    main(["migrate", "tag.yaml"])
    more = ("--model", "tag", "--set", "head=keep", "--set", "train.epochs=1", "--output", "again", "--quiet")
    assert main(["finetune", "tag.yaml", *more]) == 0


def test_saved_streams_go_on_as_they_would_have() -> None:
    expected = json.loads((KEPT / "states.json").read_text(encoding="utf-8"))
    translator = TextTranslator(TaskModel.load(KEPT / "translate"))
    stream = Stream(translator)
    stream.state = load_state(translator, KEPT / "translate.npz")
    assert stream.push("blue") + stream.finish() == expected["translate"][1]
    recognizer = SpeechRecognizer(TaskModel.load(KEPT / "transcribe"))
    heard = Stream(recognizer)
    heard.state = load_state(recognizer, KEPT / "transcribe.npz")
    rest = np.array(json.loads((KEPT / "sound.json").read_text())[700:], np.float32)
    assert [heard.push(rest), heard.finish()] == expected["transcribe"][1:]
    speaker = TextSpeaker.load(KEPT / "synthesize")
    spoken = Stream(speaker)
    spoken.state = load_state(speaker, KEPT / "synthesize.npz")
    assert len(np.concatenate([np.zeros(0), spoken.push("d"), spoken.finish()])) == expected["synthesize"]
