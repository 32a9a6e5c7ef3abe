"""Transcription of sound as it comes in: samples are pushed, words come back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ernie.audio.wave import as_samples
from ernie.decode.recognizer import Recognitions
from ernie.errors import UserError
from finetune.committed import Given
from finetune.model import FinetunedModel
from tasks.downstream.transcribe import Transcribe


class Transcribing(Given[Recognitions]):
    """The state of some streams of text: that of their tokens, and how much of their transcripts was handed out."""

    kind = Recognitions


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

        Raises UserError for what are no samples, and for a stream that is over.
        """
        return self._told(state, self._tokens.push(state.tokens, [as_samples(piece) for piece in pieces])[0])

    def finish(self, state: Transcribing) -> tuple[Transcribing, list[str]]:
        """All sounds are over; the rest of the transcripts."""
        return self._told(state, self._tokens.finish(state.tokens)[0])

    def _told(self, state: Transcribing, tokens: Recognitions) -> tuple[Transcribing, list[str]]:
        ids = [[spike.token for spike in one.spikes] for one in tokens.hearing]
        return state.told(tokens, ids, [one.ended for one in tokens.hearing], self._tokenizer.decode)


def hears_chunks(task: Transcribe) -> bool:
    """Whether a model of this task transcribes while one speaks."""
    return task.encoder == "chunks" and task.decoder != "global"


def transcribing(model: FinetunedModel) -> Transcribe:
    """The task of a model that transcribes.  Raises UserError for one of another kind."""
    if not isinstance(model.task, Transcribe):
        raise UserError(f"this model is of the kind {model.task.variant_name}; those of the kind transcribe do")
    return model.task
