"""Translation of text as it comes in: words are pushed, words come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ernie.data.batch import plan_by_length
from ernie.decode.stream import part, under
from ernie.decode.translator import Progress, Translations
from ernie.decode.wait_k import WaitK
from ernie.errors import UserError, about
from finetune.committed import newly_sure
from finetune.model import BATCH_TOKENS, FinetunedModel
from tasks.downstream.translate import Translate


@dataclass(frozen=True, eq=False)
class Translating:
    """The state of some streams of text: that of their tokens, and how much of each translation was handed out."""

    tokens: Translations
    given: tuple[str, ...]

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return self.tokens.streams

    @property
    def progress(self) -> tuple[Progress, ...]:
        """How far each stream is, in tokens."""
        return self.tokens.progress

    def chosen(self, streams: Sequence[int]) -> Translating:
        """These streams only, in this order."""
        return Translating(self.tokens.chosen(streams), tuple(self.given[n] for n in streams))

    def with_others(self, others: Sequence[Translating]) -> Translating:
        """The streams of this state and those of others, in their order."""
        given = tuple(text for state in (self, *others) for text in state.given)
        return Translating(self.tokens.with_others([state.tokens for state in others]), given)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, as arrays by name."""
        return {"given": np.array(self.given, str), **under("tokens", self.tokens.arrays())}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Translating:
        """The state of which `arrays` gave these."""
        return cls(Translations.of_arrays(part("tokens", arrays)), tuple(map(str, arrays["given"])))


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
        return Translating(self._tokens.begin(streams), ("",) * streams)

    def push(self, state: Translating, pieces: Sequence[str]) -> tuple[Translating, list[str]]:
        """More text of each stream, which ends where a word does; what is translated of it so far and was not before.

        Raises UserError for more text than the model has positions for.
        """
        ids = [self._tokenizer.encode(piece).ids for piece in pieces]
        return self._told(state, self._tokens.push(state.tokens, ids)[0])

    def finish(self, state: Translating) -> tuple[Translating, list[str]]:
        """All texts are over; the rest of the translations."""
        return self._told(state, self._tokens.finish(state.tokens)[0])

    def translate(self, texts: Sequence[str], names: Sequence[str] = ()) -> list[tuple[str, Progress]]:
        """The translations of whole texts, and how each came about; `names` are what messages call the texts.

        Raises UserError for a text with more tokens than the model has positions for.
        """
        ids = [self._tokenizer.encode(text).ids for text in texts]
        found: dict[int, tuple[str, Progress]] = {}
        for chosen in plan_by_length([len(one) + 2 for one in ids], BATCH_TOKENS):
            longest = max(chosen, key=lambda i: len(ids[i]))
            with about(names[longest]) if names else nullcontext():
                progress = self._tokens.translate([ids[i] for i in chosen])
            for i, one in zip(chosen, progress, strict=True):
                found[i] = self._tokenizer.decode(one.written), one
        return [found[i] for i in range(len(texts))]

    def _told(self, state: Translating, tokens: Translations) -> tuple[Translating, list[str]]:
        texts = [(self._tokenizer.decode(one.written), one.done) for one in tokens.progress]
        new = [newly_sure(given, text, done) for given, (text, done) in zip(state.given, texts, strict=True)]
        return replace(state, tokens=tokens, given=tuple(map("".join, zip(state.given, new, strict=True)))), new
