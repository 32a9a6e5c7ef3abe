"""Transcription of sound as it comes in: samples are pushed, words come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ernie.decode.recognizer import Recognitions
from ernie.decode.stream import part, under
from ernie.errors import UserError
from finetune.committed import newly_sure
from finetune.model import FinetunedModel
from tasks.downstream.transcribe import Transcribe


@dataclass(frozen=True, eq=False)
class Transcribing:
    """The state of some streams of sound: that of their tokens, and how much of each transcript was handed out."""

    tokens: Recognitions
    given: tuple[str, ...]

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return self.tokens.streams

    def chosen(self, streams: Sequence[int]) -> Transcribing:
        """These streams only, in this order."""
        return Transcribing(self.tokens.chosen(streams), tuple(self.given[n] for n in streams))

    def with_others(self, others: Sequence[Transcribing]) -> Transcribing:
        """The streams of this state and those of others, in their order."""
        given = tuple(text for state in (self, *others) for text in state.given)
        return Transcribing(self.tokens.with_others([state.tokens for state in others]), given)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, as arrays by name."""
        return {"given": np.array(self.given, str), **under("tokens", self.tokens.arrays())}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Transcribing:
        """The state of which `arrays` gave these."""
        return cls(Recognitions.of_arrays(part("tokens", arrays)), tuple(map(str, arrays["given"])))


class SpeechRecognizer:
    """Transcribes streams of sound, `rate` samples a second; words are handed out once nothing can join them.

    It keeps no state: `push` and `finish` take one and give the next (see `ernie.decode.stream`).  Raises UserError
    for a model that hears whole sounds only.
    """

    def __init__(self, model: FinetunedModel):
        task = transcribing(model)
        if task.encoder != "chunks":
            raise UserError(
                "this model hears whole sounds only; to transcribe while one speaks, fine-tune with task.encoder: "
                "chunks"
            )
        self.rate = task.features.rate
        self._tokenizer = model.tokenizer
        self._tokens = task.recognizer(model.ernie, model.head)

    @classmethod
    def load(cls, run: str | Path) -> SpeechRecognizer:
        """The recognizer of a fine-tuning run."""
        return cls(FinetunedModel.load(run))

    def begin(self, streams: int = 1) -> Transcribing:
        """The state of streams of which nothing was heard."""
        return Transcribing(self._tokens.begin(streams), ("",) * streams)

    def push(self, state: Transcribing, pieces: Sequence[np.ndarray]) -> tuple[Transcribing, list[str]]:
        """More samples (S,) of each stream, between -1 and 1; what is transcribed of it now and was not before.

        Raises UserError for more sound than the model has positions for.
        """
        return self._told(state, self._tokens.push(state.tokens, pieces)[0])

    def finish(self, state: Transcribing) -> tuple[Transcribing, list[str]]:
        """All sounds are over; the rest of the transcripts."""
        return self._told(state, self._tokens.finish(state.tokens)[0])

    def _told(self, state: Transcribing, tokens: Recognitions) -> tuple[Transcribing, list[str]]:
        texts = [(self._tokenizer.decode([spike.token for spike in one.spikes]), one.ended) for one in tokens.hearing]
        new = [newly_sure(given, text, over) for given, (text, over) in zip(state.given, texts, strict=True)]
        return Transcribing(tokens, tuple(map("".join, zip(state.given, new, strict=True)))), new


def transcribing(model: FinetunedModel) -> Transcribe:
    """The task of a model that transcribes.  Raises UserError for one of another kind."""
    if not isinstance(model.task, Transcribe):
        raise UserError(f"this model is of the kind {model.task.variant_name}; those of the kind transcribe do")
    return model.task
