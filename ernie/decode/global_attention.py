"""Global attention: a decoder that attends to the whole sound, once it is over.

Chan et al., 2016, "Listen, attend and spell" (arXiv 1508.01211), trained jointly with CTC as in Watanabe et al., 2017.

Legend: T vectors, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from paddle import Tensor

from ernie.audio.lengths import min_vectors
from ernie.data.batch import DecoderTokens, Layout
from ernie.decode.ctc import Spike
from ernie.decode.segmentation import align
from ernie.decode.truncated_attention import SMOOTHING
from ernie.model.cache import KeyValueCache
from ernie.model.decoder import Source
from ernie.model.losses import Loss
from ernie.model.translation import TranslationHead


class UtteranceDecoder:
    """Generates tokens until `end`, at most as many as CTC could align to the vectors; `never` are excluded."""

    def __init__(self, head: TranslationHead, blank: int, begin: int, end: int, never: Sequence[int]):
        self._head, self._blank, self._begin, self._end = head, blank, begin, end
        self._never = [token for token in (begin, *never) if token != end]

    def decode(self, scores_TV: np.ndarray, hidden_TD: Tensor) -> list[Spike]:
        """Return the tokens of one sound, each at its vector in the most likely CTC alignment."""
        count, step = hidden_TD.shape[0], Layout.of_lengths([1])
        source = Source(KeyValueCache(Layout.of_lengths([count]), self._head.decoder.read(hidden_TD)), step)
        cache, last = KeyValueCache.empty(1), self._begin
        tokens: list[int] = []
        probabilities: list[float] = []
        while True:
            x_UD, cache = self._head.forward_cached(np.array([last]), step, source, cache)
            log_V = self._head.scores(x_UD)[0]
            log_V[self._never] = -np.inf
            last = int(log_V.argmax())
            if last == self._end or min_vectors(np.array([*tokens, last])) > count:
                break
            tokens.append(last)
            probabilities.append(float(np.exp(log_V[last])))
        positions = align(scores_TV, tokens, self._blank) if tokens else []
        return [Spike(*spike) for spike in zip(tokens, positions, probabilities, strict=True)]


def global_attention_loss(head: TranslationHead, hidden_TD: Tensor, layout: Layout, written: DecoderTokens) -> Loss:
    """Return the cross entropy of the tokens and of the end, with label smoothing 0.1."""
    source = Source(KeyValueCache(layout, head.decoder.read(hidden_TD)), written.layout)
    return head.loss(head(written.ids, written.layout, source), written.next, SMOOTHING)
