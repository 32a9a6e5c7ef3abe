"""Published checkpoints of every format are read and compute what their network computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle
import pytest
from support import checkpoints
from support.checkpoints import SETTINGS, batch_of, forward, weights, write_vocabulary

from ernie.errors import UserError
from ernie.model.ernie import ErnieModel
from ernie.model.published.formats import detect_format
from ernie.model.published.load import read

KINDS = {"hf": "hf", "paddlenlp": "paddlenlp", "official": "ernie-official", "tensorflow": "bert-tf"}


@pytest.fixture(params=list(checkpoints.FORMATS))
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """Each format's name, and a checkpoint in it."""
    settings = {**SETTINGS, "use_task_id": request.param != "tensorflow"}
    made = weights()
    if request.param == "tensorflow":
        del made[checkpoints.TASK]
    checkpoints.FORMATS[request.param](tmp_path, made, settings)
    write_vocabulary(tmp_path)
    return request.param, tmp_path


def compare(model: ErnieModel, settings: dict, epsilon: float, tolerance: float = 1e-5) -> None:
    """Compare all that the model computes from a batch with the network in NumPy."""
    batch = batch_of()
    tokens = batch["attention_mask"].astype(bool)
    *hidden, pooled, logits = forward(weights(), settings, batch, epsilon)
    output = model(**batch, output_hidden_states=True)
    assert len(output.hidden_states) == len(hidden) == 1 + settings["num_hidden_layers"]
    for ours, expected in zip(output.hidden_states, hidden, strict=True):
        np.testing.assert_allclose(ours.numpy()[tokens], expected[tokens], rtol=0, atol=tolerance)
    np.testing.assert_allclose(output.pooler_output.numpy(), pooled, rtol=0, atol=tolerance)
    if model.masked_head is not None:
        last = paddle.to_tensor(output.last_hidden_state.numpy()[tokens])
        found = model.masked_head(last, np.arange(len(last))).numpy()
        np.testing.assert_allclose(found, logits[tokens], rtol=0, atol=tolerance)


def test_every_layer_of_every_format_computes_what_the_numpy_network_does(checkpoint: tuple[str, Path]) -> None:
    name, folder = checkpoint
    reading = read(folder, ErnieModel)
    assert (reading.model.masked_head is None) == (name == "hf without prefix and head")
    settings = {**SETTINGS, "use_task_id": name != "tensorflow"}
    compare(reading.model, settings, epsilon=1e-5 if name.startswith("official") else 1e-12)


def test_a_format_is_recognized_by_the_files_of_its_folder(checkpoint: tuple[str, Path]) -> None:
    name, folder = checkpoint
    assert detect_format(folder) == KINDS[name.split()[0]]


def test_a_complete_checkpoint_is_read_without_notes(checkpoint: tuple[str, Path]) -> None:
    assert read(checkpoint[1], ErnieModel).notes == ()


def test_the_tokenizer_is_read_with_the_model(checkpoint: tuple[str, Path]) -> None:
    model = read(checkpoint[1], ErnieModel).model
    assert model.tokenizer is not None
    assert model.tokenizer.encode("w7 w39").ids.tolist() == [7, 39]


def test_from_pretrained_loads_every_format(checkpoint: tuple[str, Path]) -> None:
    model = ErnieModel.from_pretrained(checkpoint[1])
    assert model.encode(["w7 w8"]).shape == (1, 16)
    assert not model.training


def test_an_empty_folder_raises_an_error_that_names_the_expected_files(tmp_path: Path) -> None:
    assert detect_format(tmp_path) is None
    with pytest.raises(UserError, match=r"holds no checkpoint\. Expected config\.json with model\.safetensors or"):
        read(tmp_path, ErnieModel)


@pytest.mark.parametrize("name", ["tf_model.h5", "model.fp16.safetensors", "model-00001-of-00002.safetensors"])
def test_weights_under_a_name_that_is_not_read_are_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(UserError, match=rf"holds no checkpoint under a name that is read, but {name}\. Expected "):
        read(tmp_path, ErnieModel)


@pytest.mark.parametrize("name", list(checkpoints.FORMATS))
def test_a_missing_weight_raises_an_error_that_names_weight_and_folder(name: str, tmp_path: Path) -> None:
    made = weights()
    del made["ernie.encoder.layer.1.attention.self.key.bias"]
    checkpoints.FORMATS[name](tmp_path, made, SETTINGS)
    with pytest.raises(UserError, match=r"lacks .*1.*(key|attn\.k|k_proj)") as caught:
        read(tmp_path, ErnieModel)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", list(checkpoints.FORMATS))
def test_a_checkpoint_of_another_network_raises_a_user_error(name: str, tmp_path: Path) -> None:
    made = {"conv.weight": np.zeros(3, np.float32), "fc.weight": np.zeros(3, np.float32)}
    checkpoints.FORMATS[name](tmp_path, made, SETTINGS)
    with pytest.raises(UserError, match="holds no token embeddings of a BERT or ERNIE encoder"):
        read(tmp_path, ErnieModel)
