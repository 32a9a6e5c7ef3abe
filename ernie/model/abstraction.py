"""What was read of a stream in few vectors, and the pieces that follow encoded with it, as SMLTA2 does it.

Patent application US20230090590 (Baidu): for each piece of a stream the model fetches an abstraction of the pieces
that were recognized before it, and encodes the piece with that.

Legend: U tokens that are written, P packed vectors of the pieces, D width.
"""

from __future__ import annotations

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.data.batch import Layout
from ernie.kernels.attention import attention
from ernie.kernels.linear import linear
from ernie.kernels.norm import add_norm
from ernie.model.config import EncoderConfig
from ernie.model.encoder import EncoderLayer
from ernie.model.memory import Memory, Pairs


class Abstraction(EncoderLayer):
    """A layer that encodes pieces, (P, D) -> (P, D), each beside the abstractions of the `most` tokens before it.

    The abstraction of a token is what attention finds for it in its piece.  It asks by the token alone, not by a state
    of the decoder that knows of earlier abstractions: so all pieces of a sound are learnt at once.
    """

    def __init__(self, config: EncoderConfig, most: int):
        super().__init__(config)
        D = config.hidden_size
        self.most = most
        self.token_q, self.piece_k, self.piece_v = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.found, self.found_norm = nn.Linear(D, D), nn.LayerNorm(D, epsilon=config.layer_norm_epsilon)

    def abstract(self, x_UD: Tensor, tokens: Layout, pieces_PD: Tensor, layout: Layout) -> Pairs:
        """Keys and values of the abstraction of each token: of the n-th sequence of them in the n-th piece."""
        q_UD = linear(x_UD, self.token_q.weight, self.token_q.bias)
        k_PD, v_PD = (linear(pieces_PD, part.weight, part.bias) for part in (self.piece_k, self.piece_v))
        mixed_UD = attention(q_UD, k_PD, v_PD, tokens, self._settings.heads, keys=layout)
        found_UD = linear(mixed_UD, self.found.weight, self.found.bias)
        norm = self.found_norm
        return (self.read(add_norm(x_UD, found_UD, norm.weight, norm.bias, self._settings.epsilon)),)

    def encode(self, pieces_PD: Tensor, layout: Layout, before: Memory) -> Tensor:
        """The pieces, of which the n-th sees the n-th sequence of abstractions `before` it, and all of itself."""
        return self.go_on(pieces_PD, layout, before.places(layout, together=True), 0)[0]

    def preceding(self, abstractions: Pairs, tokens: Layout, sound: np.ndarray) -> Memory:
        """What each piece has before it, of the abstractions of all tokens; `sound` says which one it belongs to."""
        begins = np.searchsorted(sound, sound)  # the first piece of each one's sound
        last = tokens.starts
        first = np.maximum(tokens.starts[begins], last - self.most)
        rows = np.concatenate([np.arange(*span) for span in zip(first, last, strict=True)])
        if not len(rows):
            return Memory.empty(len(sound))
        where = paddle.to_tensor(rows.astype(np.int64))
        ((keys, values),) = abstractions
        return Memory(Layout.of_lengths(last - first), ((paddle.gather(keys, where), paddle.gather(values, where)),))
