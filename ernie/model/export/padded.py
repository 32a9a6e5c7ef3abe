"""The model on padded batches of any length, in plain operators that other runtimes can trace.

Legend: N sequences, L padded length, D width, F inner width, H heads, K size of a head, C classes.
"""

from __future__ import annotations

import math

import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ernie.kernels.types import LayerWeights
from ernie.model.ernie import ErnieModel

FAR = -1e4  # added to attention scores of padding: gives zero after the softmax, in fp16 too
LEAST = 1e-12  # length by which a vector is divided
INPUTS = ("input_ids", "token_type_ids", "attention_mask")


class PaddedModel(nn.Layer):
    """An encoder, for one of its tasks, with or without a classifier; takes three (N, L) int64 inputs, see `INPUTS`.

    Returns a classifier's logits, (N, C), or (N, L, C) if `per_token`.  Without a classifier, returns the vectors of
    the tokens (N, L, D), zero at padding, and of the sequences (N, D).  With a `pooling`, `mean` or `cls`, also those
    pooled (N, D), of length 1 if `normalized`.  Positions count tokens, wherever the padding is.
    """

    def __init__(
        self,
        ernie: ErnieModel,
        classifier: nn.Linear | None = None,
        per_token: bool = False,
        task: int = 0,
        pooling: str = "",
        normalized: bool = False,
    ):
        super().__init__()
        self.ernie, self.classifier = ernie, classifier
        self.per_token, self.task = per_token, task
        self.pooling, self.normalized = pooling, normalized
        self.eval()

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        if self.classifier is not None:
            return ("logits",)
        return ("last_hidden_state", "pooler_output", *(["sentence_embedding"] if self.pooling else []))

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor | tuple[Tensor, ...]:
        positions_NL = (paddle.cumsum(attention_mask, axis=1) - 1) * attention_mask
        is_token_NL = attention_mask.astype("float32")
        bias_N11L = ((1.0 - is_token_NL) * FAR).unsqueeze([1, 2])
        x_NLD = self._embed(input_ids, token_type_ids, positions_NL)
        for layer in self.ernie.encoder.layers:
            x_NLD = self._layer(x_NLD, layer.weights(), bias_N11L)
        if self.classifier is not None and self.per_token:
            return self.classifier(x_NLD)
        # A matmul instead of x[:, 0], since padding may precede the first token.
        is_first_NL = is_token_NL * (positions_NL == 0).astype("float32")
        first_ND = paddle.matmul(is_first_NL.unsqueeze(1), x_NLD).squeeze(1)
        pooled_ND = paddle.tanh(self.ernie.pooler.dense(first_ND))
        if self.classifier is not None:
            return self.classifier(pooled_ND)
        tokens_NLD = x_NLD * is_token_NL.unsqueeze(-1)
        if not self.pooling:
            return tokens_NLD, pooled_ND
        sentence_ND = first_ND if self.pooling == "cls" else tokens_NLD.sum(1) / is_token_NL.sum(1, keepdim=True)
        if self.normalized:
            sentence_ND = sentence_ND / paddle.sqrt((sentence_ND * sentence_ND).sum(1, keepdim=True)).clip(min=LEAST)
        return tokens_NLD, pooled_ND, sentence_ND

    def _embed(self, ids_NL: Tensor, segments_NL: Tensor, positions_NL: Tensor) -> Tensor:
        embedding = self.ernie.embedding
        x_NLD = embedding.token(ids_NL) + embedding.position(positions_NL) + embedding.segment(segments_NL)
        if embedding.task is not None:
            x_NLD = x_NLD + embedding.task.weight[self.task]
        return embedding.norm(x_NLD)

    def _layer(self, x_NLD: Tensor, w: LayerWeights, bias_N11L: Tensor) -> Tensor:
        config = self.ernie.config

        def norm(x: Tensor, gain: Tensor, offset: Tensor) -> Tensor:
            return F.layer_norm(x, [config.hidden_size], gain, offset, config.layer_norm_epsilon)

        mixed_NLD = F.linear(self._attention(x_NLD, w, bias_N11L), w.out, w.out_bias)
        x_NLD = norm(x_NLD + mixed_NLD, w.gain1, w.offset1)
        inner_NLF = getattr(F, config.activation)(F.linear(x_NLD, w.inner, w.inner_bias))
        return norm(x_NLD + F.linear(inner_NLF, w.outer, w.outer_bias), w.gain2, w.offset2)

    def _attention(self, x_NLD: Tensor, w: LayerWeights, bias_N11L: Tensor) -> Tensor:
        H, D = self.ernie.config.heads, self.ernie.config.hidden_size
        q_NHLK, k_NHLK, v_NHLK = (
            F.linear(x_NLD, weight, bias).reshape([0, 0, H, D // H]).transpose([0, 2, 1, 3])
            for weight, bias in ((w.q, w.q_bias), (w.k, w.k_bias), (w.v, w.v_bias))
        )
        scores_NHLL = paddle.matmul(q_NHLK * (1 / math.sqrt(D // H)), k_NHLK, transpose_y=True) + bias_N11L
        return paddle.matmul(F.softmax(scores_NHLL), v_NHLK).transpose([0, 2, 1, 3]).reshape([0, 0, D])
