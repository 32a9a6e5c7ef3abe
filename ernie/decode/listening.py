"""Attention to a whole sound: a decoder that writes what it heard, once the sound is over.

Chan et al., 2016, "Listen, attend and spell" (arXiv 1508.01211), with CTC beside it as Watanabe et al., 2017, have it.

Legend: T vectors, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from paddle import Tensor

from ernie.audio.lengths import needed
from ernie.data.batch import Layout, Written
from ernie.decode.ctc import Spike
from ernie.decode.cutting import align
from ernie.decode.pieces import SMOOTHING
from ernie.model.decoder import Source
from ernie.model.losses import Loss
from ernie.model.memory import Memory
from ernie.model.translation import TranslationHead


class WholeWriter:
    """Writes tokens until it writes `end`, no more of them than the vectors could tell."""

    def __init__(self, head: TranslationHead, blank: int, begin: int, end: int, never: Sequence[int]):
        self._head, self._blank, self._begin, self._end = head, blank, begin, end
        self._never = [token for token in (begin, *never) if token != end]

    def write(self, scores_TV: np.ndarray, hidden_TD: Tensor) -> list[Spike]:
        """The tokens of one sound, each at the vector where CTC would tell it most likely."""
        count, one = hidden_TD.shape[0], Layout.of_lengths([1])
        source = Source(Memory(Layout.of_lengths([count]), self._head.decoder.read(hidden_TD)), one)
        own, last = Memory.empty(1), self._begin
        tokens: list[int] = []
        chances: list[float] = []
        while True:
            x_UD, own = self._head.go_on(np.array([last]), one, source, own)
            likely_V = self._head.scores(x_UD)[0]
            likely_V[self._never] = -np.inf
            last = int(likely_V.argmax())
            if last == self._end or needed(np.array([*tokens, last])) > count:
                break
            tokens.append(last)
            chances.append(float(np.exp(likely_V[last])))
        places = align(scores_TV, tokens, self._blank) if tokens else []
        return [Spike(*each) for each in zip(tokens, places, chances, strict=True)]


def whole_loss(head: TranslationHead, hidden_TD: Tensor, layout: Layout, written: Written) -> Loss:
    """The cross entropy of the tokens and of the end, a tenth of it smoothed."""
    source = Source(Memory(layout, head.decoder.read(hidden_TD)), written.layout)
    return head.loss(head(written.ids, written.layout, source), written.next, SMOOTHING)
