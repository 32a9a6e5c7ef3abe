"""The filters of a recipe, one after another."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ernie.atomic import no_room
from ernie.data.raw import Dropped, RawDocument
from ernie.errors import UserError
from pretrain.corpus.clean.base import Comparison, Filter, Rejected, Tally

MOST_UNCHANGED = 255


class Verdict(NamedTuple):
    """What is known of a document from earlier readings.

    By themselves the first `unchanged` filters leave it as it is.  `found` has what comparisons have found, by their
    numbers in the pipeline, as they explain it.
    """

    unchanged: int = 0
    found: Mapping[int, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of consecutive documents, from the one at the position `first` on.

    `unchanged` (n,) has those of all of them, or of none, and `found` what was found of some, both by their positions.
    """

    unchanged: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))
    found: Mapping[int, Mapping[int, Any]] = field(default_factory=dict)
    first: int = 0

    def after(self, count: int) -> Verdicts:
        """Return those of the documents that follow so many."""
        return replace(self, first=self.first + count)

    def of(self, at: int) -> Verdict:
        """Return that of a document, counted from the first."""
        at += self.first
        unchanged = int(self.unchanged[at]) if at < len(self.unchanged) else 0
        return Verdict(unchanged, self.found.get(at, {}))


NO_VERDICTS = Verdicts()
_NOTHING = Verdict()


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
        return [Tally(each.kind, each.languages) for each in self.filters]

    def __call__(
        self, document: RawDocument, tallies: Sequence[Tally], verdict: Verdict = _NOTHING
    ) -> RawDocument | Dropped:
        """Return the document as the filters leave it, or why it is dropped; count both."""
        given = document
        for number, (each, tally) in enumerate(zip(self.filters, tallies, strict=True)):
            tally.read += each.concerns(document)
            found = self._left(number, document, verdict, document is given)
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
        self, document: RawDocument, wanted: Iterable[int], verdict: Verdict = _NOTHING
    ) -> tuple[dict[int, RawDocument], int]:
        """Return the document as it reaches each `wanted` filter, under its number, until a filter drops it.

        Returns also how many of the first filters leave it as it is.
        """
        found: dict[int, RawDocument] = {}
        given, unchanged = document, 0
        for number in range(max(wanted) + 1):
            if number in wanted:
                found[number] = document
            known = verdict._replace(found={}) if number in wanted else verdict
            left = self._left(number, document, known, document is given)
            if isinstance(left, Rejected):
                break
            document = left
            unchanged += document is given
        return found, min(unchanged, MOST_UNCHANGED)

    def _left(self, number: int, document: RawDocument, verdict: Verdict, is_given: bool) -> RawDocument | Rejected:
        """Return what the filter with a number leaves of a document, which `is_given` if none has changed it."""
        each = self.filters[number]
        if isinstance(each, Comparison) and number in verdict.found:
            return each.follow(document, verdict.found[number])
        if is_given and number < verdict.unchanged:
            return document
        try:
            return each(document) if each.concerns(document) else document
        except (UserError, MemoryError):
            raise
        except Exception as error:  # of a filter of one's own
            if no_room(error):
                raise
            last = traceback.extract_tb(error.__traceback__)[-1]
            raise UserError(
                f"{document.place}: the filter {each.name} fails: {type(error).__name__}: {error!s:.200} "
                f"({last.filename}:{last.lineno})"
            ) from error
