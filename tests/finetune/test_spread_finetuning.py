"""Fine-tuning on several processes gives the scores and the model of a single process."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from support.processes import run_ernie, start_ernie, wait_until

from inference.task_model import TaskModel

COLORS = ["red", "green", "blue"]
TASKS = {
    "classify": "{kind: classify, text: text, label: colour, max_len: 32, class_weights: balanced, row_weight: weight, "
    "label_smoothing: 0.1, focal_gamma: 1}",
    "translate": "{kind: translate, text: colour, label: farbe, max_len: 32, wait_k: [2, 1]}",
    "translate by prefixes": "{kind: translate, text: colour, label: farbe, max_len: 32, wait_k: 1, encoder: prefixes}",
}
TASKS["levers"] = TASKS["adapted"] = TASKS["taught"] = TASKS["classify"]
TASKS["transcribe"] = (
    "{kind: transcribe, max_len: 32, decoder: attention, layers: 1, features: {bins: 20}, augment: {speed: 0.1}}"
)
TASKS["recurrent"] = "{kind: transcribe, max_len: 32, recurrent: {layers: 1, units: 8}, features: {bins: 20}}"
TASKS["synthesize"] = (
    "{kind: synthesize, max_len: 32, features: {window: 0.01, hop: 0.005, bins: 20}, crop: 0.05, voice: "
    "{reduction: 2, conditioner: 4, wavenet: {channels: 4, stacks: 1, depth: 2}}}"
)
# A voice's decoder always has dropout, and its masks depend on the micro-batch: here each row is one, in every layout.
OPTIONS = {
    "synthesize": ("--set", "train.micro_batch_tokens=8"),
    "levers": ("--set", "train.ema=0.8", "--set", "train.adversarial.epsilon=0.5"),
    "adapted": ("--set", "train.adapt={rank: 4}"),
    "taught": ("--set", "teacher={model: encoder, weight: 0, hidden: {}, relations: {}}", "--set", "layers=1"),
}
AUDIO_TASKS = ("transcribe", "recurrent", "synthesize")
CONFIG = """
task: {}
data: {{train: train.{form}, dev: dev.{form}}}
train: {{epochs: 2, batch: 8, dropout: 0.0, precision: fp32, lr: {{peak: 1e-3}}}}
"""
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows, an encoder, and a configuration for each task."""
    from support.toys import GERMAN, TOKENIZER, TOYS

    from ernie import ErnieModel
    from ernie.model.config import EncoderConfig

    folder = tmp_path_factory.mktemp("spread")
    for name, count in (("train", 40), ("dev", 24)):
        colors = [COLORS[i % 3] for i in range(count)]
        rows = [f"the film was {'very ' * (i % 5)}{c}\t{c}\t{GERMAN[c]}\t{i % 4}" for i, c in enumerate(colors)]
        audio_rows = (json.dumps(dict(row)) for row in TOYS["transcribe"].rows(count, count))
        (folder / f"{name}.jsonl").write_text("\n".join(audio_rows) + "\n", encoding="utf-8")
        (folder / f"{name}.tsv").write_text("\n".join(["text\tcolour\tfarbe\tweight", *rows]) + "\n", encoding="utf-8")
    for name, task in TASKS.items():
        form = "jsonl" if name in AUDIO_TASKS else "tsv"
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
    options = [*OPTIONS.get(task, ()), *more]
    words = ["finetune", f"{task}.yaml", "--model", "encoder", "--output", output, "--quiet", *options]
    done = run_ernie(words, work)
    assert done.returncode == 0, done.stderr
    assert "| dev " in done.stdout
    found: dict[str, object] = json.loads((work / output / "scores.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def single_process(work: Path) -> Callable[[str], dict[str, object]]:
    """A function that returns the scores of one process for a task; its run has the task's name."""
    return cache(lambda task: finetune(work, task, task, "--seeds", "2"))


@pytest.mark.parametrize(
    ("task", "processes", "parallel"),
    [
        pytest.param("classify", 2, "{}", marks=SLOW),
        ("classify", 2, "{pipeline: 2}"),
        pytest.param("classify", 2, "{tensor: 2}", marks=SLOW),
        pytest.param("classify", 2, "{sharding: 2, sharding_stage: 2}", marks=SLOW),
        pytest.param("classify", 2, "{sharding: 2, sharding_stage: 3}", marks=SLOW),
        pytest.param("classify", 4, "{pipeline: 2, tensor: 2}", marks=SLOW),
        pytest.param("levers", 2, "{}", marks=SLOW),
        pytest.param("adapted", 2, "{}", marks=SLOW),
        pytest.param("taught", 2, "{}", marks=SLOW),
        pytest.param("translate", 2, "{}", marks=SLOW),
        pytest.param("translate", 2, "{pipeline: 2}", marks=SLOW),
        pytest.param("translate", 2, "{tensor: 2, sequence: true}", marks=SLOW),
        pytest.param("translate", 2, "{sharding: 2, sharding_stage: 3}", marks=SLOW),
        pytest.param("transcribe", 2, "{}", marks=SLOW),
        pytest.param("transcribe", 2, "{tensor: 2}", marks=SLOW),
        pytest.param("transcribe", 2, "{sharding: 2, sharding_stage: 3}", marks=SLOW),
        pytest.param("synthesize", 2, "{}", marks=SLOW),
        pytest.param("translate by prefixes", 2, "{pipeline: 2}", marks=SLOW),
        pytest.param("translate by prefixes", 4, "{pipeline: 2, tensor: 2}", marks=SLOW),
    ],
)
def test_scores_and_model_match_a_single_process(
    task: str, processes: int, parallel: str, work: Path, single_process: Callable[[str], dict[str, object]]
) -> None:
    expected = single_process(task)
    output = f"{task} {processes}{parallel}".replace(":", "")
    words = ["--processes", str(processes), "--set", f"parallel={parallel}"]
    found = finetune(work, task, output, "--seeds", "2", *words)
    if task != "synthesize":  # autoregressive random samples amplify differences in the last bits of weights
        assert found["scores"] == expected["scores"]
    single, parallel_run = (TaskModel.load(work / name).state_dict() for name in (task, output))
    assert single.keys() == parallel_run.keys()
    worst = max(float((single[name] - parallel_run[name]).abs().max()) for name in single)
    assert worst < 1e-5
    assert finetune(work, task, output, "--seeds", "2", *words) == found  # all trials were finished before
    assert not (work / output / "processes" / "results").exists()


@pytest.mark.slow
def test_layers_that_normalize_over_a_batch_are_not_parallelized(work: Path) -> None:
    words = ["finetune", "recurrent.yaml", "--model", "encoder", "--output", "recurrent", "--quiet", "--processes", "2"]
    done = run_ernie(words, work)
    assert done.returncode == 2
    assert "normalizes over all vectors of a batch" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["{sharding: 2, sharding_stage: 3}", pytest.param("{pipeline: 2}", marks=SLOW)])
def test_one_process_resumes_from_a_checkpoint_of_several(work: Path, parallel: str) -> None:
    output = f"cut {parallel}".replace(":", "")
    words = ["--set", "train.epochs=40", "--set", "save_minutes=1e-9"]
    command = ["finetune", "classify.yaml", "--model", "encoder", "--output", output, *words]
    checkpoints = work / output / "trials" / "seed=0" / "checkpoints"
    with start_ernie([*command, "--processes", "2", "--set", f"parallel={parallel}"], work) as process:
        wait_until(lambda: any(checkpoints.glob("step-???????[0-9]")), process)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert "resumes after step" in run_ernie(command, work).stderr
    found, whole = finetune(work, "classify", output, *words), finetune(work, "classify", "whole", *words)
    assert found["scores"] == whole["scores"]
    uninterrupted, resumed = (TaskModel.load(work / name).state_dict() for name in ("whole", output))
    assert max(float((uninterrupted[name] - resumed[name]).abs().max()) for name in uninterrupted) < 1e-4
