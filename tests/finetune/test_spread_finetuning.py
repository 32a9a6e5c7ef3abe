"""Fine-tuning on several processes: the scores and answers of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import run_ernie

from finetune.model import FinetunedModel

COLOURS = ["red", "green", "blue"]
TASK = """
task: {kind: classify, text: text, label: colour, max_len: 32}
data: {train: train.tsv, dev: dev.tsv}
train: {epochs: 2, batch: 8, dropout: 0.0, precision: fp32, rate: {peak: 1e-3}}
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows, an encoder, and a configuration."""
    from toys import TOKENIZER

    from ernie import ErnieModel
    from ernie.model.config import EncoderConfig

    folder = tmp_path_factory.mktemp("spread")
    for name, count in (("train", 40), ("dev", 24)):
        rows = [f"the film was {'very ' * (i % 5)}{COLOURS[i % 3]}\t{COLOURS[i % 3]}" for i in range(count)]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tcolour", *rows]) + "\n", encoding="utf-8")
    (folder / "task.yaml").write_text(TASK, encoding="utf-8")
    vocabulary = 2 * -(-TOKENIZER.vocab_size // 2)
    shape = EncoderConfig(
        vocab_size=vocabulary, hidden_size=32, layers=2, heads=2, intermediate_size=64, max_positions=32
    )
    model = ErnieModel(shape)
    model.tokenizer = TOKENIZER
    model.save_pretrained(folder / "encoder")
    return folder


def finetune(work: Path, output: str, *more: str) -> dict[str, object]:
    words = ["finetune", "task.yaml", "--model", "encoder", "--output", output, "--quiet", *more]
    done = run_ernie(words, work)
    assert done.returncode == 0, done.stderr
    assert "| dev " in done.stdout
    found: dict[str, object] = json.loads((work / output / "scores.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def alone(work: Path) -> dict[str, object]:
    return finetune(work, "alone", "--seeds", "2")


@pytest.mark.parametrize(
    ("processes", "parallel"),
    [
        (2, "{}"),
        (2, "{pipeline: 2}"),
        pytest.param(2, "{tensor: 2}", marks=pytest.mark.slow),
        pytest.param(2, "{sharding: 2, sharding_stage: 2}", marks=pytest.mark.slow),
        pytest.param(2, "{sharding: 2, sharding_stage: 3}", marks=pytest.mark.slow),
        pytest.param(4, "{pipeline: 2, tensor: 2}", marks=pytest.mark.slow),
    ],
)
def test_the_scores_and_the_model_are_those_of_one_process(
    processes: int, parallel: str, work: Path, alone: dict[str, object]
) -> None:
    output = f"{processes}{parallel}".replace(":", "")
    words = ["--processes", str(processes), "--set", f"parallel={parallel}"]
    found = finetune(work, output, "--seeds", "2", *words)
    assert found["scores"] == alone["scores"]
    one, other = (FinetunedModel.load(work / name).state_dict() for name in ("alone", output))
    assert one.keys() == other.keys()
    worst = max(float((one[name] - other[name]).abs().max()) for name in one)
    assert worst < 1e-5
    assert finetune(work, output, "--seeds", "2", *words) == found  # all was done before
    assert not (work / output / "processes" / "results").exists()
