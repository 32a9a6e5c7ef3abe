"""Fine-tuning a classifier."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import paddle
import pandas
import pytest
from support.helpers import vocabulary

from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.errors import Remark, UserError
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.train.adam_config import AdamConfig
from ernie.train.adversarial_config import AdversarialConfig
from ernie.train.lr_schedule import LRScheduleConfig
from finetune.config import TrainConfig
from finetune.prepare import Prepared, prepare
from finetune.train.early_stopping import best_of, unlearned
from finetune.train.loop import finetune
from finetune.train.steps import planned_steps
from finetune.train.trial_checkpoint import Evaluation
from inference.task_model import TaskModel
from tasks.downstream.classify import Classify
from tasks.downstream.scoring import score_answers
from tasks.downstream.transcribe import Transcribe

TOKENIZER = vocabulary("good fine bad poor it was very the film")
TASK = Classify(labels=("no", "yes"), max_len=16)
SETTINGS = TrainConfig(epochs=6, batch=12, lr=LRScheduleConfig(peak=5e-3))


def rows(count: int, seed: int) -> list[Row]:
    """Rows whose label depends on one word among others."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        label = int(rng.integers(2))
        word = rng.choice([["bad", "poor"], ["good", "fine"]][label])
        words = [*rng.choice(["it", "was", "very", "the", "film"], 4), word]
        found.append(Row({"text": " ".join(rng.permutation(words)), "label": TASK.labels[label]}))
    return found


def split(name: str, count: int, seed: int) -> Prepared:
    return prepare(TASK, Split(name, rows(count, seed)), TOKENIZER)


def encoder() -> ErnieModel:
    paddle.seed(1)
    model = ErnieModel(
        EncoderConfig(
            vocab_size=TOKENIZER.vocab_size, hidden_size=32, layers=1, heads=2, intermediate_size=64, max_positions=16
        )
    )
    model.tokenizer = TOKENIZER
    return model


def test_it_learns_and_predicts_in_the_order_of_the_rows() -> None:
    model, evaluations = finetune(encoder(), TASK, split("train", 200, 0), split("dev", 100, 1), SETTINGS)
    assert len(evaluations) == SETTINGS.epochs
    assert evaluations[best_of(TASK, evaluations)].headline > 0.95
    asked = rows(60, 2)
    answers = list(model.predict(asked, batch_tokens=32))
    assert sum(answer["label"] == row["label"] for answer, row in zip(answers, asked, strict=True)) >= 56


def test_the_same_seed_gives_the_same_losses_and_another_seed_different_ones() -> None:
    runs = [
        finetune(encoder(), TASK, split("train", 40, 0), split("dev", 40, 1), SETTINGS, seed)[1] for seed in (0, 0, 1)
    ]
    losses = [[evaluation.loss for evaluation in run] for run in runs]
    assert losses[0] == losses[1] != losses[2]


def test_micro_batches_do_not_change_the_step() -> None:
    whole = TrainConfig(epochs=1, batch=12, lr=LRScheduleConfig(peak=5e-3), dropout=0.0)
    parts = TrainConfig(epochs=1, batch=12, lr=LRScheduleConfig(peak=5e-3), dropout=0.0, micro_batch_tokens=20)
    losses = [
        finetune(encoder(), TASK, split("train", 40, 0), split("dev", 10, 1), settings)[1][-1].loss
        for settings in (whole, parts)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_finetune_returns_the_model_of_the_best_evaluation() -> None:
    degrading = TrainConfig(epochs=8, batch=12, lr=LRScheduleConfig(peak=3e-2, decay="constant", warmup=0))
    dev = split("dev", 60, 1)
    model, evaluations = finetune(encoder(), TASK, split("train", 60, 0), dev, degrading)
    scores = score_answers(TASK, dev.rows, model.answers(dev.examples))
    assert scores == evaluations[best_of(TASK, evaluations)].scores


def scored(*scores: float) -> list[Evaluation]:
    return [Evaluation(step, 1.0, {"score": score}, 1.0, 1.0) for step, score in enumerate(scores)]


def test_of_equal_scores_the_first_is_the_best() -> None:
    assert best_of(TASK, scored(0.5, 0.7, 0.7, 0.6)) == 1
    assert best_of(Transcribe(audio="a"), scored(0.9, 0.4, 0.4)) == 1


def test_as_long_as_no_word_is_right_the_last_of_equal_scores_is_the_best() -> None:
    recognizer = Transcribe(audio="a")
    assert best_of(recognizer, scored(1.2, 1.0, 1.0)) == 2
    assert "the last wer on dev is 1.00: nothing is recognized yet" in (unlearned(recognizer, scored(0.7, 1.0)) or "")
    assert "nothing is recognized yet. More is written than is said" in (unlearned(recognizer, scored(1.0, 4.2)) or "")
    assert unlearned(recognizer, scored(1.0, 0.7)) is None
    assert unlearned(TASK, scored(0.0, 1.0)) is None


def test_training_stops_when_patience_runs_out() -> None:
    hopeless = TrainConfig(epochs=20, batch=12, lr=LRScheduleConfig(peak=1e-9), early_stopping_patience=2)
    _, evaluations = finetune(encoder(), TASK, split("train", 40, 0), split("dev", 40, 1), hopeless)
    assert len(evaluations) == 3  # the first is the best, and the next two do not improve on it


def test_the_initial_weights_of_a_head_depend_on_the_seed() -> None:
    frozen = TrainConfig(epochs=1, batch=40, lr=LRScheduleConfig(peak=1e-30))
    heads = [
        np.concatenate([value.numpy().ravel() for value in model.head.parameters()])
        for model, _ in (
            finetune(encoder(), TASK, split("train", 40, 0), split("dev", 4, 1), frozen, seed) for seed in (0, 0, 1)
        )
    ]
    assert (heads[0] == heads[1]).all()
    assert not np.allclose(heads[0], heads[2])


def test_gradients_are_clipped_as_the_configuration_says() -> None:
    def moved(clip: float) -> float:
        # A large epsilon makes Adam's first step proportional to the gradient.
        adam = AdamConfig(epsilon=10.0, weight_decay=0.0)
        settings = TrainConfig(epochs=1, batch=40, lr=LRScheduleConfig(peak=1.0, warmup=0), adam=adam, clip=clip)
        before = encoder()
        start = before.embedding.token.weight.numpy().copy()
        model, _ = finetune(before, TASK, split("train", 40, 0), split("dev", 4, 1), settings)
        return float(np.linalg.norm(model.ernie.embedding.token.weight.numpy() - start))

    assert moved(1e-4) < 1e-5 < moved(0.0)


def test_a_warmup_longer_than_training_is_remarked_on() -> None:
    settings = TrainConfig(epochs=1, batch=20, lr=LRScheduleConfig(peak=1e-3, warmup=3))
    with pytest.warns(Remark, match="warms up for 3 steps, but there are only 2: it does not reach its peak"):
        finetune(encoder(), TASK, split("train", 40, 0), split("dev", 10, 1), settings)


def test_lower_layers_train_slower_with_layer_decay() -> None:
    before = encoder()
    start = {name: value.numpy().copy() for name, value in before.named_parameters()}
    settings = TrainConfig(epochs=1, batch=40, lr=LRScheduleConfig(peak=1e-3, warmup=0), layer_decay=0.1)
    model, _ = finetune(before, TASK, split("train", 40, 0), split("dev", 10, 1), settings)
    moved = {name: float(abs(value.numpy() - start[name]).max()) for name, value in model.ernie.named_parameters()}
    # Adam's first step has the size of the rate, whatever the gradient; decay adds a hundredth of the weight.
    assert moved["pooler.dense.weight"] == pytest.approx(1e-3, rel=0.05)
    assert moved["encoder.layers.0.inner.weight"] == pytest.approx(1e-4, rel=0.05)
    assert moved["embedding.position.weight"] == pytest.approx(1e-5, rel=0.05)


@pytest.mark.parametrize(
    ("frozen", "learning"),
    [("none", "embedding layer pooler"), ("embeddings", "layer pooler"), (1, "pooler"), ("encoder", "pooler")],
)
def test_frozen_parts_stay_as_they_are_and_the_others_learn(frozen: str | int, learning: str) -> None:
    before = encoder()
    start = {name: value.numpy().copy() for name, value in before.named_parameters()}
    settings = TrainConfig(epochs=1, batch=40, lr=LRScheduleConfig(peak=1e-2, warmup=0), freeze=frozen)
    model, _ = finetune(before, TASK, split("train", 40, 0), split("dev", 10, 1), settings)
    moved = {name for name, value in model.ernie.named_parameters() if (value.numpy() != start[name]).any()}
    names = {"embedding": "embedding.token.weight", "layer": "encoder.layers.0.inner.weight"}
    names["pooler"] = "pooler.dense.weight"
    assert {part for part, name in names.items() if name in moved} == set(learning.split())
    if learning == "pooler":
        assert all(name.startswith("pooler.") for name in moved)


def test_parts_to_freeze_that_do_not_exist_are_an_error() -> None:
    for wrong in (-1, True, "head"):
        with pytest.raises(UserError, match="freeze: expected none, embeddings, encoder, or a number of layers"):
            TrainConfig(freeze=wrong)
    with pytest.raises(UserError, match=r"train\.freeze: expected at most the encoder's 1 layer, found 99"):
        finetune(encoder(), TASK, split("train", 4, 0), split("dev", 4, 1), TrainConfig(freeze=99))
    with pytest.raises(UserError, match="adversarial: moves the embeddings of words, which freeze keeps"):
        TrainConfig(freeze="embeddings", adversarial=AdversarialConfig(epsilon=1.0))


def test_the_averages_of_the_weights_are_what_is_scored_and_kept() -> None:
    def trained(ema: float) -> dict[str, np.ndarray]:
        settings = replace(SETTINGS, ema=ema, evaluations=0, epochs=2)
        model, _ = finetune(encoder(), TASK, split("train", 40, 0), split("dev", 10, 1), settings)
        return {name: value.numpy() for name, value in model.named_parameters()}

    plain, near, far = trained(0.0), trained(1e-9), trained(0.99)
    start = {f"ernie.{name}": value.numpy() for name, value in encoder().named_parameters()}
    name = "ernie.encoder.layers.0.inner.weight"
    np.testing.assert_allclose(near[name], plain[name], rtol=1e-4, atol=1e-6)
    assert 0 < np.abs(far[name] - start[name]).mean() < np.abs(plain[name] - start[name]).mean()


def test_every_row_is_in_exactly_one_step_of_an_epoch() -> None:
    examples = split("train", 50, 0).examples
    for settings in (SETTINGS, TrainConfig(epochs=2, batch_tokens=60)):
        steps = planned_steps(examples, settings, 0)
        for epoch in range(settings.epochs):
            assert sorted(np.concatenate([step.rows for step in steps if step.epoch == epoch])) == list(range(50))
    assert [len(step.rows) for step in planned_steps(examples, SETTINGS, 0)][:6] == [12, 12, 12, 12, 2, 12]


@pytest.mark.parametrize("settings", [SETTINGS, TrainConfig(epochs=6, batch_tokens=60)], ids=["rows", "tokens"])
def test_the_row_order_differs_between_epochs_and_between_seeds(settings: TrainConfig) -> None:
    examples = split("train", 50, 0).examples
    orders = {
        tuple(np.concatenate([step.rows for step in planned_steps(examples, settings, seed) if step.epoch == epoch]))
        for seed in range(3)
        for epoch in range(settings.epochs)
    }
    assert len(orders) == 3 * settings.epochs


@pytest.mark.parametrize("evaluations", [1, 2, 3, 5, 9])
def test_evaluations_are_evenly_spaced_and_at_the_end_of_each_epoch(evaluations: int) -> None:
    settings = TrainConfig(epochs=3, batch=12, evaluations=evaluations)
    steps = planned_steps(split("train", 50, 0).examples, settings, 0)
    done = [step.epochs for step in steps if step.scored]
    assert {1.0, 2.0, 3.0} <= set(done)
    assert len(done) == 3 * min(evaluations, 5)
    assert np.diff([0, *done]).max() <= 1 / min(evaluations, 5) + 0.2


@pytest.mark.parametrize("budget", [{"batch": 12}, {"batch_tokens": 60}])
def test_the_first_epoch_can_be_ordered_from_short_to_long(budget: dict[str, int]) -> None:
    texts = [" ".join(["good"] * (1 + 7 * n % 12)) for n in range(50)]
    examples = [TASK.training_example(Row({"text": text, "label": "yes"}), TOKENIZER) for text in texts]
    steps = planned_steps(examples, TrainConfig(epochs=2, shortest_first=True, **budget), 0)
    first, second = ([step for step in steps if step.epoch == epoch] for epoch in (0, 1))
    means = [np.mean([examples[i].tokens for i in step.rows]) for step in first]
    assert means == sorted(means)
    for epoch in (first, second):
        assert sorted(np.concatenate([step.rows for step in epoch])) == list(range(50))
    means = [np.mean([examples[i].tokens for i in step.rows]) for step in second]
    assert means != sorted(means)


def test_evaluation_can_be_limited_to_the_end_of_training() -> None:
    settings = TrainConfig(epochs=3, batch=12, evaluations=0)
    scored = [step.scored for step in planned_steps(split("train", 50, 0).examples, settings, 0)]
    assert scored == [False] * (len(scored) - 1) + [True]


def test_a_saved_model_makes_the_same_predictions(tmp_path) -> None:
    model, _ = finetune(encoder(), TASK, split("train", 40, 0), split("dev", 40, 1), SETTINGS)
    model.save(tmp_path)
    asked = rows(20, 3)
    assert list(TaskModel.load(tmp_path, precision="fp32").predict(asked)) == list(model.predict(asked))


def test_an_invalid_row_is_an_error_after_the_predictions_for_earlier_rows() -> None:
    answers = TaskModel(encoder(), TASK).predict([*rows(2, 0), 3])  # type: ignore[list-item]
    assert len([next(answers), next(answers)]) == 2
    with pytest.raises(UserError, match=r"^row 2: expected its cells by column, such as \{'text': ...\}, found 3$"):
        next(answers)
    given = [{"text": "red"}, {"text": "blue"}, {"txt": "x"}]
    with pytest.raises(UserError, match=r"^row 2: there is no column 'text'\. Did you mean 'txt'\?$"):
        list(TaskModel(encoder(), TASK).predict(given))


def test_a_text_stands_for_a_row_with_only_the_input_column() -> None:
    asked = rows(3, 0)
    task = replace(TASK, text="review")
    model = TaskModel(encoder(), task)
    answers = list(model.predict([{"review": row["text"]} for row in asked]))
    assert list(model.predict([row["text"] for row in asked])) == answers


@pytest.mark.parametrize("asked", ["a good film", {"text": "a good film"}])
def test_a_single_row_stands_for_a_list_of_it(asked: Any) -> None:
    model = TaskModel(encoder(), TASK)
    assert list(model.predict(asked)) == list(model.predict([asked]))


def test_a_data_frame_in_place_of_rows_is_refused() -> None:
    frame = pandas.DataFrame({"text": ["a good film", "a bad one"]})
    with pytest.raises(UserError, match=r"^expected several rows.* columns 'text'; give one of them, or its rows"):
        next(TaskModel(encoder(), TASK).predict(frame))  # type: ignore[arg-type]


def test_an_encoder_is_not_saved_over_a_fine_tuned_model(tmp_path) -> None:
    model = TaskModel(encoder(), TASK)
    model.save(tmp_path)
    with pytest.raises(UserError, match=r"holds a fine-tuned model, and its head is its encoder's only"):
        encoder().save_pretrained(tmp_path)
    model.save(tmp_path)  # a whole fine-tuned model may be
    assert list(TaskModel.load(tmp_path, precision="fp32").predict(["a good film"])) == list(
        model.predict(["a good film"])
    )


def test_a_folder_without_a_fine_tuned_model_is_an_error(tmp_path) -> None:
    encoder().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"holds no fine-tuned model: there is no task\.json"):
        TaskModel.load(tmp_path)
    with pytest.raises(UserError, match=r"nowhere: there is no such folder"):
        TaskModel.load(tmp_path / "nowhere")
