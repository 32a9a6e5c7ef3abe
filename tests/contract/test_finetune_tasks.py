"""The contract of fine-tuning tasks.  Runs over every registered kind and over one from a user's module; a new kind
needs a toy in tests/support/toys.py to be tested against it."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.toys import PLUGIN, PLUGIN_MODULE, TOKENIZER, TOYS, Toy, packed_for, plugin_toy, tiny_encoder
from support.trained import Trained, train
from support.trained import trained as trained_toy

import tasks.downstream
from ernie.audio.recurrent_config import RecurrentConfig
from ernie.audio.voice import WaveNetConfig
from ernie.config import build, from_dict, to_dict
from ernie.data.batch import pack
from ernie.data.document import Sample
from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.errors import NotFinite, UserError
from ernie.metrics import LOWER_IS_BETTER
from ernie.model.ernie import ErnieModel
from ernie.model.losses import Loss
from ernie.model.weights import arrays
from ernie.parallel.mesh import Mesh
from ernie.registry import import_plugins
from ernie.train.adapter_config import AdapterConfig
from ernie.train.adversarial_config import AdversarialConfig
from ernie.train.averages import holding
from ernie.train.lr_schedule import LRScheduleConfig
from finetune.calibrate import Logits, judged_decisions
from finetune.config import FinetuneConfig, TeacherConfig, TrainConfig
from finetune.folds import assign_folds, held_out
from finetune.prepare import Prepared, prepare
from finetune.report.judging import reliability_chapters
from finetune.train.early_stopping import best_of
from finetune.train.loop import finetune
from finetune.train.model import TrainingModel
from finetune.train.training import Training
from finetune.train.trial import Result, Trial
from inference.task_model import Ensemble, TaskModel, check_members
from tasks.downstream.base import (
    LOSS_SETTINGS,
    Example,
    FinetuneTask,
    LogitsTask,
    finetune_tasks,
    is_labeled,
    softmax,
)
from tasks.downstream.calibration import Calibrated, decisions_of
from tasks.downstream.changes import with_values_of
from tasks.downstream.hooks import DerivesFromRows, ExportNotes, ReadsSounds
from tasks.downstream.loss_settings import WeightedRows
from tasks.downstream.saved import HEAD_FILE
from tasks.downstream.scoring import score_answers
from tasks.downstream.transcribe import Transcribe
from tasks.downstream.translate import Translate

assert tasks.downstream
OURS = [name for name in finetune_tasks if finetune_tasks[name].__module__.startswith("tasks.")]
CELLS = [None, True, 7, 0.5, "", " ", "x", "\ud800", [], [None], [1], ["a"], ["a", "\ud800"], {}, {"text": "a"}]
CELLS += [{"text": []}, {"text": ["a"], "answer_start": 3}, {"text": [""], "answer_start": [0]}]
CELLS += [{"text": ["a"], "answer_start": ["x"]}, {"text": [None], "answer_start": [0]}]


@pytest.fixture(scope="module", params=[*OURS, PLUGIN])
def toy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    if request.param != PLUGIN:
        assert request.param in TOYS, f"tests/support/toys.py has no toy for the kind {request.param}"
        yield TOYS[request.param]
        return
    folder = tmp_path_factory.mktemp("outside")
    (folder / "my_warnings.py").write_text(PLUGIN_MODULE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        import_plugins(["my_warnings"])
        yield plugin_toy(finetune_tasks[PLUGIN])


def plain(example: Example, with_sound: bool = True) -> list[Any]:
    """The model's input as plain data, with the sound unless that is the target."""
    sounds = [str(sample.sound() if with_sound and sample.sound else None) for sample in example.samples]
    return [
        [sample.ids.tolist(), sample.segments.tolist(), sound]
        for sample, sound in zip(example.samples, sounds, strict=True)
    ]


def unlabeled(toy: Toy, row: Row) -> Row:
    return Row({column: cell for column, cell in row.items() if column != toy.answer_column})


def labeled_samples(toy: Toy, rows: list[Row]) -> list[Sample]:
    return [sample for row in rows for sample in toy.task.training_example(row, TOKENIZER).samples]


# -------------------------------------------------------------------------------------------- the class itself


def test_a_kind_of_ones_own_has_few_methods_to_look_at() -> None:
    methods = [
        name
        for name, value in vars(FinetuneTask).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    ]
    assert len(methods) < 10
    assert FinetuneTask.__abstractmethods__ <= {*methods}


def test_what_can_be_changed_after_training_does_not_change_the_head_or_the_samples(toy: Toy) -> None:
    fields = {field.name for field in dataclasses.fields(toy.task)}
    changeable = {*toy.task.decoding_fields, *toy.task.column_fields}
    assert fields >= changeable and {toy.task.answer_fields[0]} - changeable in (set(), {"audio"})
    assert not changeable & {*toy.task.head_fields, "max_len", "metrics"}
    model = TrainingModel(tiny_encoder(), toy.task)
    changed = {name: value for name in toy.task.decoding_fields[:1] if (value := getattr(toy.task, name)) is not None}
    model.change_decoding(**changed)
    assert model.task == toy.task
    with pytest.raises(UserError, match=r"^max_len: cannot be changed after training"):
        model.change_decoding(max_len=64)
    with pytest.raises(UserError, match=r"a change of decoding: task\.odd: unknown key"):
        model.change_decoding(odd=1)


def test_every_field_is_documented_where_it_is_defined_first(toy: Toy) -> None:
    for cls in type(toy.task).__mro__:
        fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
        documented = " ".join(base.__doc__ or "" for base in cls.__mro__)
        for name in fields.intersection(inspect.get_annotations(cls)):
            assert re.search(f"`{name}[`:]", documented), f"{cls.__name__}.{name}"


def test_the_class_docstring_begins_with_a_summary(toy: Toy) -> None:
    first = (inspect.getdoc(type(toy.task)) or "").split("\n\n")[0]
    assert "." in first
    assert len(first) > 20


def test_it_is_scored_by_its_own_measures(toy: Toy) -> None:
    assert toy.task.scored_by
    assert set(toy.task.scored_by) <= set(toy.task.known_metrics)
    assert toy.task.answer_fields[0] in {field.name for field in dataclasses.fields(toy.task)}
    for name in toy.task.known_metrics:
        assert dataclasses.replace(toy.task, metrics=(name,)).scored_by == (name,)


def test_it_survives_a_round_trip_through_its_configuration(toy: Toy) -> None:
    serialized = json.loads(json.dumps({"task": to_dict(toy.task)}))
    assert build(Holder, from_dict(serialized)).task == toy.task


@dataclasses.dataclass(frozen=True)
class Holder:
    task: FinetuneTask


def test_reading_rows_needs_no_paddle(toy: Toy) -> None:
    """Paddle, and modules that need it, are imported only inside methods for the model, or under TYPE_CHECKING."""
    module = inspect.getmodule(type(toy.task))
    assert module is not None
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            assert "paddle" not in ast.unparse(node)
            assert "ernie.model" not in ast.unparse(node)


# ------------------------------------------------------------------------------------------------ rows to examples


@pytest.mark.parametrize("max_len", [9, 13, 64])
def test_samples_are_well_formed_and_at_most_max_len_long(toy: Toy, max_len: int) -> None:
    task = dataclasses.replace(toy.task, max_len=max_len)
    for row in toy.rows(40):
        example = task.training_example(row, TOKENIZER)
        assert example.samples
        assert example.tokens == sum(sample.size for sample in example.samples)
        assert not example.empty
        for sample in example.samples:
            assert 2 < len(sample) <= max_len
            if sample.sound is None:
                assert sample.ids[0] == TOKENIZER.cls_id
                assert sample.ids[-1] == TOKENIZER.sep_id
            assert ((sample.ids >= 0) & (sample.ids < TOKENIZER.vocab_size)).all()
            assert sample.segments.shape == sample.ids.shape
            assert set(sample.segments.tolist()) <= {0, 1}
            assert sample.labels or sample.decoder_ids is not None


def test_the_answer_does_not_change_the_models_input(toy: Toy) -> None:
    for row in toy.rows(40):
        example = toy.task.example(unlabeled(toy, row), TOKENIZER)
        labeled = toy.task.training_example(row, TOKENIZER)
        assert plain(example) == plain(labeled, with_sound=toy.answer_column != getattr(toy.task, "audio", ""))
        assert example.cut == labeled.cut
        assert not any(sample.labels for sample in example.samples)


def test_rows_are_not_modified(toy: Toy) -> None:
    row = toy.rows(1)[0]
    before = copy.deepcopy(dict(row))
    toy.task.training_example(row, TOKENIZER)
    toy.task.target(row)
    assert row == before


def test_rows_are_labeled_if_any_has_an_answer(toy: Toy) -> None:
    row = toy.rows(1)[0]
    assert not is_labeled(toy.task, [unlabeled(toy, row)])
    assert not is_labeled(toy.task, [Row(row | {toy.answer_column: None})])
    assert is_labeled(toy.task, [unlabeled(toy, row), row])


def test_a_missing_column_is_reported_with_the_existing_ones(toy: Toy) -> None:
    row = toy.rows(1)[0]
    for column in toy.needs:
        without = Row({f"my_{key}" if key == column else key: cell for key, cell in row.items()})
        for make in (toy.task.example, toy.task.training_example):
            with pytest.raises(UserError, match=rf"there is no column '{column}'\..*my_{column}"):
                make(without, TOKENIZER)
    with pytest.raises(UserError, match=f"there is no column '{toy.answer_column}'"):
        toy.task.target(unlabeled(toy, row))
    with pytest.raises(UserError, match=f"there is no column '{toy.answer_column}'"):
        toy.task.training_example(unlabeled(toy, row), TOKENIZER)


def test_an_invalid_answer_is_quoted(toy: Toy) -> None:
    row = Row(toy.rows(1)[0] | {toy.answer_column: toy.invalid})
    with pytest.raises(UserError, match=f"'{toy.quoted}'"):
        toy.task.training_example(row, TOKENIZER)


@pytest.mark.parametrize("cell", CELLS, ids=repr)
def test_any_cell_gives_an_example_or_a_user_error(toy: Toy, cell: Any) -> None:
    for column in (*toy.needs, toy.answer_column):
        row = Row(toy.rows(1)[0] | {column: cell})
        for make in (toy.task.example, toy.task.training_example):
            try:
                assert make(row, TOKENIZER).samples
                toy.task.target(row)
            except UserError as error:
                assert str(error)


def test_labels_are_collected_from_the_rows_in_any_order(toy: Toy) -> None:
    unadapted = dataclasses.replace(toy.task, **toy.unadapted)
    rows = toy.rows(60)
    if not isinstance(unadapted, DerivesFromRows):
        assert unadapted == toy.task
        return
    assert isinstance(toy.task, DerivesFromRows)
    assert unadapted.adapted_to(rows) == unadapted.adapted_to(rows[::-1]) == toy.task
    assert toy.task.adapted_to(rows[:1]) == toy.task


def test_correct_answers_have_the_best_score_of_every_measure(toy: Toy) -> None:
    task = dataclasses.replace(toy.task, metrics=tuple(toy.task.known_metrics))
    rows = toy.rows(40)
    best = score_answers(task, rows, [toy.perfect(row) for row in rows])
    assert best == {name: pytest.approx(0 if name in LOWER_IS_BETTER else 1) for name in toy.task.known_metrics}


def test_rows_that_are_held_out_are_those_of_train_without_their_answers(toy: Toy) -> None:
    if toy.task.answer_fields == ("audio",):
        with pytest.raises(UserError, match=r"^folds: a model of the kind synthesize answers in sound"):
            FinetuneConfig(toy.task, folds=3)
        return
    FinetuneConfig(toy.task, folds=3)
    rows = toy.rows(30)
    assert Counter(assign_folds(toy.task, rows, 3, "", seed=0).tolist()).keys() == {1, 2, 3}
    examples = [toy.task.training_example(row, TOKENIZER) for row in rows]
    held = held_out(toy.task, Prepared("train", rows, examples, labeled=True), TOKENIZER)
    assert [plain(example) for example in held.examples] == [plain(toy.task.example(row, TOKENIZER)) for row in rows]
    assert not any(sample.labels for example in held.examples for sample in example.samples)


# --------------------------------------------------------------------------------------------- head, loss, answers


@pytest.fixture(scope="module")
def trained(toy: Toy) -> Trained:
    kind = toy.task.variant_name
    return trained_toy(kind) if kind in TOYS else train(toy)


@pytest.fixture(scope="module")
def fresh(toy: Toy) -> TrainingModel:
    model = TrainingModel(tiny_encoder(), toy.task)
    model.eval()
    return model


def test_the_loss_has_gradients_for_the_whole_head_and_the_encoder(toy: Toy, fresh: TrainingModel) -> None:
    fresh.clear_gradients()
    fresh.loss(packed_for(toy.task, labeled_samples(toy, toy.rows(30)))).total.backward()
    with_gradient = {key for key, p in fresh.named_parameters() if p.grad is not None and float(p.grad.abs().sum()) > 0}
    head = {key for key, _ in fresh.named_parameters() if key.startswith("head.")}
    assert bool(head) == toy.has_head
    assert head <= with_gradient
    assert {toy.trained_weight, "ernie.encoder.layers.0.v.weight"} <= with_gradient
    fresh.clear_gradients()


@pytest.mark.parametrize("with_settings", [False, True], ids=["plain", "with settings"])
def test_the_loss_of_a_batch_is_the_sum_of_its_parts(toy: Toy, with_settings: bool) -> None:
    if with_settings and not isinstance(toy.task, WeightedRows):
        pytest.skip("a kind whose loss has no settings")
    toy = toy.with_loss_settings() if with_settings else toy
    model = TrainingModel(tiny_encoder(), toy.task)
    model.eval()
    examples = prepare(toy.task, Split("train", toy.rows(12)), TOKENIZER).examples

    def loss(first: int, behind: int) -> Loss:
        samples = [sample for example in examples[first:behind] for sample in example.samples]
        return model.loss(packed_for(toy.task, samples))

    whole, parts = loss(0, 12), [loss(0, 5), loss(5, 10), loss(10, 12)]
    assert whole.count == sum(part.count for part in parts) >= len(examples)
    batch = pack([sample for example in examples for sample in example.samples])
    assert (batch.weights is None) == (not with_settings)
    assert whole.count == batch.targets  # by whose number the trainer divides
    assert float(whole.total) == pytest.approx(sum(float(part.total) for part in parts), rel=1e-4)


def test_the_loss_from_selected_tokens_equals_that_from_all_tokens(toy: Toy, fresh: TrainingModel) -> None:
    if not isinstance(toy.task, LogitsTask):
        pytest.skip("a kind without logits")
    batch = pack(labeled_samples(toy, toy.rows(12)))
    all_logits = toy.task.logits(fresh.head, fresh.ernie.encode_packed(batch, fresh.task_id), batch.layout)
    assert len(all_logits) == (batch.layout.tokens if toy.task.per_token else batch.layout.sequences)
    expected = float(toy.task.loss(all_logits, batch).total)
    assert float(fresh.loss(batch).total) == pytest.approx(expected, rel=1e-5)


def test_a_tiny_encoder_learns_it(toy: Toy, trained: Trained) -> None:
    losses = [evaluation.loss for evaluation in trained.evaluations]
    assert min(losses[1:]) < losses[0] / 2
    best = trained.evaluations[best_of(toy.task, trained.evaluations)].headline
    if toy.task.scored_by[0] in LOWER_IS_BETTER:
        assert best < (0.15 if toy.good_score is None else toy.good_score)
    else:
        assert best > 0.85


@pytest.mark.parametrize("task", [toy.task for toy in TOYS.values() if isinstance(toy.task, LogitsTask)])
def test_a_kind_of_ours_says_how_to_read_its_logits(task: LogitsTask) -> None:
    assert isinstance(task, ExportNotes)
    assert re.fullmatch(r"[A-Z][^\n]*[^.]\.", task.reading)


APPROXIMATE = "vector pair_vector cosine probability probabilities score value chance confidences".split()


def assert_alike(one: Any, other: Any, key: str) -> None:
    """Assert that parts of two answers are equal, but for the last digits of probabilities."""
    if isinstance(one, list) and one and isinstance(one[0], dict):
        assert [part.keys() for part in one] == [part.keys() for part in other]
        for mine, others in zip(one, other, strict=True):
            for name in mine:
                assert_alike(mine[name], others[name], name)
    elif key in (
        "vector",
        "pair_vector",
        "cosine",
        "probability",
        "probabilities",
        "score",
        "value",
        "chance",
        "confidences",
    ):
        assert one == pytest.approx(other, abs=1e-5)
    else:
        assert one == other


@pytest.mark.parametrize("budget", [1, 40, 100_000])
def test_predictions_do_not_depend_on_the_batch(toy: Toy, trained: Trained, budget: int) -> None:
    rows = [unlabeled(toy, row) for row in toy.rows(30, seed=2)]
    alone = [next(trained.model.predict([row])) for row in rows]
    together = list(trained.model.predict(rows, batch_tokens=budget))
    assert len(together) == len(rows)
    for single, batched in zip(alone, together, strict=True):
        assert single.keys() == batched.keys()
        for key in single:
            assert_alike(batched[key], single[key], key)


def test_predictions_are_json_data_and_the_prediction_itself_comes_first(toy: Toy, trained: Trained) -> None:
    rows = toy.rows(10, seed=3)
    for row, answer in zip(rows, trained.model.predict(rows), strict=True):
        assert json.loads(json.dumps(answer, allow_nan=False)) == answer
        assert next(iter(answer)) == next(iter(toy.perfect(row)))
        assert toy.task.prediction(answer) is not None


def test_rows_without_content_are_flagged_and_still_get_a_prediction(toy: Toy, trained: Trained) -> None:
    row = Row(unlabeled(toy, toy.rows(1)[0]) | toy.empty)
    example = toy.task.example(row, TOKENIZER)
    assert example.empty or example.warnings == ("sound that is silent",)
    (answer,) = trained.model.answers([example])
    assert answer.keys() >= toy.perfect(toy.rows(1)[0]).keys()


def test_a_head_of_weights_that_are_not_finite_raises_an_error(toy: Toy, trained: Trained) -> None:
    if not toy.has_head:
        pytest.skip("a kind whose head has no weights")
    model = copy.deepcopy(trained.model)
    for weight in model.head.parameters():
        weight.set_value(np.full(weight.shape, np.nan, np.float32))
    with pytest.raises(NotFinite, match="the model's outputs are not finite"):
        list(model.predict([unlabeled(toy, toy.rows(1, seed=2)[0])]))


SIZES: dict[str, tuple[str, dict[str, Any]]] = {
    "translate": ("translate", {"layers": 900}),
    "transcribe": ("transcribe", {"decoder": "global", "layers": 900}),
    "recurrent": ("transcribe", {"recurrent": {"layers": 900, "units": 9000}}),
    "synthesize": ("synthesize", {"voice": {"wavenet": {"stacks": 900, "channels": 9000}}}),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_head_far_larger_than_its_file_is_refused_before_it_is_made(name: str, tmp_path: Path) -> None:
    kind, sizes = SIZES[name]
    toy = TOYS[kind]
    model = TrainingModel(tiny_encoder(), toy.task)
    assert toy.task.least_weights(32) <= sum(int(each.size) for each in model.head.parameters())
    model.save(tmp_path)
    (tmp_path / "sha256.json").unlink()
    data = json.loads((tmp_path / "task.json").read_text())
    (tmp_path / "task.json").write_text(json.dumps({**data, "task": {**data["task"], **sizes}}))
    with pytest.raises(UserError, match=r"head\.safetensors: has [\d,]+ weights, and the sizes in task\.json are for"):
        TaskModel.load(tmp_path)


@pytest.mark.parametrize(
    ("config", "key"),
    [(Translate, "layers"), (Transcribe, "layers"), (RecurrentConfig, "layers"), (WaveNetConfig, "stacks")],
)
def test_a_million_layers_are_refused(config: Callable[..., Any], key: str) -> None:
    with pytest.raises(UserError, match=f"{key}: expected at most 1,000, found 1,000,000"):
        config(**{key: 10**6})


def test_predictions_are_the_same_after_saving_and_loading(toy: Toy, trained: Trained, tmp_path: Path) -> None:
    rows = toy.rows(20, seed=4)
    trained.model.save(tmp_path)
    again = TaskModel.load(tmp_path, precision="fp32")
    assert again.task == toy.task
    assert list(again.predict(rows)) == list(trained.model.predict(rows))


def test_an_ensemble_of_one_model_twice_answers_as_that_model_does(toy: Toy, trained: Trained, tmp_path: Path) -> None:
    model = trained.model
    if not isinstance(model.task, LogitsTask):
        with pytest.raises(UserError, match="has no logits, of which an ensemble is made"):
            check_members({"one": model, "other": model})
        return
    task, _ = check_members({"one": model, "other": model})
    Ensemble([model, model], task).save(tmp_path)
    again, rows = TaskModel.load(tmp_path, precision="fp32"), toy.rows(20, seed=4)
    assert isinstance(again, Ensemble) and again.task == toy.task
    for answer, single in zip(again.predict(rows), model.predict(rows), strict=True):
        assert answer.keys() == single.keys()
        for key, value in single.items():
            assert_alike(answer[key], value, key)


def test_a_temperature_makes_probabilities_less_sure_and_changes_no_decision(toy: Toy, trained: Trained) -> None:
    task, rows = trained.model.task, toy.rows(20, seed=4)
    if not isinstance(task, Calibrated):
        pytest.skip("a kind that decides among no classes")
    hotter = dataclasses.replace(task, temperature=4.0)
    examples = [task.example(row, TOKENIZER) for row in rows]
    logits = trained.model.logits(examples)
    own, changed = (list(each.answers_from(examples, logits)) for each in (task, hotter))
    assert own != changed
    logits_PC, targets_P = decisions_of(task, rows, examples, logits)
    assert np.mean(logits_PC.argmax(-1) == targets_P) >= 0.5
    assert softmax(logits_PC / 4).max(-1).mean() < softmax(logits_PC).max(-1).mean()
    if toy.task.variant_name == "rank":
        scores = [[each["score"] for each in answers] for answers in (own, changed)]  # type: ignore[call-overload]
        assert np.argsort(scores[0]).tolist() == np.argsort(scores[1]).tolist()
        return
    for one, other in zip(own, changed, strict=True):
        assert not isinstance(one, UserError) and not isinstance(other, UserError)
        assert np.array_equal(task.prediction(one), task.prediction(other))


def test_probabilities_of_decisions_are_drawn_beside_what_came_true(toy: Toy, trained: Trained) -> None:
    task, rows = trained.model.task, toy.rows(60, seed=4)
    if not isinstance(task, Calibrated):
        pytest.skip("a kind that decides among no classes")
    examples = [task.example(row, TOKENIZER) for row in rows]
    own = Logits(rows, examples, trained.model.logits(examples))
    probabilities_P, hits_P = judged_decisions(task, own)
    assert len(probabilities_P) == len(hits_P) >= len(rows)
    assert task.judges_positive or hits_P.mean() > 0.8
    assert probabilities_P[hits_P].mean() >= probabilities_P[~hits_P].mean() if not hits_P.all() else True
    twice = Logits(rows * 2, examples * 2, [*own.logits, *own.logits])
    trial = Trial("", 0, {"dev": {}}, 1, 1, 1.0, 1, [])
    (chapter,) = reliability_chapters(Result(task, [trial], "", trial), twice)
    assert f"probability {task.judged_in_words}: how often it came true on dev" in chapter.note


def test_training_continues_from_a_saved_head(toy: Toy, trained: Trained, tmp_path: Path) -> None:
    trained.model.save(tmp_path)
    rows = toy.rows(toy.train_rows, seed=0)
    train, dev = (prepare(toy.task, Split(name, rows[:20]), TOKENIZER) for name in ("train", "dev"))
    settings = TrainConfig(epochs=1, lr=LRScheduleConfig(peak=1e-12))
    more, _ = finetune(ErnieModel.from_pretrained(tmp_path), toy.task, train, dev, settings, head=tmp_path / HEAD_FILE)
    for name, weight in trained.model.head.named_parameters():
        np.testing.assert_allclose(dict(more.head.named_parameters())[name].numpy(), weight.numpy(), atol=1e-9)


def test_what_a_task_takes_from_its_rows_goes_with_a_kept_head(toy: Toy) -> None:
    defaults = {field.name: field for field in dataclasses.fields(toy.task)}
    bare: dict[str, Any] = {}
    for name in toy.task.head_fields:
        field = defaults[name]
        bare[name] = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    task = with_values_of(dataclasses.replace(toy.task, **bare), toy.task, toy.task.head_fields, "the head")
    assert task == toy.task
    assert not isinstance(task, DerivesFromRows) or task.adapted_to(toy.rows(10, seed=5)) == toy.task


# ------------------------------------------------------------------------------------------- settings of training

SETTINGS: dict[str, Any] = {
    "freeze": "embeddings",
    "ema": 0.5,
    "adversarial": AdversarialConfig(epsilon=1.0),
    "r_drop": 4.0,
    "adapt": AdapterConfig(rank=2, alpha=4),
    "grad_cache": True,
    "layer_decay": 0.5,
    "shortest_first": True,
}


def weights_after(toy: Toy, **settings: Any) -> dict[str, np.ndarray]:
    """The weights that are scored after four steps.  Raises UserError for settings that the kind refuses."""
    config = TrainConfig(epochs=2, batch=6, dropout=0.1, micro_batch_tokens=64, evaluations=0, **settings)
    FinetuneConfig(toy.task, train=config)
    rows = prepare(toy.task, Split("train", toy.rows(12)), TOKENIZER)
    training = Training(tiny_encoder(), toy.task, rows, rows, config, 0, Mesh(), None, None, None, 0)
    for number, step in training.remaining():
        training.step(number, step)
    with holding(training.full_model, training.averages(), training.full_model.adapter):
        return arrays(training.full_model)


@pytest.fixture(scope="module")
def plain_weights(toy: Toy) -> dict[str, np.ndarray]:
    return weights_after(toy)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_training_changes_the_weights_or_is_refused_by_its_name(
    toy: Toy, plain_weights: dict[str, np.ndarray], name: str
) -> None:
    try:
        found = weights_after(toy, **{name: SETTINGS[name]})
    except UserError as error:
        assert re.match(rf"train\.{name}: ", str(error))
        return
    assert any((found[key] != values).any() for key, values in plain_weights.items())


TOP_LEVEL: dict[str, Any] = {
    "folds": {"folds": 2},
    "keep": {"keep": "ensemble", "seeds": 2},
    "calibrate": {"calibrate": ("temperature",)},
    "teacher": {"teacher": TeacherConfig("somewhere")},
    "workers": {"workers": 2},
}


@pytest.mark.parametrize("name", TOP_LEVEL)
def test_a_kind_that_cannot_do_what_a_key_asks_for_says_so(toy: Toy, name: str) -> None:
    can = {
        "folds": toy.task.answer_fields != ("audio",),
        "keep": isinstance(toy.task, LogitsTask),
        "calibrate": isinstance(toy.task, Calibrated),
        "teacher": isinstance(toy.task, LogitsTask),
        "workers": isinstance(toy.task, ReadsSounds),
    }
    if can[name]:
        assert FinetuneConfig(toy.task, **TOP_LEVEL[name])
        return
    with pytest.raises(UserError, match=f"^{name}: a model of the kind {toy.task.variant_name} "):
        FinetuneConfig(toy.task, **TOP_LEVEL[name])


@pytest.mark.parametrize("name", [*LOSS_SETTINGS, "windows", "stride"])
def test_a_key_of_other_kinds_is_refused_by_its_name(toy: Toy, name: str) -> None:
    kind = toy.task.variant_name
    if hasattr(toy.task, name):
        return
    with pytest.raises(UserError, match=rf"\b{name}: "):
        build(Holder, from_dict({"task": {"kind": kind, name: 1}}))
