"""The choice of the tokens to mask, shared by the tasks that mask: whole units of knowledge in random order."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeVar

import numpy as np

from ernie.data.batch import Packed
from ernie.data.document import Document, Flag, Sample, Tokens
from ernie.errors import UserError
from ernie.renames import formerly
from ernie.text.tokenizer import Tokenizer
from tasks.base import PretrainTask

T = TypeVar("T", bound="MaskedUnits")
Unit = Literal["token", "word", "phrase", "entity"]
_COUNTED = 5_000  # about how many documents the token frequencies are counted in
_CONTINUES = {"word": Flag.CONTINUES_WORD, "phrase": Flag.CONTINUES_PHRASE, "entity": Flag.CONTINUES_ENTITY}


@dataclass(frozen=True, kw_only=True)
class MaskedUnits(PretrainTask):
    """The choice of the tokens to mask.

    `units` says what counts as a unit: [token] is BERT's masking, [word] whole-word masking, and each further name
    joins the tokens of such a span.  A fraction `mask_rate` of the tokens is chosen, in whole units.  Units with a
    special or unknown token are not.  With `initial_mask_rate` the fraction begins there, and changes by the same
    amount at each step of the run until it is `mask_rate` (Ankner et al., 2023, arXiv 2305.15096).

    `rarity`, if it is above 0, has rare words chosen more often.  Units are then drawn by weights: the mean over their
    tokens of the frequency in the corpus to the power of minus `rarity` (Zhang et al., 2023, arXiv 2302.14225).
    """

    units: tuple[Unit, ...] = ("word", "phrase", "entity")
    mask_rate: float = field(default=0.15, metadata=formerly("share"))
    initial_mask_rate: float | None = None
    rarity: float = 0.0

    token_weights: ClassVar[np.ndarray | None] = None  # of a `fitted` task with `rarity`: (V,), its own

    def __post_init__(self) -> None:
        if not self.units:
            raise UserError("units: name at least one of token, word, phrase, entity")
        if not 0 < self.mask_rate < 1:
            raise UserError(f"mask_rate: expected a number between 0 and 1, found {self.mask_rate}")
        if self.initial_mask_rate is not None and not 0 < self.initial_mask_rate < 1:
            raise UserError(f"initial_mask_rate: expected a number between 0 and 1, found {self.initial_mask_rate}")
        if not 0 <= self.rarity <= 1:
            raise UserError(f"rarity: expected a number from 0 to 1, found {self.rarity}")

    @property
    def measured(self: T) -> T:
        """The task with the final rate, and no preference for rare words: the same words whatever these are."""
        return replace(self, initial_mask_rate=None, rarity=0.0)

    @property
    def highest_rate(self) -> float:
        """The highest rate of the run."""
        return max(self.mask_rate, self.initial_mask_rate or 0.0)

    def rate(self, progress: float) -> float:
        """Return the fraction to choose after a part of the run's steps."""
        begin = self.mask_rate if self.initial_mask_rate is None else self.initial_mask_rate
        return begin + (self.mask_rate - begin) * progress

    def fitted(self, items: Sequence[Document], tokenizer: Tokenizer) -> MaskedUnits:
        if not self.rarity:
            return self
        fitted = copy.copy(self)
        object.__setattr__(fitted, "token_weights", frequencies(items, tokenizer.vocab_size) ** -self.rarity)
        return fitted

    def dropped(self, batch: Packed, progress: float) -> np.ndarray:
        """Return the tokens (T,) whose rank is not below the rate, after a part of the run's steps."""
        none = np.zeros(batch.layout.tokens, bool)
        return none if batch.ranks is None else batch.ranks >= self.rate(progress)

    def ranked(self, sample: Sample, ranks: np.ndarray) -> Sample:
        """Return a sample that knows the ranks of its tokens, special ones excluded, if the rate changes."""
        if self.initial_mask_rate is None:
            return sample
        return replace(sample, ranks=np.pad(ranks, 1, constant_values=np.inf))

    def unit_of(self, flags: np.ndarray) -> np.ndarray:
        """Return the number of the unit that each token belongs to."""
        continues = np.zeros(len(flags), bool)
        for unit in self.units:
            if unit in _CONTINUES:
                continues |= (flags & _CONTINUES[unit]) != 0
        continues[0] = False  # the first token may continue a unit that was cut
        return np.cumsum(~continues) - 1

    def ranks(self, tokens: Tokens, special: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the rank of each token: it is chosen at every rate above its rank, and infinite ranks never are.

        Units are ranked in random order by how many tokens come before them.  The first one has the rank 0, so that
        there is always one.  None has a `special` token.
        """
        unit_of = self.unit_of(tokens.flags)
        sizes = np.bincount(unit_of)
        order = self._order(tokens.ids, unit_of, sizes, rng)
        if special.any():
            order = order[np.bincount(unit_of, special)[order] == 0]
        ranks = np.full(len(sizes), np.inf)
        if len(order):
            ends = np.cumsum(sizes[order])
            # The next unit would exceed the rate.  Taking it with this probability makes the rate right on average.
            is_cut = ends[-1] > self.highest_rate * len(unit_of) or self.initial_mask_rate is not None
            part = rng.random() if is_cut else 0.0
            ranks[order] = (ends - (1 - part) * sizes[order]) / len(unit_of)
            ranks[order[0]] = 0.0
        return ranks[unit_of]

    def _order(self, ids: np.ndarray, unit_of: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the units in random order; with weights, each next one is drawn by the weights of those left.

        Efraimidis and Spirakis, 2006, "Weighted random sampling with a reservoir".
        """
        if self.token_weights is None:
            return rng.permutation(len(sizes))
        weights = np.bincount(unit_of, self.token_weights[ids]) / sizes
        return np.argsort(rng.exponential(size=len(sizes)) / weights)


def frequencies(documents: Sequence[Document], size: int) -> np.ndarray:
    """Return the share of each token (size,) in some millions of the corpus's tokens, with add-one smoothing."""
    counts, step = np.ones(size), max(1, len(documents) // _COUNTED)
    for i in range(0, len(documents), step):
        counts += np.bincount(documents[i].ids, minlength=size)
    return counts / counts.sum()
