"""Streaming translation: push words, get words."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np

from ernie.data.batch import plan_by_length
from ernie.decode.stream import check_state, check_texts
from ernie.decode.translator import Progress, TranslationState
from ernie.decode.wait_k import WaitK
from ernie.errors import Remark, UserError, about, check_iterable
from ernie.kernels.precision import InferencePrecisionChoice
from ernie.text.blank import is_blank
from ernie.text.incoming import INITIAL_HELD, StableTokens, stable_tokens
from inference.incremental_text import CommittedText
from inference.task_model import BATCH_TOKENS, TaskModel
from tasks.downstream.translate import Translate


class TextTranslatorState(CommittedText[TranslationState]):
    """The state of some streams of text: the state of their tokens, and the committed part of their translations."""

    kind = TranslationState

    @property
    def progress(self) -> tuple[Progress, ...]:
        """The progress of each stream, in tokens."""
        return self.tokens.progress


class TextTranslator:
    """Translates streams of text; a word is committed once nothing can extend it.

    It is stateless: `push` and `finish` take a state and return the next one (see `ernie.decode.stream`).  It computes
    in the precision of its model, as `ernie translate` does.
    """

    def __init__(self, model: TaskModel, policy: WaitK | None = None, beam: int | None = None):
        task = model.task
        if not isinstance(task, Translate):
            raise UserError(
                f"this model is of the kind {task.variant_name}; only those of the kind translate can translate"
            )
        self._tokenizer, self._noted_unknown = model.tokenizer, False
        self._computing = model.computing
        self._tokens = task.translator(model.ernie, model.head, model.task_id, policy, beam)

    @classmethod
    def load(
        cls,
        run: str | Path,
        wait_k: int | None = None,
        beam: int | None = None,
        trust_plugins: Sequence[str] | bool = (),
        precision: InferencePrecisionChoice | None = None,
    ) -> TextTranslator:
        """Load the translator of a fine-tuning run; `wait_k` replaces the distance that it was trained for.

        `trust_plugins` and `precision` are those of `TaskModel.load`.
        """
        model = TaskModel.load(run, trust_plugins, precision)
        policy = WaitK(wait_k, getattr(model.task, "catch_up", 0.0)) if wait_k is not None else None
        return cls(model, policy, beam)

    def begin(self, streams: int = 1) -> TextTranslatorState:
        """Return the state of streams before any text."""
        return TextTranslatorState(self._tokens.begin(streams), ("",) * streams, (INITIAL_HELD,) * streams)

    def push(self, state: TextTranslatorState, pieces: Sequence[str]) -> tuple[TextTranslatorState, list[str]]:
        """Take more text of each stream, up to the end of a word; return what is newly translated of each.

        In a script without spaces whole runs of characters are read where the vocabulary joins them; a piece starts
        with a space if the text has one there.  Raises UserError for more text than the model has positions for.
        """
        check_state(state, TextTranslatorState)
        each = zip(_held(state), check_texts(state, pieces), strict=True)
        stable = [
            stable_tokens(self._tokenizer, held, piece) if piece else StableTokens([], held) for held, piece in each
        ]
        for held, piece, found in zip(_held(state), pieces, stable, strict=True):
            self._note_unknown(f"{held[1:]} {piece}", found.ids)  # the first is the end of what was read before
        return self._commit(*self._push(state, stable))

    def finish(self, state: TextTranslatorState) -> tuple[TextTranslatorState, list[str]]:
        """End all streams; return the rest of the translations."""
        check_state(state, TextTranslatorState)
        state, tokens = self._push(
            state, [stable_tokens(self._tokenizer, held, "", ended=True) for held in _held(state)]
        )
        with self._computing():
            return self._commit(state, self._tokens.finish(tokens)[0])

    def translate(self, texts: Sequence[str], names: Sequence[str] = ()) -> list[tuple[str, Progress]]:
        """Return the translation of each whole text and its progress; `names` are the names of the texts in messages.

        Raises UserError for anything but several texts, and for a text with more tokens than the model has positions.
        """
        if isinstance(texts, str):
            raise UserError(f"expected several texts, such as a list, found {texts!r:.60}")
        check_iterable(texts, "texts")
        texts = list(texts)
        ids = [self._ids(text) for text in texts]
        for i, (text, text_ids) in enumerate(zip(texts, ids, strict=True)):
            self._note_unknown(text, text_ids, names[i] if names else "")
        translations: dict[int, tuple[str, Progress]] = {}
        for chosen in plan_by_length([len(text_ids) + 2 for text_ids in ids], BATCH_TOKENS):
            longest = max(chosen, key=lambda i: len(ids[i]))
            with about(names[longest]) if names else nullcontext(), self._computing():
                results = self._tokens.translate([ids[i] for i in chosen])
            for i, progress in zip(chosen, results, strict=True):
                translations[i] = self._tokenizer.decode(progress.written), progress
        return [translations[i] for i in range(len(texts))]

    def problem(self, text: str) -> str:
        """Return why a whole text cannot be translated, "" if it can."""
        return self._tokens.problem(len(self._ids(text)))

    def _note_unknown(self, text: str, ids: Sequence[int] | np.ndarray, name: str = "") -> None:
        """Warn of the first text with characters that the vocabulary lacks."""
        if not self._noted_unknown and self._tokenizer.unk_id in ids:
            self._noted_unknown = True
            message = f"'{' '.join(text.split()):.40}' has characters that the vocabulary lacks"
            where = f"{name}: " if name else ""
            warnings.warn(f"{where}{message}: here and in later texts they are read as unknown", Remark, stacklevel=3)

    def _ids(self, text: str) -> np.ndarray:
        """Return the tokens of a whole text, none if it has no visible character."""
        if not isinstance(text, str):
            raise UserError(f"expected a text, found {text!r:.60}")
        return self._tokenizer.encode("" if is_blank(text) else text).ids

    def _push(
        self, state: TextTranslatorState, stable: Sequence[StableTokens]
    ) -> tuple[TextTranslatorState, TranslationState]:
        """Push the stable tokens; return the state with the text now held back, and the new token state."""
        with self._computing():
            tokens, _ = self._tokens.push(state.tokens, [np.array(piece.ids, np.int64) for piece in stable])
        return replace(state, held=tuple(piece.held for piece in stable)), tokens

    def _commit(self, state: TextTranslatorState, tokens: TranslationState) -> tuple[TextTranslatorState, list[str]]:
        recent = [own.written[past:] for own, past in zip(tokens.progress, state.past_tokens, strict=True)]
        return state.commit(tokens, recent, [progress.done for progress in tokens.progress], self._tokenizer.decode)


def _held(state: TextTranslatorState) -> tuple[str, ...]:
    """Return the text that each stream holds back; state files of early versions have none."""
    return state.held or (INITIAL_HELD,) * state.streams
