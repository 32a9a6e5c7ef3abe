"""Replaced-token detection: which tokens did a small generator put in place of the original ones?

ELECTRA (Clark et al., 2020, arXiv 2003.10555).  Not one of ERNIE 2.0's seven tasks: it learns from every token, not
only from those that are masked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ernie.data.batch import Labels, Packed
from ernie.data.document import Document, Sample
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer
from tasks.base import TokenTask, pretrain_task, single
from tasks.masked_units import MaskedUnits, frequencies
from tasks.passages import token_spans

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel

ORIGINAL, REPLACED = range(2)


@pretrain_task("replaced_token_detection")
@dataclass(frozen=True, kw_only=True)
class ReplacedTokenDetection(MaskedUnits, TokenTask):
    """Two-way classification of each token: the original, or one that a generator put in its place.

    The chosen tokens are predicted by the generator, a masked language model of a fraction `generator_width` of the
    encoder's width, in whole attention heads, which shares the encoder's embeddings.  Samples of its predictions
    replace them.  Of these tokens `mask_replace_prob` are hidden from it, and the rest are shown.  `weight` is that of
    the classifier's loss beside the generator's, as in the paper's section 3.1.  The loss is given for a `weight` of 1:
    what the generator's adds is divided by it.  The saved encoder is the classifier's; the generator is part of
    checkpoints only.
    """

    generator_width: float = 0.25
    mask_replace_prob: float = 0.85
    weight: float = 50.0

    classes: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("f1", "accuracy")
    head_fields: ClassVar[tuple[str, ...]] = ("generator_width",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.generator_width <= 1:
            raise UserError(f"generator_width: expected more than 0 and at most 1, found {self.generator_width:g}")
        if not 0 < self.mask_replace_prob <= 1:
            raise UserError(f"mask_replace_prob: expected more than 0 and at most 1, found {self.mask_replace_prob:g}")
        if self.weight <= 0:
            raise UserError(f"weight: expected more than 0, found {self.weight:g}")

    def samples(self, items: Sequence[Document], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        """Yield samples of the original tokens, labeled 1 where the generator has to replace one."""
        document = items[0]
        for start, stop in token_spans(document, self.length - 2):
            tokens = document.tokens.cut(start, stop)
            ranks = self.ranks(tokens, np.isin(tokens.ids, list(tokenizer.special_ids)), rng)
            chosen = ranks < self.highest_rate
            if chosen.any():
                yield self.ranked(single(tokenizer, tokens, label=np.where(chosen, REPLACED, ORIGINAL)), ranks)

    def at(self, batch: Packed, progress: float) -> Packed:
        """Leave tokens in place where the rate has fallen below their rank."""
        values, positions = batch.labels["label"]
        kept = np.where(self.dropped(batch, progress)[positions], ORIGINAL, values)
        return replace(batch, labels={"label": Labels(kept, positions)})

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.generator import ReplacedTokenHead

        return ReplacedTokenHead(model, self.generator_width)

    def initialize(self, head: nn.Layer, items: Sequence[Document]) -> None:
        """Initialize the generator's output bias to the logarithm of the tokens' frequencies, as knowledge masking."""
        words = head.generator.words
        words.initialize_bias(frequencies(items, words.bias.shape[0]))

    def prepare(self, head: nn.Layer, batch: Packed, embed: Callable[[Packed], Tensor]) -> tuple[Packed, Tensor | None]:
        """Replace the tokens; the generator's mean loss counts as much as `weight` times less than the classifier's."""
        seen, mean = head.replaced(batch, embed, self.mask_replace_prob)
        return seen, mean * (batch.targets / self.weight)

    def reads(self, batch: Packed) -> np.ndarray | None:
        return None  # nearly every token is labeled
