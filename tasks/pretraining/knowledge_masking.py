"""Knowledge masking: predict whole words, phrases and entities that were masked.

ERNIE 1.0 (Sun et al., 2019, arXiv 1904.09223), section 3.2; the first task of ERNIE 2.0, section 3.2.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ernie.data.batch import Labels, Packed
from ernie.data.document import IGNORE, Document, Sample
from ernie.errors import UserError
from ernie.renames import formerly
from ernie.text.tokenizer import Tokenizer
from tasks.base import pretrain_task, single
from tasks.masked_units import MaskedUnits, frequencies
from tasks.passages import token_spans

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss


@pretrain_task("knowledge_masking")
@dataclass(frozen=True, kw_only=True)
class KnowledgeMasking(MaskedUnits):
    """Masked language modeling in which a unit of knowledge is masked as a whole.

    The tokens that are chosen are predicted.  Of the units, `mask_replace_prob` are replaced by [MASK],
    `random_replace_prob` by random tokens, and the rest are kept.
    """

    mask_replace_prob: float = field(default=0.8, metadata=formerly("mask"))
    random_replace_prob: float = field(default=0.1, metadata=formerly("random"))

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "perplexity")

    def __post_init__(self) -> None:
        super().__post_init__()
        found = self.mask_replace_prob, self.random_replace_prob
        if min(found) < 0 or sum(found) > 1:
            raise UserError(
                "mask_replace_prob and random_replace_prob: expected probabilities of at most 1 in sum, found "
                f"{found[0]} + {found[1]}"
            )

    @property
    def measured(self) -> KnowledgeMasking:
        """The task with all predicted tokens masked: kept ones are trivial to predict and would inflate the score."""
        return replace(super().measured, mask_replace_prob=1.0, random_replace_prob=0.0)

    def samples(self, items: Sequence[Document], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        document = items[0]
        for start, stop in token_spans(document, self.length - 2):
            tokens = ids, flags = document.tokens.cut(start, stop)
            ranks = self.ranks(tokens, np.isin(ids, list(tokenizer.special_ids)), rng)
            chosen = ranks < self.highest_rate
            if not chosen.any():
                continue
            labels = np.full(len(ids), IGNORE, np.int64)
            labels[chosen] = ids[chosen]
            masked = self._mask(ids, flags, chosen, tokenizer, rng)
            yield self.ranked(single(tokenizer, masked, label=labels), ranks)

    def at(self, batch: Packed, progress: float) -> Packed:
        """Show the original tokens where the rate has fallen below their rank."""
        values, positions = batch.labels["label"]
        assert positions is not None, "labels of tokens have positions"
        dropped = self.dropped(batch, progress)[positions]
        if not dropped.any():
            return batch
        ids = batch.ids.copy()
        ids[positions[dropped]] = values[dropped]
        return replace(batch, ids=ids, labels={"label": Labels(values[~dropped], positions[~dropped])})

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.heads import MaskedTokenHead

        return MaskedTokenHead(model)

    def initialize(self, head: nn.Layer, items: Sequence[Document]) -> None:
        """Initialize the output bias to the logarithm of the tokens' frequencies.

        Otherwise the embeddings learn nothing but these frequencies in the first hundreds of steps.
        """
        head.initialize_bias(frequencies(items, head.bias.shape[0]))

    def reads(self, batch: Packed) -> np.ndarray | None:
        return batch.labels["label"].positions

    def loss(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        labels = batch.labels["label"]
        return head.loss(hidden_TD, labels.positions, labels.values)

    def _mask(
        self, ids: np.ndarray, flags: np.ndarray, chosen: np.ndarray, tokenizer: Tokenizer, rng: np.random.Generator
    ) -> np.ndarray:
        """Return the ids with the chosen tokens masked, replaced or kept; one random draw decides for a whole unit."""
        unit_of = self.unit_of(flags)
        draw = rng.random(unit_of[-1] + 1)[unit_of]
        masked = ids.astype(np.int64)
        masked[chosen & (draw < self.mask_replace_prob)] = tokenizer.mask_id
        replaced = (
            chosen & (draw >= self.mask_replace_prob) & (draw < self.mask_replace_prob + self.random_replace_prob)
        )
        masked[replaced] = rng.choice(tokenizer.ordinary_ids, size=int(replaced.sum()))
        return masked
