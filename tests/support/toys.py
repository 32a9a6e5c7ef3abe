"""A small task of each kind that a tiny encoder can learn, for the contract tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import paddle
from support.helpers import vocabulary

from ernie.audio.features import FeatureConfig
from ernie.audio.voice import VoiceConfig, WaveNetConfig
from ernie.data.batch import Packed, pack
from ernie.data.document import Sample
from ernie.data.labeled.row import Row
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from tasks.downstream.base import Answer, FinetuneTask, TextTask
from tasks.downstream.choose import Choose
from tasks.downstream.classify import Classify
from tasks.downstream.embed import Embed
from tasks.downstream.extract import Extract
from tasks.downstream.hooks import ReadsSounds
from tasks.downstream.multilabel import MultiLabel
from tasks.downstream.rank import Rank
from tasks.downstream.regress import Regress
from tasks.downstream.synthesize import Synthesize
from tasks.downstream.tag import Tag
from tasks.downstream.transcribe import Transcribe
from tasks.downstream.translate import Translate

COLORS = ("blue", "green", "red")
GERMAN = {"blue": "blau", "green": "gruen", "red": "rot"}
FILLERS = "a film it the very was".split()
GRADES = {"poor": 0.0, "fair": 1.5, "great": 3.0}
PEOPLE, PLACES = ("anna", "paul"), ("paris", "london")
TOKENIZER = vocabulary(
    " ".join([*COLORS, *FILLERS, *GRADES, *PEOPLE, *PLACES, "q0 q1 q2 new who ? .", *GERMAN.values()])
)

Write = Callable[[np.random.Generator], dict[str, Any]]


@dataclass(frozen=True)
class Toy:
    """A task with a generator of its rows and what the tests need to know about them.

    `write` returns the cells of a random row, `perfect` the correct answer for a row.  `invalid` is a cell that the
    answer column must reject with a message that quotes `quoted`.  `needs` are the input columns, `empty` cells
    without a token, `unadapted` the task's fields before it adapts to its rows, `train_rows` how many rows suffice to
    learn it, `dev_rows` how many it is scored on after each epoch, `trained_weight` the embedding matrix that it
    trains, `good_score` the score to reach where that is not 0.15 from the best, and `has_head` whether its head
    has weights.
    """

    task: FinetuneTask
    write: Write
    perfect: Callable[[Row], Answer]
    invalid: Any
    quoted: str
    needs: tuple[str, ...] = ("text",)
    empty: dict[str, Any] = field(default_factory=lambda: {"text": " \u200b"})
    unadapted: dict[str, Any] = field(default_factory=dict)
    train_rows: int = 160
    dev_rows: int = 40
    trained_weight: str = "ernie.embedding.token.weight"
    good_score: float | None = None
    has_head: bool = True

    @property
    def answer_column(self) -> str:
        """The column with the correct answer."""
        return getattr(self.task, self.task.answer_fields[0])

    def rows(self, count: int, seed: int = 0) -> list[Row]:
        rng = np.random.default_rng(seed)
        return [Row(self.write(rng)) for _ in range(count)]

    def with_loss_settings(self) -> Toy:
        """Return the toy with all settings of the loss that the task has; the rows have weights."""
        given = {"row_weight": "weight", "label_smoothing": 0.2, "focal_gamma": 1.5, "class_weights": "balanced"}
        settings: dict[str, Any] = {name: value for name, value in given.items() if hasattr(self.task, name)}
        weighted = replace(self, write=lambda rng: self.write(rng) | {"weight": int(rng.integers(9)) / 4})
        task: Any = replace(self.task, **settings)
        return replace(weighted, task=task.adapted_to(weighted.rows(60)))


def _words(rng: np.random.Generator, *keywords: str, most: int = 6) -> list[str]:
    words = [*rng.choice(FILLERS, rng.integers(1, most + 1)), *keywords]
    return [str(word) for word in rng.permutation(words)]


def _classify(rng: np.random.Generator) -> dict[str, Any]:
    label = int(rng.integers(2))
    return {"text": " ".join(_words(rng, COLORS[label])), "label": COLORS[label]}


def _multilabel(rng: np.random.Generator) -> dict[str, Any]:
    chosen = [color for color in COLORS if rng.random() < 0.5]
    return {"text": " ".join(_words(rng, *chosen)), "label": ", ".join(chosen)}


def _regress(rng: np.random.Generator) -> dict[str, Any]:
    word = str(rng.choice(list(GRADES)))
    return {"text": " ".join(_words(rng, word)), "label": GRADES[word]}


def _embed(rng: np.random.Generator) -> dict[str, Any]:
    one, other = (str(rng.choice(list(GRADES))) for _ in range(2))
    texts = {"text": " ".join(_words(rng, one, most=3)), "text_pair": " ".join(_words(rng, other, most=3))}
    return {**texts, "score": 3 - abs(GRADES[one] - GRADES[other])}


def vectors(row: Row) -> Answer:
    """Vectors of a row's texts whose cosine is the row's score, from 0 to 3."""
    noise = np.random.default_rng([*json.dumps(row).encode()])
    (one, other), cosine = np.linalg.qr(noise.normal(size=(16, 2)))[0].T, row["score"] / 3
    return {"vector": one.tolist(), "pair_vector": (cosine * one + (1 - cosine**2) ** 0.5 * other).tolist()}


def _rank(rng: np.random.Generator) -> dict[str, Any]:
    relevant = int(rng.random() < 0.4)
    text = " ".join(_words(rng, "great" if relevant else "poor"))
    return {"query": f"q{rng.integers(3)} {rng.choice(FILLERS)}", "text": text, "label": str(relevant)}


def _choose(rng: np.random.Generator) -> dict[str, Any]:
    count = int(rng.integers(2, 5))
    correct = int(rng.integers(count))
    choices = [" ".join(_words(rng, "great" if i == correct else "poor", most=2)) for i in range(count)]
    return {"text": " ".join(_words(rng)), "choices": choices, "label": correct}


def _tag(rng: np.random.Generator) -> dict[str, Any]:
    person, place = str(rng.choice(PEOPLE)), str(rng.choice(PLACES))
    parts = [(person, "B-PER"), ("new", "B-LOC"), (place, "I-LOC"), *((word, "O") for word in _words(rng))]
    parts = parts[1:] if rng.random() < 0.3 else parts
    return {"token": [word for word, _ in parts], "tag": [tag for _, tag in parts]}


def _extract(rng: np.random.Generator) -> dict[str, Any]:
    answer = str(rng.choice([*PEOPLE, *PLACES]))
    context = " ".join(_words(rng, answer, most=14))
    answers = {"text": [answer], "answer_start": [f" {context} ".index(f" {answer} ")]}
    return {"question": "who was it ?", "context": context, "answers": answers}


def _translate(rng: np.random.Generator) -> dict[str, Any]:
    colors = [str(color) for color in rng.choice(COLORS, rng.integers(1, 6))]
    return {"source": " ".join(colors), "target": " ".join(GERMAN[color] for color in colors)}


def _transcribe(rng: np.random.Generator) -> dict[str, Any]:
    spoken = [str(color) for color in rng.choice(COLORS, 3, replace=False)]
    return {"audio": tones(spoken, rng), "text": " ".join(spoken)}


def tones(colors: Sequence[str], rng: np.random.Generator, samples: int = 800) -> dict[str, Any]:
    """A tone per color, each at its own frequency, with some noise."""
    time = np.arange(samples) / 8000
    waves = [np.sin(2 * np.pi * 500 * (1 + 2 * COLORS.index(color)) * time) for color in colors]
    sound = np.concatenate([0.3 * wave * np.hanning(samples) for wave in waves])
    return {"array": (sound + rng.normal(0, 0.01, len(sound))).round(4).tolist(), "sampling_rate": 8000}


def _synthesize(rng: np.random.Generator) -> dict[str, Any]:
    spoken = [str(color) for color in rng.choice(COLORS, 2, replace=False)]
    return {"text": " ".join(spoken), "audio": tones(spoken, rng, samples=400)}


# Twenty frames for a sound of a tenth of a second, and a network with a receptive field of four samples.
VOICE = VoiceConfig(
    reduction=2,
    conditioner=12,
    wavenet=WaveNetConfig(channels=16, stacks=1, depth=4),
    flows=2,
    flow=WaveNetConfig(channels=6, stacks=1, depth=2),
)
SYNTHESIZE = Synthesize(
    max_len=9, features=FeatureConfig(window=0.01, hop=0.005, bins=20), voice=VOICE, crop=0.05, input_noise_std=0.3
)


TOYS = {
    "choose": Toy(
        Choose(max_len=16, first=1),
        lambda rng: (row := _choose(rng)) | {"label": row["label"] + 1},
        lambda row: {"choice": row["label"]},
        invalid=9,
        quoted="9",
        needs=("text", "choices"),
        empty={"choices": ["great", "\u200b"]},
    ),
    "classify": Toy(
        Classify(max_len=16, labels=COLORS[:2], metrics=("accuracy", "macro_f1", "matthews")),
        _classify,
        lambda row: {"label": row["label"]},
        invalid="pink",
        quoted="pink",
        unadapted={"labels": ()},
    ),
    "embed": Toy(
        Embed(max_len=16, score="score", limits=(0.0, 3.0), dimensions=(32, 8)),
        _embed,
        vectors,
        invalid="much",
        quoted="much",
        needs=("text", "text_pair"),
        has_head=False,
    ),
    "extract": Toy(
        Extract(max_len=16, stride=2, max_question=3, max_answer=3),
        _extract,
        lambda row: {"answer": row["answers"]["text"][0]},
        invalid={"text": ["nowhere"], "answer_start": [0]},
        quoted="nowhere",
        needs=("question", "context"),
        empty={"context": " \u200b"},
    ),
    "multilabel": Toy(
        MultiLabel(max_len=16, labels=COLORS),
        _multilabel,
        lambda row: {"labels": [label for label in row["label"].split(", ") if label]},
        invalid="red, pink",
        quoted="pink",
        unadapted={"labels": ()},
    ),
    "rank": Toy(
        Rank(max_len=16),
        _rank,
        lambda row: {"score": float(row["label"])},
        invalid="2",
        quoted="2",
        needs=("query", "text"),
    ),
    "regress": Toy(
        Regress(max_len=16, limits=(0.0, 3.0), metrics=("pearson", "spearman", "mean_squared_error")),
        _regress,
        lambda row: {"value": row["label"]},
        invalid="much",
        quoted="much",
        unadapted={"scale": None},
    ),
    "synthesize": Toy(
        SYNTHESIZE,  # adapted to its rows below
        _synthesize,
        lambda row: {"audio": row["audio"]},
        invalid={"array": "x", "sampling_rate": 8000},
        quoted="audio",
        unadapted={"mean": (), "deviation": (), "pace": 0.0, "loudness": 0.0},
        train_rows=240,
        dev_rows=8,  # which are spoken after each epoch
        good_score=28.0,  # decibels: different words score 46, noise 33, another rendition of the same words 10
    ),
    "tag": Toy(
        Tag(max_len=9, labels=("B-LOC", "B-PER", "I-LOC", "I-PER", "O"), splitting="marks"),
        _tag,
        lambda row: {"tags": row["tag"]},
        invalid=["B-DOG"] * 3,
        quoted="B-DOG",
        needs=("token",),
        empty={"token": []},
        unadapted={"labels": (), "splitting": None},
    ),
    "transcribe": Toy(
        Transcribe(max_len=9, features=FeatureConfig(bins=20, normalize="utterance")),
        _transcribe,
        lambda row: {"transcript": row["text"]},
        invalid="pink",
        quoted="pink",
        needs=("audio",),
        empty={"audio": {"array": [0.0] * 2400, "sampling_rate": 8000}},
        train_rows=320,
        trained_weight="ernie.embedding.position.weight",
    ),
    "translate": Toy(
        Translate(max_len=16, wait_k=(2, 1), label_smoothing=0.0, layers=1),
        _translate,
        lambda row: {"translation": row["target"]},
        invalid=" ",
        quoted="target",
        needs=("source",),
        empty={"source": " \u200b"},
        train_rows=480,
    ),
}

TOYS["regress"] = replace(TOYS["regress"], task=TOYS["regress"].task.adapted_to(TOYS["regress"].rows(60)))
TOYS["synthesize"] = replace(TOYS["synthesize"], task=SYNTHESIZE.adapted_to(TOYS["synthesize"].rows(60)))

# A task kind from a plug-in, in its own module.
PLUGIN = "warning"
PLUGIN_MODULE = '''
"""Warnings: how likely a text is to be one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ernie.errors import UserError
from tasks.downstream.base import TextTask, finetune_task, rounded
from tasks.downstream.metrics import accuracy


@finetune_task("warning")
@dataclass(frozen=True, kw_only=True)
class Warning(TextTask):
    """Whether a text is a warning: the label of such a row is `sign`."""

    sign: str = "yes"

    known_metrics: ClassVar = {"accuracy": accuracy}

    def target(self, row):
        given = row.text(self.label)
        if given not in (self.sign, "-"):
            raise UserError(f"label '{given}' is neither {self.sign} nor -")
        return int(given == self.sign)

    def sample_target(self, row):
        return np.array([[self.target(row)]], np.float32)

    def prediction(self, answer):
        return int(answer["chance"] > 0.5)

    def outputs(self):
        return 1

    def loss(self, logits, batch):
        from ernie.model.losses import binary_cross_entropy

        return binary_cross_entropy(logits, batch.labels["label"].values)

    def answer(self, example, logits):
        return {"chance": rounded(1 / (1 + np.exp(-logits[0][0])))}
'''


def tiny_encoder(positions: int = 64) -> ErnieModel:
    """An encoder that can learn the toys."""
    paddle.seed(1)
    sizes = {"hidden_size": 32, "layers": 1, "heads": 2, "intermediate_size": 64, "max_positions": positions}
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0}
    model = ErnieModel(EncoderConfig(TOKENIZER.vocab_size, **sizes, **no_dropout, initializer_range=0.1))
    model.tokenizer = TOKENIZER
    return model


def packed_for(task: FinetuneTask, samples: Sequence[Sample]) -> Packed:
    """The batch of samples as a model of the task gets it, with unchanged sounds."""
    batch = pack(samples)
    return task.augmented(batch, training=False) if isinstance(task, ReadsSounds) else batch


def plugin_toy(kind: type[FinetuneTask]) -> Toy:
    """The toy of the kind that the plug-in adds."""
    assert issubclass(kind, TextTask)
    return Toy(
        kind(max_len=16),
        lambda rng: (row := _classify(rng)) | {"label": "yes" if row["label"] == "blue" else "-"},
        lambda row: {"chance": float(row["label"] == "yes")},
        invalid="perhaps",
        quoted="perhaps",
    )
