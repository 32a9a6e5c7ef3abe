"""The choice of the tokens to mask, shared by the tasks that mask: whole units of knowledge in random order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ernie.data.document import Document, Flag
from ernie.errors import UserError
from ernie.renames import formerly
from tasks.base import PretrainTask

Unit = Literal["token", "word", "phrase", "entity"]
_COUNTED = 5_000  # about how many documents the token frequencies are counted in
_CONTINUES = {"word": Flag.CONTINUES_WORD, "phrase": Flag.CONTINUES_PHRASE, "entity": Flag.CONTINUES_ENTITY}


@dataclass(frozen=True, kw_only=True)
class MaskedUnits(PretrainTask):
    """The choice of the tokens to mask.

    `units` says what counts as a unit: [token] is BERT's masking, [word] whole-word masking, and each further name
    joins the tokens of such a span.  A fraction `mask_rate` of the tokens is chosen, in whole units.  Units with a
    special or unknown token are not.
    """

    units: tuple[Unit, ...] = ("word", "phrase", "entity")
    mask_rate: float = field(default=0.15, metadata=formerly("share"))

    def __post_init__(self) -> None:
        if not self.units:
            raise UserError("units: name at least one of token, word, phrase, entity")
        if not 0 < self.mask_rate < 1:
            raise UserError(f"mask_rate: expected a number between 0 and 1, found {self.mask_rate}")

    def unit_of(self, flags: np.ndarray) -> np.ndarray:
        """Return the number of the unit that each token belongs to."""
        continues = np.zeros(len(flags), bool)
        for unit in self.units:
            if unit in _CONTINUES:
                continues |= (flags & _CONTINUES[unit]) != 0
        continues[0] = False  # the first token may continue a unit that was cut
        return np.cumsum(~continues) - 1

    def choose(self, flags: np.ndarray, rng: np.random.Generator, special: np.ndarray) -> np.ndarray:
        """Choose the tokens to mask: whole units in random order, at least one, without a `special` token."""
        unit_of = self.unit_of(flags)
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


def frequencies(documents: Sequence[Document], size: int) -> np.ndarray:
    """Return the share of each token (size,) in some millions of the corpus's tokens, with add-one smoothing."""
    counts, step = np.ones(size), max(1, len(documents) // _COUNTED)
    for i in range(0, len(documents), step):
        counts += np.bincount(documents[i].ids, minlength=size)
    return counts / counts.sum()
