"""Input embeddings of text.  Legend: T packed tokens, D width."""

from __future__ import annotations

import numpy as np
from paddle import Tensor, nn

from ernie.kernels.embedding import embed
from ernie.model.config import EncoderConfig

# For error messages: the argument names of ErnieModel.forward.
_INPUT_NAMES = ("input_ids:", "position", "token_type_ids:", "task_type_ids:")


class TextEmbedding(nn.Layer):
    """Sum of token, position, segment and task embeddings, normalized: (T,) -> (T, D).

    ERNIE 2.0 (Sun et al., 2019), section 3.3: the task embedding tells the encoder which task a batch belongs to.
    """

    def __init__(self, config: EncoderConfig):
        super().__init__()
        D = config.hidden_size
        self.token = nn.Embedding(config.vocab_size, D)
        self.position = nn.Embedding(config.max_positions, D)
        self.segment = nn.Embedding(config.segments, D)
        self.task = nn.Embedding(config.task_vocab_size, D) if config.task_vocab_size else None
        self.norm = nn.LayerNorm(D, epsilon=config.layer_norm_epsilon)
        self.dropout, self._epsilon = config.dropout, config.layer_norm_epsilon

    def forward(
        self, ids_T: np.ndarray, segments_T: np.ndarray, positions_T: np.ndarray, tasks_T: np.ndarray | int
    ) -> Tensor:
        """Embed tokens; `tasks_T`, a single task id or (T,), is ignored by an encoder without task embeddings."""
        ids = [ids_T, positions_T, segments_T]
        tables = [self.token.weight, self.position.weight, self.segment.weight]
        if self.task is not None:
            ids.append(np.broadcast_to(tasks_T, ids_T.shape))
            tables.append(self.task.weight)
        dropout = self.dropout if self.training else 0.0
        return embed(ids, tables, self.norm.weight, self.norm.bias, self._epsilon, dropout, _INPUT_NAMES[: len(ids)])
