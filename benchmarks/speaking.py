"""How fast does a voice speak many streams at once, and when is the first sound of each there?

  python benchmarks/speaking.py [--streams 8] [--turns 15] [--records DIR]

The streams of an untrained voice of the default sizes (an encoder of 2 layers of 128, 8 kHz), each with a text of 48 to
62 letters, which is spoken for 2.4 to 3.1 s, for speed does not depend on weights.  `at once` advances all of them by
steps, `one after another` speaks one text after the other; they take turns.  The first sound of a stream is counted
from the time when all texts are there.
"""

from __future__ import annotations

import argparse
import json
import string
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import paddle
from outcomes import report
from page_tables import speaking
from record_files import Records, this_machine

from ernie.audio.features import FeatureConfig
from ernie.errors import Remark
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.wavenet import Flow
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece
from inference.speaker import TextSpeaker
from inference.task_model import TaskModel
from tasks.downstream.synthesize import Synthesize

Vocoder = Literal["wavenet", "flow"]
VOCODERS: tuple[Vocoder, ...] = ("wavenet", "flow")


def main() -> None:
    """Take the turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--records", type=Path, metavar="DIR", default=Path("runs/benchmarks/speaking"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", Remark)  # an untrained voice does not stop by itself
    record = this_machine() | {"streams": arguments.streams}
    arguments.records.mkdir(parents=True, exist_ok=True)
    for vocoder in VOCODERS:
        turns = measured(voice(vocoder), texts(arguments.streams), arguments.turns)
        file = arguments.records / f"{vocoder}.json"
        file.write_text(json.dumps(record | turns, indent=1) + "\n", encoding="utf-8")
    report(Records(arguments.records), speaking)


def voice(vocoder: Vocoder) -> TextSpeaker:
    """An untrained voice that takes a step for each letter."""
    paddle.seed(0)
    letters = list(string.ascii_lowercase)
    tokenizer = WordPiece([*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters)])
    sizes = EncoderConfig(
        vocab_size=tokenizer.vocab_size, layers=2, hidden_size=128, heads=4, intermediate_size=512, max_positions=128
    )
    ernie = ErnieModel(sizes)
    ernie.tokenizer = tokenizer
    features = FeatureConfig(sample_rate=8000, window=0.05, hop=0.0125)
    task = Synthesize(features=features, loudness=0.1, pace=4.0, max_len=96)  # it is cut at four times the pace
    model = TaskModel(ernie, task)
    task.initialize(ernie, model.head)
    paddle.assign(paddle.to_tensor([-100.0]), model.head.decoder.last.bias)
    if vocoder == "flow":
        model.head.flow = Flow(task.voice.flow, task.voice.conditioner, task.voice.flows, task.loudness)
        model.task = replace(task, vocoder="flow", teacher=Path("none"))
    return TextSpeaker(model)


def texts(streams: int) -> list[str]:
    """A text for each stream, of 48 letters and up to 14 more."""
    rng = np.random.default_rng(0)
    words = (["".join(rng.choice(list(string.ascii_lowercase), 6)) for _ in range(8)] for _ in range(streams))
    return [" ".join([*own, *["zz"] * (n % 8)]) for n, own in enumerate(words)]


def measured(speaker: TextSpeaker, texts: list[str], turns: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of sound made in a second, and the mean and the longest time to a first sound, of each turn."""
    names = ("sound/s", "first, mean", "first, last")
    found: dict[str, dict[str, list[float]]] = {
        side: {name: [] for name in names} for side in ("at once", "one after another")
    }
    for turn in range(turns + 1):
        for side, numbers in found.items():
            began = time.perf_counter()
            samples, first = (at_once if side == "at once" else one_after_another)(speaker, texts, began)
            values = (samples / speaker.sample_rate / (time.perf_counter() - began), float(np.mean(first)), max(first))
            if turn:  # the first one allocates
                for own, value in zip(numbers.values(), values, strict=True):
                    own.append(round(value, 4))
    return found


def at_once(speaker: TextSpeaker, texts: list[str], began: float) -> tuple[int, list[float]]:
    """The number of samples, and the seconds until each stream's first sound."""
    state, _ = speaker.accept(speaker.begin(len(texts)), texts)
    state, samples, first = speaker.end(state), 0, dict[int, float]()
    while any(speaker.pending(state)):
        state, outcomes = speaker.step(state)
        for n, outcome in enumerate(outcomes):
            samples += len(outcome.get())
            if len(outcome.get()):
                first.setdefault(n, time.perf_counter() - began)
    return samples, list(first.values())


def one_after_another(speaker: TextSpeaker, texts: list[str], began: float) -> tuple[int, list[float]]:
    """As `at_once`."""
    samples, first = 0, []
    for text in texts:
        for number, piece in enumerate(speaker.speak(text)):
            samples += len(piece)
            if not number:
                first.append(time.perf_counter() - began)
    return samples, first


if __name__ == "__main__":
    main()
