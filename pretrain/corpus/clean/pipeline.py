"""The filters of a recipe, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ernie.data.raw import Dropped, RawDocument
from pretrain.corpus.clean.base import Comparison, Filter, Rejected, Tally


class Verdict(NamedTuple):
    """That the filter with a number in the pipeline, which is a comparison, drops a document."""

    number: int
    rejected: Rejected


class Pipeline:
    """Filters that a document goes through, in order, until one drops it."""

    def __init__(self, filters: Sequence[Filter]):
        self.filters = list(filters)

    @property
    def comparisons(self) -> list[int]:
        """The numbers of the filters that compare documents."""
        return [number for number, each in enumerate(self.filters) if isinstance(each, Comparison)]

    def prepare(self) -> None:
        """Have the filters read what they need."""
        for each in self.filters:
            each.prepare()

    def tallies(self) -> list[Tally]:
        """Return an empty tally for each filter."""
        return [Tally(each.name) for each in self.filters]

    def __call__(
        self, document: RawDocument, tallies: Sequence[Tally], verdict: Verdict | None = None
    ) -> RawDocument | Dropped:
        """Return the document as the filters leave it, or why it is dropped; count both."""
        for number, (each, tally) in enumerate(zip(self.filters, tallies, strict=True)):
            tally.read += 1
            found = verdict.rejected if verdict and verdict.number == number else each(document)
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

    def reached(self, document: RawDocument) -> dict[int, RawDocument]:
        """Return the document as it reaches each comparison, under the filter's number, until a filter drops it."""
        found: dict[int, RawDocument] = {}
        for number, each in enumerate(self.filters[: max(self.comparisons, default=-1) + 1]):
            if isinstance(each, Comparison):
                found[number] = document
            left = each(document)
            if isinstance(left, Rejected):
                break
            document = left
        return found
