"""Fine-tuning a classifier."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from helpers import vocabulary

from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.train.settings import RateConfig
from finetune.loop import FinetuneSettings, batches, finetune, shuffled
from tasks.downstream.classify import Classify

TOKENIZER = vocabulary("good fine bad poor it was very the film")
TASK = Classify(labels=("no", "yes"), max_len=16)
SETTINGS = FinetuneSettings(epochs=6, tokens=128, rate=RateConfig(peak=5e-3))


def rows(count: int, seed: int) -> list[dict[str, str]]:
    """Rows whose answer is told by one word among others."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        label = int(rng.integers(2))
        word = rng.choice([["bad", "poor"], ["good", "fine"]][label])
        words = [*rng.choice(["it", "was", "very", "the", "film"], 4), word]
        found.append({"text": " ".join(rng.permutation(words)), "label": TASK.labels[label]})
    return found


def encoder() -> ErnieModel:
    paddle.seed(1)
    return ErnieModel(
        EncoderConfig(
            vocab_size=TOKENIZER.vocab_size, hidden_size=32, layers=1, heads=2, intermediate_size=64, max_positions=16
        )
    )


def test_it_learns_what_one_word_tells() -> None:
    _, scores = finetune(encoder(), TOKENIZER, TASK, rows(200, 0), rows(100, 1), SETTINGS)
    assert len(scores) == SETTINGS.epochs
    assert scores[-1].value > 0.95 > 0.7 > scores[-1].majority


def test_the_same_seed_gives_the_same_scores() -> None:
    first, second = (
        [score.value for score in finetune(encoder(), TOKENIZER, TASK, rows(40, 0), rows(40, 1), SETTINGS)[1]]
        for _ in range(2)
    )
    assert first == second


def test_predictions_keep_the_order_of_the_rows() -> None:
    model, _ = finetune(encoder(), TOKENIZER, TASK, rows(200, 0), rows(20, 1), SETTINGS)
    asked = rows(30, 2)
    model.eval()
    answers = []
    for batch in batches([TASK.sample(row, TOKENIZER) for row in asked], 64):
        answers += TASK.predict(model.loss(batch).logits.numpy())
    right = sum(answer == row["label"] for answer, row in zip(answers, asked, strict=True))
    assert right >= 28


def test_every_sample_is_in_exactly_one_batch_of_an_epoch() -> None:
    samples = [TASK.sample(row, TOKENIZER) for row in rows(50, 0)]
    for epoch in range(2):
        assert sum(batch.layout.sequences for batch in shuffled(samples, SETTINGS, epoch)) == 50
    assert sum(batch.layout.sequences for batch in batches(samples, 64)) == 50


def test_a_pair_is_one_sample_of_two_segments() -> None:
    task = Classify(labels=("no", "yes"), text="a", text_pair="b", max_len=16)
    sample = task.sample({"a": "good film", "b": "bad film", "label": "yes"}, TOKENIZER)
    assert sample.segments.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert sample.labels == {"label": 1}


def test_a_long_text_is_cut_to_max_len() -> None:
    assert len(TASK.sample({"text": "good " * 100}, TOKENIZER)) == 16


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"text": "good", "label": "yep"}, "label 'yep' is not one of no, yes"),
        ({"txt": "good", "label": "yes"}, "there is no column 'text'. Did you mean 'txt'?"),
    ],
)
def test_a_row_that_cannot_be_read_is_a_sentence(row: dict[str, str], expected: str) -> None:
    with pytest.raises(UserError, match=expected.replace("?", r"\?")):
        TASK.sample(row, TOKENIZER)


def test_labels_must_differ() -> None:
    with pytest.raises(UserError, match="at least two different"):
        Classify(labels=("a", "a"))
