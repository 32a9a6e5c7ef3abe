"""Streaming speech synthesis: push words, get audio sentence by sentence."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ernie.config import check_seed
from ernie.data.labeled.row import Row
from ernie.decode.states import BatchState, common_model
from ernie.decode.stream import check_state, check_streams, check_texts
from ernie.errors import Remark, UserError
from ernie.kernels.precision import InferencePrecisionChoice
from ernie.model.inference import identity
from ernie.text.blank import is_blank
from ernie.text.utterances import complete_utterances, utterances
from inference.face import face
from inference.predictor import Predictor
from inference.task_model import TaskModel
from tasks.downstream.synthesize import Synthesize


@dataclass(frozen=True)
class TextSpeakerState(BatchState):
    """The state of some streams: the text of each that was not spoken yet, and whether it has `ended`.

    `model` identifies the voice that they belong to.
    """

    texts: tuple[str, ...]
    ended: tuple[bool, ...]
    model: str


@face("speak")
class TextSpeaker(Predictor):
    """Speaks texts at `rate` samples per second.

    `speak` yields the audio of a text piece by piece.  Under the streaming contract (see `ernie.decode.stream`), `push`
    takes words and returns the audio of the sentences that are complete, `finish` that of the rest; sentences that are
    too long for the voice are cut.  `vocoder` selects a vocoder other than the one trained last: a model with a `flow`
    keeps the `wavenet` that taught it.  Raises UserError for a model of another kind, and for a vocoder that the model
    lacks.
    """

    def __init__(self, model: TaskModel, vocoder: str | None = None, seed: int = 0):
        super().__init__(model)
        task = model.task
        if not isinstance(task, Synthesize):
            raise UserError(
                f"this model is of the kind {task.variant_name}; only those of the kind synthesize can speak"
            )
        if vocoder not in (None, "wavenet", "flow"):
            raise UserError(f"vocoder: expected wavenet or flow, found {vocoder!r:.60}")
        if vocoder == "flow" and task.vocoder != "flow":
            raise UserError("vocoder: this voice has no flow; train one from it, with task.vocoder: flow")
        check_seed(seed)
        model.eval()  # dropout would still be on in a model that was just trained
        self.rate = task.features.sample_rate
        self._model, self._task, self._vocoder, self._seed = model, task, vocoder, seed
        self._noted: set[str] = set()  # what has been said about texts

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
        """Yield the samples (S,) of a text, between -1 and 1, in pieces of a quarter of a second.

        A text that is longer than those the voice was trained on is spoken sentence by sentence.  Raises UserError for
        a text without a word or with characters that the vocabulary lacks, and for anything that is not a text.
        """
        for ids_L in self._cut(text):
            yield from self._synthesize(ids_L)

    def problem(self, text: str) -> str:
        """Return why a text cannot be spoken, "" if it can."""
        try:
            self._cut(text)
        except UserError as error:
            return str(error)
        return ""

    def _cut(self, text: str) -> list[np.ndarray]:
        """Return the tokens of a text, in parts if it is long.  Raises UserError for a text that cannot be spoken."""
        return [self._tokenize(part) for part in ([text] if self._fits(text) else utterances(text, self._fits))]

    def _tokenize(self, text: str) -> np.ndarray:
        """Return the tokens of a text.  Raises UserError for a text that cannot be spoken."""
        if not isinstance(text, str):
            raise UserError(f"expected a text, found {text!r:.60}")
        task, tokenizer = self._task, self._model.tokenizer
        row = Row({task.text: text})
        example = task.text_example(row, tokenizer)
        (sample,) = example.samples
        if example.empty:
            raise UserError("there is nothing in the text that could be said")
        for remark in task.check_sayable(text, example, tokenizer):
            if remark not in self._noted:
                self._noted.add(remark)
                warnings.warn(f"'{text:.60}' has {remark}", Remark, stacklevel=3)
        if example.cut:
            raise UserError(
                f"'{text:.60}' has {task.token_count(row, example)} tokens, and the voice was trained on at most "
                f"{task.max_len}"
            )
        return sample.ids

    def _fits(self, text: str) -> bool:
        """Whether a text has no more tokens than the voice was trained on."""
        try:
            return not self._task.text_example(Row({self._task.text: text}), self._model.tokenizer).cut
        except UserError:  # its characters cannot be spoken, whatever its length
            return True

    def _synthesize(self, ids_L: np.ndarray) -> Iterator[np.ndarray]:
        inputs = self._model.ernie, self._model.head, ids_L, self._model.task_id
        spoken = self._task.spoken(*inputs, vocoder=self._vocoder, seed=self._seed)
        while True:  # not a `for` inside the context: what runs between two pieces keeps its own precision
            with self._model.computing():
                piece = next(spoken, None)
            if piece is None:
                return
            yield piece

    def begin(self, streams: int = 1) -> TextSpeakerState:
        """Return the state of streams before any text."""
        check_streams(streams)
        return TextSpeakerState(("",) * streams, (False,) * streams, self._identity)

    def push(self, state: TextSpeakerState, pieces: Sequence[str]) -> tuple[TextSpeakerState, list[np.ndarray]]:
        """Take more text of each stream; return the audio (S,) of its sentences that are complete now.

        A sentence that cannot be spoken is skipped with a warning (a Remark), and the stream continues after it.
        Raises UserError for a state of another voice, for a stream that is over, and for anything that is not a text.
        """
        check_state(state, TextSpeakerState)
        common_model([state.model, self._identity])
        each = list(zip(state.texts, check_texts(state, pieces), strict=True))
        if any(over and piece for over, (_, piece) in zip(state.ended, each, strict=True)):
            raise UserError("the text of this stream is over; begin another one")
        cut = [complete_utterances(before, piece, self._fits) for before, piece in each]
        return replace(state, texts=tuple(rest for _, rest in cut)), [self._speak_all(found) for found, _ in cut]

    def finish(self, state: TextSpeakerState) -> tuple[TextSpeakerState, list[np.ndarray]]:
        """End all streams; return the audio of the rest.  Raises as `push` does."""
        check_state(state, TextSpeakerState)
        common_model([state.model, self._identity])
        over = replace(self.begin(state.streams), ended=(True,) * state.streams)
        return over, [self._speak_all(utterances(text, self._fits)) for text in state.texts]

    @cached_property
    def _identity(self) -> str:
        return identity(self._model.ernie, self._model.head)

    def _speak_all(self, texts: Sequence[str]) -> np.ndarray:
        pieces: list[np.ndarray] = []
        for text in texts:
            if is_blank(text):
                continue
            try:
                ids_L = self._tokenize(text)
            except UserError as error:
                warnings.warn(f"left out: {error}", Remark, stacklevel=3)  # where push or finish is called
                continue
            pieces += self._synthesize(ids_L)
        return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
