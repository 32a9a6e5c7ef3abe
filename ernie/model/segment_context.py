"""Summaries of what was recognized of a stream, given to the encoder of the segments that follow, as in SMLTA2.

Patent application US20230090590 (Baidu): for each segment of a stream the model computes an abstraction of the segments
recognized before it, and encodes the segment together with that.

Legend: U packed target tokens, P packed vectors of the segments, D width.
"""

from __future__ import annotations

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.data.batch import Layout
from ernie.kernels.attention import attention
from ernie.kernels.linear import linear
from ernie.kernels.norm import add_norm
from ernie.model.cache import KeyValueCache, Pairs
from ernie.model.config import EncoderConfig
from ernie.model.encoder import EncoderLayer


class Abstraction(EncoderLayer):
    """A layer that encodes segments, (P, D) -> (P, D), each given the abstractions of the last `max_tokens` tokens.

    The abstraction of a token is the result of its attention to its segment.  The query is the token embedding, not a
    decoder state that depends on earlier abstractions, so that all segments of a recording are trained in parallel.
    """

    def __init__(self, config: EncoderConfig, max_tokens: int):
        super().__init__(config)
        D = config.hidden_size
        self.max_tokens = max_tokens
        self.token_q, self.piece_k, self.piece_v = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.found, self.found_norm = nn.Linear(D, D), nn.LayerNorm(D, epsilon=config.layer_norm_epsilon)

    def abstract(self, x_UD: Tensor, tokens: Layout, segments_PD: Tensor, layout: Layout) -> Pairs:
        """Return keys and values of the tokens' abstractions; the n-th sequence of tokens reads the n-th segment."""
        q_UD = linear(x_UD, self.token_q.weight, self.token_q.bias)
        k_PD, v_PD = (linear(segments_PD, part.weight, part.bias) for part in (self.piece_k, self.piece_v))
        attended_UD = attention(q_UD, k_PD, v_PD, tokens, self._settings.heads, keys=layout)
        found_UD = linear(attended_UD, self.found.weight, self.found.bias)
        norm = self.found_norm
        return (self.read(add_norm(x_UD, found_UD, norm.weight, norm.bias, self._settings.epsilon)),)

    def encode(self, segments_PD: Tensor, layout: Layout, cache: KeyValueCache) -> Tensor:
        """Encode segments; the n-th attends to the n-th sequence of abstractions in the cache, and to all of itself."""
        longest, all_cached = int(layout.lengths.max(initial=1)), int(cache.layout.lengths.max(initial=0))
        return self.forward_cached(segments_PD, cache.windows(layout, longest, all_cached))

    def preceding(self, abstractions: Pairs, tokens: Layout, recordings: np.ndarray) -> KeyValueCache:
        """Select, from the abstractions of all tokens, those that precede each segment in its recording.

        `recordings` holds the index of the recording that each segment belongs to, in ascending order.
        """
        recording_starts = np.searchsorted(recordings, recordings)  # the first segment of each segment's recording
        end_rows = tokens.starts
        first_rows = np.maximum(tokens.starts[recording_starts], end_rows - self.max_tokens)
        rows = np.concatenate([np.arange(*span) for span in zip(first_rows, end_rows, strict=True)])
        if not len(rows):
            return KeyValueCache.empty(len(recordings))
        index = paddle.to_tensor(rows.astype(np.int64))
        ((keys, values),) = abstractions
        return KeyValueCache(
            Layout.of_lengths(end_rows - first_rows), ((paddle.gather(keys, index), paddle.gather(values, index)),)
        )
