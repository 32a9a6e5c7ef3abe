"""Speech from text as it comes in: words are pushed, sound comes back, a sentence at a time."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ernie.data.labelled.row import Row
from ernie.decode.stream import one_model, text_of_each
from ernie.errors import Remark, UserError
from ernie.model.inference import identity
from ernie.text.blank import is_blank
from ernie.text.sentences import detect_language, split_sentences
from finetune.model import FinetunedModel
from tasks.downstream.synthesize import Synthesize

_MARK = re.compile("[.!?…。！？；]")  # no sentence ends without one
_SURE = 16  # characters behind a full stop, after which it is known whether it ends a sentence


@dataclass(frozen=True)
class Waiting:
    """The state of some streams: the text of each that was not spoken yet.

    `model` tells the voice that they are of from others.
    """

    texts: tuple[str, ...]
    model: str = ""

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return len(self.texts)

    def chosen(self, streams: Sequence[int]) -> Waiting:
        """These streams only, in this order."""
        return Waiting(tuple(self.texts[n] for n in streams), self.model)

    def with_others(self, others: Sequence[Waiting]) -> Waiting:
        """The streams of this state and those of others, in their order."""
        every = (self, *others)
        return Waiting(tuple(text for state in every for text in state.texts), one_model(one.model for one in every))

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, as arrays by name."""
        return {"texts": np.array(self.texts, str), "model": np.array(self.model)}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Waiting:
        """The state of which `arrays` gave these."""
        return cls(tuple(map(str, arrays["texts"])), str(arrays.get("model", "")))


class TextSpeaker:
    """Speaks texts, `rate` samples a second.

    `speak` gives the sound of a text piece by piece.  Under the streaming contract (see `ernie.decode.stream`) `push`
    takes words and gives the sound of the sentences that are whole, `finish` that of the rest.  `vocoder` is another
    than that which was learnt last: the `wavenet` that a `flow` learnt from is there still.  Raises UserError for a
    model of another kind, and for a vocoder that it has not.
    """

    def __init__(self, model: FinetunedModel, vocoder: str | None = None, seed: int = 0):
        task = model.task
        if not isinstance(task, Synthesize):
            raise UserError(f"this model is of the kind {task.variant_name}; those of the kind synthesize do")
        if vocoder == "flow" and task.vocoder != "flow":
            raise UserError("vocoder: this voice has no flow; let one learn from it, with task.vocoder: flow")
        if seed < 0:
            raise UserError(f"seed: expected at least 0, found {seed}")
        model.eval()  # one that was just trained would still drop some of what it makes
        self.rate = task.features.rate
        self._model, self._task, self._vocoder, self._seed = model, task, vocoder, seed

    @classmethod
    def load(cls, run: str | Path, vocoder: str | None = None, seed: int = 0) -> TextSpeaker:
        """The speaker of a fine-tuning run."""
        return cls(FinetunedModel.load(run), vocoder, seed)

    def speak(self, text: str) -> Iterator[np.ndarray]:
        """The samples (S,) of a text, between -1 and 1, in pieces of a quarter of a second.

        Raises UserError for a text without a word, one with characters that the vocabulary lacks, one that is too long,
        and for what is no text.
        """
        yield from self._spoken(self._sayable(text))

    def _sayable(self, text: str) -> np.ndarray:
        """The tokens of a text.  Raises UserError for one that cannot be spoken."""
        if not isinstance(text, str):
            raise UserError(f"expected a text, found {text!r:.60}")
        task, tokenizer = self._task, self._model.tokenizer
        example = task.example(Row({task.text: text}), tokenizer)
        (sample,) = example.samples
        if example.empty:
            raise UserError("there is nothing in the text that could be said")
        if tokenizer.unk_id in sample.ids:
            raise UserError(f"'{text:.60}' has characters that this voice has not learnt; write them as words")
        if example.cut:
            raise UserError(
                f"'{text:.60}' has {len(sample) + example.cut:,} tokens, and the voice has learnt {task.max_len}; part "
                "it into sentences"
            )
        return sample.ids

    def _spoken(self, ids_L: np.ndarray) -> Iterator[np.ndarray]:
        of = self._model.ernie, self._model.head, ids_L, self._model.task_id
        return self._task.spoken(*of, vocoder=self._vocoder, seed=self._seed)

    def begin(self, streams: int = 1) -> Waiting:
        """The state of streams of which nothing has come yet."""
        return Waiting(("",) * streams, self._identity)

    def push(self, state: Waiting, pieces: Sequence[str]) -> tuple[Waiting, list[np.ndarray]]:
        """More text of each stream; the sound (S,) of its sentences that are whole now.

        One that cannot be spoken is left out with a warning, a Remark: the stream goes on behind it.  Raises UserError
        for a state of another voice, and for what is no text.
        """
        one_model([state.model, self._identity])
        cut = [_whole(before, piece) for before, piece in zip(state.texts, text_of_each(state, pieces), strict=True)]
        return replace(state, texts=tuple(rest for _, rest in cut)), [self._sound(found) for found, _ in cut]

    def finish(self, state: Waiting) -> tuple[Waiting, list[np.ndarray]]:
        """All texts are over; the sound of the rest.  Raises as `push` does."""
        one_model([state.model, self._identity])
        return self.begin(state.streams), [self._sound(_sentences(text)) for text in state.texts]

    @cached_property
    def _identity(self) -> str:
        return identity(self._model.ernie, self._model.head)

    def _sound(self, texts: Sequence[str]) -> np.ndarray:
        pieces: list[np.ndarray] = []
        for text in texts:
            if is_blank(text):
                continue
            try:
                ids_L = self._sayable(text)
            except UserError as error:
                warnings.warn(f"left out: {error}", Remark, stacklevel=3)  # where push or finish is called
                continue
            pieces += self._spoken(ids_L)
        return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


def _sentences(text: str) -> list[str]:
    return split_sentences(text, detect_language(text))


def _whole(before: str, piece: str) -> tuple[list[str], str]:
    """The sentences that are over once a piece has come after the text before, and the text behind them.

    Letter by letter, so that what decides is the same in whatever pieces the text comes.
    """
    whole, text = [], before
    for letter in piece:
        text += letter
        if letter == "\n":
            whole += _sentences(text)
            text = ""
        while (cut := _first_over(text)) is not None:
            sentence, text = cut
            whole.append(sentence)
    return whole, text


def _first_over(text: str) -> tuple[str, str] | None:
    """The first sentence of a text, and the text behind it, where it is over.

    What follows a full stop says whether it ends a sentence: a whole word, or some Chinese characters.
    """
    if not _MARK.search(text):
        return None
    sentence = next(iter(_sentences(text)), "")
    behind = text[text.index(sentence) + len(sentence) :].lstrip()
    if len(behind) < _SURE and len(behind.split(maxsplit=1)) < 2 and not behind[-1:].isspace():
        return None
    return sentence, behind
