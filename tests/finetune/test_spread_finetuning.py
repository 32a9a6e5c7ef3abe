"""Fine-tuning on several processes: the scores and answers of one."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from processes import run_ernie, started, wait_until

from finetune.model import FinetunedModel

COLOURS = ["red", "green", "blue"]
TASKS = {
    "classify": "{kind: classify, text: text, label: colour, max_len: 32}",
    "translate": "{kind: translate, text: colour, label: farbe, max_len: 32, wait_k: [2, 1]}",
    "translate by prefixes": "{kind: translate, text: colour, label: farbe, max_len: 32, wait_k: 1, encoder: prefixes}",
}
TASKS["transcribe"] = (
    "{kind: transcribe, max_len: 32, decoder: attention, layers: 1, features: {bins: 20}, augment: {speed: 0.1}}"
)
TASKS["recurrent"] = "{kind: transcribe, max_len: 32, recurrent: {layers: 1, units: 8}, features: {bins: 20}}"
TASKS["synthesize"] = (
    "{kind: synthesize, max_len: 32, features: {window: 0.01, hop: 0.005, bins: 20}, crop: 0.05, voice: "
    "{reduction: 2, conditioner: 4, wavenet: {channels: 4, stacks: 1, depth: 2}}}"
)
SOUNDS = ("transcribe", "recurrent", "synthesize")
CONFIG = """
task: {}
data: {{train: train.{form}, dev: dev.{form}}}
train: {{epochs: 2, batch: 8, dropout: 0.0, precision: fp32, rate: {{peak: 1e-3}}}}
"""
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows, an encoder, and a configuration for each task."""
    from toys import FARBEN, TOKENIZER, TOYS

    from ernie import ErnieModel
    from ernie.model.config import EncoderConfig

    folder = tmp_path_factory.mktemp("spread")
    for name, count in (("train", 40), ("dev", 24)):
        colours = [COLOURS[i % 3] for i in range(count)]
        rows = [f"the film was {'very ' * (i % 5)}{c}\t{c}\t{FARBEN[c]}" for i, c in enumerate(colours)]
        sounds = (json.dumps(dict(row)) for row in TOYS["transcribe"].rows(count, count))
        (folder / f"{name}.jsonl").write_text("\n".join(sounds) + "\n", encoding="utf-8")
        (folder / f"{name}.tsv").write_text("\n".join(["text\tcolour\tfarbe", *rows]) + "\n", encoding="utf-8")
    for name, task in TASKS.items():
        form = "jsonl" if name in SOUNDS else "tsv"
        (folder / f"{name}.yaml").write_text(CONFIG.format(task, form=form), encoding="utf-8")
    vocabulary = 2 * -(-TOKENIZER.vocab_size // 2)
    shape = EncoderConfig(
        vocab_size=vocabulary, hidden_size=32, layers=2, heads=2, intermediate_size=64, max_positions=32
    )
    model = ErnieModel(shape)
    model.tokenizer = TOKENIZER
    model.save_pretrained(folder / "encoder")
    return folder


def finetune(work: Path, task: str, output: str, *more: str) -> dict[str, object]:
    words = ["finetune", f"{task}.yaml", "--model", "encoder", "--output", output, "--quiet", *more]
    done = run_ernie(words, work)
    assert done.returncode == 0, done.stderr
    assert "| dev " in done.stdout
    found: dict[str, object] = json.loads((work / output / "scores.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def alone(work: Path) -> Callable[[str], dict[str, object]]:
    """The scores of one process for a task, whose run has the task's name."""
    return cache(lambda task: finetune(work, task, task, "--seeds", "2"))


@pytest.mark.parametrize(
    ("task", "processes", "parallel"),
    [
        ("classify", 2, "{}"),
        ("classify", 2, "{pipeline: 2}"),
        pytest.param("classify", 2, "{tensor: 2}", marks=SLOW),
        pytest.param("classify", 2, "{sharding: 2, sharding_stage: 2}", marks=SLOW),
        pytest.param("classify", 2, "{sharding: 2, sharding_stage: 3}", marks=SLOW),
        pytest.param("classify", 4, "{pipeline: 2, tensor: 2}", marks=SLOW),
        pytest.param("translate", 2, "{}", marks=SLOW),
        ("translate", 2, "{pipeline: 2}"),
        ("translate", 2, "{tensor: 2, sequence: true}"),
        pytest.param("translate", 2, "{sharding: 2, sharding_stage: 3}", marks=SLOW),
        ("transcribe", 2, "{}"),
        pytest.param("transcribe", 2, "{tensor: 2}", marks=SLOW),
        pytest.param("transcribe", 2, "{sharding: 2, sharding_stage: 3}", marks=SLOW),
        pytest.param("synthesize", 2, "{}", marks=SLOW),
        pytest.param("translate by prefixes", 2, "{pipeline: 2}", marks=SLOW),
        pytest.param("translate by prefixes", 4, "{pipeline: 2, tensor: 2}", marks=SLOW),
    ],
)
def test_the_scores_and_the_model_are_those_of_one_process(
    task: str, processes: int, parallel: str, work: Path, alone: Callable[[str], dict[str, object]]
) -> None:
    expected = alone(task)
    output = f"{task} {processes}{parallel}".replace(":", "")
    words = ["--processes", str(processes), "--set", f"parallel={parallel}"]
    found = finetune(work, task, output, "--seeds", "2", *words)
    if task != "synthesize":  # whose samples are drawn one after the other: the last bits of weights are heard
        assert found["scores"] == expected["scores"]
    one, other = (FinetunedModel.load(work / name).state_dict() for name in (task, output))
    assert one.keys() == other.keys()
    worst = max(float((one[name] - other[name]).abs().max()) for name in one)
    assert worst < 1e-5
    assert finetune(work, task, output, "--seeds", "2", *words) == found  # all was done before
    assert not (work / output / "processes" / "results").exists()


@pytest.mark.slow
def test_what_normalizes_over_a_batch_is_not_shared_out(work: Path) -> None:
    words = ["finetune", "recurrent.yaml", "--model", "encoder", "--output", "recurrent", "--quiet", "--processes", "2"]
    done = run_ernie(words, work)
    assert done.returncode == 2
    assert "normalizes over all vectors of a batch" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["{pipeline: 2}", "{sharding: 2, sharding_stage: 3}"])
def test_what_several_processes_have_saved_one_goes_on_from(work: Path, parallel: str) -> None:
    output = f"cut {parallel}".replace(":", "")
    words = ["--set", "train.epochs=40", "--set", "save_minutes=1e-9"]
    command = ["finetune", "classify.yaml", "--model", "encoder", "--output", output, *words]
    checkpoints = work / output / "trials" / "seed=0" / "checkpoints"
    with started([*command, "--processes", "2", "--set", f"parallel={parallel}"], work) as process:
        wait_until(lambda: any(checkpoints.glob("step-???????[0-9]")), process)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert "resumes after step" in run_ernie(command, work).stderr
    found, whole = finetune(work, "classify", output, *words), finetune(work, "classify", "whole", *words)
    assert found["scores"] == whole["scores"]
    one, other = (FinetunedModel.load(work / name).state_dict() for name in ("whole", output))
    assert max(float((one[name] - other[name]).abs().max()) for name in one) < 1e-4
