"""Attention to partially read sources, for simultaneous translation.

A source is [CLS], its tokens and [SEP].  [CLS] is available from the start; [SEP], which marks the end of the sentence,
is read like a token, after all others.

Legend: N sources, S packed source tokens, U packed target tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from paddle import Tensor

from ernie.data.batch import Layout, Packed
from ernie.kernels.mask import Mask
from ernie.model.cache import KeyValueCache
from ernie.model.decoder import Decoder, Source


@dataclass(frozen=True)
class SourceView:
    """A batch as the encoder sees it: `sources` (S,), encoded under the self-attention `mask`.

    `queries` groups the target tokens by the source they attend to; `source_mask` is their cross-attention mask.
    """

    sources: Packed
    mask: Mask | None
    queries: Layout
    source_mask: Mask | None

    @classmethod
    def whole(cls, batch: Packed, targets: Layout) -> SourceView:
        """Read every source completely before the first target token is predicted."""
        return cls(batch, None, targets, None)

    @classmethod
    def causal(cls, batch: Packed, targets: Layout, reads_U: np.ndarray) -> SourceView:
        """Encode sources causally, so that their vectors never change; target tokens see `reads_U` source tokens."""
        return cls(batch, Mask.causal(batch.layout), targets, Mask.until(reads_U + 1))

    @classmethod
    def prefixes(cls, batch: Packed, targets: Layout, reads_U: np.ndarray) -> SourceView:
        """Encode anew, with bidirectional attention, each source prefix that some target token sees."""
        is_new_prefix = np.ones(targets.tokens, bool)
        is_new_prefix[1:] = reads_U[1:] != reads_U[:-1]
        is_new_prefix[targets.starts] = True
        first_tokens = np.flatnonzero(is_new_prefix)
        queries = Layout(np.append(first_tokens, targets.tokens))
        source = np.repeat(np.arange(targets.sequences), targets.lengths)[first_tokens]
        prefixes = Layout.of_lengths(reads_U[first_tokens] + 1)
        rows = np.repeat(batch.layout.starts[source], prefixes.lengths) + prefixes.positions
        sources = replace(batch, ids=batch.ids[rows], segments=batch.segments[rows], layout=prefixes)
        return cls(sources, None, queries, None)

    def source(self, decoder: Decoder, hidden_SD: Tensor) -> Source:
        """Return the decoder's cross-attention input, given the encoder's vectors."""
        return Source(KeyValueCache(self.sources.layout, decoder.read(hidden_SD)), self.queries, self.source_mask)


def source_lengths(layout: Layout) -> np.ndarray:
    """Return the number of tokens to read of each source, (N,): all but [CLS]."""
    return layout.lengths - 1


def sources_of(ids: Sequence[np.ndarray]) -> Packed:
    """Pack sources, each (n,) with its special tokens, into one batch."""
    layout = Layout.of_lengths([len(source_ids) for source_ids in ids])
    packed = np.concatenate(ids).astype(np.int64)
    return Packed(packed, np.zeros_like(packed), layout, {}, np.zeros((len(ids), 3), np.int64))
