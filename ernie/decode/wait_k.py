"""Read/write policies of simultaneous translation.

Ma et al., 2019, "STACL" (arXiv 1810.08398): section 3.1 (wait-k), section 3.2 (catch-up).  Zheng et al., 2020,
"Simultaneous Translation Policies: From Fixed to Adaptive" (arXiv 2004.13169): section 3 (confidence).  Liu et al.,
2020, "Low-Latency Sequence-to-Sequence Speech Recognition and Translation by Partial Hypothesis Selection" (arXiv
2005.11185): section 2 (local agreement).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np

from ernie.errors import UserError, check_count

_MOST = 1 << 40  # tokens, more than any source has
_TINY = 1e-9  # rounding error of a product that should be whole: 1 - 1 / 1.25 is not quite 0.2


@dataclass(frozen=True)
class WaitK:
    """Stay `k` tokens behind the source; with None read all of it first.

    If the target is r times as long as the source, `catch_up` = 1 - 1/r keeps the distance: with 0.2 every fifth token
    is written without reading another one; negative values, for shorter targets, read more.

    With a `confidence` the policy is adaptive: a token that is less probable waits for another token of the source.
    Tokens that are more probable are written at once, until the target is `k` tokens behind again.  With `most`, the
    probability that is needed falls evenly with the distance, to 0 at `most` tokens.

    With an `agreement` the policy is adaptive, too: a token waits unless it would have been the next one with so many
    source tokens less (local agreement, of greedy translations; those before it stay as they are).  At `most` tokens
    none waits.
    """

    k: int | None
    catch_up: float = 0.0
    confidence: float = 0.0
    most: int | None = None
    agreement: int = 0

    def __post_init__(self) -> None:
        if self.k is not None:
            check_count("wait_k", self.k, 1)
        if not isinstance(self.catch_up, Real):
            raise UserError(f"catch_up: expected a number, found {self.catch_up!r:.60}")
        if not -math.inf < self.catch_up < 1:
            raise UserError(f"catch_up: expected less than 1, found {self.catch_up:g}")
        if not isinstance(self.confidence, Real) or not 0 <= self.confidence <= 1:
            raise UserError(f"confidence: expected a probability, from 0 to 1, found {self.confidence!r:.60}")
        if self.most is not None:
            check_count("max_wait_k", self.most, 1)
        check_count("agreement", self.agreement, 0)

    @property
    def adaptive(self) -> bool:
        """Whether it depends on the tokens how far the target is behind."""
        return bool(self.confidence or self.agreement)

    @property
    def ratio(self) -> float:
        """How many times as long as sources targets are expected to be, if longer."""
        return 1 / (1 - max(0.0, self.catch_up))

    def reads(self, steps: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return g(t), the number of source tokens read before the target token t, counted from 0, is written.

        `lengths` are the source lengths; both arrays have one entry for each target token.
        """
        if self.k is None:
            return np.asarray(lengths)
        steps = np.asarray(steps)
        saved = np.clip(np.floor(self.catch_up * (steps + 1) + _TINY), -_MOST, _MOST).astype(np.int64)
        return np.clip(min(self.k, _MOST) + steps - saved, 1, lengths)

    def least_probability(self, behind: int) -> float:
        """Return the probability that a token needs to be written, with `behind` tokens read beyond those for `k`."""
        if self.k is None or self.most is None:
            return self.confidence
        left = self.most - self.k - behind
        return self.confidence * left / (left + behind) if left > 0 else 0.0

    def must_agree(self, behind: int) -> bool:
        """Return whether a token has to be that of a shorter prefix, with `behind` tokens read beyond those for `k`."""
        return bool(self.agreement) and (self.k is None or self.most is None or behind < self.most - self.k)
