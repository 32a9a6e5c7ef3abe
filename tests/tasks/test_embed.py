"""The kind `embed`: sentence vectors from pairs, from scores, and from single texts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.toys import TOKENIZER, TOYS, tiny_encoder
from support.trained import train

import inference
from ernie.data.batch import pack
from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.errors import Remark, UserError
from ernie.model.ernie import ErnieModel
from finetune.check_config import described_example
from finetune.config import FinetuneConfig, TrainConfig
from finetune.prepare import prepare
from finetune.train.loop import finetune
from finetune.train.model import TrainingModel
from finetune.train.steps import planned_steps, split_steps
from inference.encoder import TextEncoder
from inference.task_model import TaskModel
from tasks.downstream.embed import Embed

PAIRS = Embed(max_len=16, temperature=0.1)
ROWS = [
    Row({"text": "red film", "text_pair": "a red film"}),
    Row({"text": "blue it", "text_pair": "it very blue"}),
    Row({"text": "green was", "text_pair": "the green"}),
]
# What each text is compared with, its own pair first.
COMPARED = [
    ["a red film", "it very blue", "the green"],
    ["it very blue", "a red film", "the green"],
    ["the green", "a red film", "it very blue"],
]


@pytest.fixture(scope="module")
def encoder() -> ErnieModel:
    return tiny_encoder()


def loss(encoder: ErnieModel, task: Embed, rows: list[Row]) -> float:
    """The loss that training computes for a micro-batch."""
    model = TrainingModel(encoder, task)
    model.eval()
    examples = prepare(task, Split("train", rows), TOKENIZER).examples
    return float(model.loss(pack([sample for example in examples for sample in example.samples])).total)


def unit(encoder: ErnieModel, text: str, width: int = 32, pooling: str = "mean") -> np.ndarray:
    """The vector of a text, from the encoder's vectors of its tokens."""
    (tokens,) = encoder.encode_tokens([text])
    found = (tokens.mean(0) if pooling == "mean" else tokens[0]).astype(np.float64)[:width]
    return found / np.linalg.norm(found)


def defined(encoder: ErnieModel, texts: list[str], compared: list[list[str]], **how: Any) -> float:
    """The sum over texts of -log softmax of the first of those that each is compared with."""
    total = 0.0
    for text, others in zip(texts, compared, strict=True):
        cosines = [unit(encoder, text, **how) @ unit(encoder, other, **how) / PAIRS.temperature for other in others]
        total += math.log(sum(map(math.exp, cosines))) - cosines[0]
    return total


def texts_of(rows: list[Row], column: str = "text") -> list[str]:
    return [row[column] for row in rows]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_pairs_of_other_rows_are_negatives(encoder: ErnieModel, pooling: Any) -> None:
    expected = defined(encoder, texts_of(ROWS), COMPARED, pooling=pooling)
    assert loss(encoder, replace(PAIRS, pooling=pooling), ROWS) == pytest.approx(expected, 1e-4)


def test_a_symmetric_loss_also_finds_the_text_by_its_pair(encoder: ErnieModel) -> None:
    texts = texts_of(ROWS)
    back = [[text, *(other for other in texts if other != text)] for text in texts]
    there = defined(encoder, texts, COMPARED)
    expected = (there + defined(encoder, texts_of(ROWS, "text_pair"), back)) / 2
    assert loss(encoder, replace(PAIRS, symmetric=True), ROWS) == pytest.approx(expected, 1e-4)


def test_negatives_of_any_row_are_negatives_of_all_rows(encoder: ErnieModel) -> None:
    wrong: list[Any] = [["film film", "paul"], "", "who"]
    rows = [Row({**row, "wrong": cell}) for row, cell in zip(ROWS, wrong, strict=True)]
    compared = [[*others, "film film", "paul", "who"] for others in COMPARED]
    expected = defined(encoder, texts_of(rows), compared)
    assert loss(encoder, replace(PAIRS, negatives="wrong"), rows) == pytest.approx(expected, 1e-4)


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_text_that_belongs_to_another_is_no_negative_of_it(encoder: ErnieModel, symmetric: bool) -> None:
    more = [Row({"text": "paul", "text_pair": "a red film"}), Row({"text": "red film", "text_pair": "anna"})]
    rows = [*ROWS[:2], *more]  # with a pair twice, and a text twice
    compared = [
        ["a red film", "it very blue"],
        ["it very blue", "a red film", "a red film", "anna"],
        ["a red film", "it very blue", "anna"],
        ["anna", "it very blue"],
    ]
    expected = defined(encoder, texts_of(rows), compared)
    if symmetric:
        back = [["red film", "blue it"], ["blue it", "red film", "paul", "red film"], ["paul", "blue it"]]
        back.append(["red film", "blue it", "paul"])
        expected = (expected + defined(encoder, texts_of(rows, "text_pair"), back)) / 2
    assert loss(encoder, replace(PAIRS, symmetric=symmetric), rows) == pytest.approx(expected, 1e-4)
    remarks = prepare(PAIRS, Split("train", rows), TOKENIZER).remarks
    assert any("1 row with the 'text_pair' of an earlier row" in remark for remark in remarks)


def test_the_loss_is_averaged_over_prefixes(encoder: ErnieModel) -> None:
    expected = sum(defined(encoder, texts_of(ROWS), COMPARED, width=width) for width in (32, 4)) / 2
    assert loss(encoder, replace(PAIRS, dimensions=(32, 4)), ROWS) == pytest.approx(expected, 1e-4)


def test_a_score_is_learned_as_the_cosine(encoder: ErnieModel) -> None:
    rows = [Row({**row, "score": score}) for row, score in zip(ROWS, (0, 2, 5), strict=True)]
    cosines = [unit(encoder, row["text"]) @ unit(encoder, row["text_pair"]) for row in rows]
    expected = sum((cosine - row["score"] / 5) ** 2 for cosine, row in zip(cosines, rows, strict=True))
    assert loss(encoder, Embed(max_len=16, score="score", limits=(0, 5)), rows) == pytest.approx(expected, 1e-4)


def test_a_single_text_has_itself_as_its_pair(encoder: ErnieModel) -> None:
    task, texts = replace(PAIRS, simcse=True), texts_of(ROWS)
    compared = [[text, *(other for other in texts if other != text)] for text in texts]
    rows = [Row({"text": text}) for text in texts]
    assert loss(encoder, task, rows) == pytest.approx(defined(encoder, texts, compared), 1e-4)
    with pytest.raises(UserError, match=r"simcse: compares passes that differ by dropout, and train\.dropout is 0"):
        FinetuneConfig(task, train=TrainConfig(dropout=0.0))
    train, dev = prepare(task, Split("train", rows), TOKENIZER), prepare(task, Split("dev", ROWS), TOKENIZER)
    with pytest.warns(Remark, match=r"task\.simcse compares passes .* give train\.dropout: 0\.1"):
        finetune(tiny_encoder(), task, train, dev, TrainConfig(epochs=1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"text_pair": ""}, "text_pair: expected the column"),
        ({"temperature": 0}, "temperature: expected a number above 0, found 0"),
        ({"limits": (0, 5)}, "limits: has no effect without"),
        ({"limits": (5, 0), "score": "score"}, "limits: expected a smaller and a larger"),
        ({"dimensions": (8, 8)}, "dimensions: expected different lengths"),
        ({"score": "score", "negatives": "wrong"}, "negatives: has no effect on cosines"),
        ({"simcse": True, "symmetric": True}, "symmetric: has no effect with `simcse`"),
        ({"simcse": True, "document_prompt": "film "}, "document_prompt: has no effect with `simcse`"),
        ({"metrics": ("spearman",)}, "metrics: spearman compares cosines with numbers"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Embed(**settings)


def test_what_does_not_fit_the_encoder_or_the_training_is_refused(encoder: ErnieModel) -> None:
    with pytest.raises(UserError, match=r"task\.dimensions: 64, but the vectors of tiny have 32 numbers"):
        replace(PAIRS, dimensions=(64, 8)).check_encoder(encoder, 0, "tiny")
    with pytest.raises(UserError, match=r"train\.task_id: 1, but a model of the kind embed"):
        PAIRS.check_encoder(encoder, 1, "tiny")
    with pytest.raises(UserError, match=r"train\.freeze: encoder leaves nothing to train"):
        FinetuneConfig(PAIRS, train=TrainConfig(freeze="encoder"))
    with pytest.raises(UserError, match=r"train\.r_drop: a model of the kind embed has no logits"):
        FinetuneConfig(PAIRS, train=TrainConfig(r_drop=1.0))


def test_a_faulty_row_is_an_error_before_training() -> None:
    task = replace(PAIRS, negatives="wrong")
    with pytest.raises(UserError, match=r"column 'wrong': 'a red film' is also the text of 'text_pair'"):
        task.training_example(Row({**ROWS[0], "wrong": ["paul", "a red film"]}), TOKENIZER)
    with pytest.raises(UserError, match=r"expected a score from -1 to 1, found 4; task\.limits says"):
        Embed(score="score").training_example(Row({**ROWS[0], "score": 4}), TOKENIZER)


def test_a_step_of_several_micro_batches_is_noted() -> None:
    examples = prepare(PAIRS, Split("train", ROWS), TOKENIZER).examples
    steps = planned_steps(examples, TrainConfig(), 0)
    tokens = sum(example.tokens for example in examples)
    enough, less = (TrainConfig(micro_batch_tokens=most) for most in (tokens, tokens - 1))
    assert split_steps(PAIRS, examples, steps, enough) == ""
    assert split_steps(PAIRS, examples, steps, replace(less, grad_cache=True)) == ""
    noted = split_steps(PAIRS, examples, steps, less)
    assert f"a step has up to {tokens} tokens, and {tokens - 1} are computed at a time" in noted
    assert split_steps(Embed(score="score"), examples, steps, less) == ""


def test_the_first_row_is_shown_with_its_target_once() -> None:
    shown = [*described_example(prepare(PAIRS, Split("train", ROWS), TOKENIZER), TOKENIZER, spoken=False)]
    assert [line.count("pair [[2.0, 0.0]]") for line in shown] == [0, 1, 0, 0, 0]


def test_pairs_are_learned_and_the_model_loads_as_an_encoder(tmp_path: Path) -> None:
    def pair(rng: np.random.Generator) -> dict[str, Any]:
        word = str(rng.choice(["anna", "paul", "paris", "london", "red", "blue"]))
        return {"text": f"q{rng.integers(3)} {word}", "text_pair": f"{word} {rng.choice(['was', 'film'])}"}

    found = train(replace(TOYS["embed"], task=PAIRS, write=pair, train_rows=96, dev_rows=12))
    assert found.evaluations[-1].loss < found.evaluations[0].loss / 2
    found.model.save(tmp_path)
    encoder = inference.load(tmp_path, precision="fp32")
    assert isinstance(encoder, TextEncoder)
    (answer,) = found.model.predict([Row({"text": "q0 anna", "text_pair": "anna was"})])
    vectors = encoder.encode(["q0 anna", "anna was"])
    np.testing.assert_allclose(vectors, [answer["vector"], answer["pair_vector"]], atol=2e-6)
    assert answer["cosine"] == pytest.approx(vectors[0] @ vectors[1], abs=2e-6)
    config = ErnieModel.from_pretrained(tmp_path).sentence_config
    assert config is not None
    assert (config.pooling, config.normalize, config.max_len) == (("mean",), True, 16)


def test_prompts_stand_before_texts_and_are_kept_with_the_model(encoder: ErnieModel, tmp_path: Path) -> None:
    task = replace(PAIRS, negatives="wrong", query_prompt="who ? ", document_prompt="film ")
    rows = [Row({**row, "wrong": "paul"}) for row in ROWS]
    texts = [f"who ? {text}" for text in texts_of(rows)]
    compared = [[f"film {other}" for other in [*others, "paul", "paul", "paul"]] for others in COMPARED]
    assert loss(encoder, task, rows) == pytest.approx(defined(encoder, texts, compared), 1e-4)
    model = TaskModel(tiny_encoder(), task)
    task.initialize(model.ernie, model.head)
    model.save(tmp_path)
    (answer,) = model.predict([rows[0]])
    loaded = inference.load(tmp_path, precision="fp32")
    assert isinstance(loaded, TextEncoder)
    for name, text, key in (("query", "red film", "vector"), ("document", "a red film", "pair_vector")):
        np.testing.assert_allclose(loaded.encode([text], prompt_name=name)[0], answer[key], atol=2e-6)
    assert task.example(Row({"text": " ", "text_pair": "red"}), TOKENIZER).empty


TAUGHT = [
    Row({**ROWS[0], "wrong": ["paul", "film film"], "scores": [3.0, -1.0, 2.5]}),
    Row({**ROWS[1], "wrong": "who", "scores": [1.0, 2.0]}),
]


@pytest.mark.parametrize("distillation", ["margin_mse", "kl"])
def test_the_scores_of_a_teacher_are_learned_from_each_row(encoder: ErnieModel, distillation: Any) -> None:
    task = replace(PAIRS, negatives="wrong", teacher_scores="scores", distillation=distillation)
    expected = 0.0
    for row in TAUGHT:
        wrong = row["wrong"] if isinstance(row["wrong"], list) else [row["wrong"]]
        text = unit(encoder, row["text"])
        own = np.array([text @ unit(encoder, other) for other in [row["text_pair"], *wrong]]) / PAIRS.temperature
        taught = np.array(row["scores"])
        if distillation == "margin_mse":
            expected += (((own[0] - own[1:]) - (taught[0] - taught[1:])) ** 2).sum()
        else:
            logs = [scores - math.log(np.exp(scores).sum()) for scores in (taught, own)]
            expected += (np.exp(logs[0]) * (logs[0] - logs[1])).sum()
    assert loss(encoder, task, TAUGHT) == pytest.approx(expected, 1e-4)
    assert not task.compares_rows


def test_scores_of_a_teacher_that_do_not_fit_are_refused() -> None:
    task = replace(PAIRS, negatives="wrong", teacher_scores="scores")
    for scores in ([1.0], [1.0, "high"], None, [1.0, float("nan")]):
        with pytest.raises(UserError, match=r"column 'scores': expected 2 numbers, for 'text_pair' and for each of"):
            task.training_example(Row({**TAUGHT[1], "scores": scores}), TOKENIZER)
    with pytest.raises(UserError, match="column 'wrong': expected at least one text, whose score is compared"):
        task.training_example(Row({**TAUGHT[1], "wrong": []}), TOKENIZER)
    with pytest.raises(UserError, match="teacher_scores: are those of the pair and of its `negatives`"):
        Embed(teacher_scores="scores")
    with pytest.raises(UserError, match="distillation: has no effect without the column `teacher_scores`"):
        Embed(distillation="kl")
    with pytest.raises(UserError, match="teacher_scores: are learned in place of anything else; leave out symmetric"):
        replace(task, symmetric=True)
