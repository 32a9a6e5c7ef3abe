"""The encoder as a Python class: packed equals padded, sequences are independent, models are saved and loaded."""

from __future__ import annotations

import json
from itertools import pairwise
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import vocabulary

from ernie import ErnieModel
from ernie.data.batch import Packed, pack
from ernie.data.document import Sample
from ernie.errors import UserError
from ernie.model import weights
from ernie.model.config import EncoderConfig
from ernie.model.heads import MaskedTokenHead
from ernie.model.weights import arrays

SHAPE = EncoderConfig(
    vocab_size=50, hidden_size=16, layers=2, heads=2, intermediate_size=32, max_positions=24, task_vocab_size=4
)
layouts = st.lists(st.integers(min_value=1, max_value=SHAPE.max_positions), min_size=1, max_size=5)
quick = settings(max_examples=25)


def make(seed: int = 0) -> ErnieModel:
    """Build a small model with weights far from their initial values, so that every part of it matters."""
    paddle.seed(seed)
    model = ErnieModel(SHAPE)
    for parameter in model.parameters():
        parameter.set_value(parameter + 0.2 * paddle.randn(parameter.shape))
    model.eval()
    return model


@pytest.fixture(scope="module")
def model() -> ErnieModel:
    return make()


def batch(lengths: list[int]) -> Packed:
    rng = np.random.default_rng(lengths)
    return pack([Sample(rng.integers(50, size=n), rng.integers(2, size=n), {"label": 0}) for n in lengths])


def padded(values: np.ndarray, of: Packed, fill: int = 0) -> paddle.Tensor:
    """Packed values (T,) as a padded batch (N, L)."""
    out = np.full(of.layout.sequences * of.layout.longest, fill, np.int64)
    out[of.layout.slots] = values
    return paddle.to_tensor(out.reshape(of.layout.sequences, of.layout.longest))


# ------------------------------------------------------------------------------------- packed and padded


@quick
@given(layouts)
def test_a_padded_batch_equals_a_packed_one(model: ErnieModel, lengths: list[int]) -> None:
    rows = batch(lengths)
    packed = model.encode_packed(rows, task_id=1).numpy()
    mask = padded(np.ones(rows.layout.tokens), rows)
    found = model(padded(rows.ids, rows, fill=7), padded(rows.segments, rows), mask, paddle.ones_like(mask))
    flat = found.last_hidden_state.numpy().reshape(-1, SHAPE.hidden_size)
    np.testing.assert_allclose(flat[rows.layout.slots], packed, rtol=1e-5, atol=1e-5)
    assert not np.delete(flat, rows.layout.slots, axis=0).any()
    pooled = model.pooler(paddle.to_tensor(packed), rows.layout).numpy()
    np.testing.assert_allclose(found.pooler_output.numpy(), pooled, rtol=1e-5, atol=1e-5)


@quick
@given(layouts.filter(lambda lengths: len(lengths) > 1))
def test_sequences_of_a_batch_are_encoded_independently(model: ErnieModel, lengths: list[int]) -> None:
    together = batch(lengths)
    encoded = model.encode_packed(together).numpy()
    for start, stop in pairwise(together.layout.offsets):
        alone = pack([Sample(together.ids[start:stop], together.segments[start:stop], {"label": 0})])
        np.testing.assert_allclose(model.encode_packed(alone).numpy(), encoded[start:stop], rtol=1e-4, atol=1e-5)


def test_omitted_arguments_default_to_zeros_and_no_padding(model: ErnieModel) -> None:
    ids = paddle.to_tensor([[3, 4, 5], [6, 7, 8]])
    zeros = paddle.zeros_like(ids)
    defaults, explicit = model(ids), model(ids, zeros, paddle.ones_like(ids), zeros)
    assert np.array_equal(defaults.last_hidden_state.numpy(), explicit.last_hidden_state.numpy())


def test_every_input_changes_the_output(model: ErnieModel) -> None:
    """Ids, order, segments and task: changing any of them changes the output."""
    ids = paddle.to_tensor([[3, 4, 5]])
    ones = paddle.ones_like(ids)
    outputs = [
        model(ids),
        model(paddle.to_tensor([[3, 4, 6]])),
        model(paddle.to_tensor([[3, 5, 4]])),
        model(ids, token_type_ids=ones),
        model(ids, task_type_ids=ones),
    ]
    firsts = [output.last_hidden_state.numpy()[0, 0] for output in outputs]
    distances = [np.abs(a - b).max() for i, a in enumerate(firsts) for b in firsts[:i]]
    assert min(distances) > 1e-3


def test_a_task_embedding_gets_gradients_from_batches_of_its_task_only(model: ErnieModel) -> None:
    model.clear_gradients()
    model.encode_packed(batch([5, 3]), task_id=2)[:, 0].sum().backward()
    gradient = np.abs(model.embedding.task.weight.grad.numpy()).sum(axis=1)
    assert gradient[2] > 0
    assert not gradient[[0, 1, 3]].any()
    model.clear_gradients()


def test_a_model_without_task_embeddings_ignores_the_task() -> None:
    model = ErnieModel(EncoderConfig(50, 16, 1, 2, 32, task_vocab_size=0))
    model.eval()
    one = batch([4])
    assert np.array_equal(model.encode_packed(one, 0).numpy(), model.encode_packed(one, 3).numpy())
    assert not [name for name, _ in model.named_parameters() if "task" in name]


def test_dropout_is_active_in_training_and_not_in_evaluation() -> None:
    model = make()
    one = batch([6])
    assert np.array_equal(model.encode_packed(one).numpy(), model.encode_packed(one).numpy())
    model.train()
    assert not np.array_equal(model.encode_packed(one).numpy(), model.encode_packed(one).numpy())


# ------------------------------------------------------------------------------------------ invalid inputs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"attention_mask": [[1, 1, 0]]}, "attention_mask has the shape [1, 3], expected that of input_ids, [2, 3]"),
        ({"token_type_ids": [[0] * 4] * 2}, "token_type_ids has the shape [2, 4], expected that of input_ids, [2, 3]"),
        ({"task_type_ids": [0, 0]}, "task_type_ids has the shape [2], expected that of input_ids, [2, 3]"),
        ({"attention_mask": [[1, 1, 1], [0, 0, 0]]}, "attention_mask: sequence 1 has no tokens"),
        ({"input_ids": [1, 2, 3]}, "input_ids has the shape [3], expected a batch of sequences: [N, L]"),
        ({"input_ids": [[1] * 25]}, "a sequence is 25 tokens long, this model has 24 positions"),
    ],
)
def test_invalid_inputs_raise_a_user_error(model: ErnieModel, arguments: dict, message: str) -> None:
    inputs = {"input_ids": [[1, 2, 3], [4, 5, 6]], **arguments}
    with pytest.raises(UserError) as caught:
        model(**{name: paddle.to_tensor(value) for name, value in inputs.items()})
    assert str(caught.value).startswith(message)


# ------------------------------------------------------------------------------------------------- folders


def test_a_saved_model_is_loaded_bit_for_bit(tmp_path: Path) -> None:
    model = make()
    model.tokenizer = vocabulary("a few words .")
    model.save_pretrained(tmp_path / "new" / "model")
    for folder in (tmp_path / "new" / "model", tmp_path / "new"):  # its own folder, or that of a run
        loaded = ErnieModel.from_pretrained(folder)
        assert loaded.config == model.config
        assert not loaded.training
        for (name, one), (other_name, other) in zip(
            sorted(arrays(model).items()), sorted(arrays(loaded).items()), strict=True
        ):
            assert name == other_name
            assert one.tobytes() == other.tobytes()
        assert loaded.tokenizer is not None
        assert loaded.tokenizer.fingerprint == model.tokenizer.fingerprint
    one = batch([5, 9])
    assert np.array_equal(model.encode_packed(one).numpy(), loaded.encode_packed(one).numpy())


def test_loading_a_model_does_not_advance_the_random_state(tmp_path: Path) -> None:
    make().save_pretrained(tmp_path)
    paddle.seed(3)
    expected = paddle.rand([4]).tolist()
    paddle.seed(3)
    ErnieModel.from_pretrained(tmp_path)
    assert paddle.rand([4]).tolist() == expected


def test_a_loaded_model_trains_like_the_saved_one(tmp_path: Path) -> None:
    model = make()
    model.save_pretrained(tmp_path)
    loaded = ErnieModel.from_pretrained(tmp_path)
    for one in (model, loaded):
        optimizer = paddle.optimizer.AdamW(1e-3, parameters=one.parameters())
        for _ in range(2):
            one([[1, 5, 9, 2], [1, 7, 3, 2]]).pooler_output.square().mean().backward()
            optimizer.step()
            optimizer.clear_grad()
    expected, found = arrays(model), arrays(loaded)
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


def test_a_model_can_be_saved_without_a_tokenizer(tmp_path: Path) -> None:
    make().save_pretrained(tmp_path)
    assert ErnieModel.from_pretrained(tmp_path).tokenizer is None


def convert_weights(kind: str, path: Path, only: str = "") -> None:
    """Rewrite the weights of a safetensors file in another type, all of them or one only."""
    from safetensors.numpy import load_file

    header: dict[str, dict] = {}
    data = b""
    for name, values in load_file(path).items():
        dtype = kind if only in name else "F32"
        if dtype == "BF16":
            stored = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        else:
            stored = values.astype({"F64": "f8", "F32": "f4", "F16": "f2", "I32": "i4"}[dtype]).tobytes()
        offsets = [len(data), len(data) + len(stored)]
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": offsets}
        data += stored
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize("only", ["", "layers.0.inner.weight"])
@pytest.mark.parametrize(("kind", "near"), [("F64", 0), ("F16", 2**-10), ("BF16", 2**-7)])
def test_weights_of_another_type_are_converted_to_float32(tmp_path: Path, kind: str, near: float, only: str) -> None:
    model = make()
    model.save_pretrained(tmp_path)
    convert_weights(kind, tmp_path / "model.safetensors", only)
    with pytest.raises(
        UserError, match=r"model\.safetensors: does not match its checksum: .* on purpose, delete .*sha256"
    ):
        ErnieModel.from_pretrained(tmp_path)
    (tmp_path / "sha256.json").unlink()
    loaded = ErnieModel.from_pretrained(tmp_path)
    assert {parameter.dtype for parameter in loaded.parameters()} == {paddle.float32}
    for name, parameter in loaded.named_parameters():
        saved = model.state_dict()[name].numpy()
        np.testing.assert_allclose(parameter.numpy(), saved, rtol=near, atol=near * 2**-14, err_msg=name)


def test_bfloat16_weights_are_converted_where_numpy_knows_bfloat16(tmp_path: Path) -> None:
    pytest.importorskip("ml_dtypes")  # importing it is enough
    test_weights_of_another_type_are_converted_to_float32(tmp_path, "BF16", 2**-7, "")


def test_integer_weights_raise_a_user_error(tmp_path: Path) -> None:
    make().save_pretrained(tmp_path)
    convert_weights("I32", tmp_path / "model.safetensors", "pooler.dense.bias")
    with pytest.raises(UserError, match=r"model.safetensors: pooler.dense.bias is of type int32; expected floating"):
        ErnieModel.from_pretrained(tmp_path)


def damage(folder: Path, kind: str) -> None:
    """Damage a saved model in one way."""
    from safetensors.numpy import load_file, save_file

    weights = folder / "model.safetensors"
    values = load_file(weights)
    if kind == "a weight is missing":
        del values["pooler.dense.weight"]
        save_file(values, weights)
    elif kind == "a weight is unknown":
        save_file({**values, "extra.weight": np.zeros(3, np.float32)}, weights)
    elif kind == "another vocabulary":
        values["embedding.token.weight"] = values["embedding.token.weight"][:40]
        save_file(values, weights)
    elif kind == "cut off":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif kind == "no weights":
        weights.unlink()
    elif kind == "no configuration":
        (folder / "config.json").unlink()
    elif kind == "configuration cut off":
        (folder / "config.json").write_text('{"vocab_size": 5')
    elif kind == "unknown key":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "hiden_size": 3}))
    else:
        vocabulary(" ".join(f"w{i}" for i in range(60))).save(folder / "tokenizer")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("a weight is missing", "model.safetensors: does not fit this model: it lacks pooler.dense.weight"),
        ("a weight is unknown", "model.safetensors: does not fit this model: it also has extra.weight"),
        ("another vocabulary", "embedding.token.weight has the shape [40, 16], the model [50, 16] (the vocabularies"),
        ("cut off", "model.safetensors: is damaged"),
        ("no weights", "model.safetensors: there is no such file"),
        ("no configuration", "holds no model: there is neither config.json nor model/config.json in it"),
        ("configuration cut off", "config.json: is not JSON"),
        ("unknown key", "hiden_size: unknown key. Did you mean 'hidden_size'?"),
        ("another tokenizer", "the tokenizer has 65 tokens, the model only 50: they do not belong together"),
    ],
)
def test_a_damaged_model_raises_an_error_that_names_the_file(tmp_path: Path, kind: str, message: str) -> None:
    make().save_pretrained(tmp_path)
    damage(tmp_path, kind)
    with pytest.raises(UserError) as caught:
        ErnieModel.from_pretrained(tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_missing_folder_raises_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere: there is no such folder"):
        ErnieModel.from_pretrained(tmp_path / "nowhere")


def test_loading_from_a_file_raises_a_user_error(tmp_path: Path) -> None:
    make().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"model.safetensors: is a file; give the folder of the model"):
        ErnieModel.from_pretrained(tmp_path / "model.safetensors")


def test_a_half_precision_model_is_saved_with_its_values(tmp_path: Path) -> None:
    for kind in ("bfloat16", "float16"):
        model = make()
        model.masked_head = MaskedTokenHead(model)
        model.to(dtype=kind)
        model.save_pretrained(tmp_path / kind)
        loaded = ErnieModel.from_pretrained(tmp_path / kind)
        assert loaded.masked_head is not None
        for one, other in ((model, loaded), (model.masked_head, loaded.masked_head)):
            for (name, saved), found in zip(one.named_parameters(), other.parameters(), strict=True):
                np.testing.assert_array_equal(found.numpy(), saved.astype("float32").numpy(), err_msg=name)


def test_a_loaded_model_can_be_pickled_for_a_spawned_process(tmp_path: Path) -> None:
    make().save_pretrained(tmp_path)
    loaded = ErnieModel.from_pretrained(tmp_path)
    sent = ForkingPickler.loads(ForkingPickler.dumps(loaded))
    for name, values in arrays(loaded).items():
        np.testing.assert_array_equal(arrays(sent)[name], values, err_msg=name)


def test_near_positions_of_a_new_encoder_are_more_similar_than_far_ones() -> None:
    table = ErnieModel(EncoderConfig.preset("tiny")).embedding.position.weight.numpy()
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    similarities = [float((unit[:-gap] * unit[gap:]).sum(1).mean()) for gap in (1, 2, 4, 16)]
    assert similarities == sorted(similarities, reverse=True)
    assert similarities[0] > 0.9


def test_positions_of_a_new_encoder_have_the_deviation_of_its_other_weights() -> None:
    model = ErnieModel(EncoderConfig.preset("tiny"))
    table = model.embedding.position.weight.numpy()
    assert np.sqrt((table**2).mean()) == pytest.approx(model.config.initializer_range, rel=1e-3)


def test_saving_without_a_tokenizer_removes_the_one_saved_before(tmp_path: Path) -> None:
    model = make()
    model.tokenizer = vocabulary("one two three")
    model.save_pretrained(tmp_path)
    assert ErnieModel.from_pretrained(tmp_path).tokenizer is not None
    make().save_pretrained(tmp_path)
    assert ErnieModel.from_pretrained(tmp_path).tokenizer is None


@pytest.mark.parametrize("part", ["weights", "head", "tokenizer", "configuration"])
def test_a_failed_save_keeps_the_model_saved_before(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    model.tokenizer, model.masked_head = vocabulary("a few words ."), MaskedTokenHead(model)
    model.save_pretrained(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    written = weights.save_file

    def full(*arguments: Any, **options: Any) -> None:
        if part != "head" or any("masked_head" in each.name for each in arguments if isinstance(each, Path)):
            raise OSError(28, "No space left on device")
        written(*arguments, **options)

    other = make(seed=1)
    other.tokenizer, other.masked_head = vocabulary("other words"), MaskedTokenHead(other)
    owner = {
        "weights": "ernie.model.weights.save_file",
        "head": "ernie.model.weights.save_file",
        "tokenizer": "ernie.text.wordpiece.WordPiece.write_files",
        "configuration": "ernie.model.config.EncoderConfig.write",
    }
    monkeypatch.setattr(owner[part], full)
    with pytest.raises(OSError, match="No space left"):
        other.save_pretrained(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "masked_head.safetensors",
        "model.safetensors",
        "sha256.json",
        "tokenizer",
    ]


def test_saving_over_a_model_keeps_other_files_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for seed in range(2):
        model = make(seed)
        model.tokenizer = vocabulary("a few words ." if seed else "others")
        model.save_pretrained(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert ErnieModel.from_pretrained(tmp_path).tokenizer.fingerprint == model.tokenizer.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "model.safetensors",
        "notes.txt",
        "sha256.json",
        "tokenizer",
    ]


@pytest.mark.parametrize("name", ["file", "file/model"])
def test_saving_over_a_file_raises_a_user_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=f"{name}: there is a file of that name"):
        make().save_pretrained(tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"


def test_saving_into_the_folder_of_a_run_raises_a_user_error(tmp_path: Path) -> None:
    make().save_pretrained(tmp_path / "run" / "model")
    with pytest.raises(
        UserError, match="run: is the folder of a run, and its own model would be hidden; choose another"
    ):
        make().save_pretrained(tmp_path / "run")


def test_a_model_can_be_saved_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make().save_pretrained(".")
    assert ErnieModel.from_pretrained(tmp_path).config == SHAPE
