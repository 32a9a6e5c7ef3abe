"""A pretraining task with a head and a loss of its own: hidden spans are told from the tokens on either side of them.

Joshi et al., 2020, "SpanBERT" (arXiv 1907.10529), section 3.2: a hidden token is predicted from the encoder's vectors
of the two tokens that bound its span, and from its place in the span.  So these two have to hold what is between them.

Put this file anywhere on the Python path and name it in the run's YAML:

    plugins: [span_boundary]
    schedule:
      stages:
        - {knowledge_masking: 1000}
        - {knowledge_masking: 500, span_boundary: 1000}

`ernie tasks span_boundary --plugin span_boundary` shows it as YAML sees it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ernie.data.batch import Packed
from ernie.data.document import IGNORE, Document, Sample
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer
from tasks.base import PretrainTask, pretrain_task, single
from tasks.passages import token_spans

if TYPE_CHECKING:  # what makes samples does without Paddle
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss


@pretrain_task("span_boundary")
@dataclass(frozen=True, kw_only=True)
class SpanBoundary(PretrainTask):
    """Predicts the tokens of hidden spans from the tokens that bound them.

    Of every `block` tokens a span of 1 to `longest` is hidden.
    """

    longest: int = 5
    block: int = 20

    metrics: ClassVar[tuple[str, ...]] = ("perplexity", "accuracy")
    head_fields: ClassVar[tuple[str, ...]] = ("longest",)  # whoever shares the head needs the same

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.longest < self.block:
            raise UserError(f"longest: expected 1 to {self.block - 1}, less than block, found {self.longest}")

    def samples(self, items: Sequence[Document], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        for start, stop in token_spans(items[0], self.length - 2):
            ids = items[0].ids[start:stop].astype(np.int64)
            shown, label = ids.copy(), np.full(len(ids), IGNORE)
            for first in range(0, len(ids) - self.block + 1, self.block):
                count = rng.integers(1, self.longest + 1)
                begin = first + rng.integers(self.block - count)  # the last token of a block stays
                label[begin : begin + count] = ids[begin : begin + count]
                shown[begin : begin + count] = tokenizer.mask_id
            if (label != IGNORE).any():
                yield single(tokenizer, shown, label=label)

    def head(self, model: ErnieModel) -> nn.Layer:
        from paddle import nn

        from ernie.model.heads import MaskedTokenHead

        D = model.config.hidden_size
        # What is predicted is a token of the vocabulary, so the library's head of masked words does the last part.
        return nn.LayerDict({"place": nn.Embedding(self.longest, D), "token": MaskedTokenHead(model, width=3 * D)})

    def reads(self, batch: Packed) -> np.ndarray:
        left_P, right_P = bounds(batch.labels["label"].positions)
        return np.union1d(left_P, right_P)

    def loss(self, head: Any, hidden_TD: Tensor, batch: Packed) -> Loss:
        import paddle

        hidden = batch.labels["label"]
        left_P, right_P = bounds(hidden.positions)
        sides = [paddle.gather(hidden_TD, paddle.to_tensor(side_P)) for side_P in (left_P, right_P)]
        place_PD = head["place"](paddle.to_tensor(hidden.positions - left_P - 1))
        joined_PD = paddle.concat([*sides, place_PD], axis=-1)
        loss: Loss = head["token"].loss(joined_PD, np.arange(len(left_P)), hidden.values)
        return loss


def bounds(positions_P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the token before and the token after the span of each hidden token, (P,) each."""
    firsts = np.flatnonzero(np.diff(positions_P, prepend=positions_P[0] - 2) > 1)
    counts = np.diff(firsts, append=len(positions_P))
    return (
        np.repeat(positions_P[firsts] - 1, counts),
        np.repeat(positions_P[firsts + counts - 1] + 1, counts),
    )
