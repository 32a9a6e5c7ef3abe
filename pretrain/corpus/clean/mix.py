"""`mix`: sources are thinned out until their shares of the text are those asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from ernie.data.raw import RawDocument
from ernie.errors import UserError
from pretrain.corpus.clean.base import PLACE, Comparison, Decision, Rejected, Taken, filters
from pretrain.corpus.clean.mapped import mapped


@filters.register("mix")
@dataclass(frozen=True)
class Mix(Comparison):
    """Drops documents of sources that would have too large a share of the text.

    `weights` has a weight for each group of sources, under a pattern of their names such as `wiki/*`, or a folder; a
    source belongs to the first that matches.  The share of a group of n characters is proportional to its weight times
    n to the power of 1 / `temperature`: with 1 sizes count in full, with a high one hardly at all.  One group is kept
    whole, and of the others the documents whose hashes are lowest.  Source: Arivazhagan et al. (2019).
    """

    weights: dict[str, float]
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weights or min(self.weights.values()) <= 0:
            raise UserError("weights: expected at least one pattern of sources, and weights above 0")
        if self.temperature < 1:
            raise UserError(f"temperature: expected at least 1, found {self.temperature}")

    def dtype(self) -> tuple[str, int]:
        """Return the type of the numbers in a note, and how many there are: a hash and the characters of the text."""
        return "<u8", 2

    def note(self, document: RawDocument) -> np.ndarray:
        """Return the hash and the characters of the text."""
        digest = hashlib.blake2b(document.text.encode(), digest_size=8, person=b"mix").digest()
        return np.array([int.from_bytes(digest, "little"), len(document.text)], np.uint64)

    def decide(self, taken: Taken, again: int) -> Decision:
        """Return the documents beyond the share of their group."""
        rows = taken.rows()
        documents = np.array(taken.notes["document"][rows])
        sources, source_of = np.unique(mapped(taken.located, PLACE)[documents, 0], return_inverse=True)
        groups = np.array([self._group(taken.names[source]) for source in sources.tolist()], np.int64)[source_of]
        hashes, sizes = taken.notes["values"][rows].T
        present = np.bincount(groups, sizes, len(self.weights))
        if missing := [name for name, size in zip(self.weights, present.tolist(), strict=True) if not size]:
            raise UserError(f"mix: weights: there is no text of '{missing[0]}' to mix")
        shares = np.array(list(self.weights.values())) * present ** (1 / self.temperature)
        kept = shares / present
        kept /= kept.max()
        dropped = []
        for group, share in enumerate(kept.tolist()):
            own = np.flatnonzero(groups == group)
            own = own[np.argsort(hashes[own], kind="stable")]
            before = np.cumsum(sizes[own]) - sizes[own]
            # A document is kept if half of it belongs to the share, and the first one in any case.
            beyond = (before > 0) & (before + sizes[own] / 2 > share * present[group])
            dropped.append(own[beyond & (share < 1)])
        chosen = np.sort(np.concatenate(dropped))
        because = np.column_stack((groups[chosen], np.round(1000 * kept[groups[chosen]])))
        return Decision(documents[chosen], because.astype(np.int64))

    def explain(self, findings: np.ndarray, names: Sequence[str]) -> Rejected:
        """Return in words why a document is dropped."""
        group, permille = findings[0].tolist()
        name = list(self.weights)[group]
        return Rejected(f"share of {name}", f"{permille / 10:.1f} % of {name} are kept")

    def _group(self, name: str) -> int:
        """Return the number of the group that a source belongs to."""
        for number, pattern in enumerate(self.weights):
            if fnmatchcase(name, pattern) or name.startswith(f"{pattern.rstrip('/')}/"):
                return number
        raise UserError(f"mix: weights: the source {name} matches no pattern; '*' matches all others")
