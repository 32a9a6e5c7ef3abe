"""A student learns from a teacher: its predictions, its layers, and rows without labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support.finished import random_rows, write_rows
from support.helpers import perturbed
from support.toys import TOKENIZER, TOYS, tiny_encoder
from support.trained import trained

from ernie import ErnieModel
from ernie.cli import main
from ernie.data.batch import Layout, Packed
from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from ernie.kernels.precision import precision
from ernie.model.config import EncoderConfig
from ernie.model.losses import relation_divergence
from ernie.parallel.layout import ParallelConfig
from ernie.text.wordpiece import WordPiece
from ernie.train.adapter_config import AdapterConfig
from ernie.train.lr_schedule import LRScheduleConfig
from finetune.config import DataConfig, FinetuneConfig, HiddenConfig, RelationsConfig, TeacherConfig, TrainConfig
from finetune.prepare import Prepared, prepare, training_rows
from finetune.train.loop import finetune
from finetune.train.model import TrainingModel
from finetune.train.steps import Step, micro_batches
from finetune.train.teacher import Teacher
from finetune.train.warm_start import keep_layers
from inference.task_model import Ensemble, TaskModel
from tasks.downstream.base import LogitsTask
from tasks.downstream.windows import WindowConfig

KINDS = sorted(kind for kind, toy in TOYS.items() if isinstance(toy.task, LogitsTask))


@pytest.fixture(autouse=True)
def in_float32() -> Iterator[None]:
    """Logits of teachers and students are compared closely, on processors that compute in bfloat16, too."""
    with precision("fp32"):
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The folder of a trained model of each kind, by kind."""
    found = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp("teachers") / kind
        trained(kind).model.save(folder)
        found[kind] = str(folder)
    return found


def encoder(layers: int = 1, width: int = 32, heads: int = 2, tokenizer: WordPiece = TOKENIZER) -> ErnieModel:
    paddle.seed(5)
    shape = EncoderConfig(
        *(tokenizer.vocab_size, width, layers, heads, 2 * width),
        **{"dropout": 0.0, "attention_dropout": 0.0, "max_positions": 64, "initializer_range": 0.1},
    )
    model = ErnieModel(shape)
    model.tokenizer = tokenizer
    return model


def other_tokenizer() -> WordPiece:
    """The words of the toys under other ids."""
    return WordPiece([*TOKENIZER.tokens[:5], *reversed(TOKENIZER.tokens[5:])], lowercase=TOKENIZER.lowercase)


def logits_task(kind: str) -> LogitsTask:
    task = TOYS[kind].task
    assert isinstance(task, LogitsTask)
    return task


def rows_of(kind: str, count: int = 12, split: str = "train") -> Prepared:
    return prepare(TOYS[kind].task, Split(split, TOYS[kind].rows(count, seed=9)), TOKENIZER)


def batch_of(train: Prepared, rows: range) -> Packed:
    step = Step(np.array(rows), 0, 1.0, True)
    (samples,) = micro_batches(train.examples, [example.tokens for example in train.examples], step, 10**6)
    return samples.packed()


def taught_loss(model: TrainingModel, teacher: Teacher, batch: Packed) -> float:
    model.eval()
    found = task_loss(model, batch)
    return float(teacher.prediction_loss(found, batch))


def task_loss(model: TrainingModel, batch: Packed) -> paddle.Tensor:
    hidden_TD = model.task.encode(model.ernie, model.head, batch, 0)
    logits = model.task.head_loss(model.head, hidden_TD, batch).logits
    assert logits is not None
    return logits


@pytest.mark.parametrize("kind", KINDS)
def test_a_student_that_predicts_as_its_teacher_has_nothing_to_learn_from_it(
    kind: str, folders: dict[str, str]
) -> None:
    task, train = logits_task(kind), rows_of(kind)
    same, other = TaskModel.load(folders[kind], precision="fp32"), TrainingModel(encoder(), task)
    teacher = Teacher(TeacherConfig(folders[kind]), task, other.ernie)
    teacher.read(train)
    perturbed(other)
    student = TrainingModel(same.ernie, task)
    student.head = same.head
    whole, first, second = (batch_of(train, rows) for rows in (range(12), range(5), range(5, 12)))
    assert taught_loss(student, teacher, whole) == pytest.approx(0, abs=1e-5)
    apart = taught_loss(other, teacher, whole)
    assert apart > 0.1
    assert apart == pytest.approx(taught_loss(other, teacher, first) + taught_loss(other, teacher, second), rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_an_ensemble_teaches_the_mean_of_its_models(kind: str, folders: dict[str, str], tmp_path: Path) -> None:
    task, train = logits_task(kind), rows_of(kind)
    one, other = TaskModel.load(folders[kind], precision="fp32"), TaskModel(encoder(), task)
    perturbed(other)
    Ensemble([one, other], task).save(tmp_path / "both")
    teacher = Teacher(TeacherConfig(str(tmp_path / "both")), task, encoder())
    teacher.read(train)
    expected = TaskModel.load(tmp_path / "both", precision="fp32").logits(train.examples)
    for found, row in zip(teacher._logits, expected, strict=True):
        np.testing.assert_allclose(np.concatenate(found), np.concatenate(row), atol=1e-5)
    with pytest.raises(UserError, match="is an ensemble of 2 models, whose layers are not compared"):
        Teacher(TeacherConfig(str(tmp_path / "both"), hidden=HiddenConfig()), task, encoder())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_labels_add_what_the_teacher_says_and_nothing_else(kind: str, folders: dict[str, str]) -> None:
    task, model = logits_task(kind), TrainingModel(encoder(), logits_task(kind))
    model.eval()
    toy = TOYS[kind]
    rows = toy.rows(9, seed=9)
    bare = [Row({name: cell for name, cell in row.items() if name != toy.answer_column}) for row in rows]
    given = {"train": rows[:4], "unlabeled": bare[4:]}
    train = training_rows({name: prepare(task, Split(name, found), TOKENIZER) for name, found in given.items()})
    assert len(train) == 9
    batch, labeled = batch_of(train, range(9)), batch_of(train, range(4))
    hard = float(model.loss(batch).total)
    assert hard == pytest.approx(float(model.loss(labeled).total), rel=1e-4)
    assert batch.targets > labeled.targets
    model.teacher = Teacher(TeacherConfig(folders[kind], weight=0.25), task, model.ernie)
    model.teacher.read(train)
    soft = taught_loss(model, model.teacher, batch)
    assert float(model.loss(batch).total) == pytest.approx(0.75 * hard + 0.25 * soft, rel=1e-4)
    assert soft > taught_loss(model, model.teacher, labeled)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not logits_task(kind).per_token])
def test_a_teacher_with_another_vocabulary_reads_the_text_itself(kind: str, tmp_path: Path) -> None:
    task, train = logits_task(kind), rows_of(kind)
    model = TaskModel(tiny_encoder(), task)
    model.eval()
    model.save(tmp_path / "own")
    weights, tokenizer = model.ernie.embedding.token.weight, other_tokenizer()
    order = [TOKENIZER.tokens.index(token) for token in tokenizer.tokens]
    weights.set_value(weights.numpy()[order])  # the same vector for each word
    model.ernie.tokenizer = tokenizer
    model.save(tmp_path / "other")
    own, other = (Teacher(TeacherConfig(str(tmp_path / name)), task, encoder()) for name in ("own", "other"))
    for teacher in (own, other):
        teacher.read(train)
    student, batch = TrainingModel(encoder(), task), batch_of(train, range(12))
    assert taught_loss(student, other, batch) == pytest.approx(taught_loss(student, own, batch), rel=1e-3)
    assert "another vocabulary" in other.described and "another vocabulary" not in own.described


def test_a_row_that_is_read_in_windows_is_taught_once(folders: dict[str, str]) -> None:
    task: Any = replace(logits_task("classify"), max_len=9, windows=WindowConfig(stride=1))
    rows = [Row({**row, "text": f"{row['text']} " * 3}) for row in TOYS["classify"].rows(6, seed=9)]
    train = prepare(task, Split("train", rows), TOKENIZER)
    assert any(len(example.samples) > 1 for example in train.examples)
    student = TrainingModel(encoder(), task)
    teacher = Teacher(TeacherConfig(folders["classify"], temperature=1.0), task, student.ernie)
    teacher.read(train)
    model = TaskModel.load(folders["classify"], precision="fp32")
    model.task = replace(task, all_labels=True)
    batch = batch_of(train, range(6))
    own = paddle.nn.functional.softmax(task_loss(student, batch)).numpy()
    expected = 0.0
    for (_, row, _), q in zip(batch.samples[batch.firsts].tolist(), own, strict=True):
        (answer,) = model.predict(rows[row])
        p = np.array([*answer["all_labels"].values()])
        expected += float((p * np.log(p / q)).sum())
    assert taught_loss(student, teacher, batch) == pytest.approx(expected, rel=1e-2)


def test_a_teacher_with_another_vocabulary_may_need_other_windows(tmp_path: Path) -> None:
    task: Any = replace(logits_task("classify"), max_len=9, windows=WindowConfig())
    other = encoder(tokenizer=other_tokenizer())
    TaskModel(other, logits_task("classify")).save(tmp_path)
    rows = [Row({**row, "text": f"{row['text']} " * 3}) for row in TOYS["classify"].rows(6, seed=9)]
    train = prepare(task, Split("train", rows), TOKENIZER)
    student = TrainingModel(encoder(), task)
    teacher = Teacher(TeacherConfig(str(tmp_path)), task, student.ernie)
    teacher.read(train)
    assert taught_loss(student, teacher, batch_of(train, range(6))) > 0


def test_the_divergence_is_that_of_softened_classes_times_the_squared_temperature() -> None:
    rng = np.random.default_rng(0)
    own, theirs = rng.normal(size=(2, 6, 4))
    p, q = (np.exp(each / 3) / np.exp(each / 3).sum(-1, keepdims=True) for each in (theirs, own))
    found = logits_task("classify").distillation(*map(paddle.to_tensor, (own, theirs)), 3.0)
    assert float(found) == pytest.approx(9 * (p * np.log(p / q)).sum(), rel=1e-6)
    one = paddle.zeros([3, 1])
    with pytest.raises(UserError, match="compares classes, and there is one logit"):
        logits_task("classify").distillation(one, one, 1.0)


def test_predictions_are_put_into_the_students_order_and_scale() -> None:
    labels, task = ("red", "blue", "green"), replace(TOYS["multilabel"].task, labels=("blue", "green", "red"))
    assert isinstance(task, LogitsTask)
    teacher: Any = replace(task, labels=labels)
    np.testing.assert_array_equal(task.from_teacher(teacher, np.array([1.0, 2.0, 3.0])), [2.0, 3.0, 1.0])
    with pytest.raises(UserError, match=r"has other labels: it lacks blue and also has pink; data\.values renames"):
        task.from_teacher(replace(teacher, labels=("red", "pink", "green")), np.zeros(3))
    number: Any = replace(TOYS["regress"].task, scale=(10.0, 2.0))
    found = number.from_teacher(replace(number, scale=(4.0, 3.0)), np.array([1.0]))
    assert found == pytest.approx((4 + 3 - 10) / 2)  # 7 is one deviation above 4, and 1.5 below 10


def relations(vectors: np.ndarray, layout: Layout, heads: int) -> list[np.ndarray]:
    """The relations of each head of each sequence, by the definition."""
    found = []
    for start, stop in zip(layout.offsets[:-1], layout.offsets[1:], strict=True):
        for part in np.split(vectors[start:stop], heads, axis=1):
            powers = np.exp(part @ part.T / np.sqrt(part.shape[1]))
            found.append(powers / powers.sum(1, keepdims=True))
    return found


@pytest.mark.parametrize("lengths", [[3, 1, 5], [4, 4]])
def test_relations_diverge_as_defined_and_so_do_their_gradients(lengths: list[int]) -> None:
    rng, layout = np.random.default_rng(0), Layout.of_lengths(lengths)
    own, theirs = rng.normal(size=(layout.tokens, 8)), rng.normal(size=(layout.tokens, 12))

    def divergence(vectors: np.ndarray) -> float:
        both = zip(relations(theirs, layout, 4), relations(vectors, layout, 4), strict=True)
        return sum(float((p * np.log(p / q)).sum()) for p, q in both) / 4

    x_TD = paddle.to_tensor(own.astype(np.float32), stop_gradient=False)
    found = relation_divergence(x_TD, paddle.to_tensor(theirs.astype(np.float32)), layout, 4)
    assert float(found) == pytest.approx(divergence(own), rel=1e-5)
    found.backward()
    for token, dimension in ((0, 0), (layout.tokens - 1, 7), (2, 3)):
        moved = np.zeros_like(own)
        moved[token, dimension] = 1e-5
        slope = (divergence(own + moved) - divergence(own - moved)) / 2e-5
        assert float(x_TD.grad[token, dimension]) == pytest.approx(slope, abs=1e-4)


def layers_compared(width: int, config: TeacherConfig) -> tuple[TrainingModel, float, Packed]:
    """A student of half the teacher's layers, how much its layers differ, and the batch."""
    train = rows_of("tag")
    model = TrainingModel(encoder(2, width), logits_task("tag"))
    teacher = model.teacher = Teacher(config, logits_task("tag"), model.ernie)
    model.projection = teacher.projection(model.ernie)
    teacher.read(train)
    batch, states = batch_of(train, range(12)), list[paddle.Tensor]()
    model.ernie.encode_packed(batch, states=states)
    return model, float(teacher.layer_loss(model.ernie, states, batch, model.projection)), batch


def test_layers_are_compared_as_defined_in_the_same_and_in_another_width(tmp_path: Path) -> None:
    theirs = encoder(4, 16, heads=4)
    perturbed(theirs)
    theirs.eval()
    theirs.save_pretrained(tmp_path)
    hidden = TeacherConfig(str(tmp_path), weight=0, hidden=HiddenConfig(weight=3.0))
    related = TeacherConfig(str(tmp_path), weight=0, relations=RelationsConfig(weight=2.0, layer=3))
    for width in (16, 24):
        model, compared, batch = layers_compared(width, hidden)
        assert (model.projection is None) == (width == 16)
        states: dict[str, list[paddle.Tensor]] = {"own": [], "theirs": []}
        model.ernie.encode_packed(batch, states=states["own"])
        theirs.encode_packed(batch, states=states["theirs"])
        own = [each if model.projection is None else model.projection(each) for each in states["own"]]
        squares = [((own[n] - states["theirs"][m]) ** 2).mean(-1).mean() for n, m in ((1, 2), (2, 4))]
        ratio = batch.targets  # the mean over tokens, for each target
        assert compared == pytest.approx(3 * float(squares[0] + squares[1]) / 2 * ratio, rel=1e-4)
        model, compared, batch = layers_compared(width, related)
        vectors = [(model.ernie.encoder.layers[1], states["own"][1]), (theirs.encoder.layers[2], states["theirs"][2])]
        expected = sum(
            float(relation_divergence(*(getattr(layer, name)(x_TD) for layer, x_TD in vectors), batch.layout, 4))
            for name in "qkv"
        )
        assert compared == pytest.approx(2 * expected * ratio / batch.layout.tokens, rel=1e-4)


def test_a_projection_is_learned_and_not_kept(tmp_path: Path) -> None:
    theirs = encoder(2, 16)
    theirs.save_pretrained(tmp_path / "wide")
    train, dev = rows_of("classify"), rows_of("classify", split="dev")
    config = TeacherConfig(str(tmp_path / "wide"), weight=0, hidden=HiddenConfig())
    ernie, task = encoder(1, 8), logits_task("classify")
    teacher = Teacher(config, task, ernie)
    teacher.read(train)
    settings = TrainConfig(epochs=1, lr=LRScheduleConfig(peak=1e-2), freeze="encoder")
    start = teacher.projection(encoder(1, 8))
    model, _ = finetune(ernie, task, train, dev, settings, teacher=teacher)
    assert start is not None and model.projection is not None
    assert np.abs(model.projection.bias.numpy()).max() > 1e-3
    trained_weights, total = model.weight_counts()
    assert trained_weights == 8 * 8 + 8 + 2 * 8 + 2 < total  # pooler and head
    model.save(tmp_path / "student")
    loaded = TaskModel.load(tmp_path / "student", precision="fp32")
    assert loaded.state_dict().keys() == TaskModel(encoder(1, 8), task).state_dict().keys()


@pytest.mark.parametrize(("kept", "numbers"), [(3, [1, 4, 6]), (1, [1]), (6, [1, 2, 3, 4, 5, 6]), ((2, 5), [2, 5])])
def test_layers_are_kept_evenly_or_as_named(kept: int | tuple[int, ...], numbers: list[int]) -> None:
    model = encoder(6, 8)
    before = [layer.q.weight.numpy() for layer in model.encoder.layers]
    keep_layers(model, kept, "it")
    assert model.config.layers == len(numbers) == len(model.encoder.layers)
    for number, layer in zip(numbers, model.encoder.layers, strict=True):
        np.testing.assert_array_equal(layer.q.weight.numpy(), before[number - 1])


def test_half_the_layers_of_twelve_are_those_of_the_paper() -> None:
    model = encoder(12, 4, heads=1)
    before = [layer.q.weight for layer in model.encoder.layers]
    keep_layers(model, 6, "it")
    kept = [next(n for n, weight in enumerate(before) if weight is layer.q.weight) for layer in model.encoder.layers]
    assert kept == [0, 2, 4, 7, 9, 11]


def test_a_student_learns_from_rows_without_labels_what_its_teacher_knows(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The teacher has seen all words; the rows with labels have two of the four that decide.
    known = [(text, label) for text, label in random_rows(300, 7) if {"good", "bad"} & {*text.split()}]
    unknown = [(text, label) for text, label in random_rows(300, 8) if {"fine", "poor"} & {*text.split()}]
    write_rows(work / "known.tsv", known[:60])
    write_rows(work / "judged.tsv", unknown[:60])
    (work / "bare.txt").write_text("".join(f"{text}\n" for text, _ in unknown[60:140]), encoding="utf-8")
    words = ["finetune", "task.yaml", "--quiet", "--set", "data={train: known.tsv, dev: judged.tsv, test: []}"]
    words += ["--set", "train.epochs=4", "--set", "train.precision=fp32"]

    def accuracy(*more: str) -> float:
        output = str(work / f"run{len(more)}")
        assert main([*words, *more, "--output", output]) == 0
        return float(capsys.readouterr().out.splitlines()[-1].split("|")[2])

    taught = ["--set", "teacher.model=done", "--set", "data.unlabeled=bare.txt"]
    assert accuracy() < 0.75
    assert accuracy(*taught) > 0.95
    card = (work / "run4" / "README.md").read_text(encoding="utf-8")
    assert "- teacher: done; weight 0.9, temperature 2" in card
    assert "- unlabeled: 80 rows" in card
    measured = json.loads((work / "run4" / "tradeoff.json").read_text(encoding="utf-8"))
    assert {point["model"] for point in measured["points"]} == {"run4", "done"}
    assert "Score, size and time" in (work / "run4" / "report.html").read_text(encoding="utf-8")


def test_check_says_who_teaches_how_many_rows_and_how_well(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--set", "teacher={model: done, hidden: {}}", "--set", "data.unlabeled=test.tsv"]
    assert main(["check", "task.yaml", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    described = "done, 1 layer of width 32; weight 0.9, temperature 2; hidden states, weight 1"
    assert f"ok: teacher: {described}" in lines
    assert "ok: it teaches 160 rows with labels and 30 without" in lines
    assert any(line.startswith("ok: its accuracy is ") and line.endswith(" on all 50 rows of dev") for line in lines)
    assert any(line.startswith("ok: one step on 20 rows and a scoring of 4") for line in lines)


CHANGES = {
    "teacher.model=gone": r"teacher\.model: gone: there is no such folder",
    "teacher={model: encoder}": r"teacher\.model: encoder: holds no fine-tuned model",
    "teacher={model: done, weight: 2}": "teacher: weight: expected a number from 0 to 1, found 2",
    "teacher={model: done, weight: 0}": "nothing is learned from the teacher; give hidden or relations",
    "teacher={model: done, temperature: 0}": "temperature: expected more than 0, found 0",
    "teacher={model: done, hidden: {layers: [2]}}": r"layers: expected layers from 1 to 1, as many as the teacher has",
    "teacher={model: done, hidden: {layers: [1, 1]}}": "for each of the student's 1, found 2",
    "teacher={model: done, hidden: {weight: 0}}": "hidden: weight: expected more than 0, found 0",
    "teacher={model: done, relations: {heads: 5}}": "divisor of both widths, .* 32, found 5; give one of 1, 2, 4,",
    "teacher={model: done, relations: {layer: 0}}": r"teacher\.relations\.layer: expected layers from 1 to 1.*found 0",
    "teacher={model: done, relations: {layer: 3}}": r"teacher\.relations\.layer: expected layers from 1 to 1",
    "layers=2": "layers: expected a number from 1 to 1, as many as encoder has, found 2",
    "layers=[2]": "layers: expected layers from 1 to 1, as many as encoder has, found 2",
    "layers=[1, 1]": r"layers: expected numbers of layers that rise, found \[1, 1\]",
    "data.unlabeled=test.tsv": r"data\.unlabeled: rows without labels are learned only from a teacher; name one",
    "task.labels=[blame, praise, none]": r"teacher\.model: done: has other labels: it lacks none",
    "task={kind: regress}": r"teacher\.model: done: is of the kind classify; expected the kind regress",
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_cannot_be_taught_is_an_error_before_training(
    change: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--set", change]
    if change.startswith("task"):
        options += ["--set", "teacher.model=done"]
    if "regress" in change:
        for name in ("train", "dev", "test"):
            write_rows(work / f"{name}.tsv", [("good film", str(n)) for n in range(4)])
        options += ["--set", "task.max_len=16"]
    assert main(["check", "task.yaml", *options]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert re.search(CHANGES[change], error), error


def test_settings_that_exclude_one_another_are_refused() -> None:
    task, taught = TOYS["classify"].task, TeacherConfig("it", hidden=HiddenConfig())
    with pytest.raises(UserError, match=r"^folds: the teacher may have learned the rows that a fold holds out"):
        FinetuneConfig(task, teacher=taught, folds=2)
    with pytest.raises(UserError, match=r"^teacher\.hidden: teaches the encoder's layers, which train\.freeze keeps"):
        FinetuneConfig(task, teacher=taught, train=TrainConfig(freeze="encoder"))
    with pytest.raises(UserError, match=r"^teacher\.hidden: needs the outputs of all layers, and parallel\.tensor"):
        FinetuneConfig(task, teacher=taught, parallel=ParallelConfig(tensor=2))
    FinetuneConfig(task, teacher=TeacherConfig("it"), parallel=ParallelConfig(tensor=2))
    with pytest.raises(UserError, match=r"^teacher: a model of the kind translate has no logits to learn from"):
        FinetuneConfig(TOYS["translate"].task, teacher=TeacherConfig("it"))
    with pytest.raises(UserError, match=r"^train\.adapt: is saved as an update of the encoder `model`, of which"):
        FinetuneConfig(task, layers=3, train=TrainConfig(adapt=AdapterConfig()))
    with pytest.raises(UserError, match="rows without labels are learned only from a teacher"):
        FinetuneConfig(task, data=DataConfig(unlabeled="rows.txt"))


def test_layers_that_cannot_be_spread_evenly_have_to_be_named() -> None:
    with pytest.raises(UserError, match="the teacher's 6 layers cannot be spread evenly over the student's 4"):
        HiddenConfig().chosen(4, 6)
    assert HiddenConfig().chosen(3, 6) == (2, 4, 6)
    assert HiddenConfig(layers=(1, 2, 4, 6)).chosen(4, 6) == (1, 2, 4, 6)
    with pytest.raises(UserError, match="the student's 20 and the teacher's 30, found 3; give one of 1, 2, 5, 10"):
        RelationsConfig().chosen_heads(3, 20, 30)


def test_a_teacher_with_another_vocabulary_teaches_no_tokens(tmp_path: Path) -> None:
    for kind in ("tag", "classify"):
        TaskModel(encoder(tokenizer=other_tokenizer()), TOYS[kind].task).save(tmp_path / kind)
    with pytest.raises(UserError, match="has another vocabulary than the student, and a model of the kind tag learns"):
        Teacher(TeacherConfig(str(tmp_path / "tag")), logits_task("tag"), encoder())
    with pytest.raises(UserError, match=r"and teacher\.hidden compares the vectors of the same tokens"):
        config = TeacherConfig(str(tmp_path / "classify"), hidden=HiddenConfig())
        Teacher(config, logits_task("classify"), encoder())


def test_another_teacher_under_the_same_name_is_another_run(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["finetune", "task.yaml", "--output", "run", "--quiet", "--set", "train.epochs=1"]
    words += ["--set", "teacher.model=done/model"]
    assert main(words) == 0
    model = TaskModel.load("done")
    perturbed(model.head)
    model.save(work / "done" / "model")
    assert main(words) == 2
    assert "trained on other inputs under the same name: teacher.model changed since" in capsys.readouterr().err
