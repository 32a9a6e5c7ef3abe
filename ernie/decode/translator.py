"""Simultaneous translation of token streams: greedy while a source is read, by beam search once it is over.

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
from ernie.decode.stream import check_pieces, check_streams, common_model, strip_prefix, with_prefix
from ernie.decode.wait_k import WaitK
from ernie.errors import UserError
from ernie.kernels.mask import Mask
from ernie.model.cache import KeyValueCache
from ernie.model.decoder import Source
from ernie.model.ernie import ErnieModel
from ernie.model.inference import evaluating, identity, tokenizer_of
from ernie.model.prefix_source import sources_of
from ernie.model.translation import TranslationHead

# A target has at most 2 r n + 10 tokens for a source of n, end included, r being the ratio that catch_up stands for.
_LENGTH_RATIO, _LENGTH_OFFSET = 2, 10
_PENALTY = 0.6  # length penalty: Wu et al., 2016 (arXiv 1609.08144), section 7


@dataclass(frozen=True)
class Progress:
    """The progress of a stream, or of a hypothesis: tokens `read` after [CLS], and tokens `written`.

    The source has `ended` when [SEP] is the last token read.  `delays` are the numbers of tokens read before each
    written one.  The target is `done` when nothing more will be written.  `waited` is how many tokens more than the
    policy asks for must be read, because the most likely token was the end.
    """

    read: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    delays: tuple[int, ...] = ()
    ended: bool = False
    done: bool = False
    waited: int = 0

    @property
    def source(self) -> int:
        """The number of source tokens read, without its end."""
        return len(self.read) - self.ended

    @property
    def source_delays(self) -> tuple[int, ...]:
        """The delays in source tokens: the end of the source does not count as one."""
        return tuple(min(delay, self.source) for delay in self.delays)


@dataclass(frozen=True, eq=False)
class TranslationState:
    """The state of N streams: their progress, and their key-value caches.

    `encoder_cache` is that of the encoder's self-attention if it is causal, `source_cache` that of the decoder's
    cross-attention, and `target_cache` that of its self-attention.  `model` identifies the model that the state belongs
    to.
    """

    progress: tuple[Progress, ...]
    encoder_cache: KeyValueCache
    source_cache: KeyValueCache
    target_cache: KeyValueCache
    model: str = ""

    @property
    def streams(self) -> int:
        """The number of streams."""
        return len(self.progress)

    def select(self, streams: Sequence[int]) -> TranslationState:
        """Return the state of these streams only, in this order; one may occur several times."""
        encoder_cache, source_cache, target_cache = (
            cache.select(streams) for cache in (self.encoder_cache, self.source_cache, self.target_cache)
        )
        return TranslationState(
            tuple(self.progress[n] for n in streams), encoder_cache, source_cache, target_cache, self.model
        )

    def concat(self, others: Sequence[TranslationState]) -> TranslationState:
        """Concatenate the streams of this state and of others, in order."""
        states = [self, *others]
        progress = tuple(stream for state in states for stream in state.progress)
        return TranslationState(
            progress,
            KeyValueCache.joined([state.encoder_cache for state in states]),
            KeyValueCache.joined([state.source_cache for state in states]),
            KeyValueCache.joined([state.target_cache for state in states]),
            common_model(state.model for state in states),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole state as arrays by name."""
        caches = {"encoder": self.encoder_cache, "seen": self.source_cache, "own": self.target_cache}
        arrays = {
            "progress": np.array([json.dumps(asdict(stream)) for stream in self.progress]),
            "model": np.array(self.model),
        }
        for name, cache in caches.items():
            arrays |= with_prefix(name, cache.arrays())
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> TranslationState:
        """Restore a state from its `arrays`."""
        progress = [_progress(json.loads(str(stream))) for stream in arrays["progress"]]
        encoder_cache, source_cache, target_cache = (
            KeyValueCache.from_arrays(strip_prefix(name, arrays)) for name in ("encoder", "seen", "own")
        )
        return cls(tuple(progress), encoder_cache, source_cache, target_cache, str(arrays.get("model", "")))


def _progress(data: dict[str, Any]) -> Progress:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    return Progress(**fields)


class TokenTranslator:
    """Translates token streams; `policy` decides when to read and when to write.

    If `causal`, the encoder sees no later tokens and encodes each token once; otherwise it encodes the whole prefix
    bidirectionally each time more of it is needed.  Once a source is over, `beam` hypotheses are kept; with 1 decoding
    is greedy.  `max_len` is the maximum length of the training samples, special tokens included: later positions are
    untrained.
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

    def begin(self, streams: int = 1) -> TranslationState:
        """Return the state of streams before any input."""
        check_streams(streams)
        return replace(self._initial(streams), model=self._model)

    def _initial(self, streams: int) -> TranslationState:
        empty = KeyValueCache.empty(streams)
        state = TranslationState((Progress(),) * streams, empty, empty, empty)
        with self._evaluating():
            return self._read(state, [np.array([self._begin])] * streams) if self._causal else state

    def push(self, state: TranslationState, pieces: Sequence[np.ndarray]) -> tuple[TranslationState, list[list[int]]]:
        """Read more tokens of each source, (n,); return the tokens written by now.

        Raises UserError for a source with more tokens than the model was trained on, for one that is over, and for a
        state of another model.
        """
        arrays = [np.asarray(piece, np.int64) for piece in check_pieces(state, pieces)]
        return self._advance(state, arrays, [False] * state.streams)

    def finish(self, state: TranslationState) -> tuple[TranslationState, list[list[int]]]:
        """End all sources; return the rest of the translations."""
        pieces = [np.array([], np.int64) if stream.ended else np.array([self._end]) for stream in state.progress]
        return self._advance(state, pieces, [True] * state.streams)

    def translate(self, sources: Sequence[np.ndarray]) -> tuple[Progress, ...]:
        """Translate whole sources, (n,) each, to the end.  Raises as `push` does."""
        state, _ = self.push(self._initial(len(sources)), sources)
        return self.finish(state)[0].progress

    def problem(self, tokens: int) -> str:
        """Return why a source of so many tokens cannot be translated, "" if it can."""
        longest = self._positions - 2
        if tokens <= longest:
            return ""
        return f"a source has more than {longest} tokens, the most that this model has learned from; cut it"

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        with evaluating(self._ernie), evaluating(self._head):
            yield

    def _advance(
        self, state: TranslationState, pieces: Sequence[np.ndarray], ends: Sequence[bool]
    ) -> tuple[TranslationState, list[list[int]]]:
        if state.model:
            common_model([state.model, self._model])
        before = [len(stream.written) for stream in state.progress]
        changed = []
        for stream, piece, end in zip(state.progress, pieces, ends, strict=True):
            if stream.ended and len(piece):
                raise UserError("the source of this stream is over; begin another one")
            if problem := self.problem(len(stream.read) + len(piece) - (stream.ended or end)):
                raise UserError(problem)
            read, ended = (*stream.read, *piece.tolist()), stream.ended or end
            changed.append(replace(stream, read=read, ended=ended, done=stream.done or (ended and len(read) == 1)))
        with self._evaluating():
            state = replace(state, progress=tuple(changed))
            if self._causal:
                state = self._read(state, pieces)
            state = self._write(state)
        return state, [list(stream.written[n:]) for stream, n in zip(state.progress, before, strict=True)]

    def _read(self, state: TranslationState, pieces: Sequence[np.ndarray]) -> TranslationState:
        """Encode tokens that follow those encoded before."""
        if not any(len(piece) for piece in pieces):
            return state
        batch, before = sources_of(pieces), state.encoder_cache
        positions = batch.layout.positions + np.repeat(before.layout.lengths, batch.layout.lengths)
        x_SD = self._ernie.embedding(batch.ids, batch.segments, positions, self._task_id)
        hidden_SD, encoder_cache = self._ernie.encoder.forward_cached(x_SD, batch.layout, before)
        source_cache = state.source_cache.extended(batch.layout, self._head.decoder.read(hidden_SD))
        return replace(state, encoder_cache=encoder_cache, source_cache=source_cache)

    def _write(self, state: TranslationState) -> TranslationState:
        """Write for as long as the policy allows it for any stream."""
        while True:
            ready = [
                n
                for n, stream in enumerate(state.progress)
                if not stream.done and self._reads(stream) <= len(stream.read)
            ]
            over = [n for n in ready if self._is_over(state.progress[n])] if self._beam > 1 else []
            if over:
                state = self._search(state, over)
            elif ready:
                state = self._step(state, ready)
            else:
                return state

    def _reads(self, stream: Progress) -> int:
        """Return how many tokens must be read before the next one is written."""
        limit = len(stream.read) if stream.ended else self._ernie.config.max_positions
        reads = self._policy.reads(np.array([len(stream.written)]), np.array([limit]))
        return min(limit, int(reads[0]) + stream.waited)

    def _is_over(self, stream: Progress) -> bool:
        return stream.ended and self._reads(stream) == len(stream.read)

    def _max_written(self, stream: Progress) -> int:
        """Return the maximum number of target tokens: in proportion to the source, once it is complete."""
        limit = self._positions - 1
        if not stream.ended:
            return limit
        proportion = _LENGTH_RATIO * self._policy.ratio
        return min(int(proportion * len(stream.read)) + _LENGTH_OFFSET, limit)

    def _step(self, state: TranslationState, ready: list[int]) -> TranslationState:
        """Write one token in each of these streams, or make the stream wait for another source token.

        The end is not accepted before the source is over.  A model trained on targets shorter than their sources
        predicts it early, and forcing the next most likely token in its place would add noise, so the stream waits.
        """
        progress = state.progress
        reads = np.array([self._reads(progress[n]) for n in ready])
        state, source = self._source(state, ready, reads)
        counts = np.isin(np.arange(state.streams), ready).astype(np.int64)
        scores_NV, target_cache = self._scores(
            [progress[n] for n in ready], Layout.of_lengths(counts), source, state.target_cache
        )
        changed = list(progress)
        # Row n is the cache of stream n before this step, row streams + n the one after it.
        rows = np.arange(state.streams, 2 * state.streams)
        for n, read, scores_V in zip(ready, reads, scores_NV, strict=True):
            stream, token = progress[n], int(scores_V.argmax())
            if token == self._end and not self._is_over(stream):
                changed[n] = replace(stream, waited=stream.waited + 1)
                rows[n] = n  # predict at this position again, once more of the source is there
            else:
                changed[n] = self._with_token(stream, token, int(read))
        if (rows < state.streams).any():
            target_cache = KeyValueCache.joined([state.target_cache, target_cache]).select(rows)
        return replace(state, progress=tuple(changed), target_cache=target_cache)

    def _with_token(self, stream: Progress, token: int, read: int) -> Progress:
        if token == self._end:
            return replace(stream, done=True)
        written = (*stream.written, token)
        return replace(
            stream, written=written, delays=(*stream.delays, read), done=len(written) >= self._max_written(stream)
        )

    def _source(
        self, state: TranslationState, streams: list[int], reads: np.ndarray
    ) -> tuple[TranslationState, Source]:
        """Return what these streams attend to after `reads` tokens of each, encoding prefixes first if needed."""
        counts = np.isin(np.arange(state.streams), streams).astype(np.int64)
        layout = Layout.of_lengths(counts)
        if self._causal:
            return state, Source(state.source_cache, layout, Mask.until(reads + 1))
        cached = state.source_cache.layout.lengths
        stale = [(n, int(read)) for n, read in zip(streams, reads, strict=True) if cached[n] != read + 1]
        if stale:
            batch = sources_of([np.array([self._begin, *state.progress[n].read[:read]]) for n, read in stale])
            hidden_SD = self._ernie.encode_packed(batch, self._task_id)
            renewed = KeyValueCache(batch.layout, self._head.decoder.read(hidden_SD))
            order = np.arange(state.streams)
            order[[n for n, _ in stale]] = state.streams + np.arange(len(stale))
            state = replace(state, source_cache=KeyValueCache.joined([state.source_cache, renewed]).select(order))
        return state, Source(state.source_cache, layout)

    def _scores(
        self, ready: Sequence[Progress], layout: Layout, source: Source, target_cache: KeyValueCache
    ) -> tuple[np.ndarray, KeyValueCache]:
        """Return the next token's log-probabilities (N, V) for the streams with a token in `layout`, and the new
        cache."""
        last = np.array([stream.written[-1] if stream.written else self._begin for stream in ready], np.int64)
        x_ND, target_cache = self._head.forward_cached(last, layout, source, target_cache)
        scores_NV = self._head.scores(x_ND)
        scores_NV[:, self._never] = -np.inf
        return scores_NV, target_cache

    def _search(self, state: TranslationState, streams: list[int]) -> TranslationState:
        """Finish these streams, whose sources are over, by beam search."""
        B = self._beam
        reads = np.array([len(state.progress[n].read) for n in streams])
        state, source = self._source(state, streams, reads)
        beams = [_Beam([(0.0, state.progress[n])], []) for n in streams]
        rows = list(streams)  # of the caches, one for each live hypothesis
        target_cache = state.target_cache.select(rows)
        while rows:
            alive = [hypothesis for beam in beams for _, hypothesis in beam.alive]
            layout = Layout.of_lengths([1] * len(alive))
            scores_HV, target_cache = self._scores(
                alive, layout, Source(source.cache.select(rows), layout), target_cache
            )
            first, parents, next_rows = 0, [], []
            for n, beam in zip(streams, beams, strict=True):
                count = len(beam.alive)
                kept = beam.step(scores_HV[first : first + count], B, self._with_token)
                parents += [first + parent for parent in kept]
                next_rows += [n] * len(kept)
                first += count
            target_cache, rows = target_cache.select(parents), next_rows
        changed = list(state.progress)
        for n, beam in zip(streams, beams, strict=True):
            changed[n] = beam.best()
        return replace(state, progress=tuple(changed))


@dataclass
class _Beam:
    """The hypotheses of a stream: live ones with summed scores, finished ones with length-normalized scores."""

    alive: list[tuple[float, Progress]]
    done: list[tuple[float, Progress]]

    def step(
        self, scores_HV: np.ndarray, width: int, with_token: Callable[[Progress, int, int], Progress]
    ) -> list[int]:
        """Extend the live hypotheses by a token, keep the best `width`, and return the parent of each."""
        if not self.alive:
            return []
        sums_HV = scores_HV + np.array([score for score, _ in self.alive])[:, None]
        flat = sums_HV.ravel()
        count = min(2 * width, flat.size)
        candidates = np.flatnonzero(flat >= np.partition(flat, -count)[-count])  # including ties with the last one
        best = candidates[np.argsort(-flat[candidates], kind="stable")][:count]
        alive: list[tuple[float, Progress]] = []
        parents: list[int] = []
        for index in best[np.isfinite(flat[best])]:
            parent, token = divmod(int(index), sums_HV.shape[1])
            hypothesis = self.alive[parent][1]
            extended = with_token(hypothesis, token, len(hypothesis.read))
            if extended.done:
                self.done.append((float(flat[index]) / _penalty(len(extended.written) + 1), extended))
            elif len(alive) < width:
                alive.append((float(flat[index]), extended))
                parents.append(parent)
        over = self._is_over(alive)
        self.alive = [] if over else alive
        return [] if over else parents

    def _is_over(self, alive: Sequence[tuple[float, Progress]]) -> bool:
        """Return whether the best live hypothesis, the first, could not beat the best finished one if it ended now.

        Sums only decrease.  Longer hypotheses divide by a larger penalty, which is ignored here: to profit from it
        takes many almost certain tokens, and to wait for it takes steps up to the maximum length.
        """
        if not alive or not self.done:
            return not alive
        score, hypothesis = alive[0]
        return max(done for done, _ in self.done) >= score / _penalty(len(hypothesis.written) + 1)

    def best(self) -> Progress:
        return max(self.done, key=lambda each: each[0])[1]


def _penalty(length: int) -> float:
    return ((5 + length) / 6) ** _PENALTY
