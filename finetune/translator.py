"""Translation of text as it comes in: words are pushed, words come back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np

from ernie.data.batch import plan_by_length
from ernie.decode.stream import text_of_each
from ernie.decode.translator import Progress, Translations
from ernie.decode.wait_k import WaitK
from ernie.errors import UserError, about, check_several
from ernie.text.blank import is_blank
from ernie.text.incoming import NOTHING, Known, known
from finetune.committed import Given
from finetune.model import BATCH_TOKENS, FinetunedModel
from tasks.downstream.translate import Translate


class Translating(Given[Translations]):
    """The state of some streams of text: that of their tokens, and how much of their translations was handed out."""

    kind = Translations

    @property
    def progress(self) -> tuple[Progress, ...]:
        """How far each stream is, in tokens."""
        return self.tokens.progress


class TextTranslator:
    """Translates streams of text; what is committed is handed out word by word, once nothing can join the word.

    It keeps no state: `push` and `finish` take one and give the next (see `ernie.decode.stream`).
    """

    def __init__(self, model: FinetunedModel, policy: WaitK | None = None, beam: int | None = None):
        task = model.task
        if not isinstance(task, Translate):
            raise UserError(f"this model is of the kind {task.variant_name}; those of the kind translate do")
        self._tokenizer = model.tokenizer
        self._tokens = task.translator(model.ernie, model.head, model.task_id, policy, beam)

    @classmethod
    def load(cls, run: str | Path, wait_k: int | None = None, beam: int | None = None) -> TextTranslator:
        """The translator of a fine-tuning run; `wait_k` is another distance than that which it learnt."""
        model = FinetunedModel.load(run)
        policy = WaitK(wait_k, getattr(model.task, "catch_up", 0.0)) if wait_k is not None else None
        return cls(model, policy, beam)

    def begin(self, streams: int = 1) -> Translating:
        """The state of streams of which nothing has come yet."""
        return Translating(self._tokens.begin(streams), ("",) * streams, (NOTHING,) * streams)

    def push(self, state: Translating, pieces: Sequence[str]) -> tuple[Translating, list[str]]:
        """More text of each stream, which ends where a word does; what is translated of it so far and was not before.

        Of a script without spaces whole runs of letters are read, where the vocabulary joins them: a piece of it may
        begin with a space, if there is one.  Raises UserError for more text than the model has positions for.
        """
        each = zip(_held(state), text_of_each(state, pieces), strict=True)
        found = [known(self._tokenizer, held, piece) if piece else Known([], held) for held, piece in each]
        return self._told(*self._read(state, found))

    def finish(self, state: Translating) -> tuple[Translating, list[str]]:
        """All texts are over; the rest of the translations."""
        state, tokens = self._read(state, [known(self._tokenizer, held, "", ended=True) for held in _held(state)])
        return self._told(state, self._tokens.finish(tokens)[0])

    def translate(self, texts: Sequence[str], names: Sequence[str] = ()) -> list[tuple[str, Progress]]:
        """The translations of whole texts, and how each came about; `names` are what messages call the texts.

        Raises UserError for what is no list of texts, and for a text with more tokens than the model has positions for.
        """
        if isinstance(texts, str):
            raise UserError(f"expected several texts, such as a list, found {texts!r:.60}")
        check_several(texts, "texts")
        ids = [self._ids(text) for text in texts]
        found: dict[int, tuple[str, Progress]] = {}
        for chosen in plan_by_length([len(one) + 2 for one in ids], BATCH_TOKENS):
            longest = max(chosen, key=lambda i: len(ids[i]))
            with about(names[longest]) if names else nullcontext():
                progress = self._tokens.translate([ids[i] for i in chosen])
            for i, one in zip(chosen, progress, strict=True):
                found[i] = self._tokenizer.decode(one.written), one
        return [found[i] for i in range(len(texts))]

    def fits(self, text: str) -> bool:
        """Whether the model has positions for a text."""
        return len(self._ids(text)) <= self._tokens.longest

    def _ids(self, text: str) -> np.ndarray:
        """The tokens of a whole text; of one in which nothing can be seen there are none."""
        if not isinstance(text, str):
            raise UserError(f"expected a text, found {text!r:.60}")
        return self._tokenizer.encode("" if is_blank(text) else text).ids

    def _read(self, state: Translating, found: Sequence[Known]) -> tuple[Translating, Translations]:
        """The state with what is held back now, and that of its tokens with those that are known."""
        tokens, _ = self._tokens.push(state.tokens, [np.array(one.ids, np.int64) for one in found])
        return replace(state, held=tuple(one.held for one in found)), tokens

    def _told(self, state: Translating, tokens: Translations) -> tuple[Translating, list[str]]:
        ids = [one.written for one in tokens.progress]
        return state.told(tokens, ids, [one.done for one in tokens.progress], self._tokenizer.decode)


def _held(state: Translating) -> tuple[str, ...]:
    """What is held back of each stream: nothing of those that were kept in a file before anything was."""
    return state.held or (NOTHING,) * state.streams
