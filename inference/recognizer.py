"""Streaming speech recognition: push samples, get words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ernie.audio.wave import as_samples
from ernie.decode.recognizer import RecognitionState
from ernie.decode.stream import check_pieces, check_state
from ernie.decode.words import in_lines
from ernie.errors import UserError
from ernie.kernels.precision import InferencePrecisionChoice
from inference.incremental_text import CommittedText
from inference.task_model import TaskModel
from tasks.downstream.transcribe import Transcribe


class SpeechRecognizerState(CommittedText[RecognitionState]):
    """The state of some streams of speech: the state of their tokens, and the committed part of their transcripts."""

    kind = RecognitionState


class SpeechRecognizer:
    """Transcribes streams of audio at `rate` samples per second; a word is committed once nothing can extend it.

    With `task.pause` a line of text ends after each pause.  It is stateless: `push` and `finish` take a state and
    return the next one (see `ernie.decode.stream`).  It computes in the precision of its model, as `ernie transcribe`
    does.  Raises UserError for a model that transcribes whole recordings only.
    """

    def __init__(self, model: TaskModel):
        task = transcribe_task(model)
        if task.encoder != "chunks":
            raise UserError(
                "this model transcribes whole recordings only; to transcribe live audio, fine-tune with "
                "task.encoder: chunks"
            )
        self.rate = task.features.sample_rate
        self._decode = in_lines(model.tokenizer.decode)
        self._computing = model.computing
        self._tokens = task.recognizer(model.ernie, model.head)

    @classmethod
    def load(
        cls,
        run: str | Path,
        trust_plugins: Sequence[str] | bool = (),
        precision: InferencePrecisionChoice | None = None,
    ) -> SpeechRecognizer:
        """Load the recognizer of a fine-tuning run; the other arguments are those of `TaskModel.load`."""
        return cls(TaskModel.load(run, trust_plugins, precision))

    def begin(self, streams: int = 1) -> SpeechRecognizerState:
        """Return the state of streams before any audio."""
        return SpeechRecognizerState(self._tokens.begin(streams), ("",) * streams)

    def push(
        self, state: SpeechRecognizerState, pieces: Sequence[np.ndarray]
    ) -> tuple[SpeechRecognizerState, list[str]]:
        """Take more samples (S,) of each stream, between -1 and 1; return what is newly transcribed of each.

        Raises UserError for invalid samples, and for a stream that has ended.
        """
        check_state(state, SpeechRecognizerState)
        tokens, samples = state.tokens.forget(state.past_tokens), map(as_samples, check_pieces(state, pieces))
        with self._computing():
            return self._commit(state, self._tokens.push(tokens, list(samples))[0])

    def finish(self, state: SpeechRecognizerState) -> tuple[SpeechRecognizerState, list[str]]:
        """End all streams; return the rest of the transcripts."""
        check_state(state, SpeechRecognizerState)
        with self._computing():
            return self._commit(state, self._tokens.finish(state.tokens.forget(state.past_tokens))[0])

    def _commit(
        self, state: SpeechRecognizerState, tokens: RecognitionState
    ) -> tuple[SpeechRecognizerState, list[str]]:
        each = zip(tokens.stream_states, state.past_tokens, strict=True)
        recent = [[spike.token for spike in stream.since(past)] for stream, past in each]
        return state.commit(tokens, recent, [stream.ended for stream in tokens.stream_states], self._decode)


def transcribe_task(model: TaskModel) -> Transcribe:
    """Return the task of a model that transcribes.  Raises UserError for a model of another kind."""
    if not isinstance(model.task, Transcribe):
        raise UserError(
            f"this model is of the kind {model.task.variant_name}; only those of the kind transcribe can transcribe"
        )
    return model.task
