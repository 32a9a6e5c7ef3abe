"""The models that benchmarks/serving_load.py serves: `serving_models.py KIND FOLDER` writes one.

Their weights are random, for speed does not depend on them.  Their words are w5, w6, ..., a token each, but for the
voice, whose tokens are letters.

`classifier` has MiniLM's shape, 6 layers of 384.  `recognizer` has that of benchmarks/recognition.py: 3 layers of 128,
sound of 8 kHz, chunks of 8 vectors of 40 ms; it never hears silence, so that words come with every chunk.  `translator`
has that of benchmarks/translation.py: 3 layers of 256, wait-3; its lines end when they are as long as lines may be.
`listener` is the recognizer with words as often as people say them, and `interpreter` the translator with words that
the voice can say, about as long as what was heard.
`voice` is the one of benchmarks/speaking.py: 2 layers of 128, and the default flow, at 8 kHz.
"""

from __future__ import annotations

import string
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import paddle
from speaking import voice

from ernie.audio.features import FeatureConfig
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.initialization import initialize
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece
from inference.recognizer import SpeechRecognizer
from inference.task_model import TaskModel
from tasks.downstream.base import FinetuneTask
from tasks.downstream.classify import Classify
from tasks.downstream.transcribe import Transcribe
from tasks.downstream.translate import Translate

NEVER = -100.0  # a logit
HEARD = 1000  # tokens of the recognizer
RATE, WORDS_A_SECOND = 8000, 3
SECONDS = 6  # of noise that the listener is made for


def classifier() -> TaskModel:
    """A classifier of MiniLM's shape."""
    return made(EncoderConfig(30522, 384, 6, 12, 1536, task_vocab_size=0), Classify(labels=LABELS, max_len=512))


def recognizer() -> TaskModel:
    """A recognizer of streams whose every chunk has words."""
    config = EncoderConfig(HEARD, 128, 3, 4, 512, max_positions=512, task_vocab_size=0)
    features = FeatureConfig(sample_rate=8000, normalize="streaming", normalize_seconds=0)
    model = made(config, Transcribe(features=features, encoder="chunks", left_chunks=4))
    initialize(model.head, 0.5)
    silence(model.head.out.bias, [model.head.blank])
    return model


def listener() -> TaskModel:
    """A recognizer of streams that hears about as many words in noise as people say."""
    model = recognizer()
    noise = np.random.default_rng(0).normal(0, 0.1, SECONDS * RATE).astype(np.float32)
    bias, ids = model.head.out.bias, [model.head.blank]
    low, high = -100.0, 100.0
    for _ in range(12):
        middle = (low + high) / 2
        silence(bias, ids, middle)
        (answer,) = SpeechRecognizer(model).predict([{"audio": {"array": noise, "sampling_rate": RATE}}])
        if len(str(answer["transcript"]).split()) > SECONDS * WORDS_A_SECOND:
            low = middle
        else:
            high = middle
    return model


def interpreter() -> TaskModel:
    """A translator of what the listener hears into two words and more for each, of two letters.

    So what it says takes about as long as what it hears.
    """
    config = EncoderConfig(8000, 256, 3, 4, 1024, max_positions=256, task_vocab_size=0)
    model = made(config, Translate(wait_k=3))
    heard = [f"w{i}" for i in range(len(SPECIAL_TOKENS), HEARD)]
    said = ["".join(own) for own in product(string.ascii_lowercase, repeat=2)]
    others = [f"w{i}" for i in range(HEARD + len(said), config.vocab_size)]
    model.ernie.tokenizer = WordPiece([*SPECIAL_TOKENS, *heard, *said, *others])
    initialize(model.head, 1.0)
    silence(model.head.bias, [*range(HEARD), *range(HEARD + len(said), config.vocab_size)])
    return model


def translator() -> TaskModel:
    """A translator of streams whose lines are as long as they may be."""
    config = EncoderConfig(8000, 256, 3, 4, 1024, max_positions=256, task_vocab_size=0)
    model = made(config, Translate(wait_k=3))
    initialize(model.head, 1.0)  # each text has tokens of its own
    return model


def speaker() -> TaskModel:
    """A voice that has learned all letters."""
    model = voice("flow").model
    letters = model.tokenizer.tokens[len(SPECIAL_TOKENS) :]
    model.task = replace(model.task, learned=tuple(letters))
    return model


def made(config: EncoderConfig, task: FinetuneTask) -> TaskModel:
    """A model with random weights."""
    paddle.seed(0)
    ernie = ErnieModel(config)
    words = (f"w{i}" for i in range(len(SPECIAL_TOKENS), config.vocab_size))
    ernie.tokenizer = WordPiece([*SPECIAL_TOKENS, *words])
    return TaskModel(ernie, task)


def silence(bias: paddle.Tensor, tokens: list[int], logit: float = NEVER) -> None:
    """Have some tokens never be predicted, or as often as another logit has them be."""
    values = bias.numpy()
    values[tokens] = logit
    paddle.assign(paddle.to_tensor(values), bias)


LABELS = ("dull", "moving")
KINDS: dict[str, Callable[[], TaskModel]] = {
    "classifier": classifier,
    "recognizer": recognizer,
    "listener": listener,
    "interpreter": interpreter,
    "translator": translator,
    "voice": speaker,
}


if __name__ == "__main__":
    kind, folder = sys.argv[1:3]
    KINDS[kind]().save(Path(folder))
