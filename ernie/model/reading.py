"""What an encoder sees of its sources, and a decoder of what came out, while a sentence is still being read.

A source is [CLS], its tokens and [SEP].  [CLS] is always there; [SEP], which says that the sentence is over, is read
like a token, after all others.

Legend: N sources, S their packed tokens, U tokens that are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from paddle import Tensor

from ernie.data.batch import Layout, Packed
from ernie.kernels.mask import Mask
from ernie.model.decoder import Decoder, Source
from ernie.model.memory import Memory


@dataclass(frozen=True)
class Reading:
    """A batch as the encoder sees it: `sources` (S,), each token seeing what `mask` says.

    `queries` are the tokens that look at each source, `sees` how much of it each of them sees.
    """

    sources: Packed
    mask: Mask | None
    queries: Layout
    sees: Mask | None

    @classmethod
    def whole(cls, batch: Packed, written: Layout) -> Reading:
        """Every source is read to its end before the first token is written."""
        return cls(batch, None, written, None)

    @classmethod
    def causal(cls, batch: Packed, written: Layout, reads_U: np.ndarray) -> Reading:
        """No token of a source sees a later one: what was read never changes; `reads_U` tokens of it are looked at."""
        return cls(batch, Mask.causal(batch.layout), written, Mask.until(reads_U + 1))

    @classmethod
    def prefixes(cls, batch: Packed, written: Layout, reads_U: np.ndarray) -> Reading:
        """Every beginning of a source that is looked at is read anew, all of its tokens seeing one another."""
        changes = np.ones(written.tokens, bool)
        changes[1:] = reads_U[1:] != reads_U[:-1]
        changes[written.starts] = True
        first = np.flatnonzero(changes)
        queries = Layout(np.append(first, written.tokens))
        source = np.repeat(np.arange(written.sequences), written.lengths)[first]
        begins = Layout.of_lengths(reads_U[first] + 1)
        where = np.repeat(batch.layout.starts[source], begins.lengths) + begins.positions
        sources = replace(batch, ids=batch.ids[where], segments=batch.segments[where], layout=begins)
        return cls(sources, None, queries, None)

    def source(self, decoder: Decoder, hidden_SD: Tensor) -> Source:
        """What a decoder looks at, given the encoder's vectors."""
        return Source(Memory(self.sources.layout, decoder.read(hidden_SD)), self.queries, self.sees)


def source_lengths(layout: Layout) -> np.ndarray:
    """How many tokens there are to read of each source, (N,): all but [CLS]."""
    return layout.lengths - 1


def sources_of(ids: Sequence[np.ndarray]) -> Packed:
    """Sources, each (n,) with its frame, in one batch."""
    layout = Layout.of_lengths([len(one) for one in ids])
    joined = np.concatenate(ids).astype(np.int64)
    return Packed(joined, np.zeros_like(joined), layout, {}, np.zeros((len(ids), 3), np.int64))
