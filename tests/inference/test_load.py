"""Loading a model of any kind, what it offers, and many threads that call it at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.toys import TOYS, tiny_encoder
from support.trained import trained

import inference
from ernie.errors import NotFinite, UserError
from ernie.kernels.precision import current
from ernie.model.heads import MaskedTokenHead
from inference.face import Face, face, faces
from inference.task_model import TaskModel

PREDICTING = [kind for kind, toy in TOYS.items() if toy.task.face != "encode"]
FACES = {
    "translate": inference.TextTranslator,
    "transcribe": inference.SpeechRecognizer,
    "synthesize": inference.TextSpeaker,
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    model = tiny_encoder()
    model.masked_head = MaskedTokenHead(model)
    model.save_pretrained(folder)
    return folder


def saved(kind: str, folder: Path) -> Path:
    trained(kind).model.save(folder)
    return folder


def in_eight_threads(call: Callable[[], Any]) -> list[Any]:
    """What the call returns in each of eight threads that start together."""
    start, found = threading.Barrier(8), []

    def run() -> None:
        start.wait()
        found.append(call())

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    return found


@pytest.mark.parametrize("kind", PREDICTING)
def test_a_fine_tuned_model_loads_as_the_face_of_its_kind_and_predicts(kind: str, tmp_path: Path) -> None:
    model = inference.load(saved(kind, tmp_path / "model"), precision="fp32")
    assert type(model) is FACES.get(kind, inference.Predictor)
    assert model.precision == "fp32"
    rows = TOYS[kind].rows(3, seed=4)
    assert isinstance(model, inference.Predictor)
    assert list(model.predict(rows)) == list(trained(kind).model.predict(rows))


@pytest.mark.parametrize("kind", PREDICTING)
def test_predictions_in_eight_threads_have_the_bits_of_one_thread(kind: str, tmp_path: Path) -> None:
    model = inference.load(saved(kind, tmp_path / "model"))
    assert isinstance(model, inference.Predictor)
    rows = TOYS[kind].rows(12, seed=5)
    expected = list(model.predict(rows))
    for found in in_eight_threads(lambda: list(model.predict(rows))):
        assert found == expected


def test_an_encoder_encodes_and_fills_masks_alike_in_eight_threads(encoder: Path) -> None:
    model = inference.load(encoder)
    assert isinstance(model, inference.TextEncoder)
    texts = ["the film was good", "a dull film", "fine"]
    vectors, filled = model.encode(texts), model.fill_masks([f"{text} [MASK]" for text in texts])
    for found, others in in_eight_threads(
        lambda: (model.encode(texts), model.fill_masks([f"{text} [MASK]" for text in texts]))
    ):
        assert np.array_equal(found, vectors)
        assert [outcome.get() for outcome in others] == [outcome.get() for outcome in filled]


def test_two_models_of_different_precision_do_not_disturb_each_other(tmp_path: Path) -> None:
    folder, rows = saved("classify", tmp_path / "model"), TOYS["classify"].rows(12, seed=6)
    models = [inference.load(folder, precision=name) for name in ("fp32", "int8")]
    alone = [list(model.predict(rows)) for model in models]  # type: ignore[attr-defined]
    assert alone[0] != alone[1]
    found = in_eight_threads(lambda: [list(model.predict(rows)) for model in models])  # type: ignore[attr-defined]
    assert found == [alone] * 8
    assert current() == "fp32"


def test_a_text_that_cannot_be_encoded_harms_itself_alone(encoder: Path) -> None:
    model = inference.load(encoder, precision="fp32")
    assert isinstance(model, inference.TextEncoder)
    good, wrong, bad, long = model.encode_each(["a good film", 3, "\ud800", "film " * 600])  # type: ignore[list-item]
    np.testing.assert_allclose(good.get(), model.encode(["a good film"])[0], atol=1e-6)
    for row, outcome in ((1, wrong), (2, bad)):
        assert outcome.value is None and outcome.error is not None
        assert (outcome.error.row, str(outcome.error)[:8]) == (row, f"text {row}: ")
    assert "its end was cut off" in long.notes[0].text
    assert long.notes[0].row == 3
    filled = model.fill_masks(["a good [MASK]", "no mask", "[MASK] [MASK]"], top=2)
    assert [outcome.error is None for outcome in filled] == [True, False, True]
    assert [len(outcome.get()) for outcome in (filled[0], filled[2])] == [1, 2]
    with pytest.raises(UserError, match="text 1: expected a text"):
        model.encode(["a good film", 3])  # type: ignore[list-item]


def test_a_text_whose_vector_is_not_finite_harms_itself_alone(encoder: Path) -> None:
    model, damaged = inference.load(encoder, precision="fp32"), inference.load(encoder, precision="fp32")
    assert isinstance(model, inference.TextEncoder) and isinstance(damaged, inference.TextEncoder)
    _damage(damaged.model.ernie, damaged.tokenizer.encode("red").ids)
    texts = ["blue green", "blue red", "green blue"]
    healthy, (good, bad, fine) = model.encode(texts), damaged.encode_each(texts)
    assert np.array_equal(good.get(), healthy[0])
    assert np.array_equal(fine.get(), healthy[2])
    assert isinstance(bad.error, NotFinite) and bad.error.row == 1
    for method in (damaged.encode, damaged.encode_tokens):
        with pytest.raises(NotFinite, match="text 1: the model's outputs are not finite"):
            method(texts)
    operation = damaged.operations["encode_tokens"]
    outcomes = operation.compute([operation.prepare(text, row) for row, text in enumerate(texts)])
    assert [outcome.error is None for outcome in outcomes] == [True, False, True]


def _damage(ernie: Any, ids: np.ndarray) -> None:
    """Make the embeddings of these tokens NaN."""
    table = ernie.embedding.token.weight
    values = table.numpy()
    values[ids] = np.nan
    table.set_value(values)


def test_a_precision_that_the_machine_lacks_is_an_error_before_anything_is_loaded(encoder: Path) -> None:
    with pytest.raises(UserError, match="precision fp16: this machine computes in"):
        inference.load(encoder, precision="fp16")


def test_settings_of_decoding_are_refused_for_an_encoder_and_apply_to_a_translator(
    encoder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="is an encoder, which decodes nothing; leave out beam"):
        inference.load(encoder, beam=2)
    model = inference.load(saved("translate", tmp_path / "model"), beam=3)
    assert model.model.task.beam == 3


def test_a_face_of_ones_own_is_chosen_by_the_kind_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @face("first_word")
    class FirstWord(Face):
        def first_word(self, text: str) -> str:
            return text.split()[0]

    monkeypatch.setattr(type(TOYS["classify"].task), "face", "first_word")
    try:
        model = inference.load(saved("classify", tmp_path / "model"))
        assert isinstance(model, FirstWord) and model.name == "first_word"
        assert model.first_word("a film") == "a"
    finally:
        del faces._items["first_word"]


def test_what_a_model_lacks_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no such folder"):
        inference.load(tmp_path / "none")
    with pytest.raises(AttributeError, match=r"has no attribute 'laod'\. Did you mean 'load'"):
        inference.laod  # type: ignore[attr-defined]  # noqa: B018


def test_a_loaded_task_model_is_ready_for_threads(tmp_path: Path) -> None:
    model = TaskModel.load(saved("classify", tmp_path / "model"))
    assert not any(layer.training for layer in model.sublayers(include_self=True))
