"""The parts of a pretrained encoder, on which everything that is done with one stands.

Legend: T packed tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from paddle import LazyGuard, Tensor, nn

from ernie.data.batch import Packed
from ernie.kernels.mask import Mask
from ernie.kernels.types import Adapted
from ernie.model.config import EncoderConfig
from ernie.model.embeddings import TextEmbedding
from ernie.model.encoder import Encoder
from ernie.model.heads import MaskedTokenHead, Pooler
from ernie.model.sentence import SentenceConfig
from ernie.text.tokenizer import Tokenizer


class BaseEncoder(nn.Layer):
    """Embedding, encoder and pooler, and what belongs to them: see `ErnieModel`, which adds what users call.

    `initialize=False` leaves the parameters without values, for callers that set all of them.
    """

    def __init__(self, config: EncoderConfig, *, initialize: bool = True):
        super().__init__()
        self.config = config
        with nullcontext() if initialize else LazyGuard():
            self.embedding = TextEmbedding(config)
            self.encoder = Encoder(config)
            self.pooler = Pooler(config)
        self.tokenizer: Tokenizer | None = None
        self.masked_head: MaskedTokenHead | None = None
        self.sentence_config: SentenceConfig | None = None
        if not initialize:
            for parameter in self.parameters():  # initializers cannot be pickled for spawned processes
                parameter._init_func = parameter._init_op_creator = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "masked_head":  # Paddle would register it as a sublayer, even behind a property
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def _to_impl(self, *given: Any, **named: Any) -> nn.Layer:
        """Implement `to`, `float` and the like: also convert the masked-token head, which is not a sublayer."""
        if self.masked_head is not None:
            self.masked_head._to_impl(*given, **{**named, "include_sublayers": True})
        return super()._to_impl(*given, **named)

    def encode_packed(
        self,
        batch: Packed,
        task_id: int = 0,
        needed: np.ndarray | None = None,
        mask: Mask | None = None,
        states: list[Tensor] | None = None,
        adapted: Sequence[Adapted] = (),
    ) -> Tensor:
        """Encode a packed batch, (T, D).

        `needed` holds, in ascending order, the indices of the tokens whose vectors are wanted (default: all); the other
        vectors are zero, and the last layer does not compute them.  `mask` restricts which tokens of its sequence each
        token attends to (default: all).  If `states` is given, the embeddings and then each layer's output are added.
        For the tokens in `adapted` the layers' matrices have low-rank updates.
        """
        layout = batch.layout
        x_TD = self.embedding(batch.ids, batch.segments, layout.positions, task_id)
        if states is not None:
            states.append(x_TD)
        return self.encoder(x_TD, layout, states, needed, mask, adapted)
