"""Classification of a text or of a pair of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ernie.data.batch import Packed
from ernie.data.document import Sample
from ernie.errors import UserError, nearest
from ernie.text.tokenizer import Tokenizer
from tasks.base import pair, single
from tasks.downstream.base import FinetuneTask, Row

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss


@dataclass(frozen=True, kw_only=True)
class Classify(FinetuneTask):
    """One of `labels` for each row.

    `text` and, for pairs, `text_pair` name the columns that are read, `label` the column with the answer.
    """

    labels: tuple[str, ...]
    text: str = "text"
    text_pair: str = ""
    label: str = "label"

    def __post_init__(self) -> None:
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise UserError(f"labels: expected at least two different ones, found {list(self.labels)}")

    def sample(self, row: Row, tokenizer: Tokenizer) -> Sample:
        first = tokenizer.encode(self._cell(row, self.text)).ids
        labels = {"label": self._index(row[self.label])} if self.label in row else {}
        if self.text_pair:
            second = tokenizer.encode(self._cell(row, self.text_pair)).ids
            return pair(tokenizer, first, second, self.max_len, **labels)
        return single(tokenizer, first[: self.max_len - 2], **labels)

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.heads import SequenceHead

        return SequenceHead(model, len(self.labels))

    def loss(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        from ernie.model.losses import cross_entropy

        return cross_entropy(head(hidden_TD, batch.layout), batch.labels["label"].values)

    def predict(self, logits: np.ndarray) -> list[str]:
        return [self.labels[i] for i in logits.argmax(-1)]

    def _cell(self, row: Row, column: str) -> str:
        if column not in row:
            raise UserError(f"there is no column '{column}'.{nearest(column, row)}")
        return row[column]

    def _index(self, label: str) -> int:
        if label not in self.labels:
            raise UserError(f"label '{label}' is not one of {', '.join(self.labels)}")
        return self.labels.index(label)
