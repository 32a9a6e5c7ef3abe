"""Exported models compute what the original model computes, with any padding; differences are detected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import paddle
import pytest
from paddle import nn

from ernie.data.batch import Packed
from ernie.data.document import Sample
from ernie.errors import UserError
from ernie.kernels.build import processor_flags
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.export.compare import Source, compare, padded, random_rows
from ernie.model.export.onnx_graph import quantize_int8
from ernie.model.export.padded import PaddedModel
from ernie.model.export.runtimes import Format, check_able, open_model, write_model
from ernie.model.heads import SequenceHead, TokenHead
from ernie.model.inference import evaluating

SHAPE = EncoderConfig(
    vocab_size=50, hidden_size=24, layers=2, heads=3, intermediate_size=40, max_positions=20, initializer_range=0.2
)
formats = pytest.mark.parametrize("to", ["paddle", "onnx"])


def encoder(config: EncoderConfig = SHAPE) -> ErnieModel:
    paddle.seed(0)
    model = ErnieModel(config)
    for parameter in model.parameters():  # so that biases are not zeros and gains not ones
        with paddle.no_grad():
            paddle.assign(parameter + 0.05 * paddle.randn(parameter.shape), parameter)
    model.eval()
    return model


def source(model: ErnieModel, task: int = 0, head: nn.Layer | None = None) -> Source:
    def outputs(batch: Packed) -> Sequence[np.ndarray]:
        with evaluating(model):
            hidden_TD = model.encode_packed(batch, task)
            if isinstance(head, SequenceHead):
                return [head(hidden_TD, batch.layout).numpy()]
            if isinstance(head, TokenHead):
                return [head(hidden_TD, np.arange(batch.layout.tokens)).numpy()]
            return [hidden_TD.numpy(), model.pooler(hidden_TD, batch.layout).numpy()]

    return outputs


def largest_difference(model: PaddedModel, expected: Source, folder: Path, to: Format, int8: bool = False) -> float:
    write_model(model, folder, to, int8)
    batches = random_rows(model.ernie.config, model.ernie.config.max_positions)
    found = compare(model.outputs, expected, open_model(folder, to), batches, "random rows")
    return max(difference.share if int8 else difference.largest for difference in found)


@formats
@pytest.mark.parametrize(
    "config",
    [SHAPE, replace(SHAPE, task_vocab_size=0, activation="relu", layer_norm_epsilon=1e-3)],
    ids=["ernie", "bert"],
)
def test_an_exported_encoder_computes_the_same(config: EncoderConfig, to: Format, tmp_path: Path) -> None:
    model = encoder(config)
    task = 3 if config.task_vocab_size else 0
    assert largest_difference(PaddedModel(model, task=task), source(model, task), tmp_path, to) < 1e-5


@formats
def test_exported_sequence_and_token_classifiers_compute_the_same(to: Format, tmp_path: Path) -> None:
    model = encoder()
    for head in (SequenceHead(model, 3), TokenHead(model.config, 5)):
        head.eval()
        folder = tmp_path / type(head).__name__
        folder.mkdir()
        exported = PaddedModel(model, head.out, isinstance(head, TokenHead))
        assert largest_difference(exported, source(model, head=head), folder, to) < 1e-5


def test_the_comparison_detects_a_difference(tmp_path: Path) -> None:
    model = encoder()
    assert largest_difference(PaddedModel(model, task=3), source(model, task=4), tmp_path, "onnx") > 1e-2


@pytest.mark.skipif(
    not any("vnni" in flag for flag in processor_flags()),
    reason="without VNNI sums of products of bytes overflow 16 bits (docs/howto/export.md)",
)
def test_int8_is_close_at_about_a_quarter_of_the_size(tmp_path: Path) -> None:
    model = encoder(replace(SHAPE, hidden_size=96, intermediate_size=384))
    sizes = []
    for int8 in (False, True):
        assert largest_difference(PaddedModel(model), source(model), tmp_path, "onnx", int8) < (0.05 if int8 else 1e-5)
        sizes.append((tmp_path / "model.onnx").stat().st_size)
    assert sizes[1] < 0.35 * sizes[0]


def test_int8_is_refused_for_paddle() -> None:
    with pytest.raises(UserError, match=r"--int8 is for --to onnx"):
        check_able("paddle", int8=True)


def test_int8_weights_are_within_half_a_step_and_use_the_full_range() -> None:
    rng = np.random.default_rng(0)
    weight_DE = (rng.standard_normal((30, 8)) * 10.0 ** np.arange(-4, 4)).astype(np.float32)
    weight_DE[:, 0] = 0
    bytes_DE, scale_E = quantize_int8(weight_DE)
    assert (np.abs(bytes_DE * scale_E - weight_DE) <= 0.5001 * scale_E).all()
    assert (np.abs(bytes_DE).max(axis=0)[1:] == 127).all()


def test_an_onnx_file_has_the_parameter_names_and_dynamic_sizes(tmp_path: Path) -> None:
    write_model(PaddedModel(encoder()), tmp_path, "onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    assert "ernie.encoder.layers.1.q.weight" in {constant.name for constant in graph.initializer}
    assert [value.name for value in graph.input] == ["input_ids", "token_type_ids", "attention_mask"]
    assert [value.name for value in graph.output] == ["last_hidden_state", "pooler_output"]
    assert [size.dim_param for size in graph.input[0].type.tensor_type.shape.dim] == ["batch", "length"]


def test_rows_can_be_padded_on_either_side() -> None:
    rows = [Sample(np.array([7, 8]), np.array([0, 1])), Sample(np.array([9]), np.array([1]))]
    for left, second in ((False, [9, 0]), (True, [0, 9])):
        ids, segments, mask = padded(rows, left)
        assert ids.tolist() == [[7, 8], second]
        assert (mask == (ids > 0)).all()
        assert segments[1].tolist() == [int(i > 0) for i in second]


@pytest.mark.parametrize("broken_side", [False, True], ids=["right", "left"])
def test_an_export_that_is_wrong_under_padding_on_one_side_is_found(broken_side: bool) -> None:
    def exported(ids: np.ndarray, segments: np.ndarray, mask: np.ndarray) -> list[np.ndarray]:
        on_the_left = bool((mask[:, 0] == 0).any())
        return [np.full((len(ids), 2), 3.0 if on_the_left == broken_side else 1.0)]

    rows = [[Sample(np.array([7, 8]), np.array([0, 1])), Sample(np.array([9]), np.array([1]))]]
    found = compare(["logits"], lambda batch: [np.ones((batch.layout.sequences, 2))], exported, rows, "rows")
    assert found[0].largest == pytest.approx(2.0)


def test_nan_counts_as_an_infinite_difference() -> None:
    def broken(ids: np.ndarray, segments: np.ndarray, mask: np.ndarray) -> list[np.ndarray]:
        return [np.full((len(ids), 2), np.nan)]

    rows = [[Sample(np.array([7, 8]), np.array([0, 1]))]]
    found = compare(["logits"], lambda batch: [np.ones((batch.layout.sequences, 2))], broken, rows, "rows")
    assert found[0].largest == float("inf")
