"""Streaming translation: push words, get words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ernie.data.batch import plan_by_length
from ernie.decode.states import BatchState
from ernie.decode.stream import StreamDecoder, check_more_text, check_pieces, check_state, check_text, flags
from ernie.decode.translator import Progress, TranslationState
from ernie.decode.wait_k import WaitK
from ernie.errors import NotFinite, UserError, about, check_iterable
from ernie.kernels.precision import InferencePrecisionChoice
from ernie.outcome import Note, Outcome
from ernie.text.blank import is_blank
from ernie.text.incoming import END, INITIAL_HELD, Cut, StableTokens, cut_words, last_words, stable_tokens
from inference.face import Streaming, face
from inference.following import FollowedTranslation
from inference.incremental_text import CommittedText
from inference.predictor import Predictor
from inference.task_model import BATCH_TOKENS, TaskModel
from tasks.downstream.translate import Translate

_MOST_READ = 64  # words of a line that a step of endless text reads at most
_MOST_QUEUED = 256  # words that wait, above which a server holds back more
_TRIAL = 16  # tokens of a text that exercises a translator


@dataclass(frozen=True, eq=False)
class TextTranslatorState(CommittedText[TranslationState]):
    """The state of some streams of text: the state of their tokens, and the committed part of their translations.

    `held` is the text that each stream holds back (see `ernie.text.incoming`), which is read once the stream has
    `ended`; it is empty then.  `notes` are those of the next outcome.
    """

    tokens: TranslationState
    held: tuple[str, ...]
    ended: tuple[bool, ...]
    notes: tuple[tuple[Note, ...], ...]

    @property
    def progress(self) -> tuple[Progress, ...]:
        """The progress of each stream, in tokens."""
        return self.tokens.progress


@face("translate")
class TextTranslator(Predictor, StreamDecoder[TextTranslatorState, str, str]):
    """Translates streams of text; a word is committed once nothing can extend it.

    It is stateless: each call takes a state and returns the next one (see `ernie.decode.stream`).  It computes in the
    precision of its model, as `ernie translate` does.
    """

    def __init__(self, model: TaskModel, policy: WaitK | None = None, beam: int | None = None):
        super().__init__(model)
        task = model.task
        if not isinstance(task, Translate):
            raise UserError(
                f"this model is of the kind {task.variant_name}; only those of the kind translate can translate"
            )
        self._tokenizer = model.tokenizer
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
        **decoding: Any,
    ) -> TextTranslator:
        """Load the translator of a fine-tuning run; `wait_k` replaces the distance that it was trained for.

        `trust_plugins` and `precision` are those of `TaskModel.load`.  `decoding` changes other fields of the task,
        such as `confidence`, `agreement` and `max_wait_k`; as with `wait_k` and `beam`, None leaves a field as it is.
        """
        model = TaskModel.load(run, trust_plugins, precision)
        given = {"wait_k": wait_k, "beam": beam, **decoding}
        if isinstance(model.task, Translate) and (
            given := {key: given[key] for key in given if given[key] is not None}
        ):
            model.change_decoding(**given)
        return cls(model)

    @property
    def streaming(self) -> Streaming:
        """Text of any number of lines comes in, and a line goes out for each."""
        ids = range(len(self._tokenizer.tokens))[-_TRIAL:]
        trial = self._tokenizer.decode(list(ids))
        return Streaming(LineTranslator(self), None, None, trial, partial(FollowedTranslation, self._tokenizer.decode))

    def begin(self, streams: int = 1) -> TextTranslatorState:
        """Return the state of streams before any text."""
        with self._computing():
            tokens = self._tokens.begin(streams)
        return TextTranslatorState(
            tokens, ("",) * streams, (0,) * streams, (INITIAL_HELD,) * streams, (False,) * streams, ((),) * streams
        )

    def accept(
        self, state: TextTranslatorState, pieces: Sequence[str | None]
    ) -> tuple[TextTranslatorState, list[UserError | None]]:
        """Take more text of each stream, up to the end of a word.

        In a script without spaces whole runs of characters are read where the vocabulary joins them; a piece starts
        with a space if the text has one there.  More text than the model has positions for gives an error.
        """
        check_state(state, TextTranslatorState)
        stable, errors = list[StableTokens](), list[UserError | None]()
        for n, piece in enumerate(check_pieces(state, pieces)):
            error, found = None, StableTokens([], state.held[n])
            try:
                found = self._stable(state, n, piece) if piece is not None else found
            except UserError as problem:
                problem.stream, error = n, problem
            stable.append(found)
            errors.append(error)
        tokens, refused = self._tokens.accept(state.tokens, [np.array(found.ids, np.int64) for found in stable])
        errors = [own or other for own, other in zip(errors, refused, strict=True)]
        held, notes = list(state.held), list(state.notes)
        for n, (found, error) in enumerate(zip(stable, errors, strict=True)):
            if error is None:
                notes[n] += self._notes(state, n, pieces[n] or "", found.ids)
                held[n] = found.held
        return replace(state, tokens=tokens, held=tuple(held), notes=tuple(notes)), errors

    def end(self, state: TextTranslatorState, streams: Sequence[bool] | None = None) -> TextTranslatorState:
        """End the text of these streams, by default of all."""
        check_state(state, TextTranslatorState)
        each = zip(state.ended, flags(state, streams), strict=True)
        return replace(state, ended=tuple(before or bool(ends) for before, ends in each))

    @property
    def settings(self) -> Mapping[str, Any]:
        """`wait_k`: how many tokens a stream stays behind its source; None for the whole of it."""
        return self._tokens.settings

    def change(self, state: TextTranslatorState, changes: Sequence[Mapping[str, Any] | None]) -> TextTranslatorState:
        """Change the distance of streams: `wait_k`, or None for that of the translator."""
        check_state(state, TextTranslatorState)
        return replace(state, tokens=self._tokens.change(state.tokens, changes))

    def pending(self, state: TextTranslatorState) -> list[bool]:
        """Return which streams may write another token, have something to be read, or have notes."""
        check_state(state, TextTranslatorState)
        each = zip(self._tokens.pending(state.tokens), self._unread(state), state.notes, strict=True)
        return [tokens or unread or bool(notes) for tokens, unread, notes in each]

    def joined(self, outputs: Sequence[str]) -> str:
        """Return consecutive outputs of a stream as one."""
        return "".join(outputs)

    @contextmanager
    def context(self) -> Iterator[None]:
        """Compute in the precision of the model."""
        with self._computing(), self._tokens.context():
            yield

    def advance(self, state: TextTranslatorState, most: int | None) -> tuple[TextTranslatorState, list[Outcome[str]]]:
        """Read tokens and write at most one in each stream; return what is newly translated of each.

        What is held back when a text ends may be too long: an error, after which the stream is over.
        """
        check_state(state, TextTranslatorState)
        before, unread = state, self._unread(state)
        state, errors = self._with_rest(state, unread)
        tokens, outcomes = self._tokens.advance(state.tokens, most)
        recent = [
            None if own is earlier else own.written[past:]
            for own, earlier, past in zip(tokens.progress, before.tokens.progress, state.past, strict=True)
        ]
        state, texts = state.commit(tokens, recent, [own.done for own in tokens.progress], self._tokenizer.decode)
        state = replace(state, notes=((),) * state.streams)
        return state, [
            Outcome(text if (failed := error or own.error) is None else None, failed, notes)
            for text, error, own, notes in zip(texts, errors, outcomes, before.notes, strict=True)
        ]

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
            if self._tokenizer.unk_id in text_ids:
                note = _unknown(text)
                self._show([replace(note, text=f"{names[i]}: {note.text}") if names else note], level=3)
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

    def _notes(self, state: TextTranslatorState, n: int, piece: str, ids: Sequence[int]) -> tuple[Note, ...]:
        """Return a note about the first piece of a stream with characters that the vocabulary lacks."""
        unknown = self._tokenizer.unk_id
        if unknown not in ids or unknown in state.tokens.progress[n].read:
            return ()
        return (replace(_unknown(f"{state.held[n][1:]} {piece}"), stream=n),)  # without the end of what was read before

    def _stable(self, state: TextTranslatorState, n: int, piece: str) -> StableTokens:
        """Return the tokens that a piece of text makes stable.  Raises UserError for what cannot be read."""
        check_text(piece)
        if piece and state.ended[n]:
            raise UserError("the source of this stream is over; begin another one")
        return stable_tokens(self._tokenizer, state.held[n], piece) if piece else StableTokens([], state.held[n])

    def _unread(self, state: TextTranslatorState) -> list[bool]:
        """Return which streams have ended, but hold text back."""
        return [ended and held != "" for ended, held in zip(state.ended, state.held, strict=True)]

    def _with_rest(
        self, state: TextTranslatorState, unread: Sequence[bool]
    ) -> tuple[TextTranslatorState, list[UserError | None]]:
        """Read the text that these streams hold back, and end their sources."""
        if not any(unread):
            return state, [None] * state.streams
        ids = [
            np.array(stable_tokens(self._tokenizer, held, "", ended=True).ids, np.int64) if reads else None
            for held, reads in zip(state.held, unread, strict=True)
        ]
        tokens, errors = self._tokens.accept(state.tokens, ids)
        tokens = self._tokens.stop(self._tokens.end(tokens, unread), [error is not None for error in errors])
        held = tuple("" if reads else own for own, reads in zip(state.held, unread, strict=True))
        return replace(state, tokens=tokens, held=held), errors

    def _ids(self, text: str) -> np.ndarray:
        """Return the tokens of a whole text, none if it has no visible character."""
        if not isinstance(text, str):
            raise UserError(f"expected a text, found {text!r:.60}")
        return self._tokenizer.encode("" if is_blank(text) else text).ids


def _unknown(text: str) -> Note:
    words = " ".join(text.split())
    return Note(
        f"'{words:.40}' has characters that the vocabulary lacks: here and in later texts they are read as unknown",
        topic="characters that the vocabulary lacks",
    )


@dataclass(frozen=True, eq=False)
class LineTranslatorState(BatchState):
    """The state of some streams of text of many lines: that of the `line` of each which is being translated.

    `cuts` say how far the text is cut into words, and `words` wait to be read, END at the end of each line.  `numbers`
    count the lines from 1.  Of a line that is `left_out`, nothing more is read.  A stream that has `ended` takes no
    more text.  `latest` is the progress of the line that the last step was for, which may be over.
    """

    line: TextTranslatorState
    cuts: tuple[Cut, ...]
    words: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...]
    left_out: tuple[bool, ...]
    ended: tuple[bool, ...]
    latest: tuple[Progress, ...]


class LineTranslator(StreamDecoder[LineTranslatorState, str, str]):
    """Translates streams of text of any length: each of their lines by itself, as a stream of the translator.

    Text may be cut anywhere, also within words.  The output is what `ernie translate` writes: a line break follows
    each translated line.  A line that is too long is translated up to there, with a note.
    """

    def __init__(self, translator: TextTranslator):
        self._translator = translator

    @cached_property
    def _new_line(self) -> TextTranslatorState:
        return self._translator.begin()

    def begin(self, streams: int = 1) -> LineTranslatorState:
        """Return the state of streams before any text."""
        nothing = (Cut(),) * streams, ((),) * streams, (1,) * streams, (False,) * streams, (False,) * streams
        return LineTranslatorState(self._new_line.select([0] * streams), *nothing, (Progress(),) * streams)

    def accept(
        self, state: LineTranslatorState, pieces: Sequence[str | None]
    ) -> tuple[LineTranslatorState, list[UserError | None]]:
        """Take more text of each stream.  Anything that is no text gives an error, and so does text after the end."""
        check_state(state, LineTranslatorState)
        self._translator.accept(state.line, [None] * state.streams)  # raises UserError for a state of another model
        cuts, words, errors = list(state.cuts), list(state.words), list[UserError | None]()
        for n, piece in enumerate(check_pieces(state, pieces)):
            errors.append(None)
            if piece is None:
                continue
            try:
                check_more_text(piece, state.ended[n])
            except UserError as error:
                error.stream, errors[n] = n, error
                continue
            cuts[n], found = cut_words(cuts[n], piece)
            words[n] += tuple(found)
        return replace(state, cuts=tuple(cuts), words=tuple(words)), errors

    def end(self, state: LineTranslatorState, streams: Sequence[bool] | None = None) -> LineTranslatorState:
        """End the text of these streams, by default of all."""
        check_state(state, LineTranslatorState)
        cuts, words, ended = list(state.cuts), list(state.words), list(state.ended)
        for n, ends in enumerate(flags(state, streams)):
            if ends:
                words[n] += tuple(last_words(cuts[n]))
                cuts[n], ended[n] = Cut(), True
        return replace(state, cuts=tuple(cuts), words=tuple(words), ended=tuple(ended))

    @property
    def settings(self) -> Mapping[str, Any]:
        """`wait_k`: how many tokens a line stays behind its source; None for the whole of it."""
        return self._translator.settings

    def change(self, state: LineTranslatorState, changes: Sequence[Mapping[str, Any] | None]) -> LineTranslatorState:
        """Change the distance of streams, in this line and all later ones: `wait_k`, or None for the translator's."""
        check_state(state, LineTranslatorState)
        return replace(state, line=self._translator.change(state.line, changes))

    def pending(self, state: LineTranslatorState) -> list[bool]:
        """Return which streams have words to read or to write."""
        check_state(state, LineTranslatorState)
        return [
            bool(words) or own for words, own in zip(state.words, self._translator.pending(state.line), strict=True)
        ]

    def has_room(self, state: LineTranslatorState) -> list[bool]:
        """Return in which streams few words wait."""
        return [len(words) < _MOST_QUEUED for words in state.words]

    def joined(self, outputs: Sequence[str]) -> str:
        """Return consecutive outputs of a stream as one."""
        return "".join(outputs)

    @contextmanager
    def context(self) -> Iterator[None]:
        """Compute in the precision of the model."""
        with self._translator.context():
            yield

    def advance(self, state: LineTranslatorState, most: int | None) -> tuple[LineTranslatorState, list[Outcome[str]]]:
        """Read words of the line of each stream, and write at most one token of it.

        A stream whose scores are not finite has an error and is over.  A line with another error is left out from
        there on, with a note.
        """
        check_state(state, LineTranslatorState)
        state, notes = self._with_words(state)
        line, found = self._translator.advance(state.line, most)
        waits, outcomes = self._translator.pending(line), list[Outcome[str]]()
        order, numbers = list(range(state.streams)), list(state.numbers)
        for n, (outcome, own_notes) in enumerate(zip(found, notes, strict=True)):
            own_notes, text = (*own_notes, *outcome.notes), outcome.value or ""
            if isinstance(outcome.error, NotFinite):
                outcomes.append(Outcome(error=outcome.error, notes=own_notes))
                state = self._over(state, n)
                continue
            if outcome.error is not None:
                own_notes += (self._note(state, n, outcome.error),)
            if line.ended[n] and not waits[n] and not state.left_out[n]:
                text += END
                order[n], numbers[n] = state.streams, numbers[n] + 1
            outcomes.append(Outcome(text, notes=own_notes))
        latest = line.progress
        if state.streams in order:
            line = line.concat([self._new_line]).select(order)
            kept = ({"wait_k": own.wait_k} if own.wait_k else None for own in latest)
            line = self._translator.change(line, list(kept))
        return replace(state, line=line, numbers=tuple(numbers), latest=latest), outcomes

    def _with_words(self, state: LineTranslatorState) -> tuple[LineTranslatorState, list[tuple[Note, ...]]]:
        """Let each line read its next words, and end those that have no more; return notes on lines left out."""
        words, left_out, ends = list(state.words), list(state.left_out), [False] * state.streams
        pieces = [list[str]() for _ in words]
        for n, waiting in enumerate(words):
            size = waiting.index(END) if END in waiting else len(waiting)
            if left_out[n]:
                words[n], left_out[n] = waiting[size + 1 :], END not in waiting
            elif not state.line.ended[n]:
                size = min(size, _MOST_READ)
                ends[n] = waiting[size : size + 1] == (END,)
                pieces[n], words[n] = list(waiting[:size]), waiting[size + ends[n] :]
        line, errors = self._translator.accept(state.line, ["".join(own) if own else None for own in pieces])
        notes: list[tuple[Note, ...]] = [()] * state.streams
        for n in (n for n, error in enumerate(errors) if error is not None):
            line, error = self._accepted(line, n, pieces[n])
            if error is not None:
                notes[n] = (self._note(state, n, error),)
                left_out[n], ends[n] = not ends[n], True
        line = self._translator.end(line, ends)
        return replace(state, line=line, words=tuple(words), left_out=tuple(left_out)), notes

    def _accepted(
        self, line: TextTranslatorState, n: int, words: Sequence[str]
    ) -> tuple[TextTranslatorState, UserError | None]:
        """Let one line read words one by one, up to the first that it cannot take."""
        for word in words:
            line, errors = self._translator.accept(
                line, [word if other == n else None for other in range(line.streams)]
            )
            if errors[n] is not None:
                return line, errors[n]
        return line, None

    def _over(self, state: LineTranslatorState, n: int) -> LineTranslatorState:
        """Return the state with a stream that is over."""
        cuts, words, ended = list(state.cuts), list(state.words), list(state.ended)
        cuts[n], words[n], ended[n] = Cut(), (), True
        return replace(state, cuts=tuple(cuts), words=tuple(words), ended=tuple(ended))

    def _note(self, state: LineTranslatorState, n: int, error: UserError) -> Note:
        return Note(f"line {state.numbers[n]} could not be translated to the end: {error}", stream=n)
