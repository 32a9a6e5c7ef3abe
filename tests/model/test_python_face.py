"""The Python interface: padded batches, text vectors, masked-token prediction, gradient checkpointing."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import paddle
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paddle.base import core
from safetensors.numpy import load_file, save_file
from support.helpers import vocabulary

import ernie
from ernie import ErnieModel, ErnieTokenizer
from ernie.data.batch import Packed, pack
from ernie.data.document import Sample
from ernie.errors import UserError
from ernie.kernels.cpu.pool import bytes_in_use
from ernie.model.config import EncoderConfig
from ernie.model.heads import MaskedTokenHead
from ernie.model.inference import evaluating
from ernie.model.sentence import POOLINGS
from ernie.text.train import train_sentencepiece

WORDS = "the cat dog river sees finds paris in a".split()
TABLE = "found a table with the columns 'text'; give one of them, or its rows"
TOKENIZER = vocabulary(" ".join([*WORDS, "."]), "##s")
texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join), min_size=1, max_size=6)
quick = settings(max_examples=20)


def make(layers: int = 2) -> ErnieModel:
    """Build a small model with weights far from their initial values, a tokenizer and a masked-token head."""
    paddle.seed(0)
    shape = EncoderConfig(TOKENIZER.vocab_size, 16, layers, 2, 32, max_positions=12, task_vocab_size=4)
    model = ErnieModel(shape)
    model.tokenizer = TOKENIZER
    model.masked_head = MaskedTokenHead(model)
    for parameter in [*model.parameters(), *model.masked_head.parameters()]:
        parameter.set_value(parameter + 0.2 * paddle.randn(parameter.shape))
    model.eval()
    return model


@pytest.fixture(scope="module")
def model() -> ErnieModel:
    return make()


def close(found: object, expected: object) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-4, atol=1e-5)


def test_the_package_lists_its_names_and_suggests_the_nearest_for_a_wrong_one() -> None:
    names = {"AdamW", "EncoderConfig", "ErnieModel", "ErnieTokenizer", "precision"}
    assert names <= set(ernie.__all__) <= set(dir(ernie))
    assert [getattr(ernie, name).__name__ for name in sorted(names)] == sorted(names)
    with pytest.raises(AttributeError, match=r"no attribute 'ErnieModl'. Did you mean 'ErnieModel'"):
        ernie.ErnieModl  # noqa: B018 - reading it is the error


def test_calling_a_class_with_a_path_raises_an_error_that_names_from_pretrained() -> None:
    with pytest.raises(UserError, match=r"found 'runs/first'; ErnieModel.from_pretrained\(path\) loads a model"):
        ErnieModel("runs/first")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"ErnieTokenizer.from_pretrained\(path\) loads a tokenizer"):
        ErnieTokenizer("runs/first")


# -------------------------------------------------------------------------------------------- padded batches


@quick
@given(st.data())
def test_padding_at_any_position_changes_no_vector(model: ErnieModel, data: st.DataObject) -> None:
    mask = np.array(data.draw(st.lists(st.lists(st.booleans(), min_size=9, max_size=9), min_size=1, max_size=4)), int)
    mask[:, 4] = 1
    ids = np.random.default_rng(0).integers(TOKENIZER.vocab_size, size=mask.shape)
    segments = ids % 2
    together = model(ids, segments, mask)
    for i, kept in enumerate(mask.astype(bool)):
        alone = model(ids[i : i + 1, kept], segments[i : i + 1, kept])
        close(together.last_hidden_state[i].numpy()[kept], alone.last_hidden_state[0].numpy())
        close(together.pooler_output[i], alone.pooler_output[0])
        assert not together.last_hidden_state[i].numpy()[~kept].any()


def test_only_tokens_need_positions(model: ErnieModel) -> None:
    ids = np.ones((1, 30), int)
    mask = np.arange(30)[None] >= 20
    assert model(ids, attention_mask=mask).last_hidden_state.shape == [1, 30, 16]


def test_tensors_arrays_and_lists_give_the_same_output(model: ErnieModel) -> None:
    rows, mask = [[3, 4, 5], [6, 7, 0]], [[1, 1, 1], [1, 1, 0]]
    from_lists, from_arrays, from_tensors = (
        model(convert(rows), attention_mask=convert(mask)).last_hidden_state.numpy()
        for convert in (list, np.array, paddle.to_tensor)
    )
    assert np.array_equal(from_lists, from_arrays)
    assert np.array_equal(from_lists, from_tensors)


def test_tracing_raises_an_error_that_names_ernie_export(tmp_path: Path) -> None:
    shape = [paddle.static.InputSpec([None, None], "int64")]
    with pytest.raises(UserError, match=r"'ernie export' writes it for ONNX Runtime and Paddle's inference"):
        paddle.jit.save(make(), str(tmp_path / "traced"), input_spec=shape)


def test_hidden_states_start_with_the_embeddings_and_end_with_the_last_layer(model: ErnieModel) -> None:
    ids, mask = np.array([[3, 4, 5], [6, 7, 0]]), np.array([[1, 1, 1], [1, 1, 0]])
    output = model(ids, attention_mask=mask, output_hidden_states=True)
    assert output.hidden_states is not None
    assert [state.shape for state in output.hidden_states] == [[2, 3, 16]] * (model.config.layers + 1)
    assert np.array_equal(output.hidden_states[-1].numpy(), output.last_hidden_state.numpy())
    zeros = np.zeros(5, np.int64)
    embedded = model.embedding(ids[mask == 1], zeros, np.array([0, 1, 2, 0, 1]), zeros)
    close(output.hidden_states[0].numpy()[mask == 1], embedded)
    assert model(ids).hidden_states is None


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[1, 2], [3]], "input_ids: its rows differ in length; pad them, or have the tokenizer do it"),
        ([[1.5, 2.0]], "input_ids: expected whole numbers, found float64"),
        (["a"], "input_ids: expected whole numbers, found <U1; model.tokenizer(texts) makes such a batch of texts"),
        (
            TOKENIZER("a"),
            "input_ids: found a batch with input_ids, token_type_ids, attention_mask; give its parts: model(**batch)",
        ),
        ([], "input_ids has the shape [0], expected a batch of sequences: [N, L]"),
    ],
)
def test_invalid_input_ids_raise_a_user_error(model: ErnieModel, ids: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        model(ids)
    assert str(caught.value) == message


# ----------------------------------------------------------------------------------------------- text vectors


@quick
@given(texts, st.integers(1, 40), st.sampled_from(POOLINGS))
def test_the_vector_of_a_text_does_not_depend_on_the_batch(
    model: ErnieModel, many: list[str], budget: int, pooling: str
) -> None:
    together = model.encode(many, pooling=pooling, batch_tokens=budget)
    assert together.shape == (len(many), 16)
    assert together.dtype == np.float32
    close(together, np.concatenate([model.encode([text], pooling=pooling) for text in many]))


def test_poolings_match_their_definitions(model: ErnieModel) -> None:
    many = ["the cat sees a river .", "paris"]
    batch = TOKENIZER(many)
    output, mask = model(**batch), batch["attention_mask"][..., None]
    hidden = output.last_hidden_state.numpy()
    close(model.encode(many), (hidden * mask).sum(1) / mask.sum(1))
    close(model.encode(many, pooling="cls"), hidden[:, 0])
    close(model.encode(many, pooling="pooler"), output.pooler_output)


def test_tuples_are_encoded_as_text_pairs(model: ErnieModel) -> None:
    expected = model(**TOKENIZER("the cat", "a dog .")).pooler_output
    close(model.encode([("the cat", "a dog .")], pooling="pooler"), expected)


def test_a_single_text_is_encoded_as_a_list_of_one(model: ErnieModel) -> None:
    assert np.array_equal(model.encode("the cat"), model.encode(["the cat"]))


def test_an_empty_list_gives_an_empty_array(model: ErnieModel) -> None:
    assert model.encode([]).shape == (0, 16)


def test_an_empty_text_is_encoded_as_its_special_tokens_alone(model: ErnieModel) -> None:
    special_tokens = [[TOKENIZER.cls_id, TOKENIZER.sep_id]]
    close(model.encode(["", " \t"], pooling="cls"), [model(special_tokens).last_hidden_state.numpy()[0, 0]] * 2)


def test_tokens_have_the_vectors_of_the_last_layer(model: ErnieModel) -> None:
    texts = ["the cat", "", ("the cat", "a dog")]
    found = model.encode_tokens(texts)
    ids = [TOKENIZER.encode(text).ids.tolist() for text in ("the cat", "a dog")]
    cls, sep = TOKENIZER.cls_id, TOKENIZER.sep_id
    framed = [[cls, *ids[0], sep], [cls, sep], [cls, *ids[0], sep, *ids[1], sep]]
    segments = [[0] * len(framed[0]), [0, 0], [0] * len(framed[0]) + [1] * (len(ids[1]) + 1)]
    for vectors, one, own in zip(found, framed, segments, strict=True):
        assert vectors.dtype == np.float32
        close(vectors, model([one], [own]).last_hidden_state.numpy()[0])
    assert model.encode_tokens([]) == []


def test_tokens_are_those_that_a_vector_is_made_of(model: ErnieModel) -> None:
    texts: list[Any] = ["the cat sees a dog", [7, 8], "paris"]
    for chosen in ({}, {"max_len": 4}, {"prompt": "a dog"}):
        means = [vectors.mean(0) for vectors in model.encode_tokens(texts, **chosen)]  # type: ignore[arg-type]
        close(means, model.encode(texts, pooling="mean", **chosen))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="text 1: expected a text"):
        model.encode_tokens(["a", 3])  # type: ignore[list-item]


def test_normalized_vectors_have_length_one(model: ErnieModel) -> None:
    plain, unit = model.encode(["the cat", "paris"]), model.encode(["the cat", "paris"], normalize=True)
    close(np.linalg.norm(unit, axis=1), [1, 1])
    close(unit * np.linalg.norm(plain, axis=1, keepdims=True), plain)


def test_long_texts_are_truncated_with_one_warning_that_counts_them(model: ErnieModel) -> None:
    long, pair = "the cat sees a dog " * 5, ("the cat", "a dog " * 9)
    with pytest.warns(UserWarning) as caught:
        vectors = model.encode([long, "the cat", pair])
        assert [len(of_tokens) for of_tokens in model.encode_tokens([long, "the cat", pair])] == [12, 4, 12]
    assert [str(warning.message) for warning in caught] == 2 * [
        "encode: 2 of 3 texts have more than 12 tokens; their ends were cut off"
    ]
    assert {warning.filename for warning in caught} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close(vectors[0], model.encode(["the cat sees a dog the cat sees a dog"])[0])


def test_encoding_keeps_the_mode_of_each_layer_and_computes_no_gradients() -> None:
    model = make()
    model.train()
    model.embedding.eval()  # as when only the upper layers are trained
    first, second = model.encode(["the cat"]), model.encode(["the cat"])
    assert np.array_equal(first, second)  # no dropout
    assert model.training
    assert model.encoder.layers[1].training
    assert not model.embedding.training
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(UserError):
        model.encode([3])  # type: ignore[list-item]
    assert model.training


def test_threads_can_encode_with_a_model_in_training_mode() -> None:
    model = make()
    texts = [f"the cat sees {'a dog ' * (n % 3)}" for n in range(12)]
    expected = model.encode(texts)
    model.train()
    model.embedding.eval()  # each layer has a mode of its own
    entered, leave = Event(), Event()

    def other() -> None:
        with evaluating(model):
            entered.set()
            assert leave.wait(60)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(other)
        assert entered.wait(60)
        with evaluating(model):
            leave.set()
            future.result()
            assert not model.training  # the first context has been left, this one has not
    assert model.training
    assert not model.embedding.training
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: model.encode(texts), range(20)):
            close(found, expected)
    assert model.training


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": {"text": ["a"]}}, f"expected several texts, such as a list, {TABLE}"),
        ({"texts": pandas.DataFrame({"text": ["a"]})}, f"expected several texts, such as a list, {TABLE}"),
        ({"texts": None}, "expected several texts, such as a list, found None"),
        ({"texts": ["a", 3]}, "text 1: expected a text, a pair of texts or token ids, found 3"),
        ({"texts": [("a", "b", "c")]}, "text 0: expected a text, a pair of texts or token ids, found ('a', 'b', 'c')"),
        ({"texts": ["a", "b \ud83d"]}, "text 1: holds half a surrogate pair, which stands for no character"),
        ({"texts": [("a", "\udc00")]}, "text 0: holds half a surrogate pair, which stands for no character"),
        ({"texts": ["a"], "pooling": "sum"}, f"pooling: expected one of {', '.join(POOLINGS)}, found 'sum'"),
        ({"texts": ["a"], "prompt_name": "query"}, "prompt_name: the model has no prompt 'query'. It has none."),
        ({"texts": ["a"], "batch_tokens": 0}, "batch_tokens: expected at least 1, found 0"),
        ({"texts": ["a"], "batch_tokens": "64"}, "batch_tokens: expected a whole number, found '64'"),
        ({"texts": ["a"], "max_len": 13}, "max_len: expected at most the model's 12 positions, found 13"),
        ({"texts": ["a"], "max_len": 2}, "max_len: expected at least 3, found 2"),
        ({"texts": ["a"], "max_len": 8.5}, "max_len: expected a whole number, found 8.5"),
        ({"texts": np.array("a")}, "expected several texts, such as a list, found array('a', dtype='<U1')"),
    ],
)
def test_invalid_arguments_of_encode_raise_a_user_error(model: ErnieModel, arguments: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        model.encode(**arguments)
    assert str(caught.value) == message


# -------------------------------------------------------------------------------------- masked-token prediction


def test_the_candidates_are_the_most_probable_ordinary_tokens(model: ErnieModel) -> None:
    (found,) = model.fill_mask("The cat [MASK] a dog.", top=4)
    ids = [[2, *TOKENIZER.encode("the cat").ids, TOKENIZER.mask_id, *TOKENIZER.encode("a dog .").ids, 3]]
    hidden = model(ids).last_hidden_state[0]
    logits = model.masked_head(hidden, np.array([3])).numpy()[0].astype(float)
    probabilities = np.exp(logits) / np.exp(logits).sum()
    order = [i for i in np.argsort(-probabilities) if i not in TOKENIZER.special_ids][:4]
    assert [candidate.token for candidate in found] == [TOKENIZER.tokens[i] for i in order]
    close([candidate.probability for candidate in found], probabilities[order])


def test_each_mask_is_filled_separately_and_the_rest_of_the_text_is_kept(model: ErnieModel) -> None:
    found = model.fill_mask("The [MASK]  sees a [MASK]!", top=100)
    assert len(found) == 2
    assert all(len(candidates) == len(TOKENIZER.ordinary_ids) for candidates in found)
    first, second = ({candidate.token: candidate.text for candidate in candidates} for candidates in found)
    assert first["dog"] == "The dog  sees a [MASK]!"
    assert second["dog"] == "The [MASK]  sees a dog!"
    assert second["##s"] == "The [MASK]  sees as!"


def test_the_space_marker_of_sentencepiece_does_not_appear_in_the_text(tmp_path: Path) -> None:
    lines = [f"{a} {b} {c}." for a in WORDS for b in WORDS for c in WORDS]
    tokenizer = train_sentencepiece(lines, vocab_size=30, lowercase=True, folder=tmp_path)
    model = ErnieModel(EncoderConfig(tokenizer.vocab_size, 16, 1, 2, 32))
    model.tokenizer, model.masked_head = tokenizer, MaskedTokenHead(model)
    (found,) = model.fill_mask("the cat [MASK] a dog.", top=25)
    assert any(candidate.token.startswith("\u2581") for candidate in found)
    assert all("\u2581" not in candidate.text for candidate in found)


def test_fill_mask_uses_the_task_that_the_head_was_trained_with() -> None:
    model = make()
    assert model.masked_head is not None
    before = model.fill_mask("the [MASK]")
    model.masked_head.task_id = 3
    assert model.fill_mask("the [MASK]") != before


@pytest.mark.parametrize(
    ("text", "top", "message"),
    [
        ("the cat", 5, "the text has no [MASK] to fill: 'the cat'"),
        ("the \ud83d [MASK]", 5, "the text: holds half a surrogate pair, which stands for no character"),
        ("a " * 12 + "[MASK]", 5, "the text has 15 tokens, this model has 12 positions; shorten it"),
        ("the [MASK]", 0, "top: expected at least 1, found 0"),
        ("the [MASK]", 2.5, "top: expected a whole number, found 2.5"),
        (5, 5, "expected a text, found 5"),
        (["the [MASK]"], 5, "expected a text, found ['the [MASK]']"),
    ],
)
def test_invalid_arguments_of_fill_mask_raise_a_user_error(
    model: ErnieModel, text: Any, top: Any, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        model.fill_mask(text, top)
    assert str(caught.value) == message


def test_a_missing_head_or_tokenizer_raises_an_error_that_says_how_to_get_one() -> None:
    model = make()
    model.masked_head = None
    with pytest.raises(UserError, match=r"no head that predicts masked tokens\. A run of 'ernie pretrain'"):
        model.fill_mask("the [MASK]")
    model.tokenizer = None
    for call in (lambda: model.fill_mask("the [MASK]"), lambda: model.encode(["the"])):
        with pytest.raises(UserError, match=r"no tokenizer; model.tokenizer = ErnieTokenizer.from_pretrained"):
            call()


def test_the_head_is_saved_beside_the_model_and_is_not_part_of_it(tmp_path: Path) -> None:
    model = make()
    assert model.masked_head is not None
    assert not {id(p) for p in model.masked_head.parameters()} & {id(p) for p in model.parameters()}
    assert not any("masked" in name for name in model.state_dict())
    model.masked_head.task_id = 2
    model.save_pretrained(tmp_path)
    loaded = ErnieModel.from_pretrained(tmp_path)
    assert loaded.fill_mask("the [MASK] in paris") == model.fill_mask("the [MASK] in paris")
    loaded.masked_head = None
    loaded.save_pretrained(tmp_path)
    assert ErnieModel.from_pretrained(tmp_path).masked_head is None


def test_the_head_follows_the_dtype_of_the_model() -> None:
    model, reference = make(), make()
    expected = reference.fill_mask("the [MASK] in paris", 3)
    for change in (lambda: model.to(dtype="float64"), model.float, model.half, model.float):
        change()
        assert model.masked_head is not None
        assert {p.dtype for p in model.masked_head.parameters()} == {p.dtype for p in model.parameters()}
        if model.pooler.dense.weight.dtype != paddle.float16:
            found = model.fill_mask("the [MASK] in paris", 3)
            assert [[word.token for word in words] for words in found] == [[w.token for w in ws] for ws in expected]


@pytest.mark.skipif(paddle.get_device() != "cpu", reason="a GPU computes in half precision")
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_weights_raise_a_user_error_on_a_cpu(kind: str) -> None:
    model = make()
    model.to(dtype=kind)
    message = f"weights of type {kind} cannot be used on a CPU. Convert them back to float32 with model.float()"
    for call in (lambda: model.encode(["the"]), lambda: model.fill_mask("[MASK]"), lambda: model(**TOKENIZER("a"))):
        with pytest.raises(UserError, match=re.escape(message)):
            call()
    model.float()
    assert model.encode(["the"]).dtype == np.float32


def test_the_head_of_another_model_raises_an_error_that_names_the_file(tmp_path: Path) -> None:
    make().save_pretrained(tmp_path)
    other = ErnieModel(EncoderConfig(TOKENIZER.vocab_size, 8, 1, 2, 16))
    MaskedTokenHead(other).write(tmp_path / "masked_head.safetensors")
    with pytest.raises(UserError, match=r"masked_head.safetensors: \S+ has the shape \[8"):
        ErnieModel.from_pretrained(tmp_path)


@pytest.mark.parametrize("task", [np.array([1, 2]), np.array(1.5), np.array(-1)])
def test_an_invalid_head_task_raises_an_error_that_names_the_file(task: np.ndarray, tmp_path: Path) -> None:
    make().save_pretrained(tmp_path)
    file = tmp_path / "masked_head.safetensors"
    save_file({**load_file(file), "task_id": task}, file)
    with pytest.raises(UserError, match=r"masked_head.safetensors: task_id: expected one whole number from 0, found"):
        ErnieModel.from_pretrained(tmp_path)


# ------------------------------------------------------------------------------------- gradient checkpointing


def batch(sequences: int = 3, length: int = 11) -> Packed:
    rng = np.random.default_rng(0)
    shape = (sequences, length)
    ids = rng.integers(TOKENIZER.vocab_size, size=shape)
    return pack([Sample(row[: length - i % 3], np.zeros(length - i % 3, int)) for i, row in enumerate(ids)])


def gradients(model: ErnieModel, of: Packed) -> dict[str, bytes]:
    """The gradients of one step with dropout, and the random number that follows it."""
    paddle.seed(5)
    model.clear_gradients()
    hidden = model.encode_packed(of)
    (hidden * hidden[:, ::-1] * hidden).sum().backward()
    found = {name: p.grad.numpy().tobytes() for name, p in model.named_parameters() if p.grad is not None}
    return {**found, "random": paddle.rand([1]).numpy().tobytes()}


@pytest.mark.parametrize("frozen", [False, True])
def test_gradient_checkpointing_gives_the_same_gradients_bit_for_bit(frozen: bool) -> None:
    model = make()
    model.train()
    for parameter in model.embedding.parameters():
        parameter.stop_gradient = frozen
    plain = gradients(model, batch())
    model.gradient_checkpointing_enable()
    checkpointed = gradients(model, batch())
    assert set(checkpointed) == set(plain)
    assert len(plain) > 30
    assert checkpointed == plain


def test_gradient_checkpointing_uses_less_memory() -> None:
    model, large = make(layers=8), batch(sequences=60)
    model.train()

    def memory_used() -> int:
        model.clear_gradients()
        before = bytes_in_use() + core.host_memory_stat_current_value("Allocated", 0)
        hidden_TD = model.encode_packed(large)
        found = bytes_in_use() + core.host_memory_stat_current_value("Allocated", 0) - before
        hidden_TD.sum().backward()
        return int(found)

    plain = memory_used()
    model.gradient_checkpointing_enable()
    assert memory_used() < plain / 3
    model.gradient_checkpointing_disable()
    assert memory_used() > plain * 0.9


def test_gradient_checkpointing_changes_nothing_without_gradients(model: ErnieModel) -> None:
    before = model.encode(["the cat"])
    model.gradient_checkpointing_enable()
    assert np.array_equal(model.encode(["the cat"]), before)
    model.gradient_checkpointing_disable()


# ------------------------------------------------------------------------------------------- modified models


def test_a_hook_on_an_encoder_layer_is_also_called_without_gradients() -> None:
    model = make()
    seen: list[list[int]] = []
    hook = model.encoder.layers[0].register_forward_post_hook(lambda *given: seen.append(list(given[2].shape)))
    vectors = model.encode(["the cat"])
    assert seen == [[4, 16]]
    hook.remove()
    close(model.encode(["the cat"]), vectors)
    assert len(seen) == 1


def test_a_custom_layer_around_an_encoder_layer_is_called() -> None:
    class Doubled(paddle.nn.Layer):
        def __init__(self, inner: paddle.nn.Layer):
            super().__init__()
            self.inner = inner

        def forward(self, *given: Any) -> paddle.Tensor:
            return 2 * self.inner(*given)

    model = make()
    last = model.encoder.layers[-1]
    before = model.encode(["the cat"])
    model.encoder.layers[-1] = Doubled(last)
    close(model.encode(["the cat"]), 2 * before)
    batch = model.tokenizer(["the cat"])  # type: ignore[misc]
    close(model(**batch).last_hidden_state.mean(1), 2 * before)


def test_replacing_a_part_that_would_never_be_called_raises_a_user_error() -> None:
    class Adapted(paddle.nn.Linear):
        pass

    layer = make().encoder.layers[0]
    layer.q = paddle.nn.Linear(16, 16)
    with pytest.raises(UserError, match=r"^q: of the Linear in an encoder layer .* Adapted in its"):
        layer.q = Adapted(16, 16)
    with pytest.raises(UserError, match="Identity in its place would do nothing"):
        layer.output_norm = paddle.nn.Identity()


def drop_layer(model: ErnieModel) -> None:
    model.encoder.layers = paddle.nn.LayerList(list(model.encoder.layers)[:1])


def widen(model: ErnieModel) -> None:
    model.embedding.token = paddle.nn.Embedding(model.config.vocab_size + 2, 16)


def widen_both(model: ErnieModel) -> None:
    widen(model)
    model.config = replace(model.config, vocab_size=model.config.vocab_size + 2)


def extend(model: ErnieModel) -> None:
    model.classifier = paddle.nn.Linear(16, 2)


def retokenize(model: ErnieModel) -> None:
    model.tokenizer = vocabulary(" ".join(WORDS), "##s", "##t", "##u", "##v")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_layer, r"encoder\.layers\.1\.q\.weight is lacking, and by its configuration \[16, 16\]; give it one by"),
        (widen, r"embedding\.token\.weight is \[\d+, 16\], and by its configuration \[\d+, 16\]; give it one by"),
        (
            widen_both,
            r"bias is \[\d+\], and by its configuration \[\d+\]; make model\.masked_head anew, or set it to None",
        ),
        (extend, r"classifier\.weight is \[16, 2\], and by its configuration there is none"),
        (retokenize, "the model's tokenizer has .* tokens, and the model only .*: they do not belong together"),
    ],
)
def test_a_modified_model_that_could_not_be_loaded_is_not_saved(
    change: Callable[[ErnieModel], None], message: str, tmp_path: Path
) -> None:
    model = make()
    change(model)
    with pytest.raises(UserError, match=message):
        model.save_pretrained(tmp_path / "changed")
    assert not (tmp_path / "changed").exists()


def test_a_model_with_fewer_layers_is_saved_with_its_new_configuration(tmp_path: Path) -> None:
    model = make()
    drop_layer(model)
    model.config = replace(model.config, layers=1)
    model.save_pretrained(tmp_path)
    close(ErnieModel.from_pretrained(tmp_path).encode(["the cat"]), model.encode(["the cat"]))
