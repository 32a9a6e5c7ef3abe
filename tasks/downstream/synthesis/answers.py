"""The answers of a speech synthesis: the samples of texts."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ernie.errors import Remark
from tasks.downstream.base import Answer, Example
from tasks.downstream.synthesis.settings import SynthesizeSettings

if TYPE_CHECKING:
    from ernie.decode.synthesis import Synthesizer

_DIGITS = 4  # of the samples in answers


def answer_all(task: SynthesizeSettings, synthesizer: Synthesizer, examples: Sequence[Example]) -> list[Answer]:
    """Return the answers to a batch of texts; those without anything to say have no samples."""
    said = [n for n, example in enumerate(examples) if not example.empty]
    sounds = spoken(synthesizer, [examples[n].samples[0].ids for n in said])
    found = dict(zip(said, sounds, strict=True))
    answers: list[Answer] = []
    for n in range(len(examples)):
        array = [round(float(sample), _DIGITS) for sample in found.get(n, ())]
        answers.append({"audio": {"array": array, "sampling_rate": task.features.sample_rate}})
    return answers


def spoken(synthesizer: Synthesizer, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the samples (S,) of texts, (L,) tokens each.

    Warns (a Remark) where the voice does not stop by itself.  Raises NotFinite when numbers are not finite.
    """
    sounds: list[list[np.ndarray]] = [[] for _ in texts]
    with synthesizer.context():
        going = dict(enumerate(synthesizer.begin(texts))) if texts else {}
        while going:
            stretches = zip(list(going), synthesizer.advance(list(going.values())), strict=True)
            for n, (utterance, sound) in stretches:
                sounds[n].append(sound.get())
                for note in sound.notes:
                    warnings.warn(str(note), Remark, stacklevel=2)
                if utterance is None:
                    del going[n]
                else:
                    going[n] = utterance
    return [np.concatenate(own) for own in sounds]
