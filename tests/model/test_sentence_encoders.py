"""Sentence encoders as published: pooling, length, prompts and layers of their folders are what `encode` does."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import checkpoints
from support.checkpoints import SETTINGS, forward, weights, write_vocabulary
from support.sentences import NORMALIZE, Module, dense, pooling, write_modules, write_prompts

from ernie.errors import Remark, UserError
from ernie.model.ernie import ErnieModel
from ernie.model.published.convert import convert
from ernie.model.published.load import read

LONG = " ".join(f"w{5 + i % 30}" for i in range(40))
TEXTS = ["w7 w8 w9", "w10", "w11 w12 w13 w14 w15 w16"]
CLS, SEP = 2, 3


def write_encoder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints.hugging_face(folder, weights(), SETTINGS)
    write_vocabulary(folder)
    return folder


def published(folder: Path, *modules: Module, **settings: Any) -> Path:
    write_modules(write_encoder(folder), modules, **settings)
    return folder


def hidden_states(text: str, limit: int = 21) -> np.ndarray:
    """The last layer's vectors (tokens, width) of a text of the words w5 to w39, by the NumPy BERT."""
    ids = np.array([[CLS, *[int(word[1:]) for word in text.split()][: limit - 2], SEP]])
    zeros = np.zeros_like(ids)
    batch = {"input_ids": ids, "token_type_ids": zeros, "task_type_ids": zeros, "attention_mask": zeros + 1}
    return forward(weights(), SETTINGS, batch)[2][0]


def last_position_weighted(x: np.ndarray) -> np.ndarray:
    by_position = np.arange(1, len(x) + 1)
    return by_position @ x / by_position.sum()


POOLINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cls_token": lambda x: x[0],
    "max_tokens": lambda x: x.max(0),
    "mean_tokens": lambda x: x.mean(0),
    "mean_sqrt_len_tokens": lambda x: x.sum(0) / math.sqrt(len(x)),
    "weightedmean_tokens": last_position_weighted,
    "lasttoken": lambda x: x[-1],
}


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.mark.parametrize("mode", POOLINGS)
def test_the_saved_pooling_is_used(mode: str, tmp_path: Path) -> None:
    model = ErnieModel.from_pretrained(published(tmp_path, pooling(mode)))
    close(model.encode(TEXTS), [POOLINGS[mode](hidden_states(text)) for text in TEXTS])


def test_several_poolings_are_put_side_by_side_in_the_published_order(tmp_path: Path) -> None:
    model = ErnieModel.from_pretrained(published(tmp_path, pooling("lasttoken", "mean_tokens", "max_tokens")))
    modes = ("max_tokens", "mean_tokens", "lasttoken")
    expected = [np.concatenate([POOLINGS[mode](hidden_states(text)) for mode in modes]) for text in TEXTS]
    close(model.encode(TEXTS), expected)
    close(model.encode(TEXTS, pooling=["max", "mean", "lasttoken"]), expected)


@pytest.mark.parametrize("named", ["max", ["cls", "max"]])
def test_newer_settings_that_name_the_pooling_are_read(named: str | list[str], tmp_path: Path) -> None:
    module = ("Pooling", {"embedding_dimension": 16, "pooling_mode": named, "include_prompt": True}, {})
    model = ErnieModel.from_pretrained(published(tmp_path, module))
    assert model.sentence_config.pooling == ((named,) if isinstance(named, str) else tuple(named))


def test_dense_layers_and_normalization_follow_the_pooling_in_order(tmp_path: Path) -> None:
    first, second = dense(8, 16), dense(4, 8, "torch.nn.modules.linear.Identity", seed=1)
    model = ErnieModel.from_pretrained(published(tmp_path, pooling("cls_token"), first, NORMALIZE, second, NORMALIZE))
    states = np.stack([hidden_states(text)[0] for text in TEXTS])
    one, two = first[2], second[2]
    middle = unit(np.tanh(states @ one["linear.weight"].T + one["linear.bias"]))
    last = middle @ two["linear.weight"].T + two["linear.bias"]
    close(model.encode(TEXTS), unit(last))
    close(model.encode(TEXTS, normalize=False), last)  # only the last one: the other belongs to the model


def test_the_saved_length_cuts_texts_and_the_warning_says_whose_length_it_is(tmp_path: Path) -> None:
    model = ErnieModel.from_pretrained(published(tmp_path, pooling("mean_tokens"), max_seq_length=9))
    with pytest.warns(Remark) as caught:
        found = model.encode([LONG, "w7"])
    close(found[0], hidden_states(LONG, 9).mean(0))
    assert [str(warning.message) for warning in caught] == [
        "encode: 1 of 2 texts have more than 9 tokens (the length saved with the model); their ends were cut off"
    ]


def test_the_tokenizers_length_counts_if_the_sentence_encoder_has_none(tmp_path: Path) -> None:
    published(tmp_path, pooling("mean_tokens"))
    for saved, expected in ((11, 11), (10**30, None)):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": saved}))
        assert read(tmp_path, ErnieModel).model.sentence_config.max_len == expected


def test_a_length_above_the_models_positions_is_reported(tmp_path: Path) -> None:
    reading = read(published(tmp_path, pooling("cls_token"), max_seq_length=99), ErnieModel)
    assert reading.model.sentence_config.max_len is None  # none of its own: the positions are the limit
    assert reading.notes == (
        "sentence_bert_config.json says max_seq_length 99, the model has 21 positions: those count",
    )


def test_explicit_arguments_win(tmp_path: Path) -> None:
    model = ErnieModel.from_pretrained(published(tmp_path, pooling("cls_token"), NORMALIZE, max_seq_length=9))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.encode(" ".join(LONG.split()[:19]), pooling="max", normalize=False, max_len=21)
    close(found[0], hidden_states(LONG).max(0))
    close(model.encode(TEXTS, normalize=False), [hidden_states(text)[0] for text in TEXTS])


def test_a_pooling_that_a_dense_layer_cannot_take_raises_a_user_error(tmp_path: Path) -> None:
    model = ErnieModel.from_pretrained(published(tmp_path, pooling("cls_token"), dense(4, 16)))
    with pytest.raises(
        UserError, match="the model's Dense layer takes vectors of 16 numbers, and this pooling gives 32"
    ):
        model.encode(TEXTS, pooling=("cls", "max"))


def test_texts_are_lower_cased_before_the_tokenizer_where_the_settings_say_so(tmp_path: Path) -> None:
    published(tmp_path, pooling("cls_token"), do_lower_case=True)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    model = ErnieModel.from_pretrained(tmp_path)
    close(model.encode(["W7 W8"]), [hidden_states("w7 w8")[0]])


# ---------------------------------------------------------------------------------------------------------- prompts


def test_the_default_prompt_is_put_before_each_text_and_others_by_name(tmp_path: Path) -> None:
    write_prompts(published(tmp_path, pooling("mean_tokens")), {"query": "w30 w31 ", "document": ""}, "query")
    model = ErnieModel.from_pretrained(tmp_path)
    plain, asked = hidden_states("w7").mean(0), hidden_states("w30 w31 w7").mean(0)
    close(model.encode("w7")[0], asked)
    close(model.encode("w7", prompt_name="document")[0], plain)
    close(model.encode("w7", prompt="")[0], plain)
    close(model.encode("w7", prompt="w30 w31 ")[0], asked)
    with pytest.raises(UserError, match=r"prompt_name: the model has no prompt 'querry'\. Did you mean 'query'\?"):
        model.encode("w7", prompt_name="querry")


def test_a_prompt_is_left_out_of_the_pooling_where_the_settings_say_so(tmp_path: Path) -> None:
    module = pooling("mean_tokens", "weightedmean_tokens", include_prompt=False)
    write_prompts(published(tmp_path, module), {"query": "w30 w31 "}, "query")
    model = ErnieModel.from_pretrained(tmp_path)
    states, by_position = hidden_states("w30 w31 w7 w8")[3:], np.arange(4, 7)
    weighted = by_position @ states / by_position.sum()
    close(model.encode("w7 w8")[0], np.concatenate([states.mean(0), weighted]))
    with pytest.warns(Remark, match="1 of 1 texts have more than 3 tokens"):
        assert np.isfinite(model.encode("w7", max_len=3)).all()  # nothing but the prompt is left


# ------------------------------------------------------------------------------------------------------ conversion


@pytest.mark.parametrize("to", ["ernie", "hf", "paddlenlp"])
def test_conversion_keeps_everything_that_encode_does(to: Any, tmp_path: Path) -> None:
    source = published(tmp_path / "source", pooling("mean_tokens"), dense(8, 16), NORMALIZE, max_seq_length=9)
    write_prompts(source, {"query": "w30 "}, "query")
    assert convert(source, tmp_path / "there", to, ErnieModel).passed
    assert convert(tmp_path / "there", tmp_path / "back", "hf", ErnieModel).passed
    expected = ErnieModel.from_pretrained(source).encode(TEXTS)
    assert np.array_equal(ErnieModel.from_pretrained(tmp_path / "there").encode(TEXTS), expected)
    assert np.array_equal(ErnieModel.from_pretrained(tmp_path / "back").encode(TEXTS), expected)
    for name in ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "2_Dense/config.json"):
        found, given = (json.loads((folder / name).read_text()) for folder in (tmp_path / "back", source))
        assert found == {**given, "include_prompt": True} if "Pooling" in name else found == given


@pytest.mark.parametrize("to", ["ernie", "hf", "paddlenlp"])
@pytest.mark.parametrize("limit", [{}, {"max_seq_length": None}, {"max_seq_length": 21}, {"max_seq_length": 99}])
def test_conversion_keeps_a_sentence_encoder_without_a_length_of_its_own(to: Any, limit: Any, tmp_path: Path) -> None:
    source = published(tmp_path / "source", pooling("cls_token"), NORMALIZE, **limit)
    assert convert(source, tmp_path / "there", to, ErnieModel).passed
    assert convert(tmp_path / "there", tmp_path / "back", "ernie", ErnieModel).passed
    with pytest.warns(Remark, match="have more than 21 tokens"):
        expected = ErnieModel.from_pretrained(source).encode([LONG, *TEXTS])
    close(expected, unit(np.stack([hidden_states(text)[0] for text in [LONG, *TEXTS]])))
    for folder in ("there", "back"):
        model = ErnieModel.from_pretrained(tmp_path / folder)
        assert (model.sentence_config.max_len, model.sentence_config.normalize) == (None, True)
        assert np.array_equal(model.encode([LONG, *TEXTS]), expected)


def test_a_model_saved_over_a_sentence_encoder_is_none(tmp_path: Path) -> None:
    sentences = ErnieModel.from_pretrained(published(tmp_path / "source", pooling("cls_token")))
    sentences.save_pretrained(tmp_path / "ours")
    assert ErnieModel.from_pretrained(tmp_path / "ours").sentence_config.pooling == ("cls",)
    ErnieModel.from_pretrained(write_encoder(tmp_path / "plain")).save_pretrained(tmp_path / "ours")
    assert ErnieModel.from_pretrained(tmp_path / "ours").sentence_config is None


def test_the_encoder_may_lie_in_a_folder_of_its_own(tmp_path: Path) -> None:
    write_encoder(tmp_path / "0_Transformer")
    write_modules(tmp_path, [pooling("cls_token")], encoder="0_Transformer", max_seq_length=9)
    model = ErnieModel.from_pretrained(tmp_path)
    assert (model.sentence_config.pooling, model.sentence_config.max_len) == (("cls",), 9)


# ------------------------------------------------------------------------------------------------ unusual folders


def test_without_a_list_of_modules_their_folders_are_taken_and_reported(tmp_path: Path) -> None:
    published(tmp_path, pooling("cls_token"), NORMALIZE)
    (tmp_path / "modules.json").unlink()
    reading = read(tmp_path, ErnieModel)
    close(reading.model.encode(TEXTS), unit(np.stack([hidden_states(text)[0] for text in TEXTS])))
    assert reading.notes == (
        "has no modules.json; its folders 1_Pooling, 2_Normalize are taken for the modules of a sentence encoder",
    )


@pytest.mark.parametrize(
    ("modules", "what"),
    [
        ([("LSTM", {}, {}), pooling("mean_tokens")], "it has the module LSTM at 1_LSTM"),
        ([pooling("topk_tokens", pooling_mode_topk_tokens=True)], "the pooling of 1_Pooling is pooling_mode_topk"),
        ([pooling("cls_token"), dense(4, 16, "torch.nn.SiLU")], "the Dense layer at 2_Dense is of an unknown form"),
        ([], "it has no pooling"),
    ],
)
def test_a_model_whose_vectors_cannot_be_computed_says_so_instead_of_giving_others(
    modules: list[Module], what: str, tmp_path: Path
) -> None:
    published(tmp_path / "there", *modules)
    with pytest.warns(Remark, match=f"its vectors for sentences cannot be computed here: {what}"):
        model = ErnieModel.from_pretrained(tmp_path / "there")
    with pytest.raises(UserError, match=f"cannot be computed here: {what}.*pooling='mean'"):
        model.encode(TEXTS)
    close(model.encode(TEXTS, pooling="cls"), [hidden_states(text)[0] for text in TEXTS])
    certificate = convert(tmp_path / "there", tmp_path / "ours", "ernie", ErnieModel)
    assert certificate.passed and any(what in note for note in certificate.notes)


POOLING_LISTED = '{"type": "a.Pooling", "path": "1_Pooling"}'


@pytest.mark.parametrize("kind", ["Dense", "LayerNorm"])
def test_a_layer_without_its_weights_raises_a_user_error(kind: str, tmp_path: Path) -> None:
    published(tmp_path, pooling("cls_token"), (kind, {"in_features": 16, "out_features": 16}, {}))
    with pytest.raises(UserError, match=f"2_{kind}: holds no weights \\(no model.safetensors or pytorch_model.bin\\)"):
        ErnieModel.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", "{}", r"modules.json: expected a list"),
        ("modules.json", "[]", r"modules.json: lists no modules"),
        ("modules.json", "[3]", r"modules.json: expected modules, each with its type and path"),
        ("modules.json", f"[{POOLING_LISTED}, {POOLING_LISTED}]", "'1_Pooling' twice"),
        ("modules.json", f'[{{"type": "a.Transformer", "path": "{"x" * 999}"}}]', "the path 'x+' is not in the folder"),
        ("modules.json", '[{"type": "a.Transformer", "path": "../x"}]', r"the path '../x' is not in the folder"),
        ("1_Pooling/config.json", '{"word_embedding_dimension": 8, "pooling_mode_cls_token": true}', "8 numbers, not"),
        ("sentence_bert_config.json", '{"max_seq_length": 2}', "texts of 2 tokens have no room"),
        ("sentence_bert_config.json", '{"max_seq_length": "16"}', "max_seq_length: expected a whole number or null"),
        ("config_sentence_transformers.json", '{"prompts": {"a": 3}}', "prompts: expected texts by name"),
        ("config_sentence_transformers.json", '{"default_prompt_name": "a"}', "default_prompt_name among the names"),
        ("config_sentence_transformers.json", '{"default_prompt_name": []}', "default_prompt_name among the names"),
    ],
)
def test_damaged_settings_raise_a_user_error(file: str, content: str, message: str, tmp_path: Path) -> None:
    published(tmp_path, pooling("cls_token"))
    (tmp_path / file).write_text(content)
    with pytest.raises(UserError, match=message):
        ErnieModel.from_pretrained(tmp_path)
