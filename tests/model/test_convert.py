"""ernie convert: it writes exactly the weights that it read, with a certificate, or nothing."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file, save_file
from support import checkpoints
from support.checkpoints import SETTINGS, batch_of, forward, weights, write_vocabulary
from support.helpers import numbered

from ernie.cli import main
from ernie.errors import Remark, UserError
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.heads import MaskedTokenHead
from ernie.model.published.certificate import Certificate, Check
from ernie.model.published.convert import convert
from ernie.model.published.load import read
from ernie.model.published.probe import Probe
from ernie.model.published.write import Target, write
from ernie.model.weights import arrays
from ernie.text.added import Added
from ernie.text.train import train_sentencepiece
from ernie.text.wordpiece import WordPiece

SHAPE = EncoderConfig(40, 16, 2, 4, 24, max_positions=21, segments=3, task_vocab_size=5, layer_norm_epsilon=1e-12)
TARGETS = ("ernie", "hf", "paddlenlp")


def make(config: EncoderConfig = SHAPE, *, head: bool = True) -> ErnieModel:
    """Build a model whose parameters are all random, including biases and scales."""
    paddle.seed(1)
    model = ErnieModel(config)
    model.masked_head = MaskedTokenHead(model) if head else None
    model.tokenizer = numbered(config.vocab_size)
    for layer in (model, model.masked_head):
        for parameter in [] if layer is None else layer.parameters():
            parameter.set_value(parameter + 0.3 * paddle.randn(parameter.shape))
        if layer is not None:
            layer.eval()
    return model


def all_weights(model: ErnieModel) -> dict[str, bytes]:
    head = {} if model.masked_head is None else arrays(model.masked_head)
    return {name: value.tobytes() for name, value in {**arrays(model), **head}.items()}


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("to", TARGETS)
def test_a_written_model_is_read_back_bit_for_bit(to: str, head: bool, tmp_path: Path) -> None:
    model = make(head=head)
    assert write(model, tmp_path, to) == []
    reading = read(tmp_path, ErnieModel)
    assert (reading.kind, reading.notes) == (to, ())
    assert reading.model.config == model.config
    assert all_weights(reading.model) == all_weights(model)
    assert reading.model.tokenizer.fingerprint == model.tokenizer.fingerprint


@pytest.mark.parametrize("base", [40, 38])
@pytest.mark.parametrize("to", TARGETS)
def test_markers_and_other_settings_of_a_tokenizer_are_written_and_read_back(
    to: str, base: int, tmp_path: Path
) -> None:
    model = make()
    added = {39: Added("w39", lstrip=True), 38: Added("w38", single_word=True, normalized=True, special=False)}
    model.tokenizer = WordPiece(numbered(40).tokens, True, False, False, added, base)
    assert write(model, tmp_path / "one", to) == []
    assert convert(tmp_path / "one", tmp_path / "two", "ernie", ErnieModel).passed
    assert convert(tmp_path / "two", tmp_path / "three", to, ErnieModel).passed
    for folder in ("one", "two", "three"):
        found = read(tmp_path / folder, ErnieModel)
        assert found.model.tokenizer.fingerprint == model.tokenizer.fingerprint
        assert found.model.tokenizer.encode("w39w5 xw38").ids.tolist() == [39, 5, 1]
        assert not any("more token" in note for note in found.notes)
    if base < 40 and to != "ernie":  # for libraries that do not read the tokens' settings
        assert json.loads((tmp_path / "three" / "added_tokens.json").read_text()) == {"w38": 38, "w39": 39}


@pytest.mark.parametrize("name", [name for name in checkpoints.FORMATS if name != "hf without prefix and head"])
@pytest.mark.parametrize("to", TARGETS)
def test_conversion_between_any_two_formats_keeps_the_weights(name: str, to: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    made = {**weights()}
    if name == "tensorflow":
        del made[checkpoints.TASK]
    checkpoints.FORMATS[name](source, made, SETTINGS)
    write_vocabulary(source)
    # The official ones have an epsilon that PaddleNLP's ERNIE does not run with.
    certificate = convert(source, target, to, ErnieModel, 1e-2 if "official" in name else 1e-4)
    assert certificate.passed
    assert all_weights(read(target, ErnieModel).model) == all_weights(read(source, ErnieModel).model)


def test_hugging_face_folders_use_the_names_and_the_orientation_of_transformers(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    checkpoints.tensorflow(source, {k: v for k, v in weights().items() if k != checkpoints.TASK}, SETTINGS)
    convert(source, tmp_path / "hf", "hf", ErnieModel)
    written = load_file(tmp_path / "hf" / "model.safetensors")
    expected = {k.replace("ernie.", "bert."): v for k, v in weights().items() if k != checkpoints.TASK}
    assert set(written) == set(expected)
    assert all(np.array_equal(written[name], expected[name]) for name in expected)
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (config["architectures"], config["model_type"]) == (["BertForMaskedLM"], "bert")


@pytest.mark.parametrize(
    ("changes", "head", "to", "architecture"),
    [
        ({}, True, "hf", "ErnieForMaskedLM"),
        ({}, False, "hf", "ErnieModel"),
        ({"task_vocab_size": 0}, False, "hf", "BertModel"),
        ({}, False, "paddlenlp", "ErnieModel"),
        ({"task_vocab_size": 0}, True, "paddlenlp", "ErnieForMaskedLM"),
        # PaddleNLP's ERNIE has one epsilon, its BERT any.
        ({"task_vocab_size": 0, "layer_norm_epsilon": 1e-5}, True, "paddlenlp", "BertForMaskedLM"),
    ],
)
def test_the_written_architecture_can_compute_the_model(
    changes: dict, head: bool, to: str, architecture: str, tmp_path: Path
) -> None:
    write(make(replace(SHAPE, **changes), head=head), tmp_path, to)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [architecture]


@pytest.mark.parametrize("to", TARGETS)
def test_for_a_single_task_the_model_becomes_an_equal_bert(to: str, tmp_path: Path) -> None:
    model = make(replace(SHAPE, layer_norm_epsilon=1e-3))
    model.save_pretrained(tmp_path / "ours")
    certificate = convert(tmp_path / "ours", tmp_path / "there", to, ErnieModel, task=3)
    assert certificate.passed
    assert "the source as it is, for task 3" in [check.against for check in certificate.checks]
    converted = read(tmp_path / "there", ErnieModel).model
    assert converted.config == replace(model.config, task_vocab_size=0)
    batch = batch_of()
    tasks = np.full_like(batch["input_ids"], 3)
    for ours, theirs in zip(model(**{**batch, "task_type_ids": tasks}), converted(**batch), strict=True):
        if ours is not None:
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("tasks", "message"), [(5, "the model has the tasks 0 to 4"), (0, "has no task embeddings")])
def test_a_task_that_the_model_does_not_have_raises_a_user_error(tasks: int, message: str, tmp_path: Path) -> None:
    make(replace(SHAPE, task_vocab_size=tasks)).save_pretrained(tmp_path / "ours")
    with pytest.raises(UserError, match=f"--task 5: .*{message}"):
        convert(tmp_path / "ours", tmp_path / "there", "hf", ErnieModel, task=5)


@pytest.mark.parametrize("to", ["hf", "paddlenlp"])
def test_a_sentencepiece_tokenizer_comes_back_from_another_format(to: Any, tmp_path: Path) -> None:
    tokenizer = train_sentencepiece(["the cat sees a dog"] * 9, vocab_size=16, lowercase=True, folder=tmp_path)
    model = make(replace(SHAPE, vocab_size=tokenizer.vocab_size))
    model.tokenizer = tokenizer
    model.save_pretrained(tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "there", to, ErnieModel)
    back = read(tmp_path / "there", ErnieModel)
    assert back.notes == ()
    assert back.model.tokenizer.tokens == tokenizer.tokens


def test_a_weight_beyond_float32_is_named_without_a_warning_of_numpy(tmp_path: Path) -> None:
    made = {name: value.astype(np.float64) for name, value in weights().items()}
    made["ernie.pooler.dense.bias"] *= 1e300
    checkpoints.hugging_face(tmp_path, made, SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(UserError, match=r"pooler\.dense\.bias' holds values that are not finite"):
            convert(tmp_path, tmp_path / "there", "hf", ErnieModel)


def test_a_destination_below_a_file_is_named_as_it_was_given(tmp_path: Path) -> None:
    make().save_pretrained(tmp_path / "ours")
    with pytest.raises(UserError, match=r"config\.json/there: there is a file of that name, or of its parent's"):
        convert(tmp_path / "ours", tmp_path / "ours" / "config.json" / "there", "hf", ErnieModel)


def convert_with_head_of_task_2(to: str, task: int | None, folder: Path) -> tuple[ErnieModel, Certificate]:
    model = make()
    model.masked_head.task_id = 2
    model.save_pretrained(folder / "ours")
    return model, convert(folder / "ours", folder / "there", to, ErnieModel, task=task)


@pytest.mark.parametrize(("to", "task"), [("hf", None), ("paddlenlp", None), ("hf", 0), ("ernie", 1)])
def test_a_head_written_for_a_task_it_was_not_trained_with_is_reported(
    to: str, task: int | None, tmp_path: Path
) -> None:
    _, certificate = convert_with_head_of_task_2(to, task, tmp_path)
    assert certificate.passed
    (note,) = certificate.notes
    assert note.startswith(f"its masked-token head was trained with task 2 and is written for task {task or 0}, ")
    assert note.endswith("--task 2 writes the model for task 2")


@pytest.mark.parametrize(("to", "task"), [("ernie", None), ("hf", 2), ("ernie", 2)])
def test_a_head_written_for_its_own_task_predicts_the_same_tokens(to: str, task: int | None, tmp_path: Path) -> None:
    model, certificate = convert_with_head_of_task_2(to, task, tmp_path)
    assert certificate.notes == ()
    assert all("filled masks" in check.differences for check in certificate.checks if "run by" not in check.against)
    found = ErnieModel.from_pretrained(tmp_path / "there").fill_mask("w9 [MASK] w7")
    expected = model.fill_mask("w9 [MASK] w7")
    assert [candidate.token for candidate in found[0]] == [candidate.token for candidate in expected[0]]


def test_the_written_settings_have_the_padding_id_of_the_vocabulary(tmp_path: Path) -> None:
    model = make()
    padding, unknown, *others = model.tokenizer.tokens
    model.tokenizer = WordPiece([unknown, padding, *others])
    assert model.tokenizer.pad_id == 1
    for to in ("hf", "paddlenlp"):
        write(model, tmp_path / to, to)
        assert json.loads((tmp_path / to / "config.json").read_text())["pad_token_id"] == 1
    ids = Probe.of(model.config, 1).ids[0]
    assert set(ids.tolist()) <= {*range(40)} - {1}
    assert {0, 39} <= set(Probe.of(replace(model.config, max_positions=512), 1).ids[0].tolist())


# ------------------------------------------------------------------------------------------------- certificates


@pytest.mark.parametrize("part", ["encoder.layers.0.inner.weight", "masked_head.bias"])
def test_a_weight_with_nan_raises_an_error_that_names_it(part: str, tmp_path: Path) -> None:
    make().save_pretrained(tmp_path / "ours")
    (tmp_path / "ours" / "sha256.json").unlink()
    file = tmp_path / "ours" / ("masked_head.safetensors" if part.startswith("masked") else "model.safetensors")
    values = load_file(file)
    values[part.removeprefix("masked_head.")][0] = float("nan")
    save_file(values, file)
    with pytest.raises(UserError, match=f"ours: '{part}' holds values that are not finite"):
        convert(tmp_path / "ours", tmp_path / "hf", "hf", ErnieModel)
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_the_certificate_lists_every_layer_and_is_saved_beside_the_weights(tmp_path: Path) -> None:
    make().save_pretrained(tmp_path / "ours")
    certificate = convert(tmp_path / "ours", tmp_path / "hf", "hf", ErnieModel)
    record = json.loads((tmp_path / "hf" / "certificate.json").read_text())
    layers = ["embeddings", "layer 1", "layer 2", "pooler", "masked tokens", "filled masks"]
    assert list(record["checks"][0]["differences"]) == layers
    assert record["passed"] and record["weights_identical"]
    assert all(layer in str(certificate) for layer in layers)


def test_a_model_that_the_target_cannot_compute_is_not_written(tmp_path: Path) -> None:
    """Task embeddings need PaddleNLP's ERNIE, whose epsilon is not the model's."""
    make(replace(SHAPE, layer_norm_epsilon=1e-3)).save_pretrained(tmp_path / "ours")
    certificate = convert(tmp_path / "ours", tmp_path / "there", "paddlenlp", ErnieModel)
    assert not certificate.passed
    assert certificate.worst > 1e-4
    assert certificate.weights_identical
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]
    assert convert(tmp_path / "ours", tmp_path / "there", "paddlenlp", ErnieModel, tolerance=1).passed
    assert (tmp_path / "there" / "certificate.json").is_file()


def test_a_failed_conversion_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make().save_pretrained(tmp_path / "ours")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ernie.model.weights.save_file", full)
    with pytest.raises(UserError, match="hf: the disk is full; nothing was written"):
        convert(tmp_path / "ours", tmp_path / "hf", "hf", ErnieModel)
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


@pytest.mark.parametrize("part", ["embedding.token.weight", "masked_head.transform.weight"])
def test_any_change_of_a_weight_fails_the_conversion(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(make(), tmp_path / "ours", "ernie")

    def write_changed(model: ErnieModel, folder: Path, to: Target, **given: Any) -> list[str]:
        parameters = dict(model.named_parameters())
        parameters |= {f"masked_head.{name}": value for name, value in model.masked_head.named_parameters()}
        before = parameters[part].numpy()
        parameters[part].set_value(np.nextafter(before, np.float32(9)))
        try:
            return write(model, folder, to, **given)
        finally:
            parameters[part].set_value(before)

    monkeypatch.setattr("ernie.model.published.convert.write", write_changed)
    certificate = convert(tmp_path / "ours", tmp_path / "there", "hf", ErnieModel)
    assert certificate.worst <= certificate.tolerance
    assert not certificate.passed
    assert not (tmp_path / "there").exists()


def test_an_existing_folder_is_never_overwritten(tmp_path: Path) -> None:
    make().save_pretrained(tmp_path / "ours")
    with pytest.raises(UserError, match="is there already; give a new folder"):
        convert(tmp_path / "ours", tmp_path / "ours", "hf", ErnieModel)


def test_differences_are_absolute_up_to_one_and_relative_above() -> None:
    small, large = np.array([0.5, 0.25]), np.array([10.0, 40.0])
    check = Check.of("it", {"a": small, "b": large}, {"a": small + 0.1, "b": large + 0.4})
    assert check.differences["a"] == pytest.approx(0.1)
    assert check.differences["b"] == pytest.approx(0.4 / 40.4)


@pytest.mark.parametrize("to", ["hf", "paddlenlp", "ernie"])
def test_a_pooler_that_the_source_lacks_is_not_written_either(tmp_path: Path, to: Target) -> None:
    bare = {name: values for name, values in weights().items() if "pooler" not in name}
    checkpoints.hugging_face(tmp_path, bare, SETTINGS)
    write_vocabulary(tmp_path)
    first = convert(tmp_path, tmp_path / "first", to, ErnieModel)
    second = convert(tmp_path / "first", tmp_path / "second", "hf", ErnieModel)
    for certificate in (first, second):
        assert certificate.passed and certificate.weights_identical
        assert any("has no pooler" in note for note in certificate.notes)
        assert not any("pooler" in check.differences for check in certificate.checks)
    assert not any("pooler" in name for name in load_file(tmp_path / "second" / "model.safetensors"))
    with pytest.warns(Remark, match="has no pooler; the model's own is untrained"):
        ErnieModel.from_pretrained(tmp_path / "first")


def test_nan_never_passes() -> None:
    check = Check.of("it", {"a": np.array([np.nan])}, {"a": np.array([np.nan])})
    assert not Certificate("a", "hf", "ernie", 1e9, True, (check,), True).passed


def test_a_pooler_that_the_source_lacks_is_not_compared() -> None:
    check = Check.of(
        "it", {"x": np.ones(1), "pooler": np.ones(1)}, {"x": np.ones(1), "pooler": np.zeros(1)}, {"pooler"}
    )
    assert list(check.differences) == ["x"]


# -------------------------------------------------------------------------------------------------- the command


def test_the_command_prints_the_certificate_and_reports_what_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    extra = {"cls.seq_relationship.bias": np.ones(2, np.float32)}
    checkpoints.hugging_face(source, {**weights(), **extra}, SETTINGS)
    write_vocabulary(source)
    assert main(["convert", str(source), str(target), "--to", "ernie"]) == 0
    out, err = capsys.readouterr()
    assert "weights, written and read again: equal bit for bit" in out
    assert out.endswith(f"{target}\n")
    assert "there is no place for cls.seq_relationship.bias" in err
    batch = batch_of()
    found = ErnieModel.from_pretrained(target)(**batch).pooler_output.numpy()
    np.testing.assert_allclose(found, forward(weights(), SETTINGS, batch)[-2], rtol=0, atol=1e-5)


@pytest.mark.parametrize("tolerance", ["-1", "nan", "inf"])
def test_an_invalid_tolerance_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], tolerance: str) -> None:
    make(SHAPE).save_pretrained(tmp_path / "ours")
    words = ["convert", str(tmp_path / "ours"), str(tmp_path / "there"), "--to", "hf", "--tolerance", tolerance]
    assert main(words) == 2
    assert "--tolerance: expected a difference of at least 0" in capsys.readouterr().err


def test_the_command_fails_when_nothing_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(replace(SHAPE, layer_norm_epsilon=1e-3)).save_pretrained(tmp_path / "ours")
    assert main(["convert", str(tmp_path / "ours"), str(tmp_path / "there"), "--to", "paddlenlp"]) == 1
    out, err = capsys.readouterr()
    assert "NOT within the tolerance of 1.0e-04" in out
    assert f"nothing was written to {tmp_path / 'there'}" in err
    assert "--task N writes it for one task, as a BERT" in err
    assert not (tmp_path / "there").exists()
