"""Simultaneous translation of token streams: greedy while a source is read, by beam search once it is over.

Ma et al., 2019, "STACL" (arXiv 1810.08398), sections 3 and 4.  Legend: N streams, H hypotheses of all streams (one of a
stream that is translated greedily), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ernie.data.batch import Layout
from ernie.decode.states import BatchState, common_model
from ernie.decode.stream import StreamDecoder, check_pieces, check_state, check_streams, flags
from ernie.decode.wait_k import WaitK
from ernie.errors import NotFinite, UserError, check_count
from ernie.kernels.mask import Mask
from ernie.kernels.precision import batch_invariant
from ernie.model.cache import KeyValueCache
from ernie.model.decoder import Source
from ernie.model.ernie import ErnieModel
from ernie.model.inference import NOT_FINITE, evaluating, identity, tokenizer_of
from ernie.model.prefix_source import sources_of
from ernie.model.translation import TranslationHead
from ernie.outcome import Outcome

# A target has at most 2 r n + 10 tokens for a source of n, end included, r being the ratio that catch_up stands for.
_LENGTH_RATIO, _LENGTH_OFFSET = 2, 10
_BLOCK = 64  # source tokens that a stream reads at a time
_PENALTY = 0.6  # length penalty: Wu et al., 2016 (arXiv 1609.08144), section 7


@dataclass(frozen=True)
class Progress:
    """The progress of a stream, or of a hypothesis: tokens `read` after [CLS], and tokens `written`.

    A causal encoder may not have encoded the last ones yet: their number is that of the tokens in its cache.

    The source has `ended` when [SEP] is the last token read.  `delays` are the numbers of tokens read before each
    written one.  The target is `done` when nothing more will be written.  `waited` is how many tokens more than k asks
    for must be read: the most likely token was the end, not likely enough, or another one with less of the source.
    `wait_k` replaces the k of the policy, unless it is 0.
    """

    read: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    delays: tuple[int, ...] = ()
    ended: bool = False
    done: bool = False
    waited: int = 0
    wait_k: int = 0

    @property
    def source(self) -> int:
        """The number of source tokens read, without its end."""
        return len(self.read) - self.ended

    @property
    def source_delays(self) -> tuple[int, ...]:
        """The delays in source tokens: the end of the source does not count as one."""
        return tuple(min(delay, self.source) for delay in self.delays)


@dataclass(frozen=True)
class Search:
    """A beam search: live hypotheses with summed scores, the best one first, and finished ones with normalized scores.

    Scores of finished hypotheses are normalized by length.
    """

    alive: tuple[tuple[float, Progress], ...]
    done: tuple[tuple[float, Progress], ...] = ()

    def step(
        self, scores_HV: np.ndarray, width: int, with_token: Callable[[Progress, int, int], Progress]
    ) -> tuple[Search, list[int]]:
        """Extend the live hypotheses by a token and keep the best `width`; return also the parent of each."""
        sums_HV = scores_HV + np.array([score for score, _ in self.alive])[:, None]
        flat = sums_HV.ravel()
        count = min(2 * width, flat.size)
        candidates = np.flatnonzero(flat >= np.partition(flat, -count)[-count])  # including ties with the last one
        best = candidates[np.argsort(-flat[candidates], kind="stable")][:count]
        alive: list[tuple[float, Progress]] = []
        done = list(self.done)
        parents: list[int] = []
        for index in best[np.isfinite(flat[best])]:
            parent, token = divmod(int(index), sums_HV.shape[1])
            hypothesis = self.alive[parent][1]
            extended = with_token(hypothesis, token, len(hypothesis.read))
            if extended.done:
                done.append((float(flat[index]) / _penalty(len(extended.written) + 1), extended))
            elif len(alive) < width:
                alive.append((float(flat[index]), extended))
                parents.append(parent)
        if _is_decided(alive, done):
            return Search((), tuple(done)), []
        return Search(tuple(alive), tuple(done)), parents

    def best(self) -> Progress:
        """Return the best finished hypothesis."""
        return max(self.done, key=lambda each: each[0])[1]


def _is_decided(alive: Sequence[tuple[float, Progress]], done: Sequence[tuple[float, Progress]]) -> bool:
    """Return whether the best live hypothesis, the first, could not beat the best finished one if it ended now.

    Sums only decrease.  Longer hypotheses divide by a larger penalty, which is ignored here: to profit from it takes
    many almost certain tokens, and to wait for it takes steps up to the maximum length.
    """
    if not alive or not done:
        return not alive
    score, hypothesis = alive[0]
    return max(finished for finished, _ in done) >= score / _penalty(len(hypothesis.written) + 1)


def _penalty(length: int) -> float:
    return ((5 + length) / 6) ** _PENALTY


@dataclass(frozen=True, eq=False)
class HypothesisCache:
    """A key-value cache with several sequences for each stream: `counts` of them, one for each live hypothesis."""

    counts: tuple[int, ...]
    cache: KeyValueCache

    def __post_init__(self) -> None:
        if sum(self.counts) != self.cache.layout.sequences or min(self.counts, default=0) < 0:
            raise ValueError(f"a cache of {self.cache.layout.sequences} sequences for {sum(self.counts)} hypotheses")

    @property
    def streams(self) -> int:
        """The number of streams."""
        return len(self.counts)

    def select(self, streams: Sequence[int]) -> HypothesisCache:
        """Return that of these streams only, in this order; one may occur several times."""
        rows = np.split(np.arange(sum(self.counts)), np.cumsum(self.counts)[:-1])
        chosen = np.concatenate([rows[n] for n in streams])
        return HypothesisCache(tuple(self.counts[n] for n in streams), self.cache.select(chosen))

    @classmethod
    def joined(cls, caches: Sequence[HypothesisCache]) -> HypothesisCache:
        """Concatenate the streams of several caches, in order."""
        counts = tuple(count for own in caches for count in own.counts)
        return cls(counts, KeyValueCache.joined([own.cache for own in caches]))


@dataclass(frozen=True, eq=False)
class TranslationState(BatchState):
    """The state of N streams: their progress, their key-value caches, and their beam searches.

    `encoder_cache` is that of the encoder's self-attention if it is causal, `source_cache` that of the decoder's
    cross-attention, and `target_cache` that of its self-attention.  `searches` are those of the streams whose source is
    over.  `model` identifies the model that the state belongs to.
    """

    progress: tuple[Progress, ...]
    encoder_cache: KeyValueCache
    source_cache: KeyValueCache
    target_cache: HypothesisCache
    searches: tuple[Search | None, ...]
    model: str = ""


class TokenTranslator(StreamDecoder[TranslationState, np.ndarray, list[int]]):
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
        target_cache = HypothesisCache((1,) * streams, empty)
        state = TranslationState((Progress(),) * streams, empty, empty, target_cache, (None,) * streams)
        with self.context():
            return self._read(state, [np.array([self._begin])] * streams) if self._causal else state

    def accept(
        self, state: TranslationState, pieces: Sequence[np.ndarray | None]
    ) -> tuple[TranslationState, list[UserError | None]]:
        """Take more tokens of each source, (n,).

        A source with more tokens than the model was trained on gives an error, and so does one that is over.
        """
        self._check(state)
        progress, errors = list(state.progress), list[UserError | None]()
        for n, piece in enumerate(check_pieces(state, pieces)):
            tokens = [] if piece is None else np.asarray(piece, np.int64).tolist()
            problem = self._problem(progress[n], len(tokens))
            errors.append(UserError(problem, stream=n) if problem else None)
            if tokens and not problem:
                progress[n] = replace(progress[n], read=(*progress[n].read, *tokens))
        return replace(state, progress=tuple(progress)), errors

    def end(self, state: TranslationState, streams: Sequence[bool] | None = None) -> TranslationState:
        """End these sources, by default all."""
        self._check(state)
        progress = list(state.progress)
        for n, ends in enumerate(flags(state, streams)):
            own = progress[n]
            if ends and not own.ended:
                progress[n] = replace(own, read=(*own.read, self._end), ended=True, done=own.done or not own.read)
        return replace(state, progress=tuple(progress))

    def pending(self, state: TranslationState) -> list[bool]:
        """Return which streams have tokens to be encoded, or may write another one."""
        check_state(state, TranslationState)
        reads = self._reads(state)
        return [
            not stream.done and (encoded < len(stream.read) or read <= encoded)
            for stream, encoded, read in zip(state.progress, self._encoded(state), reads, strict=True)
        ]

    @property
    def settings(self) -> Mapping[str, Any]:
        """`wait_k`: how many tokens a stream stays behind its source; None for the whole of it."""
        return {"wait_k": self._policy.k}

    def change(self, state: TranslationState, changes: Sequence[Mapping[str, Any] | None]) -> TranslationState:
        """Change the distance of streams: `wait_k`, or None for that of the translator."""
        progress = list(state.progress)
        for n, values in enumerate(check_pieces(state, changes)):
            for name, value in (values or {}).items():
                if name not in self.settings:
                    raise UserError(f"{name}: there is no such setting of this stream; expected wait_k")
                if value is not None:
                    check_count("wait_k", value, 1)
                progress[n] = replace(progress[n], wait_k=value or 0)
        return replace(state, progress=tuple(progress))

    def stop(self, state: TranslationState, streams: Sequence[bool]) -> TranslationState:
        """Give up these streams: they are over, and write nothing more."""
        progress = tuple(
            replace(own, ended=True, done=True) if stops else own
            for own, stops in zip(state.progress, streams, strict=True)
        )
        searches = (None if stops else own for own, stops in zip(state.searches, streams, strict=True))
        return replace(state, progress=progress, searches=tuple(searches))

    def joined(self, outputs: Sequence[list[int]]) -> list[int]:
        """Return consecutive outputs of a stream as one."""
        return [token for output in outputs for token in output]

    def translate(self, sources: Sequence[np.ndarray]) -> tuple[Progress, ...]:
        """Translate whole sources, (n,) each, to the end.  Raises UserError for a source that `accept` refuses."""
        state, errors = self.accept(self._initial(len(sources)), sources)
        for error in errors:
            if error is not None:
                raise error
        return self.finish(state)[0].progress

    def problem(self, tokens: int) -> str:
        """Return why a source of so many tokens cannot be translated, "" if it can."""
        longest = self._positions - 2
        if tokens <= longest:
            return ""
        return f"a source has more than {longest} tokens, the most that this model has learned from; cut it"

    def _problem(self, stream: Progress, tokens: int) -> str:
        """Return why a source cannot have so many more tokens, "" if it can."""
        if stream.ended:
            return "the source of this stream is over; begin another one" if tokens else ""
        return self.problem(len(stream.read) + tokens)

    @contextmanager
    def context(self) -> Iterator[None]:
        with evaluating(self._ernie), evaluating(self._head), batch_invariant():
            yield

    def _check(self, state: TranslationState) -> None:
        check_state(state, TranslationState)
        if state.model:
            common_model([state.model, self._model])

    def advance(self, state: TranslationState, most: int | None) -> tuple[TranslationState, list[Outcome[list[int]]]]:
        """Encode source tokens of each stream, `most` blocks, and write at most one token, or extend its search."""
        self._check(state)
        before = state.progress
        if self._causal:
            state = self._read(state, self._waiting(state, None if most is None else most * _BLOCK))
        reads, encoded = self._reads(state), self._encoded(state)
        ready = [n for n, stream in enumerate(state.progress) if not stream.done and reads[n] <= encoded[n]]
        errors: dict[int, UserError] = {}
        if ready:
            state, errors = self._write(state, ready, reads)
        new = (list(own.written[len(old.written) :]) for own, old in zip(state.progress, before, strict=True))
        return state, [Outcome(error=errors[n]) if n in errors else Outcome(tokens) for n, tokens in enumerate(new)]

    def _encoded(self, state: TranslationState) -> list[int]:
        """Return how many tokens of each source can be attended to, without [CLS]."""
        if self._causal:
            encoded: list[int] = (state.source_cache.layout.lengths - 1).tolist()
            return encoded
        return [len(stream.read) for stream in state.progress]  # prefixes are encoded when they are needed

    def _waiting(self, state: TranslationState, most: int | None) -> list[np.ndarray]:
        """Return the next tokens of each source that were not encoded, at most so many of each."""
        waiting = []
        for stream, encoded in zip(state.progress, self._encoded(state), strict=True):
            stop = encoded if stream.done else None if most is None else encoded + most
            waiting.append(np.array(stream.read[encoded:stop], np.int64))
        return waiting

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

    def _reads(self, state: TranslationState) -> list[int]:
        """Return how many tokens of each source must be read before the next one is written.

        A search goes on with the whole source that it began with, also where the distance was changed since.
        """
        longest, streams = self._ernie.config.max_positions, state.progress
        written = np.array([len(stream.written) for stream in streams])
        limits = np.array([len(stream.read) if stream.ended else longest for stream in streams])
        waited = np.array([stream.waited for stream in streams])
        own_k = np.array([stream.wait_k for stream in streams])
        reads = self._policy.reads(written, limits)
        for k in {*own_k.tolist()} - {0}:
            reads = np.where(own_k == k, replace(self._policy, k=k).reads(written, limits), reads)
        # With a smaller k than before, no token may be written from less than the last one was.
        last = np.array([stream.delays[-1] if stream.delays else 0 for stream in streams])
        searches = np.array([search is not None for search in state.searches])
        found: list[int] = np.where(searches, limits, np.minimum(limits, np.maximum(reads + waited, last))).tolist()
        return found

    def _max_written(self, stream: Progress) -> int:
        """Return the maximum number of target tokens: in proportion to the source, once it is complete."""
        limit = self._positions - 1
        if not stream.ended:
            return limit
        proportion = _LENGTH_RATIO * self._policy.ratio
        return min(int(proportion * len(stream.read)) + _LENGTH_OFFSET, limit)

    def _write(
        self, state: TranslationState, ready: Sequence[int], reads: Sequence[int]
    ) -> tuple[TranslationState, dict[int, UserError]]:
        """Write one token in each of these streams, make it wait for another source token, or extend its search.

        Returns also the errors of the streams whose scores are not finite.
        """
        state = self._with_searches(state, ready, reads)
        shorter = self._tokens_of_shorter(state, ready, reads)
        state, source = self._source(state, ready, reads)
        old, counts = state.target_cache.cache, state.target_cache.counts
        scores_HV, new = self._scores(state, ready, source)
        scores = dict(zip(ready, np.split(scores_HV, np.cumsum([counts[n] for n in ready])[:-1]), strict=True))
        progress, searches, errors = list(state.progress), list(state.searches), dict[int, UserError]()
        rows: list[list[int]] = []  # of the new cache for each stream; less than 0 for those of the old one
        first = 0
        for n, count in enumerate(counts):
            own, own_HV, search = progress[n], scores.get(n), searches[n]
            rows.append(list(range(first, first + count)))
            if own_HV is None:
                pass
            elif not (own_HV < np.inf).all():
                errors[n] = NotFinite(NOT_FINITE, stream=n)
            elif search is not None:
                search, parents = search.step(own_HV, self._beam, self._with_token)
                progress[n], searches[n] = (own, search) if search.alive else (search.best(), None)
                rows[n] = [first + parent for parent in parents]
            elif not _reads_all(own, reads[n]) and self._waits(own, own_HV[0], reads[n], shorter.get(n)):
                progress[n] = replace(own, waited=self._behind(own, reads[n]) + 1)
                rows[n] = [first - old.layout.sequences]  # predict here again, once more of the source is there
            else:
                progress[n] = self._with_token(own, int(own_HV.argmax()), reads[n])
            first += count
        cache = _kept(rows, old, new)
        state = replace(state, progress=tuple(progress), searches=tuple(searches), target_cache=cache)
        return self.stop(state, [n in errors for n in range(state.streams)]), errors

    def _tokens_of_shorter(self, state: TranslationState, ready: Sequence[int], reads: Sequence[int]) -> dict[int, int]:
        """Return the next token of each of these streams if less of the source had been read, where that matters.

        The tokens that were written keep what they saw.
        """
        if not self._policy.agreement:
            return {}
        chosen = [
            n
            for n in ready
            if not _reads_all(state.progress[n], reads[n])
            and self._policy_of(state.progress[n]).must_agree(self._behind(state.progress[n], reads[n]))
        ]
        if not chosen:
            return {}
        part, every = state.select(chosen), range(len(chosen))
        part, source = self._source(part, every, [max(0, reads[n] - self._policy.agreement) for n in chosen])
        return dict(zip(chosen, self._scores(part, every, source)[0].argmax(1).tolist(), strict=True))

    def _waits(self, stream: Progress, scores_V: np.ndarray, read: int, of_shorter: int | None) -> bool:
        """Return whether a stream reads another token first; `of_shorter` is the token that has to be the same.

        The end is not accepted before the source is over.  A model trained on targets shorter than their sources
        predicts it early, and forcing the next most likely token in its place would add noise.
        """
        token = int(scores_V.argmax())
        needed = self._policy_of(stream).least_probability(self._behind(stream, read))
        return token == self._end or of_shorter not in (None, token) or bool(np.exp(scores_V[token]) < needed)

    def _behind(self, stream: Progress, read: int) -> int:
        """Return how many tokens more than k asks for a stream has read, or by a fixed policy has waited for."""
        policy = self._policy_of(stream)
        if not policy.adaptive:
            return stream.waited
        written = np.array([len(stream.written)])
        return read - int(policy.reads(written, np.array([max(read, 1)]))[0])

    def _policy_of(self, stream: Progress) -> WaitK:
        return replace(self._policy, k=stream.wait_k) if stream.wait_k else self._policy

    def _with_searches(self, state: TranslationState, ready: Sequence[int], reads: Sequence[int]) -> TranslationState:
        """Begin the searches of these streams, as far as their sources are over."""
        searches = list(state.searches)
        for n in ready:
            own = state.progress[n]
            if self._beam > 1 and _reads_all(own, reads[n]) and searches[n] is None:
                searches[n] = Search(((0.0, own),))
        return replace(state, searches=tuple(searches))

    def _with_token(self, stream: Progress, token: int, read: int) -> Progress:
        if token == self._end:
            return replace(stream, done=True)
        written = (*stream.written, token)
        return replace(
            stream,
            written=written,
            delays=(*stream.delays, read),
            done=len(written) >= self._max_written(stream),
            # The next token may be written from what was read for this one.
            waited=0 if self._policy.adaptive else stream.waited,
        )

    def _source(
        self, state: TranslationState, ready: Sequence[int], reads: Sequence[int]
    ) -> tuple[TranslationState, Source]:
        """Return what the hypotheses of these streams attend to, encoding prefixes first if needed."""
        counts = np.where(np.isin(np.arange(state.streams), ready), state.target_cache.counts, 0)
        queries = Layout.of_lengths(counts)
        if self._causal:
            return state, Source(state.source_cache, queries, Mask.until(np.repeat(np.array(reads) + 1, counts)))
        cached = state.source_cache.layout.lengths
        stale = [n for n in ready if cached[n] != reads[n] + 1]
        if stale:
            batch = sources_of([np.array([self._begin, *state.progress[n].read[: reads[n]]]) for n in stale])
            hidden_SD = self._ernie.encode_packed(batch, self._task_id)
            renewed = KeyValueCache(batch.layout, self._head.decoder.read(hidden_SD))
            order = np.arange(state.streams)
            order[stale] = state.streams + np.arange(len(stale))
            state = replace(state, source_cache=KeyValueCache.joined([state.source_cache, renewed]).select(order))
        return state, Source(state.source_cache, queries)

    def _scores(
        self, state: TranslationState, ready: Sequence[int], source: Source
    ) -> tuple[np.ndarray, KeyValueCache]:
        """Return the next token's log-probabilities (H, V) for the hypotheses of these streams, and the new cache.

        Rows that are not finite hold NaN.
        """
        alive = [hypothesis for n in ready for hypothesis in _hypotheses(state.searches[n], state.progress[n])]
        last = np.array([each.written[-1] if each.written else self._begin for each in alive], np.int64)
        layout = Layout.of_lengths(np.repeat(source.queries.lengths > 0, state.target_cache.counts))
        x_HD, cache = self._head.forward_cached(last, layout, source, state.target_cache.cache)
        scores_HV = self._head.row_scores(x_HD)
        scores_HV[:, self._never] = -np.inf
        return scores_HV, cache


def _reads_all(stream: Progress, read: int) -> bool:
    """Return whether so many tokens are the whole of a source that is over."""
    return stream.ended and read == len(stream.read)


def _hypotheses(search: Search | None, greedy: Progress) -> list[Progress]:
    return [greedy] if search is None else [hypothesis for _, hypothesis in search.alive]


def _kept(rows: Sequence[Sequence[int]], old: KeyValueCache, new: KeyValueCache) -> HypothesisCache:
    """Return these rows for each stream: of the new cache, or of the old one if less than 0, counted from its end."""
    order = [row for own in rows for row in own]
    count = new.layout.sequences
    if min(order, default=0) < 0:
        new, order = KeyValueCache.joined([new, old]), [row % (2 * count) for row in order]
    cache = new if order == list(range(new.layout.sequences)) else new.select(order)
    return HypothesisCache(tuple(map(len, rows)), cache)
