"""Global attention: a decoder that attends to the whole sound, once it is over.

Chan et al., 2016, "Listen, attend and spell" (arXiv 1508.01211), trained jointly with CTC as in Watanabe et al., 2017.

Legend: T vectors, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from paddle import Tensor

from ernie.audio.lengths import min_vectors
from ernie.data.batch import DecoderTokens, Layout
from ernie.decode.ctc import Ranked, Spike, log_probabilities
from ernie.decode.ctc_prefix import PrefixScorer
from ernie.decode.segmentation import align
from ernie.decode.truncated_attention import SMOOTHING
from ernie.model.cache import KeyValueCache
from ernie.model.decoder import Source
from ernie.model.losses import Loss
from ernie.model.translation import TranslationHead

_CANDIDATES = 2  # tokens by which a hypothesis is extended, for each that is kept


class UtteranceDecoder:
    """Generates tokens until `end`, at most as many as CTC could align to the vectors; `never` are excluded.

    With a `beam` above 1 so many hypotheses are kept, ranked by both: (1 - ctc_weight) times the log-probability of the
    decoder, and `ctc_weight` times that by CTC of all transcripts that begin so.  See Watanabe et al., 2017, "Hybrid
    CTC/Attention Architecture for End-to-End Speech Recognition", IEEE JSTSP 11(8), section IV.C.  The `n_best` whole
    texts are told.
    """

    def __init__(
        self,
        head: TranslationHead,
        blank: int,
        begin: int,
        end: int,
        never: Sequence[int],
        beam: int = 1,
        ctc_weight: float = 0.0,
        n_best: int = 1,
    ):
        self._head, self._blank, self._begin, self._end = head, blank, begin, end
        self._never = [token for token in (begin, *never) if token != end]
        self._beam, self._ctc_weight, self._n_best = beam, ctc_weight, n_best

    def decode(self, scores_TV: np.ndarray, hidden_TD: Tensor) -> tuple[list[Spike], Ranked]:
        """Return the tokens of one sound, each at its vector in the most likely CTC alignment.

        The best whole texts are returned, too, the best one first, with their scores.
        """
        if not len(scores_TV):
            return [], []
        layout = Layout.of_lengths([hidden_TD.shape[0]])
        source = KeyValueCache(layout, self._head.decoder.read(hidden_TD))
        ended = self._search(scores_TV, source) if self._beam > 1 else [self._greedy(scores_TV, source)]
        best = ended[0]
        positions = align(scores_TV, best.tokens, self._blank) if best.tokens else []
        spikes = [Spike(*spike) for spike in zip(best.tokens, positions, best.probabilities, strict=True)]
        return spikes, [(each.tokens, each.score) for each in ended if each.score > -np.inf]

    def _next(
        self, last: Sequence[int], source: KeyValueCache, cache: KeyValueCache
    ) -> tuple[np.ndarray, KeyValueCache]:
        """Return the log-probability of each token after hypotheses (H,) of one sound, (H, V), and their cache."""
        step = Layout.of_lengths([1] * len(last))
        each = source.select([0] * len(last)) if len(last) > 1 else source
        x_HD, cache = self._head.forward_cached(np.array(last), step, Source(each, step), cache)
        log_HV = self._head.scores(x_HD)
        log_HV[:, self._never] = -np.inf
        return log_HV, cache

    def _greedy(self, scores_TV: np.ndarray, source: KeyValueCache) -> _Written:
        written, cache, last = _Written(), KeyValueCache.empty(1), self._begin
        while True:
            (log_V,), cache = self._next([last], source, cache)
            last = int(log_V.argmax())
            if last == self._end or min_vectors(np.array([*written.tokens, last])) > len(scores_TV):
                return written
            written = written.followed_by(last, float(log_V[last]))

    def _search(self, scores_TV: np.ndarray, source: KeyValueCache) -> list[_Written]:
        """Return the best hypotheses that have ended, the best one first, with their scores by both.

        The search ends once no other can become better than these: scores only fall.
        """
        scorer = PrefixScorer(log_probabilities(scores_TV), self._blank)
        prefixes, cache = scorer.empty(), KeyValueCache.empty(1)
        live, ended = [_Written()], list[_Written]()
        while live:
            log_HV, cache = self._next(
                [each.tokens[-1] if each.tokens else self._begin for each in live], source, cache
            )
            attended_H = np.array([each.score for each in live])
            ended_H = self._joint(attended_H + log_HV[:, self._end], prefixes.whole)
            ended += [each._replace(score=score) for each, score in zip(live, ended_H.tolist(), strict=True)]
            ended = sorted(ended, key=lambda each: -each.score)[: self._n_best]
            least = ended[-1].score if len(ended) == self._n_best else -np.inf
            log_HV[:, self._end] = -np.inf
            count = min(_CANDIDATES * self._beam, log_HV.shape[1])
            tokens_HC = np.argsort(-log_HV, 1, kind="stable")[:, :count]
            log_HC = np.take_along_axis(log_HV, tokens_HC, 1)
            ctc_HC, extended = scorer.extended(prefixes, tokens_HC)
            joint = self._joint(attended_H[:, None] + log_HC, ctc_HC).ravel()
            chosen = np.argsort(-joint, kind="stable")[: self._beam]
            chosen = chosen[joint[chosen] > least]
            parents = chosen // count
            live = [
                live[parent].followed_by(int(tokens_HC.flat[n]), float(log_HC.flat[n]))
                for n, parent in zip(chosen, parents, strict=True)
            ]
            prefixes, cache = extended.select(chosen), cache.select(parents)
        return ended

    def _joint(self, attention: np.ndarray, ctc: np.ndarray) -> np.ndarray:
        """Return weighted sums of both log-probabilities; what CTC cannot align stays excluded."""
        possible = np.where(np.isneginf(ctc), 0.0, ctc)
        return np.where(np.isneginf(ctc), -np.inf, (1 - self._ctc_weight) * attention + self._ctc_weight * possible)


class _Written(NamedTuple):
    """A hypothesis: its tokens, their probabilities by the decoder, and the sum of their logarithms."""

    tokens: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()
    score: float = 0.0

    def followed_by(self, token: int, log: float) -> _Written:
        """Return it with one more token."""
        return _Written((*self.tokens, token), (*self.probabilities, float(np.exp(log))), self.score + log)


def global_attention_loss(head: TranslationHead, hidden_TD: Tensor, layout: Layout, written: DecoderTokens) -> Loss:
    """Return the cross entropy of the tokens and of the end, with label smoothing 0.1."""
    source = Source(KeyValueCache(layout, head.decoder.read(hidden_TD)), written.layout)
    return head.loss(head(written.ids, written.layout, source), written.next, SMOOTHING)
