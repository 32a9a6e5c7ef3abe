"""What a kind of fine-tuning task is: how a row of data becomes a sample, and a prediction of the model an answer.

Legend: T tokens of a packed batch, N sequences, D width, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ernie.data.batch import Packed
from ernie.data.document import Sample
from ernie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss

Row = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class FinetuneTask(ABC):
    """The base of all kinds of fine-tuning task.  `max_len` is the longest sample in tokens."""

    max_len: int = 128

    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)  # names of ernie.metrics; the first decides

    @abstractmethod
    def sample(self, row: Row, tokenizer: Tokenizer) -> Sample:
        """The sample of one row, with its label where the row has one."""

    @abstractmethod
    def head(self, model: ErnieModel) -> nn.Layer:
        """What turns the encoder's output into logits."""

    @abstractmethod
    def loss(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        """The sum of the loss over the batch's targets, with their number and the logits."""

    @abstractmethod
    def predict(self, logits: np.ndarray) -> list[Any]:
        """The answers of a batch, one a sequence, in order."""
