"""Known pitfalls of weight conversion: a test for each line of the table in docs/howto/conversion.md."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support import checkpoints
from support.checkpoints import (
    FORMATS,
    POOLER,
    SETTINGS,
    TASK,
    batch_of,
    forward,
    weights,
    write_json,
    write_vocabulary,
)

from ernie.errors import UserError
from ernie.model.ernie import ErnieModel
from ernie.model.published.load import LoadedCheckpoint, read


def load(
    folder: Path, name: str = "hf", *, without: tuple[str, ...] = (), add: dict[str, Any] | None = None, **settings: Any
) -> LoadedCheckpoint[ErnieModel]:
    """Write and load a checkpoint with changed settings (None removes one), without some weights, with extra ones."""
    kept = {key: value for key, value in {**SETTINGS, **settings}.items() if value is not None}
    made = {key: value for key, value in weights().items() if key not in without}
    FORMATS[name](folder, {**made, **(add or {})}, kept)
    if not any((folder / file).exists() for file in ("vocab.txt", "tokenizer.json")):
        write_vocabulary(folder)
    return read(folder, ErnieModel)


def last_hidden_states(model: ErnieModel) -> np.ndarray:
    batch = batch_of()
    return model(**batch).last_hidden_state.numpy()[batch["attention_mask"].astype(bool)]


def expected(epsilon: float = 1e-12, **settings: Any) -> np.ndarray:
    batch = batch_of()
    states = forward(weights(), {**SETTINGS, **settings}, batch, epsilon)
    return states[SETTINGS["num_hidden_layers"]][batch["attention_mask"].astype(bool)]


# ------------------------------------------------------------------------------------------- LayerNorm's epsilon


@pytest.mark.parametrize("epsilon", [1e-12, 1e-5, 1e-3])
def test_the_epsilon_of_the_settings_is_used(tmp_path: Path, epsilon: float) -> None:
    model = load(tmp_path, layer_norm_eps=epsilon).model
    np.testing.assert_allclose(last_hidden_states(model), expected(epsilon), rtol=0, atol=1e-5)


def test_the_outputs_depend_on_the_epsilon() -> None:
    assert np.abs(expected(1e-3) - expected(1e-12)).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "epsilon"), [("hf", 1e-12), ("paddlenlp", 1e-12), ("official", 1e-5), ("official dynamic", 1e-5)]
)
def test_without_a_setting_the_frameworks_default_epsilon_is_used(tmp_path: Path, name: str, epsilon: float) -> None:
    assert load(tmp_path, name, layer_norm_eps=None).model.config.layer_norm_epsilon == epsilon


def test_paddlenlp_runs_ernie_with_its_own_epsilon_and_bert_with_the_configured_one(tmp_path: Path) -> None:
    for family in ("ernie", "bert"):
        (tmp_path / family).mkdir()
    ernie = load(tmp_path / "ernie", "paddlenlp", layer_norm_eps=1e-5)
    assert ernie.model.config.layer_norm_epsilon == 1e-12
    assert "config.json says layer_norm_eps 1e-05, but PaddleNLP runs ERNIE with 1e-12: so do we" in ernie.notes
    bert = load(tmp_path / "bert", "paddlenlp", layer_norm_eps=1e-5, model_type="bert")
    assert bert.model.config.layer_norm_epsilon == 1e-5


# ------------------------------------------------------------------------------------------------- activations


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_the_activation_of_the_settings_is_used(tmp_path: Path, activation: str) -> None:
    model = load(tmp_path, hidden_act=activation).model
    np.testing.assert_allclose(last_hidden_states(model), expected(hidden_act=activation), rtol=0, atol=1e-5)


@pytest.mark.parametrize("activation", ["gelu_new", "gelu_pytorch_tanh", "silu"])
def test_other_activations_are_refused_by_name(tmp_path: Path, activation: str) -> None:
    with pytest.raises(UserError, match=f"config.json: hidden_act is {activation}"):
        load(tmp_path, hidden_act=activation)


# ------------------------------------------------------------------------------------------------------- sizes


def test_513_positions_are_all_read(tmp_path: Path) -> None:
    FORMATS["hf"](tmp_path, weights(max_position_embeddings=513), {**SETTINGS, "max_position_embeddings": 513})
    model = read(tmp_path, ErnieModel).model
    assert model.config.max_positions == 513
    assert model(np.ones((1, 513), np.int64)).last_hidden_state.shape == [1, 513, 16]


@pytest.mark.parametrize(
    ("key", "ours", "wrong"),
    [
        ("intermediate_size", "intermediate_size", 64),
        ("max_position_embeddings", "max_positions", 20),
        ("vocab_size", "vocab_size", 30522),
        ("type_vocab_size", "segments", 2),
    ],
)
def test_sizes_of_the_weights_take_precedence_over_the_settings(
    tmp_path: Path, key: str, ours: str, wrong: int
) -> None:
    found = load(tmp_path, **{key: wrong})
    assert getattr(found.model.config, ours) == SETTINGS[key]
    assert found.notes == (f"config.json says {ours} {wrong}, the weights have {SETTINGS[key]}: the weights count",)


def test_the_feed_forward_width_may_be_missing(tmp_path: Path) -> None:
    found = load(tmp_path, intermediate_size=None)
    assert found.model.config.intermediate_size == SETTINGS["intermediate_size"]
    assert found.notes == ()


def test_either_name_of_the_segment_count_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, "official").model.config.segments == SETTINGS["type_vocab_size"]


def test_the_embedding_table_may_have_more_rows_than_the_vocabulary_has_tokens(tmp_path: Path) -> None:
    write_vocabulary(tmp_path, 33)
    model = load(tmp_path).model
    assert (model.config.vocab_size, model.tokenizer.vocab_size) == (40, 33)


def test_a_vocabulary_with_more_tokens_than_the_table_has_rows_is_refused(tmp_path: Path) -> None:
    write_vocabulary(tmp_path, 41)
    with pytest.raises(UserError, match="the vocabulary has 41 tokens, the model only 40: they do not belong"):
        load(tmp_path)


def test_a_weight_of_another_shape_is_reported_with_the_files_name_and_orientation(tmp_path: Path) -> None:
    name = "ernie.encoder.layer.1.intermediate.dense.weight"
    cut = weights()[name][:, :-1]
    shape = rf"\[{cut.shape[0]}, {cut.shape[1]}\], expected \[{cut.shape[0]}, {cut.shape[1] + 1}\]"
    with pytest.raises(UserError, match=rf"{name} has the shape {shape} by its embeddings and settings"):
        load(tmp_path, without=(name,), add={name: cut})


def test_with_fewer_layers_in_the_settings_the_first_ones_are_loaded(tmp_path: Path) -> None:
    """The frameworks do the same; the layers left out are reported."""
    found = load(tmp_path, num_hidden_layers=1)
    assert found.model.config.layers == 1
    assert found.notes == ("its settings say 1 layer, the weights have 2: the others are left out",)


def test_embeddings_of_another_width_than_the_layers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="emb_size is 8, hidden_size 16: they must agree"):
        load(tmp_path, "official", emb_size=8)


# -------------------------------------------------------------------------------------- optional and extra weights


def test_missing_task_embeddings_are_reported_and_left_out_of_the_model(tmp_path: Path) -> None:
    found = load(tmp_path, without=(TASK,))
    assert found.model.config.task_vocab_size == 0
    assert found.notes == ("has no task embeddings, though its settings speak of them; the model has none",)
    np.testing.assert_allclose(last_hidden_states(found.model), expected(use_task_id=False), rtol=0, atol=1e-5)


def test_task_embeddings_that_the_settings_disable_are_not_used(tmp_path: Path) -> None:
    found = load(tmp_path, use_task_id=False, task_type_vocab_size=None)
    assert found.notes == (f"there is no place for {TASK}",)
    np.testing.assert_allclose(last_hidden_states(found.model), expected(use_task_id=False), rtol=0, atol=1e-5)


def test_settings_that_disable_task_embeddings_do_not_speak_of_them(tmp_path: Path) -> None:
    """transformers writes `task_type_vocab_size` in any case."""
    found = load(tmp_path, without=(TASK,), use_task_id=False, task_type_vocab_size=3)
    assert found.notes == ()


def test_a_missing_pooler_is_reported(tmp_path: Path) -> None:
    found = load(tmp_path, without=POOLER)
    assert found.notes == ("has no pooler; the model's own is untrained",)
    assert not found.pooler
    np.testing.assert_allclose(last_hidden_states(found.model), expected(), rtol=0, atol=1e-5)


def test_a_masked_token_head_without_its_transform_is_left_out(tmp_path: Path) -> None:
    lost = "cls.predictions.transform.dense.weight"
    found = load(tmp_path, without=(lost,))
    assert found.model.masked_head is None
    assert found.notes == (f"its masked-token head is left out: it lacks {lost}",)


@pytest.mark.parametrize(
    ("name", "like", "other"),
    [
        ("cls.predictions.decoder.weight", "ernie.embeddings.word_embeddings.weight", "the token embeddings"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias", "the head's other bias"),
    ],
)
def test_a_masked_token_head_that_shares_nothing_is_left_out(name: str, like: str, other: str, tmp_path: Path) -> None:
    found = load(tmp_path, add={name: weights(seed=1)[like] + 1})
    assert found.model.masked_head is None
    assert found.notes == (
        f"its masked-token head is left out: {name} differs from {other}, which this library's head shares. "
        "The encoder is whole; only fill_mask needs that head",
    )
    np.testing.assert_allclose(last_hidden_states(found.model), expected(), rtol=0, atol=1e-5)


def test_a_masked_token_head_may_store_copies_of_the_table_and_of_its_bias(tmp_path: Path) -> None:
    made = weights()
    found = load(
        tmp_path,
        add={
            "cls.predictions.decoder.weight": made["ernie.embeddings.word_embeddings.weight"].copy(),
            "cls.predictions.decoder.bias": made["cls.predictions.bias"].copy(),
        },
    )
    assert found.model.masked_head is not None
    assert found.notes == ()


@pytest.mark.parametrize("name", ["cls.predictions.decoder.bias", "cls.predictions.decoder.weight"])
def test_a_tied_weight_may_be_stored_under_its_copys_name_alone(name: str, tmp_path: Path) -> None:
    """As PyTorch's safetensors files, which hold a shared tensor once."""
    kept = {"bias": "cls.predictions.bias", "weight": "ernie.embeddings.word_embeddings.weight"}[
        name.rpartition(".")[2]
    ]
    found = load(tmp_path, without=(kept,), add={name: weights()[kept]})
    assert found.notes == ()
    batch = batch_of()
    tokens = batch["attention_mask"].astype(bool)
    logits = found.model.masked_head(paddle.to_tensor(last_hidden_states(found.model)), np.arange(tokens.sum()))
    np.testing.assert_allclose(logits.numpy(), forward(weights(), SETTINGS, batch)[-1][tokens], rtol=0, atol=1e-4)


@pytest.mark.parametrize("prefix", ["module.", "model.", "_orig_mod.module.", "0.auto_model."])
@pytest.mark.parametrize("name", ["hf", "hf .bin of old", "paddlenlp"])
def test_the_prefix_of_a_wrapper_around_the_model_is_dropped(prefix: str, name: str, tmp_path: Path) -> None:
    for bare in (False, True):
        (folder := tmp_path / str(bare)).mkdir()
        made = {key.removeprefix("ernie.") if bare else key: value for key, value in weights().items()}
        FORMATS[name](folder, {prefix + key: value for key, value in made.items()}, SETTINGS)
        write_vocabulary(folder)
        found = read(folder, ErnieModel)
        assert found.notes == () and found.model.masked_head is not None
        np.testing.assert_allclose(last_hidden_states(found.model), expected(), rtol=0, atol=1e-5)


def test_a_file_with_two_encoders_is_refused(tmp_path: Path) -> None:
    other = {f"model.{key}": value for key, value in weights(1).items()}
    with pytest.raises(UserError, match=r"model\.safetensors: holds 2 encoders, under '' and 'model\.'"):
        load(tmp_path, add=other)


def test_a_whole_file_counts_where_parts_lie_beside_it(tmp_path: Path) -> None:
    """As in transformers; the index here even names parts that were never fetched."""
    parts = dict.fromkeys(weights(), "model-00001-of-00002.safetensors")
    write_json(tmp_path / "model.safetensors.index.json", {"weight_map": parts})
    np.testing.assert_allclose(last_hidden_states(load(tmp_path).model), expected(), rtol=0, atol=1e-5)


def test_unused_weights_are_reported(tmp_path: Path) -> None:
    extra = {"cls.seq_relationship.weight": np.ones((2, 16), np.float32), "classifier.bias": np.ones(2, np.float32)}
    assert load(tmp_path, add=extra).notes == (f"there is no place for {', '.join(sorted(extra))}",)


# ------------------------------------------------------------------------------------- unsupported networks


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "hf without prefix and head"])
def test_files_that_git_lfs_did_not_fetch_are_named_as_such(name: str, tmp_path: Path) -> None:
    FORMATS[name](tmp_path, {key: value for key, value in weights().items() if key != TASK}, SETTINGS)
    write_vocabulary(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and "ernie_config" not in path.name]
    assert len(files) > 1
    for file in files:
        content = file.read_bytes()
        file.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize {len(content)}\n")
        with pytest.raises(UserError, match=re.escape(f"{file}: is a Git LFS pointer") + ".* git lfs pull"):
            ErnieModel.from_pretrained(tmp_path)
        file.write_bytes(content)
    read(tmp_path, ErnieModel)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "hf without prefix and head"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(name: str, tmp_path: Path) -> None:
    FORMATS[name](tmp_path, {key: value for key, value in weights().items() if key != TASK}, SETTINGS)
    write_vocabulary(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    for file in files:
        moved = file.rename(file.with_name("moved"))
        os.mkfifo(file)
        if file.parent == tmp_path:
            with pytest.raises(UserError):
                read(tmp_path, ErnieModel)
        else:  # one of many files, perhaps of an optional weight
            with suppress(UserError):
                read(tmp_path, ErnieModel)
        moved.rename(file)


@pytest.mark.parametrize("file", ["model.safetensors", "masked_head.safetensors", "config.json"])
def test_files_of_an_own_model_that_git_lfs_did_not_fetch_are_named_as_such(file: str, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    load(tmp_path / "source").model.save_pretrained(tmp_path / "ours")
    (tmp_path / "ours" / file).write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(UserError, match=f"{file}: is a Git LFS pointer"):
        ErnieModel.from_pretrained(tmp_path / "ours")


def test_a_class_of_a_name_far_too_long_is_none(tmp_path: Path) -> None:
    model = load(tmp_path, architectures=["ForA" * 100_000 + "!"]).model
    np.testing.assert_allclose(last_hidden_states(model), expected(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["RobertaModel", "ErnieGramModel", "ErnieMModel", "ElectraForMaskedLM", "NezhaModel", "AlbertForPretraining"],
)
def test_classes_of_other_networks_in_older_folders_of_paddlenlp_are_refused_by_name(name: str, tmp_path: Path) -> None:
    inner = {key: value for key, value in SETTINGS.items() if key != "model_type"}
    for settings in ({"init_args": [{**inner, "init_class": name}], "init_class": "X"}, {**inner, "init_class": name}):
        FORMATS["paddlenlp of old"](tmp_path, weights(), SETTINGS)
        write_json(tmp_path / "model_config.json", settings)
        with pytest.raises(UserError, match=f"model_config.json: is of the class {name}, whose network is another"):
            read(tmp_path, ErnieModel)


@pytest.mark.parametrize(
    ("model_type", "name"),
    [
        (None, "RobertaForMaskedLM"),
        (None, "XLMRobertaModel"),
        (None, "DebertaV2Model"),
        (None, "DistilBertModel"),
        (None, "TFAlbertModel"),
        (None, "NomicBertModel"),
        ("bert", "RobertaModel"),
    ],
)
def test_architectures_of_other_networks_are_refused_by_name(model_type: Any, name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"config.json: is of the class {name}, whose network is another one"):
        load(tmp_path, model_type=model_type, architectures=[name])


@pytest.mark.parametrize(
    ("model_type", "name"),
    [
        (None, "BertForPreTraining"),
        (None, "ErnieForPretraining"),
        (None, "BertForSequenceClassification"),
        (None, "TFBertModel"),
        ("bert", "HF_ColBERT"),
        ("bert", "CompanyClassifierModel"),
    ],
)
def test_classes_of_bert_and_ernie_and_a_users_own_are_read(model_type: Any, name: str, tmp_path: Path) -> None:
    assert load(tmp_path, model_type=model_type, architectures=[name]).notes == ()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model_type", "roberta", "model_type is roberta; encoders of the types bert and ernie can be read"),
        (
            "position_embedding_type",
            "relative_key",
            "position_embedding_type is relative_key: it adds relative positions in attention",
        ),
        ("is_decoder", True, "is_decoder is True: a decoder attends only to the tokens before each token"),
        ("num_hidden_layers", None, "num_hidden_layers: expected a whole number above 0, found nothing"),
        ("num_attention_heads", "4", "num_attention_heads: expected a whole number above 0, found '4'"),
        ("layer_norm_eps", float("nan"), "layer_norm_eps: expected a finite number, found nan"),
        ("layer_norm_eps", 10**400, "layer_norm_eps: expected a finite number, found 1000"),
        ("num_attention_heads", 5, "config.json: hidden_size 16 is not divisible by heads 5"),
    ],
)
def test_unsupported_settings_are_refused(tmp_path: Path, key: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(tmp_path, **{key: value})


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("ernie.embeddings.word_embeddings.weight", "embedding.token.weight"),
        ("ernie.encoder.layer.0.intermediate.dense.weight", "encoder.layers.0.inner.weight"),
    ],
)
def test_weights_that_are_not_matrices_are_refused(tmp_path: Path, name: str, ours: str) -> None:
    flat = weights()[name].reshape(-1)
    with pytest.raises(UserError, match=rf"{ours} has the shape \[{flat.size}\], expected a matrix"):
        load(tmp_path, add={name: flat})


@pytest.mark.parametrize("classes", [[None], 5, "ErnieModel"])
def test_invalid_architectures_are_ignored(tmp_path: Path, classes: Any) -> None:
    assert load(tmp_path, "paddlenlp", architectures=classes).notes == ()


def test_half_precision_is_read_as_single_precision(tmp_path: Path) -> None:
    half_precision = {name: value.astype(np.float16) for name, value in weights().items()}
    checkpoints.hugging_face(tmp_path, half_precision, SETTINGS)
    found = last_hidden_states(read(tmp_path, ErnieModel).model)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected(), rtol=0, atol=2e-2)


@pytest.mark.parametrize("name", ["hf", "paddlenlp"])
def test_integer_weights_are_refused(tmp_path: Path, name: str) -> None:
    query = "ernie.encoder.layer.0.attention.self.query.weight"
    with pytest.raises(UserError, match=r"weight is of type int8; expected floating-point numbers.* not quantized"):
        load(tmp_path, name, add={query: np.ones_like(weights()[query], np.int8)})


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.uint32])
def test_unused_weights_may_be_integers(tmp_path: Path, kind: type) -> None:
    assert load(tmp_path, add={"ernie.times": np.ones(3, kind)}).notes == ("there is no place for ernie.times",)


# ------------------------------------------------------------------------------------------------- tokenizers


def test_a_tokenizer_is_read_from_tokenizer_json_alone(tmp_path: Path) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word", "Word"]
    vocabulary = {token: i for i, token in reversed(list(enumerate(tokens)))}
    data = {"model": {"type": "WordPiece", "vocab": vocabulary}, "normalizer": {"lowercase": False}}
    write_json(tmp_path / "tokenizer.json", data)
    tokenizer = load(tmp_path).model.tokenizer
    assert tokenizer is not None
    assert tokenizer.tokens == tokens
    assert tokenizer.encode("Word word").ids.tolist() == [6, 5]


@pytest.mark.parametrize(
    ("tokenizer_settings", "tokens", "message"),
    [
        ({"word_tokenizer_type": "mecab"}, None, "word_tokenizer_type: text is split"),
        ({"cls_token": "<s>"}, ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "a"], r"lacks \[PAD\], \[UNK\]"),
    ],
)
def test_a_model_whose_tokenizer_cannot_be_used_is_loaded_without_one(
    tmp_path: Path, tokenizer_settings: dict[str, Any], tokens: list[str] | None, message: str
) -> None:
    write_vocabulary(tmp_path)
    if tokens is not None:
        (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    write_json(tmp_path / "tokenizer_config.json", tokenizer_settings)
    found = load(tmp_path)
    assert found.model.tokenizer is None
    (note,) = found.notes
    assert re.search(f"its tokenizer cannot be used, and the model has none .*{message}", note)
    np.testing.assert_allclose(last_hidden_states(found.model), expected(), rtol=0, atol=1e-5)


def test_a_missing_vocabulary_is_reported(tmp_path: Path) -> None:
    FORMATS["hf"](tmp_path, weights(), SETTINGS)
    found = read(tmp_path, ErnieModel)
    assert found.model.tokenizer is None
    assert found.notes == ("holds no vocabulary (neither vocab.txt nor tokenizer.json); the model has no tokenizer",)


def test_a_tokenizer_that_splits_words_differently_is_reported(tmp_path: Path) -> None:
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "BertJapaneseTokenizer"})
    write_vocabulary(tmp_path)
    assert any("is a BertJapaneseTokenizer, which splits text" in note for note in load(tmp_path).notes)
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "BertTokenizerFast"})
    assert not any("splits text" in note for note in load(tmp_path).notes)


def test_tokens_added_to_a_vocabulary_are_reported(tmp_path: Path) -> None:
    write_vocabulary(tmp_path)
    write_json(tmp_path / "added_tokens.json", {"<e1>": 90, "<e2>": 91})
    assert any("has 2 more tokens (<e1>, <e2>)" in note for note in load(tmp_path).notes)


def test_tokens_that_only_the_tokenizer_settings_add_are_reported(tmp_path: Path) -> None:
    write_vocabulary(tmp_path)
    added = {"0": {"content": "[PAD]"}, "40": {"content": "[NEW]"}}
    write_json(tmp_path / "tokenizer_config.json", {"added_tokens_decoder": added})
    assert load(tmp_path).notes == ("its tokenizer has 1 more token ([NEW]), which ours does not know",)


def test_a_tokenizer_that_does_not_split_off_punctuation_is_reported(tmp_path: Path) -> None:
    write_vocabulary(tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {"do_basic_tokenize": False})
    (note,) = load(tmp_path).notes
    assert note == "its tokenizer does not part words from punctuation (do_basic_tokenize is false); ours does"


def test_an_invalid_tokenizer_class_is_reported(tmp_path: Path) -> None:
    write_vocabulary(tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": ["x"], "added_tokens_decoder": [1]})
    (note,) = load(tmp_path).notes
    assert note.startswith("its tokenizer is a ['x'], which splits text into words in another way")
