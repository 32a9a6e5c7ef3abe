"""Streaming speech synthesis: text comes in pieces, and sound is returned as it is made, of many streams at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, get_args

import numpy as np

from ernie.audio.voice import VocoderName
from ernie.config import check_seed
from ernie.data.labeled.row import Row
from ernie.decode.states import BatchState, common_model
from ernie.decode.stream import (
    StreamDecoder,
    check_more_text,
    check_pieces,
    check_state,
    check_streams,
    check_text,
    flags,
)
from ernie.decode.synthesis import Synthesizer, Utterance
from ernie.errors import UserError
from ernie.kernels.precision import InferencePrecisionChoice
from ernie.model.inference import identity
from ernie.outcome import Note, Outcome
from ernie.text.blank import is_blank
from ernie.text.utterances import complete_utterances, utterances
from inference.face import Streaming, face
from inference.predictor import Predictor
from inference.task_model import TaskModel
from tasks.downstream.synthesis.text_rows import check_sayable, token_count
from tasks.downstream.synthesize import Synthesize

_TRIAL = 8  # tokens of a text that exercises a voice
_MOST_PER_TOKEN = 16  # characters of an utterance, on average: a word without an end is one token, or none
_MOST_QUEUED = 4096  # characters that wait to be spoken, above which a server holds back more


@dataclass(frozen=True)
class TextSpeakerState(BatchState):
    """The state of some streams: the text of each that is no whole utterance yet, and whether it has `ended`.

    `queues` are the utterances that wait, and `utterances` those that are being spoken.  `model` identifies the voice
    that the streams belong to, and `vocoder` what makes their samples, with its seed.
    """

    texts: tuple[str, ...]
    ended: tuple[bool, ...]
    model: str
    queues: tuple[tuple[str, ...], ...]
    utterances: tuple[Utterance | None, ...]
    vocoder: str


@face("speak")
class TextSpeaker(Predictor, StreamDecoder[TextSpeakerState, str, np.ndarray]):
    """Speaks texts at `sample_rate` samples a second.

    `speak` yields the audio of a text piece by piece.  Under the streaming contract (see `ernie.decode.stream`), a
    step returns the next quarter of a second of each stream that has something to say, all computed together.  A
    stream is spoken sentence by sentence, once a sentence is complete; one that is too long for the voice is cut.
    `vocoder` selects a vocoder other than the one trained last: a model with a `flow` keeps the `wavenet` that taught
    it, and every one has `griffin_lim`.  Raises UserError for a model of another kind, and for a vocoder that the model
    lacks.
    """

    packages: ClassVar = ("soundfile",)

    def __init__(self, model: TaskModel, vocoder: str | None = None, seed: int = 0):
        super().__init__(model)
        task = model.task
        if not isinstance(task, Synthesize):
            raise UserError(
                f"this model is of the kind {task.variant_name}; only those of the kind synthesize can speak"
            )
        if vocoder is not None and vocoder not in (names := get_args(VocoderName)):
            raise UserError(f"vocoder: expected {', '.join(names)}, found {vocoder!r:.60}")
        if vocoder == "wavenet" and task.vocoder == "griffin_lim":
            raise UserError("vocoder: this voice has no wavenet; train one, with task.vocoder: wavenet")
        if vocoder == "flow" and task.vocoder != "flow":
            raise UserError("vocoder: this voice has no flow; train one from it, with task.vocoder: flow")
        check_seed(seed)
        model.eval()  # dropout would still be on in a model that was just trained
        self.sample_rate = task.features.sample_rate
        self._task, self._seed = task, seed
        self._vocoder = vocoder or task.vocoder

    @classmethod
    def load(
        cls,
        run: str | Path,
        vocoder: str | None = None,
        seed: int = 0,
        trust_plugins: Sequence[str] | bool = (),
        text_normalization: str | None = None,
        precision: InferencePrecisionChoice | None = None,
    ) -> TextSpeaker:
        """Load the speaker of a fine-tuning run; `trust_plugins` and `precision` as in `TaskModel.load`.

        `text_normalization` ("en", "zh", "ja" or "none") replaces that of the run.
        """
        model = TaskModel.load(run, trust_plugins, precision)
        if text_normalization is not None and isinstance(model.task, Synthesize):
            model.change_decoding(text_normalization=text_normalization)
        return cls(model, vocoder, seed)

    def speak(self, text: str) -> Iterator[np.ndarray]:
        """Yield the samples (S,) of a text, between -1 and 1, in pieces of at most a quarter of a second.

        The sound is that of a stream with this text.  Raises UserError for a text without a word or with characters
        that the vocabulary lacks, and for anything that is not a text.
        """
        if problem := self.problem(text):
            raise UserError(problem)
        state, _ = self.accept(self.begin(), [text])
        state = self.end(state)
        while any(self.pending(state)):  # what runs between two pieces keeps its own precision
            state, (outcome,) = self.step(state)
            self._show(outcome.notes, level=3)
            if len(piece := outcome.get()):
                yield piece

    def problem(self, text: str) -> str:
        """Return why a text cannot be spoken, "" if it can."""
        try:
            if not isinstance(text, str):
                raise UserError(f"expected a text, found {text!r:.60}")
            check_text(text)
            parts = self._cut("", text, ended=True)[0]
            for part in parts or [text]:
                self._tokenize(part)
        except UserError as error:
            return str(error)
        return ""

    @property
    def streaming(self) -> Streaming:
        """Text comes in, and samples go out."""
        tokenizer = self.model.tokenizer
        known = {token: i for i, token in enumerate(tokenizer.tokens)}
        words = tokenizer.decode([known[token] for token in self._task.learned if token in known][:_TRIAL])
        return Streaming(self, takes=None, gives=self.sample_rate, trial=None if self.problem(words) else words)

    def begin(self, streams: int = 1) -> TextSpeakerState:
        """Return the state of streams before any text."""
        check_streams(streams)
        nothing = ("",) * streams, (False,) * streams, self._identity, ((),) * streams, (None,) * streams
        return TextSpeakerState(*nothing, self._sampling)

    def accept(
        self, state: TextSpeakerState, pieces: Sequence[str | None]
    ) -> tuple[TextSpeakerState, list[UserError | None]]:
        """Take more text of each stream; its sentences that are complete now wait to be spoken.

        Anything that is not a text, and text for a stream that is over, gives an error.
        """
        self._check(state)
        texts, queues, errors = list(state.texts), list(state.queues), list[UserError | None]()
        for n, piece in enumerate(check_pieces(state, pieces)):
            errors.append(None)
            if piece is None:
                continue
            try:
                check_more_text(piece, state.ended[n])
                found, texts[n] = self._cut(texts[n], piece, ended=False)
                queues[n] += tuple(found)
            except UserError as error:
                error.stream, errors[n] = n, error
        return replace(state, texts=tuple(texts), queues=tuple(queues)), errors

    def end(self, state: TextSpeakerState, streams: Sequence[bool] | None = None) -> TextSpeakerState:
        """End the text of these streams, by default of all; the rest of it waits to be spoken."""
        self._check(state)
        texts, ended, queues = list(state.texts), list(state.ended), list(state.queues)
        for n, ends in enumerate(flags(state, streams)):
            if ends:
                queues[n] += tuple(self._cut(texts[n], "", ended=True)[0])
                texts[n], ended[n] = "", True
        return replace(state, texts=tuple(texts), ended=tuple(ended), queues=tuple(queues))

    def pending(self, state: TextSpeakerState) -> list[bool]:
        """Return which streams have something to say."""
        check_state(state, TextSpeakerState)
        each = zip(state.utterances, state.queues, strict=True)
        return [utterance is not None or bool(queue) for utterance, queue in each]

    def has_room(self, state: TextSpeakerState) -> list[bool]:
        """Return which streams have little to say."""
        return [sum(map(len, queue)) < _MOST_QUEUED for queue in state.queues]

    @contextmanager
    def context(self) -> Iterator[None]:
        """Compute in the precision of the model."""
        with self.model.computing(), self._synthesizer.context():
            yield

    def advance(
        self, state: TextSpeakerState, most: int | None = 1
    ) -> tuple[TextSpeakerState, list[Outcome[np.ndarray]]]:
        """Return the next `most` quarters of a second (None: one) of each stream that has something to say.

        An utterance that was spoken is followed by the next one of its stream in the next step.  An utterance that
        cannot be spoken is left out, with a note.
        """
        self._check(state)
        state, notes = self._with_begun(state)
        speaking = {n: own for n, own in enumerate(state.utterances) if own is not None}
        stretches = self._synthesizer.advance(list(speaking.values()), most or 1)
        after, failed = list(state.utterances), [False] * state.streams
        outcomes = [Outcome(np.zeros(0, np.float32), notes=own) for own in notes]
        for n, (utterance, sound) in zip(speaking, stretches, strict=True):
            after[n], failed[n] = utterance, sound.error is not None
            if sound.error is not None:
                sound.error.stream = n
            outcomes[n] = replace(sound, notes=(*notes[n], *(replace(note, stream=n) for note in sound.notes)))
        return self._stopped(replace(state, utterances=tuple(after)), failed), outcomes

    def joined(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        """Return consecutive outputs of a stream as one."""
        return np.concatenate([np.zeros(0, np.float32), *outputs])

    def _with_begun(self, state: TextSpeakerState) -> tuple[TextSpeakerState, list[tuple[Note, ...]]]:
        """Begin the next utterance of each stream that speaks none; also return the notes of each stream."""
        queues, notes, ids = list(state.queues), list[tuple[Note, ...]](), dict[int, np.ndarray]()
        for n, own in enumerate(state.utterances):
            own_notes = list[Note]()
            while own is None and queues[n] and n not in ids:
                text, *rest = queues[n]
                queues[n] = tuple(rest)
                try:
                    ids[n], found = self._tokenize(text)
                    own_notes += [replace(note, stream=n) for note in found]
                except UserError as error:
                    own_notes.append(Note(f"left out: {error}", stream=n))
            notes.append(tuple(own_notes))
        begun = dict(zip(ids, self._synthesizer.begin(list(ids.values())) if ids else (), strict=True))
        every = tuple(begun.get(n, own) for n, own in enumerate(state.utterances))
        return replace(state, queues=tuple(queues), utterances=every, vocoder=self._sampling), notes

    def _stopped(self, state: TextSpeakerState, streams: Sequence[bool]) -> TextSpeakerState:
        """End these streams, and forget what they had to say."""
        texts = ("" if stops else own for own, stops in zip(state.texts, streams, strict=True))
        queues = (() if stops else own for own, stops in zip(state.queues, streams, strict=True))
        ended = (before or stops for before, stops in zip(state.ended, streams, strict=True))
        return replace(state, texts=tuple(texts), queues=tuple(queues), ended=tuple(ended))

    def _cut(self, before: str, piece: str, ended: bool) -> tuple[list[str], str]:
        """Return the utterances of a text that are complete after one more piece, and the rest of the text."""
        found, rest = complete_utterances(before, piece, self._fits)
        if ended:
            found, rest = [*found, *utterances(rest, self._fits)], ""
        return [text for text in found if not is_blank(text)], rest

    def _tokenize(self, text: str) -> tuple[np.ndarray, list[Note]]:
        """Return the tokens of a text, and notes about it.  Raises UserError for a text that cannot be spoken."""
        task, tokenizer = self._task, self.model.tokenizer
        row = Row({task.text: text})
        example = task.text_example(row, tokenizer)
        (sample,) = example.samples
        if example.empty:
            raise UserError("there is nothing in the text that could be said")
        remarks = check_sayable(task, text, example, tokenizer)
        if example.cut:
            raise UserError(
                f"'{text:.60}' has {token_count(task, row, example)} tokens, and the voice was trained on at most "
                f"{task.max_len}"
            )
        return sample.ids, [Note(f"'{text:.60}' has {remark}", topic=remark) for remark in remarks]

    def _fits(self, text: str) -> bool:
        """Whether a text has no more tokens than the voice was trained on, and no more characters than those have."""
        if len(text) > _MOST_PER_TOKEN * self._task.max_len:
            return False
        try:
            return not self._task.text_example(Row({self._task.text: text}), self.model.tokenizer).cut
        except UserError:  # its characters cannot be spoken, whatever its length
            return True

    def _check(self, state: TextSpeakerState) -> None:
        """Raise UserError for a state that another voice has begun, or one with another vocoder or seed."""
        check_state(state, TextSpeakerState)
        common_model([state.model, self._identity])
        if state.vocoder not in ("", self._sampling) and any(own is not None for own in state.utterances):
            raise UserError(
                f"this state was begun with the vocoder {state.vocoder}, and this speaker has {self._sampling}; only a "
                "speaker with both the same can continue it"
            )

    @property
    def _sampling(self) -> str:
        return f"{self._vocoder}, seed {self._seed}"

    @cached_property
    def _synthesizer(self) -> Synthesizer:
        model = self.model
        given = model.ernie, model.head, model.task_id
        return self._task.synthesizer(*given, vocoder=self._vocoder, seed=self._seed)

    @cached_property
    def _identity(self) -> str:
        return identity(self.model.ernie, self.model.head)
