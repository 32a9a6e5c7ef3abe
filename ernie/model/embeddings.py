"""From token ids to vectors.  Legend: T packed tokens, D width."""

from __future__ import annotations

from paddle import Tensor, nn

from ernie.model.config import EncoderConfig


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
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids_T: Tensor, segments_T: Tensor, positions_T: Tensor, tasks_T: Tensor) -> Tensor:
        """Embed tokens; `tasks_T` (T,), or (1,) for one task, is ignored by an encoder without task embeddings."""
        x_TD = self.token(ids_T) + self.position(positions_T) + self.segment(segments_T)
        if self.task is not None:
            x_TD = x_TD + self.task(tasks_T)
        return self.dropout(self.norm(x_TD))
