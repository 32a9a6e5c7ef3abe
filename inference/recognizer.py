"""Streaming speech recognition: push samples, get words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ernie.audio.wave import as_samples
from ernie.data.labeled.row import Row
from ernie.decode.ctc import Spike
from ernie.decode.recognizer import RecognitionState, Recognized, TokenRecognizer
from ernie.decode.stream import StreamDecoder, check_pieces, check_state
from ernie.decode.timed_words import in_lines
from ernie.errors import UserError
from ernie.kernels.precision import InferencePrecisionChoice
from ernie.outcome import Outcome
from inference.face import Streaming, face
from inference.following import FollowedTranscript
from inference.incremental_text import CommittedText
from inference.predictor import Predictor
from inference.task_model import TaskModel
from tasks.downstream.base import Answer
from tasks.downstream.transcribe import Transcribe


@dataclass(frozen=True, eq=False)
class SpeechRecognizerState(CommittedText[RecognitionState]):
    """The state of some streams of speech: the state of their tokens, and the committed part of their transcripts."""

    tokens: RecognitionState


@face("transcribe")
class SpeechRecognizer(Predictor, StreamDecoder[SpeechRecognizerState, np.ndarray, str]):
    """Transcribes streams of audio at `sample_rate` samples a second; a word is committed once nothing can extend it.

    With `task.pause` a line of text ends after each pause.  It is stateless: each call takes a state and returns the
    next one (see `ernie.decode.stream`).  It computes in the precision of its model, as `ernie transcribe` does.
    `begin` raises UserError for a model that transcribes whole recordings only; `predict` takes these.
    """

    packages: ClassVar = ("soundfile", "soxr")

    def __init__(self, model: TaskModel):
        super().__init__(model)
        task = transcribe_task(model)
        self.sample_rate = task.features.sample_rate
        self._decode = in_lines(model.tokenizer.decode)
        self._computing = model.computing

    @cached_property
    def _tokens(self) -> TokenRecognizer:
        """The recognizer of streams.  Raises UserError if the model transcribes whole recordings only."""
        task = transcribe_task(self.model)
        if task.encoder != "chunks":
            raise UserError(
                "this model transcribes whole recordings only; to transcribe live audio, fine-tune with "
                "task.encoder: chunks"
            )
        return task.recognizer(self.model.ernie, self.model.head)

    @classmethod
    def load(
        cls,
        run: str | Path,
        trust_plugins: Sequence[str] | bool = (),
        precision: InferencePrecisionChoice | None = None,
    ) -> SpeechRecognizer:
        """Load the recognizer of a fine-tuning run; the other arguments are those of `TaskModel.load`."""
        return cls(TaskModel.load(run, trust_plugins, precision))

    @property
    def streaming(self) -> Streaming:
        """Samples come in, and text goes out."""
        assert self._tokens
        rate = self.sample_rate
        noise = np.random.default_rng(0).normal(0, 0.1, rate)
        seconds = transcribe_task(self.model).seconds
        return Streaming(
            self,
            takes=rate,
            gives=None,
            trial=noise.astype(np.float32),
            follow=partial(FollowedTranscript, self.tokenizer.decode, seconds),
        )

    def begin(self, streams: int = 1) -> SpeechRecognizerState:
        """Return the state of streams before any audio."""
        return SpeechRecognizerState(self._tokens.begin(streams), ("",) * streams, (0,) * streams)

    def accept(
        self, state: SpeechRecognizerState, pieces: Sequence[np.ndarray | None]
    ) -> tuple[SpeechRecognizerState, list[UserError | None]]:
        """Take more samples (S,) of each stream, between -1 and 1.

        Values that are no samples give an error, and so do samples for a stream that has ended.
        """
        check_state(state, SpeechRecognizerState)
        samples, errors = list[np.ndarray | None](), list[UserError | None]()
        for n, piece in enumerate(check_pieces(state, pieces)):
            try:
                found, error = None if piece is None else as_samples(piece), None
            except UserError as problem:
                problem.stream = n
                found, error = None, problem
            samples.append(found)
            errors.append(error)
        tokens, refused = self._tokens.accept(state.tokens.forget(state.past), samples)
        return replace(state, tokens=tokens), [own or other for own, other in zip(errors, refused, strict=True)]

    def end(self, state: SpeechRecognizerState, streams: Sequence[bool] | None = None) -> SpeechRecognizerState:
        """End the audio of these streams, by default of all."""
        check_state(state, SpeechRecognizerState)
        return replace(state, tokens=self._tokens.end(state.tokens, streams))

    def pending(self, state: SpeechRecognizerState) -> list[bool]:
        """Return which streams have a whole chunk of audio, or the rest of what has ended."""
        check_state(state, SpeechRecognizerState)
        return self._tokens.pending(state.tokens)

    def missing(self, state: SpeechRecognizerState) -> list[int]:
        """Return how many samples each stream lacks before it has a whole chunk of audio."""
        check_state(state, SpeechRecognizerState)
        return self._tokens.missing(state.tokens)

    def joined(self, outputs: Sequence[str]) -> str:
        """Return consecutive outputs of a stream as one."""
        return "".join(outputs)

    @contextmanager
    def context(self) -> Iterator[None]:
        """Compute in the precision of the model."""
        with self._computing(), self._tokens.context():
            yield

    def advance(
        self, state: SpeechRecognizerState, most: int | None
    ) -> tuple[SpeechRecognizerState, list[Outcome[str]]]:
        """Process at most `most` chunks of each stream; return what is newly transcribed of each."""
        check_state(state, SpeechRecognizerState)
        tokens, outcomes = self._tokens.advance(state.tokens, most)
        recent = [
            None if stream is before else [spike.token for spike in stream.since(past)]
            for stream, before, past in zip(tokens.stream_states, state.tokens.stream_states, state.past, strict=True)
        ]
        closed = [stream.closed for stream in tokens.stream_states]
        state, texts = state.commit(tokens, recent, closed, self._decode)
        return state, [
            Outcome(text, notes=own.notes) if own.error is None else Outcome(error=own.error, notes=own.notes)
            for own, text in zip(outcomes, texts, strict=True)
        ]


class TimedTranscript:
    """What is said in one stream, with the times of its words.  It follows the stream and tells nothing by itself."""

    def __init__(self, recognizer: SpeechRecognizer):
        self._task, self._decode = transcribe_task(recognizer.model), recognizer.tokenizer.decode
        self._spikes, self._end = list[Spike](), 0

    def add(self, state: SpeechRecognizerState, stream: int = 0) -> dict[str, Any]:
        """Learn what is new in a state, of which this is one of the streams; return nothing to tell."""
        own = state.tokens.stream_states[stream]
        self._spikes += own.since(len(self._spikes))
        self._end = own.edges.end
        return {}

    def answer(self) -> Answer:
        """Return the answer for the whole sound, as `Predictor.predict` does, but without alternatives."""
        task = replace(self._task, n_best=1)
        return task.answer_of(Recognized(self._spikes, self._end), self._decode)


def channel_of_files(task: Transcribe) -> str:
    """Return the channel that is read of a file.  Raises UserError if a column of rows would say that."""
    try:
        return task.channel_of(Row({}))
    except UserError:
        raise UserError(
            f"the model takes the channel from the column '{task.channel}', which files lack; choose channel mix, "
            "left, right, or a number"
        ) from None


def transcribe_task(model: TaskModel) -> Transcribe:
    """Return the task of a model that transcribes.  Raises UserError for a model of another kind."""
    if not isinstance(model.task, Transcribe):
        raise UserError(
            f"this model is of the kind {model.task.variant_name}; only those of the kind transcribe can transcribe"
        )
    return model.task
