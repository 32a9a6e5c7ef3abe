"""The filters of a recipe, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ernie.data.raw import Dropped, RawDocument
from pretrain.corpus.clean.base import Comparison, Filter, Rejected, Tally

# What comparisons have found of a document, by their numbers in the pipeline, as they explain it.
Verdicts = Mapping[int, Any]
_NONE: Verdicts = MappingProxyType({})


class Pipeline:
    """Filters that a document goes through, in order, until one drops it."""

    def __init__(self, filters: Sequence[Filter]):
        self.filters = list(filters)

    @property
    def comparisons(self) -> list[int]:
        """The numbers of the filters that compare documents."""
        return [number for number, each in enumerate(self.filters) if isinstance(each, Comparison)]

    def readings(self) -> list[dict[int, int]]:
        """Return for which comparisons, by number, notes are taken in each reading, and how many times they were.

        What comes after a comparison of several rounds, or one that changes text, needs what it leaves.
        """
        found: list[dict[int, int]] = [{}]
        for number in self.comparisons:
            each = self.filters[number]
            assert isinstance(each, Comparison)
            found[-1][number] = 0
            found += [{number: again} for again in range(1, each.rounds)]
            if each.repairs or each.rounds > 1:
                found.append({})
        return [reading for reading in found if reading]

    def prepare(self) -> None:
        """Have the filters read what they need."""
        for each in self.filters:
            each.prepare()

    def tallies(self) -> list[Tally]:
        """Return an empty tally for each filter."""
        return [Tally(each.name) for each in self.filters]

    def __call__(
        self, document: RawDocument, tallies: Sequence[Tally], verdicts: Verdicts = _NONE
    ) -> RawDocument | Dropped:
        """Return the document as the filters leave it, or why it is dropped; count both."""
        for number, (each, tally) in enumerate(zip(self.filters, tallies, strict=True)):
            tally.read += 1
            found = self._left(number, document, verdicts)
            if isinstance(found, Rejected):
                tally.reject(document, found)
                return Dropped(document.place, f"{each.name}: {found.reason}", found.detail, by_kind=True)
            if found is not document:
                tally.change(document, found, each.hides)
            document = found
        return document

    def cleaned(self, documents: Iterable[RawDocument]) -> Iterable[RawDocument]:
        """Yield the documents that no filter drops by itself, as the filters leave them."""
        for document in documents:
            if not isinstance(left := self(document, self.tallies()), Dropped):
                yield left

    def reached(
        self, document: RawDocument, wanted: Iterable[int], verdicts: Verdicts = _NONE
    ) -> dict[int, RawDocument]:
        """Return the document as it reaches each `wanted` filter, under its number, until a filter drops it."""
        found: dict[int, RawDocument] = {}
        for number in range(max(wanted) + 1):
            if number in wanted:
                found[number] = document
            left = self._left(number, document, _NONE if number in wanted else verdicts)
            if isinstance(left, Rejected):
                break
            document = left
        return found

    def _left(self, number: int, document: RawDocument, verdicts: Verdicts) -> RawDocument | Rejected:
        """Return what the filter with a number leaves of a document."""
        each = self.filters[number]
        if isinstance(each, Comparison) and number in verdicts:
            return each.follow(document, verdicts[number])
        return each(document)
