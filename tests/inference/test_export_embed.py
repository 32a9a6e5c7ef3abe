"""Sentence encoders and runs of the kind embed in other runtimes: the vector of a text is an output of the graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.toys import TOKENIZER, TOYS, tiny_encoder

from ernie.cli import main
from ernie.model.export.runtimes import open_model
from ernie.model.sentence import SentenceConfig, SentenceLayer
from inference.task_model import TaskModel

TEXTS = ["a blue film", "who was it ?", "great"]


def exported(folder: Path, to: Any) -> list[np.ndarray]:
    """The outputs of an exported model for the texts, padded."""
    batch = TOKENIZER(TEXTS)
    return list(open_model(folder, to)(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"]))


@pytest.mark.parametrize("to", ["onnx", "paddle"])
def test_a_run_of_the_kind_embed_gives_the_vectors_of_texts(
    to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = TaskModel(tiny_encoder(), TOYS["embed"].task)
    model.task.initialize(model.ernie, model.head)  # type: ignore[attr-defined]
    model.save(tmp_path / "run")
    (tmp_path / "rows.txt").write_text("a blue film\n")
    words = ["export", str(tmp_path / "run"), "--to", to, "--output", str(tmp_path / "there")]
    assert main([*words, "--input", str(tmp_path / "rows.txt")]) == 0
    shown = capsys.readouterr()
    assert "sentence_embedding, rows of rows.txt: largest difference" in shown.out
    assert "pooling" not in shown.out + shown.err
    record = json.loads((tmp_path / "there" / "export.json").read_text())
    assert record["outputs"] == ["last_hidden_state", "pooler_output", "sentence_embedding"]
    assert record["longest"] == 16
    np.testing.assert_allclose(exported(tmp_path / "there", to)[2], model.ernie.encode(TEXTS), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "is_there"),
    [
        (SentenceConfig(("cls",)), True),
        (SentenceConfig(("mean",), (SentenceLayer("Normalize"),)), True),
        (SentenceConfig(("max",)), False),
        (SentenceConfig(("mean",), prompts={"query": "who"}, include_prompt=False), False),
    ],
)
def test_poolings_that_the_graph_cannot_compute_are_told(
    config: SentenceConfig, is_there: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = tiny_encoder()
    encoder.sentence_config = config
    encoder.save_pretrained(tmp_path / "encoder")
    assert main(["export", str(tmp_path / "encoder"), "--to", "onnx", "--output", str(tmp_path / "there")]) == 0
    told = "the pooling of this sentence encoder is not part of the graph" in "".join(capsys.readouterr())
    outputs = exported(tmp_path / "there", "onnx")
    assert (len(outputs) == 3, told) == (is_there, not is_there)
    if is_there:
        np.testing.assert_allclose(outputs[2], encoder.encode(TEXTS), rtol=0, atol=1e-5)
