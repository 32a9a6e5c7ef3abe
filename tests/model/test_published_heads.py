"""Heads of fine-tuned models to other libraries' formats and back: the same answers, with the same labels."""

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
from support.checkpoints import SETTINGS, TASK, forward, weights, write_json, write_vocabulary
from support.helpers import numbered
from support.toys import TOYS, tiny_encoder

from ernie.cli import main
from ernie.errors import Remark, UserError
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.published.convert import convert
from inference.task_model import TaskModel
from tasks.downstream.base import Answer, FinetuneTask
from tasks.downstream.choose import Choose
from tasks.downstream.classify import Classify
from tasks.downstream.extract import Extract
from tasks.downstream.multilabel import MultiLabel
from tasks.downstream.rank import Rank
from tasks.downstream.regress import Regress
from tasks.downstream.saved import find_model
from tasks.downstream.tag import Tag, as_bio

SHAPE = EncoderConfig(40, 16, 2, 4, 24, max_positions=21, segments=3, task_vocab_size=5, layer_norm_epsilon=1e-5)
LABELS = ("good", "bad", "odd")
TASKS: dict[str, FinetuneTask] = {
    "classify": Classify(max_len=16, labels=LABELS, text="review", all_labels=True),
    "multilabel": MultiLabel(max_len=16, labels=LABELS, threshold=0.4, all_labels=True),
    "regress": Regress(max_len=16, scale=(7.5, 3.25), limits=(-90, 90)),
    "rank": Rank(max_len=16),
    "tag": Tag(max_len=16, labels=("O", "B-X", "I-X", "B-Y", "I-Y")),
    "extract": Extract(max_len=20, stride=2, max_question=4, max_answer=3),
    "choose": Choose(max_len=16),
}
CLASSES = {
    "classify": "BertForSequenceClassification",
    "multilabel": "BertForSequenceClassification",
    "regress": "BertForSequenceClassification",
    "rank": "BertForSequenceClassification",
    "tag": "BertForTokenClassification",
    "extract": "BertForQuestionAnswering",
    "choose": "BertForMultipleChoice",
}
ROWS: dict[str, Any] = {
    "classify": [{"review": "w7 w8 w9"}, {"review": "w12"}],
    "rank": [{"query": "w7", "text": "w8 w9"}, {"query": "w7", "text": "w10"}],
    "tag": [{"token": ["w7", "w8", "w9"]}, {"token": ["w12"]}],
    "extract": [{"question": "w7", "context": " ".join(f"w{i}" for i in range(8, 30))}],
    "choose": [{"text": "w7 w8", "choices": ["w9", "w10", "w11"]}],
}
kinds = pytest.mark.parametrize("kind", TASKS)


def finetuned(task: FinetuneTask, config: EncoderConfig = SHAPE, task_id: int = 3) -> TaskModel:
    """A fine-tuned model with random weights, large enough that their answers differ."""
    paddle.seed(1)
    ernie = ErnieModel(config)
    ernie.tokenizer = numbered(config.vocab_size)
    model = TaskModel(ernie, task, task_id if config.task_vocab_size else 0)
    for parameter in model.parameters():
        parameter.set_value(parameter + 0.4 * paddle.randn(parameter.shape))
    model.eval()
    return model


def answers(model: TaskModel | Path, kind: str) -> list[Answer]:
    loaded = TaskModel.load(model, precision="fp32") if isinstance(model, Path) else model
    return list(loaded.predict(ROWS.get(kind, [{"text": "w7 w8 w9"}, {"text": "w12"}])))


def same(found: Any, expected: Any) -> None:
    """Answers are equal, up to rounding of their numbers."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            same(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    else:
        assert found == expected


@pytest.mark.parametrize("to", ["hf", "paddlenlp", "ernie"])
@kinds
def test_a_converted_model_gives_the_same_answers(kind: str, to: Any, tmp_path: Path) -> None:
    model = finetuned(TASKS[kind])
    model.save(tmp_path / "run")
    certificate = convert(tmp_path / "run", tmp_path / "there", to, ErnieModel)
    told = "its threshold of 0.4 is this library's own: other libraries decide without it"
    assert certificate.passed and certificate.notes == ((told,) if kind == "multilabel" and to != "ernie" else ())
    assert all("logits" in check.differences for check in certificate.checks)
    expected = answers(model, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Remark)
        same(answers(tmp_path / "there", kind), expected)
    assert convert(tmp_path / "there", tmp_path / "back", "ernie", ErnieModel).passed
    same(answers(tmp_path / "back", kind), expected)
    read_back, given = TaskModel.load(tmp_path / "back", precision="fp32").task, model.task
    assert read_back == (replace(given, scale=(0.0, 1.0)) if kind == "regress" and to != "ernie" else given)


@kinds
def test_the_written_settings_name_the_class_and_the_labels(kind: str, tmp_path: Path) -> None:
    finetuned(TASKS[kind]).save(tmp_path / "run")
    convert(tmp_path / "run", tmp_path / "hf", "hf", ErnieModel)
    settings = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert settings["architectures"] == [CLASSES[kind]]
    labels = getattr(TASKS[kind], "labels", None)
    if labels:
        assert settings["id2label"] == {str(i): label for i, label in enumerate(labels)}
        assert settings["label2id"] == {label: i for i, label in enumerate(labels)}
    problems = {"multilabel": "multi_label_classification", "regress": "regression"}
    assert settings.get("problem_type") in (problems.get(kind), "single_label_classification", None)
    layer = "qa_outputs" if kind == "extract" else "classifier"
    shape = load_file(tmp_path / "hf" / "model.safetensors")[f"{layer}.weight"].shape
    assert shape == (len(labels) if labels else {"rank": 2, "extract": 2}.get(kind, 1), 16)


def test_a_regressors_scale_is_part_of_the_written_weights(tmp_path: Path) -> None:
    model = finetuned(TASKS["regress"], replace(SHAPE, task_vocab_size=0))
    model.save(tmp_path / "run")
    convert(tmp_path / "run", tmp_path / "hf", "hf", ErnieModel)
    written = load_file(tmp_path / "hf" / "model.safetensors")
    np.testing.assert_allclose(written["classifier.weight"], model.head.out.weight.numpy().T * 3.25, rtol=1e-6)
    np.testing.assert_allclose(written["classifier.bias"], model.head.out.bias.numpy() * 3.25 + 7.5, rtol=1e-6)


@pytest.mark.parametrize("kind", ["translate", "transcribe"])
def test_a_head_without_a_class_elsewhere_is_named_and_counted(kind: str, tmp_path: Path) -> None:
    model = TaskModel(tiny_encoder(), TOYS[kind].task)
    model.save(tmp_path / "run")
    certificate = convert(tmp_path / "run", tmp_path / "hf", "hf", ErnieModel)
    numbers = sum(value.size for value in load_file(tmp_path / "run" / "head.safetensors").values())
    assert f"its head of the kind {kind} ({numbers:,} numbers) is not written: the format hf" in certificate.notes[0]
    assert certificate.passed


def test_a_copy_in_our_own_format_keeps_a_head_of_any_kind(tmp_path: Path) -> None:
    model = TaskModel(tiny_encoder(), TOYS["translate"].task)
    model.save(tmp_path / "run")
    assert convert(tmp_path / "run", tmp_path / "copy", "ernie", ErnieModel).passed
    model.eval()
    rows = TOYS["translate"].rows(2)
    assert list(TaskModel.load(tmp_path / "copy", precision="fp32").predict(rows)) == list(model.predict(rows))


def test_a_finetuned_model_is_written_for_its_own_task_only(tmp_path: Path) -> None:
    finetuned(TASKS["classify"]).save(tmp_path / "run")
    with pytest.raises(UserError, match=r"--task 1: .*run is a fine-tuned model, which has learned with task 3"):
        convert(tmp_path / "run", tmp_path / "hf", "hf", ErnieModel, task=1)
    assert convert(tmp_path / "run", tmp_path / "hf", "hf", ErnieModel, task=3).passed
    with pytest.raises(UserError, match="--task 3: the model has no task embeddings"):
        convert(tmp_path / "hf", tmp_path / "again", "ernie", ErnieModel, task=3)


# ------------------------------------------------------------------------------- heads that other libraries trained


def published(folder: Path, head: dict[str, np.ndarray], format: str = "hf", **settings: Any) -> Path:
    """A published BERT with a head of its own."""
    folder.mkdir(exist_ok=True)
    kept = {name: value for name, value in weights().items() if not name.startswith("cls.") and name != TASK}
    made = {name.replace("ernie.", "bert."): value for name, value in kept.items()}
    given = {**SETTINGS, "model_type": "bert", "use_task_id": False, **settings}
    checkpoints.FORMATS[format](folder, {**made, **head}, {key: v for key, v in given.items() if v is not None})
    write_vocabulary(folder)
    return folder


def random_head(layer: str, outputs: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    values = {f"{layer}.weight": rng.normal(size=(outputs, 16)), f"{layer}.bias": rng.normal(size=outputs)}
    return {name: value.astype(np.float32) for name, value in values.items()}


def numpy_logits(
    ids: list[int], head: dict[str, np.ndarray], *, pooled: bool, pair: tuple[int, ...] = ()
) -> np.ndarray:
    """The logits of BERT in NumPy for one row: of the sequence, or of each token.  `pair` are the second text's ids."""
    second = [*pair, 3] if pair else []
    batch = {"input_ids": np.array([[2, *ids, 3, *second]])}
    segments = np.array([[0] * (len(ids) + 2) + [1] * len(second)])
    batch |= {"token_type_ids": segments, "attention_mask": 0 * batch["input_ids"] + 1}
    states = forward(weights(), {**SETTINGS, "use_task_id": False}, batch)
    matrix, bias = head.values()
    return (states[-2] if pooled else states[2])[0] @ matrix.T + bias


@pytest.mark.parametrize("format", ["hf", "hf .bin", "paddlenlp"])
def test_a_published_classifier_predicts_with_the_labels_of_its_settings(format: str, tmp_path: Path) -> None:
    head = random_head("classifier", 3)
    named = {"architectures": ["BertForSequenceClassification"], "id2label": dict(enumerate(LABELS))}
    model = TaskModel.load(published(tmp_path, head, format, **named), precision="fp32")
    (answer,) = model.predict(["w7 w8 w9"])
    logits = numpy_logits([7, 8, 9], head, pooled=True)
    assert answer["label"] == LABELS[int(logits.argmax())]
    assert answer["probability"] == pytest.approx(np.exp(logits).max() / np.exp(logits).sum(), abs=1e-5)


def test_older_settings_of_paddlenlp_name_the_class_around_the_encoder(tmp_path: Path) -> None:
    head = random_head("classifier", 3)
    published(tmp_path, head, "paddlenlp of old")
    settings = json.loads((tmp_path / "model_config.json").read_text())
    outer = {"init_class": "ErnieForSequenceClassification", "num_classes": 3}
    write_json(tmp_path / "model_config.json", {**settings, **outer})
    (answer,) = TaskModel.load(tmp_path, precision="fp32").predict(["w7 w8 w9"])
    assert answer["label"] == f"LABEL_{int(numpy_logits([7, 8, 9], head, pooled=True).argmax())}"


@pytest.mark.parametrize(
    "named",
    [
        {"id2label": ["good", "bad", "odd"]},
        {"label2id": {"odd": 2, "good": 0, "bad": 1}},
        {"label2id": {"odd": "2", "good": "0", "bad": "1"}, "id2label": {}},
        {"id2label": {"2": "odd", "0": "good", "1": "bad"}, "label2id": {"x": 0, "y": 1, "z": 2}},
    ],
)
def test_labels_are_read_in_every_form_of_the_settings(named: dict[str, Any], tmp_path: Path) -> None:
    head = random_head("classifier", 3)
    settings = {"architectures": ["BertForSequenceClassification"], "num_labels": 3, **named}
    (answer,) = TaskModel.load(published(tmp_path, head, **settings), precision="fp32").predict(["w7 w8"])
    assert answer["label"] == LABELS[int(numpy_logits([7, 8], head, pooled=True).argmax())]


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"id2label": {"0": "a", "1": "b"}}, "classify"),
        ({}, "classify"),
        ({"id2label": {"0": "a", "1": "b"}, "problem_type": "multi_label_classification"}, "multilabel"),
        ({"id2label": {"0": "LABEL_0"}}, "regress"),
        ({"num_labels": 1}, "regress"),
        ({"id2label": {"0": "LABEL_0"}, "problem_type": "regression"}, "regress"),
    ],
)
def test_the_kind_follows_from_the_settings(settings: dict[str, Any], kind: str, tmp_path: Path) -> None:
    outputs = 1 if kind == "regress" else 2
    head = random_head("classifier", outputs)
    given = {"architectures": ["BertForSequenceClassification"], **settings}
    model = TaskModel.load(published(tmp_path, head, **given), precision="fp32")
    assert model.task.variant_name == kind
    (answer,) = model.predict(["w7 w8"])
    logits = numpy_logits([7, 8], head, pooled=True)
    labels = list(settings.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"}).values())
    expected: dict[str, Any] = {
        "classify": {"label": labels[int(logits.argmax())]},
        "multilabel": {"labels": [label for label, logit in zip(labels, logits, strict=False) if logit >= 0]},
        "regress": {"value": pytest.approx(float(logits[0]), abs=1e-4)},
    }
    assert expected[kind].items() <= answer.items()


@pytest.mark.parametrize("said", [512, None])
def test_texts_are_cut_to_the_positions_of_the_weights(said: int | None, tmp_path: Path) -> None:
    named = {"architectures": ["BertForSequenceClassification"], "max_position_embeddings": said}
    published(tmp_path / "source", random_head("classifier", 2), **named)
    assert convert(tmp_path / "source", tmp_path / "ours", "ernie", ErnieModel).passed
    for folder in ("source", "ours"):
        model = TaskModel.load(tmp_path / folder, precision="fp32")
        assert model.task.max_len == 21
        with pytest.warns(Remark, match="is longer than max_len 21 and was truncated"):
            (cut, fits) = model.predict(["w7 " * 40, "w7 " * 19])
        assert cut == fits


def test_a_published_tagger_predicts_bio_tags_and_entities(tmp_path: Path) -> None:
    head = random_head("classifier", 3)
    named = {"architectures": ["BertForTokenClassification"], "id2label": {"0": "O", "1": "B-LOC", "2": "I-LOC"}}
    model = TaskModel.load(published(tmp_path, head, **named), precision="fp32")
    words = ["w7", "w8", "w9", "w10"]
    (answer,) = model.predict([{"token": words}])
    best = numpy_logits([7, 8, 9, 10], head, pooled=False)[1:-1].argmax(-1)
    kinds_found = ["" if i == 0 else "LOC" for i in best]
    assert [tag[2:] for tag in answer["tags"]] == kinds_found


def test_a_published_tagger_of_another_scheme_predicts_entities_too(tmp_path: Path) -> None:
    names = {"0": "S-LOC", "1": "B-LOC", "2": "E-LOC", "3": "M-LOC"}
    head = random_head("classifier", 4)
    folder = published(tmp_path, head, architectures=["BertForTokenClassification"], id2label=names)
    (answer,) = TaskModel.load(folder, precision="fp32").predict([{"token": ["w7", "w8", "w9", "w10"]}])
    best = numpy_logits([7, 8, 9, 10], head, pooled=False)[1:-1].argmax(-1)
    assert answer["tags"] == as_bio([names[str(i)] for i in best])
    assert answer["entities"]


def test_a_published_reader_answers_questions(tmp_path: Path) -> None:
    folder = published(tmp_path, random_head("qa_outputs", 2), architectures=["BertForQuestionAnswering"])
    (answer,) = TaskModel.load(folder, precision="fp32").predict([{"question": "w7", "context": "w8 w9 w10"}])
    assert answer["answer"] in "w8 w9 w10"


def test_converting_a_published_classifier_gives_a_model_of_ours(tmp_path: Path) -> None:
    named = {"architectures": ["BertForSequenceClassification"], "id2label": dict(enumerate(LABELS))}
    source = published(tmp_path / "source", random_head("classifier", 3), **named)
    assert main(["convert", str(source), str(tmp_path / "ours"), "--to", "ernie"]) == 0
    rows = ["w7 w8", "w30"]
    found, expected = (
        list(TaskModel.load(tmp_path / name, precision="fp32").predict(rows)) for name in ("ours", "source")
    )
    assert found == expected


def test_the_command_predicts_with_a_published_classifier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = {"architectures": ["BertForSequenceClassification"], "id2label": dict(enumerate(LABELS))}
    folder = published(tmp_path / "source", random_head("classifier", 3), **named)
    (tmp_path / "rows.jsonl").write_text('{"text": "w7 w8"}\n')
    assert main(["predict", str(folder), "--input", str(tmp_path / "rows.jsonl")]) == 0
    assert json.loads(capsys.readouterr().out)["label"] in LABELS


def test_an_encoder_loaded_from_a_classifier_says_that_its_head_is_left(tmp_path: Path) -> None:
    folder = published(tmp_path, random_head("classifier", 2), architectures=["BertForSequenceClassification"])
    with pytest.warns(Remark, match=r"its head \(classifier.weight, classifier.bias\) is no part of the encoder"):
        ErnieModel.from_pretrained(folder)


def test_a_head_that_cannot_be_read_is_reported_as_unused(tmp_path: Path) -> None:
    head = random_head("cls.seq_relationship", 2)
    folder = published(tmp_path, head, architectures=["BertForNextSentencePrediction"])
    with pytest.warns(Remark, match=r"there is no place for cls\.seq_relationship\.bias"):
        ErnieModel.from_pretrained(folder)
    with pytest.raises(UserError, match="is a model of the class BertForNextSentencePrediction, which has no head of"):
        TaskModel.load(folder, precision="fp32")


def test_settings_without_a_class_say_how_to_name_it(tmp_path: Path) -> None:
    folder = published(tmp_path, random_head("classifier", 2))
    with pytest.raises(UserError, match=r"name no class .* as in \"architectures\": \[\"BertForSequenceClass"):
        TaskModel.load(folder, precision="fp32")


def test_a_folder_of_models_names_them(tmp_path: Path) -> None:
    for name in ("checkpoint-500", "checkpoint-1000"):
        published(tmp_path / name, random_head("classifier", 2), architectures=["BertForSequenceClassification"])
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{}")
    for load in (TaskModel.load, ErnieModel.from_pretrained):
        with pytest.raises(UserError, match=r"did you mean a folder in it: checkpoint-500, checkpoint-1000\?"):
            load(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id2label": {"0": "a", "2": "b"}}, "id2label: expected a label for each of the numbers 0 to 1"),
        ({"num_labels": "many"}, "num_labels: expected the number of labels, found 'many'"),
        ({"finetune_task": {"kind": "classify", "color": 3}}, "color"),
    ],
)
def test_wrong_settings_of_a_head_raise_a_user_error(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    given = {"architectures": ["BertForSequenceClassification"], **settings}
    folder = published(tmp_path, random_head("classifier", 2), **given)
    with pytest.raises(UserError, match=message):
        TaskModel.load(folder, precision="fp32")


def test_a_sequence_head_without_its_pooler_is_refused(tmp_path: Path) -> None:
    folder = published(tmp_path, random_head("classifier", 2), architectures=["BertForSequenceClassification"])
    kept = load_file(folder / "model.safetensors")
    save_file({name: value for name, value in kept.items() if "pooler" not in name}, folder / "model.safetensors")
    with pytest.raises(UserError, match="lacks the pooler, which a head of the kind classify reads"):
        TaskModel.load(folder, precision="fp32")


def test_settings_of_a_stranger_import_no_code(tmp_path: Path) -> None:
    own = {"kind": "classify", "module": "antigravity"}
    given = {"architectures": ["BertForSequenceClassification"], "finetune_task": own}
    folder = published(tmp_path, random_head("classifier", 2), **given)
    with pytest.raises(UserError, match="module"):
        TaskModel.load(folder, precision="fp32")
    write_json(folder / "config.json", {**json.loads((folder / "config.json").read_text()), "finetune_task": 3})
    assert TaskModel.load(folder, precision="fp32").task.variant_name == "classify"


@pytest.mark.parametrize(
    ("outputs", "settings", "why"),
    [
        (3, {"problem_type": "regression"}, "it has 3 outputs, and a model of the kind regress has 1"),
        (3, {"id2label": {"0": "a", "1": "b"}}, "it has 3 outputs, and the settings name 2 labels; write the right"),
        (3, {}, "it has 3 outputs, and the settings name 2 labels; write the right id2label there"),
        (3, {"id2label": {"0": "a", "1": "b", "2": "a"}}, "the label 'a' stands twice; give each another name"),
        (2, {"id2label": {"0": "\x1b[2J\na", "1": "\x1b[2J\na"}}, "the label '\\x1b[2J a' stands twice"),
        (1, {"id2label": {"0": "a"}, "problem_type": "single_label_classification"}, "it has one output, and a model"),
        (3, {"architectures": ["BertForMultipleChoice"]}, "it has 3 outputs, and a model of the kind choose has 1"),
    ],
)
def test_a_head_that_fits_no_kind_is_named_and_its_encoder_converted(
    outputs: int, settings: dict[str, Any], why: str, tmp_path: Path
) -> None:
    given = {"architectures": ["BertForSequenceClassification"], **settings}
    source = published(tmp_path / "source", random_head("classifier", outputs), **given)
    with pytest.raises(
        UserError, match=r"source/(config\.json|model\.safetensors): (labels|its head cannot be used): "
    ):
        TaskModel.load(source, precision="fp32")
    certificate = convert(source, tmp_path / "ours", "ernie", ErnieModel)
    assert certificate.passed and any(f"is left out: {why}" in note for note in certificate.notes)
    assert find_model(tmp_path / "ours") is None
    ErnieModel.from_pretrained(tmp_path / "ours")


def test_a_published_model_may_have_a_single_label_of_its_own(tmp_path: Path) -> None:
    head = random_head("classifier", 1)
    named = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "toxic"}}
    source = published(tmp_path / "source", head, problem_type="multi_label_classification", **named)
    assert convert(source, tmp_path / "ours", "ernie", ErnieModel).passed
    (logit,) = numpy_logits([7, 8, 9], head, pooled=True)
    for folder in (source, tmp_path / "ours"):
        (answer,) = TaskModel.load(folder, precision="fp32").predict(["w7 w8 w9"])
        assert answer["labels"] == (["toxic"] if logit >= 0 else [])


class TestColumns:
    """Another library's settings do not say which columns a model reads, nor whether it reads pairs."""

    ROWS = "premise\thypothesis\tgold\nw7 w8\tw9\tgood\nw12\tw13 w14\tbad\n"
    OPTIONS = (
        *("--set", "task.text=premise"),
        *("--set", "task.text_pair=hypothesis"),
        *("--set", "task.label=gold"),
    )

    @pytest.fixture
    def head(self) -> dict[str, np.ndarray]:
        return random_head("classifier", 3)

    @pytest.fixture(params=["source", "ours"])
    def folder(self, request: pytest.FixtureRequest, head: dict[str, np.ndarray], tmp_path: Path) -> Path:
        named = {"architectures": ["BertForSequenceClassification"], "id2label": dict(enumerate(LABELS))}
        published(tmp_path / "source", head, **named)
        if request.param == "ours":
            convert(tmp_path / "source", tmp_path / "ours", "ernie", ErnieModel)
        (tmp_path / "rows.tsv").write_text(self.ROWS)
        return tmp_path / request.param

    def expected(self, head: dict[str, np.ndarray]) -> list[str]:
        pairs = (([7, 8], (9,)), ([12], (13, 14)))
        return [LABELS[int(numpy_logits(ids, head, pooled=True, pair=pair).argmax())] for ids, pair in pairs]

    def test_predict_and_evaluate_take_their_names(
        self, folder: Path, head: dict[str, np.ndarray], capsys: pytest.CaptureFixture[str]
    ) -> None:
        rows = str(folder.parent / "rows.tsv")
        assert main(["predict", str(folder), "--input", rows, *self.OPTIONS]) == 0
        answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [answer["label"] for answer in answers] == self.expected(head)
        assert main(["evaluate", str(folder), "--input", rows, "--quiet", *self.OPTIONS]) == 0
        right = sum(map(str.__eq__, self.expected(head), ("good", "bad")))
        assert json.loads(capsys.readouterr().out) == {"rows": 2, "accuracy": right / 2}

    def test_a_loaded_model_takes_their_names(self, folder: Path, head: dict[str, np.ndarray]) -> None:
        model = TaskModel.load(folder, precision="fp32")
        model.change_decoding(text="a", text_pair="b")
        rows = [{"a": "w7 w8", "b": "w9"}, {"a": "w12", "b": "w13 w14"}]
        assert [answer["label"] for answer in model.predict(rows)] == self.expected(head)

    def test_a_model_without_a_run_has_no_rows_of_its_own(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["evaluate", str(folder)]) == 2
        assert "is not the folder of a finished fine-tuning run; --input gives" in capsys.readouterr().err
