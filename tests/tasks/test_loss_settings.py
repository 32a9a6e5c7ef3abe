"""Weights of rows and classes, label smoothing and focal loss, beside their definitions in plain float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle
import pytest
from support.toys import TOKENIZER, TOYS, tiny_encoder

from ernie.config import build, from_dict
from ernie.data.batch import Packed, pack
from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.data.raw import Place
from ernie.errors import UserError
from ernie.model.losses import focal_cross_entropy, smoothed
from ernie.train.lr_schedule import LRScheduleConfig
from finetune.config import FinetuneConfig, TrainConfig
from finetune.prepare import prepare
from finetune.train.loop import finetune
from inference.task_model import TaskModel
from tasks.downstream.base import LogitsTask, finetune_tasks
from tasks.downstream.classify import Classify
from tasks.downstream.loss_settings import WeightedRows
from tasks.downstream.multilabel import MultiLabel
from tasks.downstream.rank import Rank
from tasks.downstream.regress import Regress
from tasks.downstream.tag import Tag

KINDS = sorted(name for name in finetune_tasks if name in TOYS and isinstance(TOYS[name].task, WeightedRows))
OUTPUTS = {"choose": 1, "classify": 2, "extract": 2, "multilabel": 3, "rank": 2, "regress": 1, "tag": 5}


class Target(NamedTuple):
    """The scores of the classes of one target, the correct one, and its class's weight and its sample's."""

    scores: np.ndarray
    correct: int
    class_weight: float
    weight: float


def batch_of(task: Any, rows: list[Row]) -> Packed:
    examples = prepare(task, Split("train", rows), TOKENIZER).examples
    return pack([sample for example in examples for sample in example.samples])


def targets(task: Any, batch: Any, logits: np.ndarray) -> Iterator[Target]:
    """Yield all targets of a batch, but those of `multilabel` and `regress`."""
    offsets, of_class = batch.layout.offsets, getattr(task, "class_weights", None)
    kind, labels = task.variant_name, batch.labels
    if kind == "extract":
        for n, weight in enumerate(batch.weights):
            for side, name in enumerate(("start", "end")):
                yield Target(logits[offsets[n] : offsets[n + 1], side], labels[name].values[n], 1.0, weight)
    elif kind == "choose":
        firsts = [*labels["choice"].positions, len(logits)]
        for first, behind, correct in zip(firsts, firsts[1:], labels["choice"].values, strict=False):
            yield Target(logits[first:behind, 0], correct, 1.0, batch.weights[first])
    elif kind == "tag":
        for position, correct in zip(labels["tag"].positions, labels["tag"].values, strict=True):
            n = int(np.searchsorted(offsets, position, side="right")) - 1
            yield Target(logits[position], correct, of_class[task.labels[correct]], batch.weights[n])
    else:
        for scores, correct, weight in zip(logits, labels["label"].values, batch.weights, strict=True):
            yield Target(scores, correct, of_class[task.class_names[correct]], weight)


def defined(scores: np.ndarray, correct: int, smoothing: float, gamma: float) -> float:
    """The focal loss of a smoothed target."""
    p = np.exp(scores - scores.max())
    p /= p.sum()
    total = 0.0
    for c, chance in enumerate(p):
        q = smoothing / len(p) + (1 - smoothing if c == correct else 0.0)
        total -= q * (1 - chance) ** gamma * np.log(chance)
    return total


def expected(task: Any, batch: Any, logits: np.ndarray) -> float:
    if task.variant_name == "regress":
        return sum(
            w * (x[0] - y) ** 2 for w, x, y in zip(batch.weights, logits, batch.labels["label"].values, strict=True)
        )
    settings = task.label_smoothing, task.focal_gamma
    if task.variant_name != "multilabel":
        return sum(
            t.weight * t.class_weight * defined(t.scores, t.correct, *settings) for t in targets(task, batch, logits)
        )
    total = 0.0
    for w, row, hot in zip(batch.weights, logits, batch.labels["label"].values, strict=True):
        for name, logit, y in zip(task.labels, row, hot, strict=True):
            own = task.class_weights[name] if y else 1.0
            total += w * own * defined(np.array([0.0, logit]), int(y), *settings) / len(hot)
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_that_of_its_definition_in_float64(kind: str) -> None:
    toy = TOYS[kind].with_loss_settings()
    task: Any = toy.task
    batch = batch_of(task, toy.rows(20))
    size = batch.layout.tokens if task.per_token else batch.layout.sequences
    logits = np.random.default_rng(3).normal(0, 3, (size, OUTPUTS[kind]))
    loss = task.loss(paddle.to_tensor(logits.astype(np.float32)), batch)
    assert loss.count == batch.targets
    assert float(loss.total) == pytest.approx(expected(task, batch, logits), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_all_alike_leave_the_bits_of_the_loss_alone(kind: str) -> None:
    task: Any = TOYS[kind].task
    rows = [Row({**row, "two": 2}) for row in TOYS[kind].rows(8)]
    weighted = replace(task, row_weight="two").adapted_to(rows)
    batch, same = batch_of(task, rows), batch_of(weighted, rows)
    size = batch.layout.tokens if task.per_token else batch.layout.sequences
    logits = paddle.to_tensor(np.random.default_rng(3).normal(0, 3, (size, OUTPUTS[kind])).astype(np.float32))
    assert same.weights is None  # all are 1 once they are divided by their mean
    assert float(task.loss(logits, batch).total) == float(weighted.loss(logits, same).total)


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_of_the_training_targets_have_the_mean_one(kind: str) -> None:
    toy = TOYS[kind].with_loss_settings()
    task: Any = toy.task
    rows = toy.rows(60)
    weights = np.concatenate([task.target_weights(row) for row in rows]) / task.mean_weight
    assert weights.mean() == pytest.approx(1, rel=1e-12)
    assert len(set(weights)) > 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_has_learned_with_them_answers_and_is_saved(kind: str, tmp_path: Path) -> None:
    toy = TOYS[kind].with_loss_settings()
    rows = [Row({key: cell for key, cell in row.items() if key != "weight"}) for row in toy.rows(3)]
    model = TaskModel(tiny_encoder(), toy.task)
    model.save(tmp_path)
    again = TaskModel.load(tmp_path, precision="fp32")
    assert again.task == toy.task
    assert len(list(again.predict(rows))) == 3


def test_rows_of_weight_0_are_not_learned() -> None:
    toy = TOYS["classify"]
    other = {"blue": "green", "green": "blue"}
    right, dev = ([Row({**row, "w": 1}) for row in toy.rows(32, seed)] for seed in (0, 1))
    wrong = [Row({**row, "label": other[row["label"]], "w": 0}) for row in toy.rows(48, seed=2)]
    task: Any = replace(toy.task, row_weight="w")
    task = task.adapted_to(right + wrong)
    splits = [prepare(task, Split(name, rows), TOKENIZER) for name, rows in (("train", right + wrong), ("dev", dev))]
    settings = TrainConfig(epochs=4, batch=16, evaluations=0, lr=LRScheduleConfig(peak=4e-3))
    _, evaluations = finetune(tiny_encoder(), task, *splits, settings)
    assert evaluations[-1].headline > 0.9


def labeled(*labels: object, weights: list[float] | None = None) -> list[Row]:
    weights = weights or [1.0] * len(labels)
    return [
        Row({"text": "x", "label": label, "w": weight}, Place("train.tsv", 2 + n))
        for n, (label, weight) in enumerate(zip(labels, weights, strict=True))
    ]


class TestBalancedWeights:
    def test_they_are_n_over_classes_times_count(self) -> None:
        task = Classify(class_weights="balanced").adapted_to(labeled(*"aaaaaabbc"))
        assert task.class_weights == {"a": 9 / (3 * 6), "b": 9 / (3 * 2), "c": 9 / (3 * 1)}
        assert task.mean_weight == pytest.approx(1)

    def test_every_class_has_the_same_part_of_the_loss_also_with_weights_of_rows(self) -> None:
        rows = labeled(*"aabb", weights=[1, 2, 5, 0.5])
        task = Classify(class_weights="balanced", row_weight="w").adapted_to(rows)
        parts = {name: sum(task.target_weights(row)[0] for row in rows if row["label"] == name) for name in "ab"}
        assert parts["a"] == pytest.approx(parts["b"])

    def test_the_rows_with_a_label_of_several_weigh_as_much_as_those_without(self) -> None:
        task = MultiLabel(class_weights="balanced").adapted_to(labeled("a", "a, b", "b", "a", "", "a"))
        assert task.class_weights == {"a": 2 / 4, "b": 4 / 2}

    def test_relevant_texts_weigh_as_much_as_others(self) -> None:
        rows = [Row({**row, "query": "q"}) for row in labeled(*"00010")]
        assert Rank(class_weights="balanced").adapted_to(rows).class_weights == {"0": 5 / 8, "1": 5 / 2}

    def test_tags_are_counted_in_words(self) -> None:
        rows = [Row({"token": list("abcd"), "tag": ["O", "O", "B-PER", "O"]}), Row({"token": ["e"], "tag": ["B-PER"]})]
        task = Tag(class_weights="balanced").adapted_to(rows)
        # No entity has two words: the tag within one weighs nothing in the loss, whatever its weight.
        assert task.class_weights == {"B-PER": 5 / (2 * 2), "I-PER": 1.0, "O": 5 / (2 * 3)}

    def test_a_label_that_cannot_be_weighed_is_named(self) -> None:
        with pytest.raises(UserError, match="balanced has no weight for the label 'c', which no row of train has"):
            Classify(class_weights="balanced", labels=("a", "c")).adapted_to(labeled("a", "a"))
        with pytest.raises(UserError, match="balanced has no weight for the label 'a', which every row has"):
            MultiLabel(class_weights="balanced").adapted_to(labeled("a", "a, b"))
        tags = ("B-PER", "I-PER", "B-LOC", "O")
        with pytest.raises(UserError, match="the label 'B-LOC', which no row of train has"):
            Tag(class_weights="balanced", labels=tags).adapted_to([Row({"token": ["a", "b"], "tag": ["B-PER", "O"]})])


def test_weights_that_are_given_hold_for_the_labels_they_name() -> None:
    task = Classify(class_weights={"b": 4}).adapted_to(labeled(*"aaab"))
    assert task.class_weights == {"a": 1.0, "b": 4.0}
    assert task.mean_weight == pytest.approx(7 / 4)


def test_the_notes_tell_the_weights_and_how_many_rows_they_are_worth() -> None:
    rows = labeled(*"aaab", weights=[1, 1, 1, 2])
    task = Classify(class_weights={"b": 2}, row_weight="w", label_smoothing=0.1, focal_gamma=2).adapted_to(rows)
    weights = np.array([1, 1, 1, 4])
    assert list(task.loss_notes(rows)) == [
        "class weights: a 1, b 2",
        "label smoothing: 0.1",
        "focal loss: gamma 2",
        "row weights: column 'w', divided by their mean",
        "weights of a row: 0.5714 to 2.286, mean 1; effective number of rows: "
        f"{weights.sum() ** 2 / (weights**2).sum():.1f} of 4",
    ]
    assert list(Classify().adapted_to(rows).loss_notes(rows)) == []


@pytest.mark.parametrize("cell", [None, "", "much", "nan", "inf", -1, "-0.5", True, [1], 1e16])
def test_a_cell_that_is_no_weight_is_an_error_of_its_row(cell: Any) -> None:
    rows = [*labeled(*"ab"), Row({"text": "x", "label": "a", "w": cell}, Place("train.tsv", 9))]
    task = Classify(row_weight="w").adapted_to(rows)
    with pytest.raises(UserError, match=r"^train\.tsv:9: column 'w': ") as error:
        prepare(task, Split("train", rows), TOKENIZER)
    assert str(error.value).count("\n") == 0


def test_weights_are_read_from_the_training_rows_alone() -> None:
    task = Regress(row_weight="w").adapted_to(labeled(1, 2, 3))
    without = [Row({"text": "x", "label": 2})]
    assert prepare(task, Split("dev", without), TOKENIZER).labeled
    with pytest.raises(UserError, match="there is no column 'w'"):
        prepare(task, Split("train", without), TOKENIZER)


@pytest.mark.parametrize("settings", [{"row_weight": "w"}, {"class_weights": {"a": 0, "b": 0}}])
def test_weights_that_are_all_0_are_an_error(settings: dict[str, Any]) -> None:
    key = next(iter(settings))
    with pytest.raises(UserError, match=f"^{key}: every row of train has the weight 0, so that nothing is learned"):
        Classify(**settings).adapted_to(labeled("a", "b", weights=[0, 0]))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            {"kind": "classify", "class_weights": {"a": -1}},
            "class_weights.a: expected a weight of at least 0, found -1",
        ),
        ({"kind": "classify", "class_weights": "even"}, "class_weights: expected balanced or a mapping or null, found"),
        ({"kind": "classify", "class_weights": {"a": "x"}}, "class_weights.a: expected a number, found"),
        (
            {"kind": "classify", "labels": ["good", "bad"], "class_weights": {"god": 2}},
            "class_weights.god: there is no such label. Did you mean 'good'?",
        ),
        ({"kind": "rank", "class_weights": {"2": 2}}, "class_weights.2: there is no such label. Known: 0, 1."),
        ({"kind": "tag", "label_smoothing": 1}, "label_smoothing: expected a number from 0 to below 1, found 1"),
        ({"kind": "tag", "focal_gamma": -1}, "focal_gamma: expected at least 0, found -1"),
        ({"kind": "classify", "mean_weight": 2}, "mean_weight: has no effect without weights; leave it out"),
        ({"kind": "classify", "row_weight": "w", "mean_weight": 0}, "mean_weight: expected a number above 0, found 0"),
        (
            {"kind": "choose", "class_weights": "balanced"},
            "class_weights: choose has no such key: it is for kinds with classes that are the same in all rows "
            "(classify, multilabel, rank, tag)",
        ),
        ({"kind": "regress", "focal_gamma": 2}, "focal_gamma: regress has no such key: it is for kinds that choose"),
        (
            {"kind": "transcribe", "row_weight": "w"},
            "row_weight: transcribe has no such key: it is for kinds that read",
        ),
    ],
)
def test_a_setting_that_makes_no_sense_is_an_error_at_its_key(task: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        build(FinetuneConfig, from_dict({"task": task}, "it.yaml"))
    assert f"it.yaml: task: {message}" in str(error.value) or f"it.yaml: task.{message}" in str(error.value)


def test_a_class_that_is_certain_has_a_gradient_of_focal_loss() -> None:
    logits = paddle.to_tensor([[60.0, -60.0, -1e9], [-60.0, 60.0, -1e9]], stop_gradient=False)
    masses = smoothed(np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), 0.1, np.array([[True, True, False]] * 2))
    assert (masses[:, 2] == 0).all()
    for gamma in (0.0, 0.5, 2.0):
        focal_cross_entropy(logits, masses, gamma).backward()
        assert np.isfinite(logits.grad.numpy()).all()
        logits.clear_gradient()


def test_all_kinds_with_logits_of_ours_take_weights_of_rows() -> None:
    assert [name for name, toy in TOYS.items() if isinstance(toy.task, LogitsTask)] == KINDS
