"""Simultaneous translation of token streams, greedily while a source is read and by beam search once it is over.

Ma et al., 2019, "STACL" (arXiv 1810.08398), sections 3 and 4.  Legend: N streams, V vocabulary, B hypotheses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ernie.data.batch import Layout
from ernie.decode.stream import of_each, one_model, part, under
from ernie.decode.wait_k import WaitK
from ernie.errors import UserError
from ernie.kernels.mask import Mask
from ernie.model.decoder import Source
from ernie.model.ernie import ErnieModel
from ernie.model.inference import evaluating, identity, tokenizer_of
from ernie.model.memory import Memory
from ernie.model.reading import sources_of
from ernie.model.translation import TranslationHead

_LONGER, _MORE = 2, 10  # a target has at most so many times the tokens of its source, and so many more
_PENALTY = 0.6  # of short hypotheses: Wu et al., 2016 (arXiv 1609.08144), section 7


@dataclass(frozen=True)
class Progress:
    """How far a stream is: tokens `read` after [CLS], [SEP] being the last where it has `ended`; tokens `written`.

    `delays` are how many tokens were read before each that is written.  It is `done` when nothing follows.  `waited` is
    how many tokens more than the policy asks for have been read, because the likeliest token was the end.
    """

    read: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    delays: tuple[int, ...] = ()
    ended: bool = False
    done: bool = False
    waited: int = 0

    @property
    def source(self) -> int:
        """How many tokens of the source were read, its end not counted."""
        return len(self.read) - self.ended

    @property
    def behind(self) -> tuple[int, ...]:
        """The delays in tokens of the source: with its end all of it was read, and no more."""
        return tuple(min(delay, self.source) for delay in self.delays)


@dataclass(frozen=True, eq=False)
class Translations:
    """The state of N streams: how far each is, and what the layers remember of it.

    `encoder` are the keys and values of the encoder's own layers where it is causal, `seen` those that the decoder
    looks at, and `own` those of what it has written.  `model` tells the model that they are of from others.
    """

    progress: tuple[Progress, ...]
    encoder: Memory
    seen: Memory
    own: Memory
    model: str = ""

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return len(self.progress)

    def chosen(self, streams: Sequence[int]) -> Translations:
        """These streams only, in this order; one may be there several times."""
        encoder, seen, own = (memory.chosen(streams) for memory in (self.encoder, self.seen, self.own))
        return Translations(tuple(self.progress[n] for n in streams), encoder, seen, own, self.model)

    def with_others(self, others: Sequence[Translations]) -> Translations:
        """The streams of this state and those of others, in their order."""
        every = [self, *others]
        progress = tuple(one for state in every for one in state.progress)
        return Translations(
            progress,
            Memory.joined([state.encoder for state in every]),
            Memory.joined([state.seen for state in every]),
            Memory.joined([state.own for state in every]),
            one_model(state.model for state in every),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, as arrays by name."""
        memories = {"encoder": self.encoder, "seen": self.seen, "own": self.own}
        found = {
            "progress": np.array([json.dumps(asdict(one)) for one in self.progress]),
            "model": np.array(self.model),
        }
        for name, memory in memories.items():
            found |= under(name, memory.arrays())
        return found

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Translations:
        """The state of which `arrays` gave these."""
        progress = [_progress(json.loads(str(one))) for one in arrays["progress"]]
        encoder, seen, own = (Memory.of_arrays(part(name, arrays)) for name in ("encoder", "seen", "own"))
        return cls(tuple(progress), encoder, seen, own, str(arrays.get("model", "")))


def _progress(told: dict[str, Any]) -> Progress:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
    return Progress(**fields)


class TokenTranslator:
    """Translates streams of tokens, a `policy` saying when to read and when to write.

    With `causal` the encoder sees no later tokens and every token is encoded once; otherwise what was read so far is
    encoded anew, all of its tokens seeing one another, whenever more of it is needed.  `beam` hypotheses are followed
    once a source is over; with 1 the likeliest token is taken each time.  `max_len` is how long the samples were that
    the model learnt from, special tokens included: behind them are positions that no one has taught it.
    """

    def __init__(
        self,
        ernie: ErnieModel,
        head: TranslationHead,
        policy: WaitK,
        *,
        causal: bool = True,
        beam: int = 1,
        task_id: int = 0,
        max_len: int | None = None,
    ):
        self._positions = min(ernie.config.max_positions, max_len or ernie.config.max_positions)
        self._ernie, self._head, self._policy, self._task_id = ernie, head, policy, task_id
        self._causal, self._beam = causal, beam
        tokenizer = tokenizer_of(ernie)
        self._begin, self._end = tokenizer.cls_id, tokenizer.sep_id
        self._never = [tokenizer.cls_id, tokenizer.pad_id, tokenizer.mask_id, tokenizer.unk_id]

    @cached_property
    def _model(self) -> str:
        return identity(self._ernie, self._head)

    def begin(self, streams: int = 1) -> Translations:
        """The state of streams of which nothing has been read."""
        return replace(self._begun(streams), model=self._model)

    def _begun(self, streams: int) -> Translations:
        nothing = Memory.empty(streams)
        state = Translations((Progress(),) * streams, nothing, nothing, nothing)
        with self._evaluating():
            return self._read(state, [np.array([self._begin])] * streams) if self._causal else state

    def push(self, state: Translations, pieces: Sequence[np.ndarray]) -> tuple[Translations, list[list[int]]]:
        """Read more tokens of each source, (n,); the tokens that are written now.

        Raises UserError for a source with more tokens than the model has learnt, for one that is over, and for a state
        of another model.
        """
        arrays = [np.asarray(piece, np.int64) for piece in of_each(state, pieces)]
        return self._go_on(state, arrays, [False] * state.streams)

    def finish(self, state: Translations) -> tuple[Translations, list[list[int]]]:
        """All sources are over; the rest of what is written."""
        pieces = [np.array([], np.int64) if one.ended else np.array([self._end]) for one in state.progress]
        return self._go_on(state, pieces, [True] * state.streams)

    def translate(self, sources: Sequence[np.ndarray]) -> tuple[Progress, ...]:
        """Whole sources, (n,) each, from their beginning to the end of their translations.  Raises as `push` does."""
        state, _ = self.push(self._begun(len(sources)), sources)
        return self.finish(state)[0].progress

    @property
    def longest(self) -> int:
        """How many tokens a source may have."""
        return self._positions - 2

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        with evaluating(self._ernie), evaluating(self._head):
            yield

    def _go_on(
        self, state: Translations, pieces: Sequence[np.ndarray], ends: Sequence[bool]
    ) -> tuple[Translations, list[list[int]]]:
        if state.model:
            one_model([state.model, self._model])
        before = [len(one.written) for one in state.progress]
        progress = []
        for one, piece, end in zip(state.progress, pieces, ends, strict=True):
            if one.ended and len(piece):
                raise UserError("the source of this stream is over; begin another one")
            if len(one.read) + len(piece) - end > self.longest:
                raise UserError(
                    f"a source has more than {self.longest} tokens, and this model has learnt from none so long; cut it"
                )
            read, ended = (*one.read, *piece.tolist()), one.ended or end
            progress.append(replace(one, read=read, ended=ended, done=one.done or (ended and len(read) == 1)))
        with self._evaluating():
            state = replace(state, progress=tuple(progress))
            if self._causal:
                state = self._read(state, pieces)
            state = self._write(state)
        return state, [list(one.written[n:]) for one, n in zip(state.progress, before, strict=True)]

    def _read(self, state: Translations, pieces: Sequence[np.ndarray]) -> Translations:
        """Encode tokens behind those that were encoded."""
        if not any(len(piece) for piece in pieces):
            return state
        batch, before = sources_of(pieces), state.encoder
        places = batch.layout.positions + np.repeat(before.layout.lengths, batch.layout.lengths)
        x_SD = self._ernie.embedding(batch.ids, batch.segments, places, self._task_id)
        hidden_SD, encoder = self._ernie.encoder.go_on(x_SD, batch.layout, before)
        seen = state.seen.extended(batch.layout, self._head.decoder.read(hidden_SD))
        return replace(state, encoder=encoder, seen=seen)

    def _write(self, state: Translations) -> Translations:
        """Write for as long as the policy lets any stream."""
        while True:
            ready = [n for n, one in enumerate(state.progress) if not one.done and self._reads(one) <= len(one.read)]
            over = [n for n in ready if self._is_over(state.progress[n])] if self._beam > 1 else []
            if over:
                state = self._search(state, over)
            elif ready:
                state = self._step(state, ready)
            else:
                return state

    def _reads(self, one: Progress) -> int:
        """How many tokens are to be read before the next one is written."""
        most = len(one.read) if one.ended else self._ernie.config.max_positions
        return min(most, int(self._policy.reads(np.array([len(one.written)]), np.array([most]))[0]) + one.waited)

    def _is_over(self, one: Progress) -> bool:
        return one.ended and self._reads(one) == len(one.read)

    def _most(self, one: Progress) -> int:
        """How many tokens a target may have: in proportion to its source, once all of that is there."""
        most = self._positions - 1
        return min(_LONGER * len(one.read) + _MORE, most) if one.ended else most

    def _step(self, state: Translations, ready: list[int]) -> Translations:
        """Write one token in each of these streams, or find that there is nothing to write before more is read.

        A sentence is not over before its source is: what is learnt from targets that are shorter than their sources is
        to end them early, and a token forced in the end's place would be noise.
        """
        progress = state.progress
        reads = np.array([self._reads(progress[n]) for n in ready])
        state, source = self._source(state, ready, reads)
        now = np.isin(np.arange(state.streams), ready).astype(np.int64)
        scores_NV, own = self._scores([progress[n] for n in ready], Layout.of_lengths(now), source, state.own)
        changed = list(progress)
        remembers = np.arange(state.streams, 2 * state.streams)  # of the memories before this step and behind it
        for n, read, scores_V in zip(ready, reads, scores_NV, strict=True):
            one, token = progress[n], int(scores_V.argmax())
            if token == self._end and not self._is_over(one):
                changed[n] = replace(one, waited=one.waited + 1)
                remembers[n] = n  # from the same token again, once more of the source is there
            else:
                changed[n] = self._with_token(one, token, int(read))
        if (remembers < state.streams).any():
            own = Memory.joined([state.own, own]).chosen(remembers)
        return replace(state, progress=tuple(changed), own=own)

    def _with_token(self, one: Progress, token: int, read: int) -> Progress:
        if token == self._end:
            return replace(one, done=True)
        written = (*one.written, token)
        return replace(one, written=written, delays=(*one.delays, read), done=len(written) >= self._most(one))

    def _source(self, state: Translations, streams: list[int], reads: np.ndarray) -> tuple[Translations, Source]:
        """What these streams look at, after so many tokens of each; they are encoded first where need be."""
        now = np.isin(np.arange(state.streams), streams).astype(np.int64)
        layout = Layout.of_lengths(now)
        if self._causal:
            return state, Source(state.seen, layout, Mask.until(reads + 1))
        stale = [
            (n, int(read)) for n, read in zip(streams, reads, strict=True) if state.seen.layout.lengths[n] != read + 1
        ]
        if stale:
            batch = sources_of([np.array([self._begin, *state.progress[n].read[:read]]) for n, read in stale])
            hidden_SD = self._ernie.encode_packed(batch, self._task_id)
            found = Memory(batch.layout, self._head.decoder.read(hidden_SD))
            order = np.arange(state.streams)
            order[[n for n, _ in stale]] = state.streams + np.arange(len(stale))
            state = replace(state, seen=Memory.joined([state.seen, found]).chosen(order))
        return state, Source(state.seen, layout)

    def _scores(
        self, ready: Sequence[Progress], layout: Layout, source: Source, own: Memory
    ) -> tuple[np.ndarray, Memory]:
        """The scores (N, V) of what may follow in the streams that have a token in `layout`, and what they remember."""
        last = np.array([one.written[-1] if one.written else self._begin for one in ready], np.int64)
        x_ND, own = self._head.go_on(last, layout, source, own)
        scores_NV = self._head.scores(x_ND)
        scores_NV[:, self._never] = -np.inf
        return scores_NV, own

    def _search(self, state: Translations, streams: list[int]) -> Translations:
        """Finish these streams, whose sources are over, by beam search."""
        B = self._beam
        reads = np.array([len(state.progress[n].read) for n in streams])
        state, source = self._source(state, streams, reads)
        beams = [_Beam([(0.0, state.progress[n])], []) for n in streams]
        rows = list(streams)  # of the memories, one for each hypothesis that goes on
        own = state.own.chosen(rows)
        while rows:
            alive = [one for beam in beams for _, one in beam.alive]
            layout = Layout.of_lengths([1] * len(alive))
            scores_HV, own = self._scores(alive, layout, Source(source.memory.chosen(rows), layout), own)
            first, parents, rows_now = 0, [], []
            for n, beam in zip(streams, beams, strict=True):
                count = len(beam.alive)
                kept = beam.step(scores_HV[first : first + count], B, self._with_token)
                parents += [first + parent for parent in kept]
                rows_now += [n] * len(kept)
                first += count
            own, rows = own.chosen(parents), rows_now
        changed = list(state.progress)
        for n, beam in zip(streams, beams, strict=True):
            changed[n] = beam.best()
        return replace(state, progress=tuple(changed))


@dataclass
class _Beam:
    """The hypotheses of one stream: those that go on, with the sums of their scores, and those that are done, with
    these by their lengths."""

    alive: list[tuple[float, Progress]]
    done: list[tuple[float, Progress]]

    def step(self, scores_HV: np.ndarray, most: int, with_token: Callable[[Progress, int, int], Progress]) -> list[int]:
        """Go on with the `most` best hypotheses of one token more; for each, which one it goes on from."""
        if not self.alive:
            return []
        sums_HV = scores_HV + np.array([score for score, _ in self.alive])[:, None]
        flat = sums_HV.ravel()
        count = min(2 * most, flat.size)
        near = np.flatnonzero(flat >= np.partition(flat, -count)[-count])  # those that are as good as the last one, too
        best = near[np.argsort(-flat[near], kind="stable")][:count]
        alive: list[tuple[float, Progress]] = []
        parents: list[int] = []
        for place in best[np.isfinite(flat[best])]:
            parent, token = divmod(int(place), sums_HV.shape[1])
            one = self.alive[parent][1]
            grown = with_token(one, token, len(one.read))
            if grown.done:
                self.done.append((float(flat[place]) / _penalty(len(grown.written) + 1), grown))
            elif len(alive) < most:
                alive.append((float(flat[place]), grown))
                parents.append(parent)
        over = self._is_over(alive)
        self.alive = [] if over else alive
        return [] if over else parents

    def _is_over(self, alive: Sequence[tuple[float, Progress]]) -> bool:
        """Whether the best of those that go on, the first, would be no better than the best that is done, if it ended.

        A sum only falls.  That longer ones divide it by more is left out: to gain by that takes many tokens which are
        all but certain, and to wait for it takes steps up to the longest that there may be.
        """
        if not alive or not self.done:
            return not alive
        score, one = alive[0]
        return max(done for done, _ in self.done) >= score / _penalty(len(one.written) + 1)

    def best(self) -> Progress:
        return max(self.done, key=lambda scored: scored[0])[1]


def _penalty(length: int) -> float:
    return ((5 + length) / 6) ** _PENALTY
