"""Knowledge masking: predict whole words, phrases and entities that were masked.

ERNIE 1.0 (Sun et al., 2019, arXiv 1904.09223), section 3.2; the first task of ERNIE 2.0, section 3.2.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from ernie.data.batch import Packed
from ernie.data.document import IGNORE, Document, Flag, Sample
from ernie.errors import UserError
from ernie.renames import formerly
from ernie.text.tokenizer import Tokenizer
from tasks.base import PretrainTask, pretrain_task, single
from tasks.passages import token_spans

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss

Unit = Literal["token", "word", "phrase", "entity"]
_COUNTED = 5_000  # about how many documents the token frequencies are counted in
_CONTINUES = {"word": Flag.CONTINUES_WORD, "phrase": Flag.CONTINUES_PHRASE, "entity": Flag.CONTINUES_ENTITY}


@pretrain_task("knowledge_masking")
@dataclass(frozen=True, kw_only=True)
class KnowledgeMasking(PretrainTask):
    """Masked language modeling in which a unit of knowledge is masked as a whole.

    `units` says what counts as a unit: [token] is BERT's masking, [word] whole-word masking, and each further name
    joins the tokens of such a span.  A fraction `mask_rate` of the tokens is
    predicted.  Of the units chosen, `mask_replace_prob` are replaced by [MASK], `random_replace_prob` by random tokens,
    and the rest are kept.  Units with a special or unknown token are not predicted.
    """

    units: tuple[Unit, ...] = ("word", "phrase", "entity")
    mask_rate: float = field(default=0.15, metadata=formerly("share"))
    mask_replace_prob: float = field(default=0.8, metadata=formerly("mask"))
    random_replace_prob: float = field(default=0.1, metadata=formerly("random"))

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "perplexity")

    def __post_init__(self) -> None:
        if not self.units:
            raise UserError("units: name at least one of token, word, phrase, entity")
        if not 0 < self.mask_rate < 1:
            raise UserError(f"mask_rate: expected a number between 0 and 1, found {self.mask_rate}")
        found = self.mask_replace_prob, self.random_replace_prob
        if min(found) < 0 or sum(found) > 1:
            raise UserError(
                "mask_replace_prob and random_replace_prob: expected probabilities of at most 1 in sum, found "
                f"{found[0]} + {found[1]}"
            )

    @property
    def measured(self) -> KnowledgeMasking:
        """The task with all predicted tokens masked: kept ones are trivial to predict and would inflate the score."""
        return replace(self, mask_replace_prob=1.0, random_replace_prob=0.0)

    def samples(self, items: Sequence[Document], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        document = items[0]
        for start, stop in token_spans(document, self.length - 2):
            ids, flags = document.tokens.cut(start, stop)
            chosen = self._choose(flags, rng, np.isin(ids, list(tokenizer.special_ids)))
            if not chosen.any():
                continue
            labels = np.full(len(ids), IGNORE, np.int64)
            labels[chosen] = ids[chosen]
            yield single(tokenizer, self._mask(ids, flags, chosen, tokenizer, rng), label=labels)

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.heads import MaskedTokenHead

        return MaskedTokenHead(model)

    def initialize(self, head: nn.Layer, items: Sequence[Document]) -> None:
        """Initialize the output bias to the logarithm of the tokens' frequencies.

        Otherwise the embeddings learn nothing but these frequencies in the first hundreds of steps.
        """
        head.initialize_bias(_frequencies(items, head.bias.shape[0]))

    def reads(self, batch: Packed) -> np.ndarray | None:
        return batch.labels["label"].positions

    def loss(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        labels = batch.labels["label"]
        return head.loss(hidden_TD, labels.positions, labels.values)

    def _unit_of(self, flags: np.ndarray) -> np.ndarray:
        """Return the number of the unit that each token belongs to."""
        continues = np.zeros(len(flags), bool)
        for unit in self.units:
            if unit in _CONTINUES:
                continues |= (flags & _CONTINUES[unit]) != 0
        continues[0] = False  # the first token may continue a unit that was cut
        return np.cumsum(~continues) - 1

    def _choose(self, flags: np.ndarray, rng: np.random.Generator, special: np.ndarray) -> np.ndarray:
        """Choose the tokens to predict: whole units in random order, at least one, without a `special` token."""
        unit_of = self._unit_of(flags)
        sizes = np.bincount(unit_of)
        order = rng.permutation(len(sizes))
        if special.any():
            order = order[np.bincount(unit_of, special)[order] == 0]
            if not len(order):
                return np.zeros(len(flags), bool)
        ends = np.cumsum(sizes[order])
        target = self.mask_rate * len(flags)
        count = int(np.searchsorted(ends, target, side="right"))
        if count < len(order):
            # The next unit would exceed the rate.  Taking it with this probability makes the rate right on average.
            size = sizes[order[count]]
            count += int(rng.random() < (target - (ends[count] - size)) / size)
        chosen_units = np.zeros(len(sizes), bool)
        chosen_units[order[: max(1, count)]] = True
        return chosen_units[unit_of]

    def _mask(
        self, ids: np.ndarray, flags: np.ndarray, chosen: np.ndarray, tokenizer: Tokenizer, rng: np.random.Generator
    ) -> np.ndarray:
        """Return the ids with the chosen tokens masked, replaced or kept; one random draw decides for a whole unit."""
        unit_of = self._unit_of(flags)
        draw = rng.random(unit_of[-1] + 1)[unit_of]
        masked = ids.astype(np.int64)
        masked[chosen & (draw < self.mask_replace_prob)] = tokenizer.mask_id
        replaced = (
            chosen & (draw >= self.mask_replace_prob) & (draw < self.mask_replace_prob + self.random_replace_prob)
        )
        masked[replaced] = rng.choice(tokenizer.ordinary_ids, size=int(replaced.sum()))
        return masked


def _frequencies(documents: Sequence[Document], size: int) -> np.ndarray:
    """Return the share of each token (size,) in some millions of the corpus's tokens, with add-one smoothing."""
    counts, step = np.ones(size), max(1, len(documents) // _COUNTED)
    for i in range(0, len(documents), step):
        counts += np.bincount(documents[i].ids, minlength=size)
    return counts / counts.sum()
