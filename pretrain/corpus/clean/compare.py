"""What comparisons decide, from notes that workers take of all documents.

The notes lie in a file, so that memory does not grow with them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ernie.data.parts import Item
from ernie.data.raw import Dropped
from ernie.errors import UserError
from pretrain.corpus.clean.base import Comparison, Decision
from pretrain.corpus.clean.pipeline import Pipeline, Verdict


class Verdicts:
    """What the comparisons of a pipeline say of the documents of an input, which are numbered in order."""

    def __init__(self, names: Sequence[str]):
        self._names = names
        self._found: list[tuple[int, Comparison, np.ndarray, np.ndarray]] = []

    def add(self, number: int, comparison: Comparison, documents: np.ndarray, because: np.ndarray) -> None:
        """Add those of the filter with this number: the ascending numbers of the documents it drops, and why."""
        self._found.append((number, comparison, documents, because))

    def of(self, first: int, size: int) -> dict[int, Verdict]:
        """Return those about `size` documents from the number `first` on, under positions counted from there."""
        verdicts: dict[int, Verdict] = {}
        for number, comparison, documents, because in self._found:
            start, stop = np.searchsorted(documents, (first, first + size)).tolist()
            for document, (one, two) in zip(documents[start:stop].tolist(), because[start:stop].tolist(), strict=True):
                verdicts[document - first] = Verdict(number, comparison.explain((one, two), self._names))
        return verdicts


def compare(pipeline: Pipeline, noted: Iterable[Noted], names: Sequence[str], output: Path) -> Verdicts:
    """Return what the comparisons of a pipeline say of all documents.

    `noted` are the notes of batches of these documents, in order, and `names` those of their sources.  The notes lie
    beside `output` meanwhile.
    """
    verdicts = Verdicts(names)
    files = {number: _file(output) for number in pipeline.comparisons}
    first = 0
    for size, notes_of in noted:
        for number, taken in notes_of.items():
            files[number].write(_rows(_comparison(pipeline, number), taken, first).tobytes())
        first += size
    dropped = np.zeros(0, np.int64)
    for number, file in files.items():
        comparison = _comparison(pipeline, number)
        with file:
            file.flush()
            notes: np.ndarray = np.zeros(0, _row(comparison))
            if file.tell():  # an empty file cannot be mapped
                notes = np.memmap(file, _row(comparison), "r")
            rows = np.flatnonzero(np.isin(notes["document"], dropped, invert=True))
            decision = comparison.decide(notes, rows, names)
            documents = np.array(notes["document"][decision.rows])
            del notes
        verdicts.add(number, comparison, documents, decision.because)
        dropped = np.concatenate((dropped, documents))
    return verdicts


class Notes(NamedTuple):
    """Notes of some documents: their positions (n,), sources and lines (n, 2), and values (n, w)."""

    documents: np.ndarray
    places: np.ndarray
    values: np.ndarray


Noted = tuple[int, dict[int, Notes]]  # of a batch: how many items it has, and the notes for each comparison


def take_notes(pipeline: Pipeline, items: Sequence[Item]) -> Noted:
    """Return how many items there are, and the notes of those that reach each comparison."""
    taken: dict[int, list[tuple[int, int, int, np.ndarray]]] = {number: [] for number in pipeline.comparisons}
    for at, (source, item) in enumerate(items):
        if not isinstance(item, Dropped):
            for number, document in pipeline.reached(item).items():
                note = _comparison(pipeline, number).note(document)
                taken[number].append((at, source, document.place.line, note))
    return len(items), {
        number: Notes(
            np.array([at for at, *_ in notes], np.int64),
            np.array([place for _, *place, _ in notes], np.int64),
            np.stack([note for *_, note in notes]),
        )
        for number, notes in taken.items()
        if notes
    }


def _comparison(pipeline: Pipeline, number: int) -> Comparison:
    comparison = pipeline.filters[number]
    assert isinstance(comparison, Comparison)
    return comparison


def _row(comparison: Comparison) -> np.dtype[Any]:
    kind, width = comparison.dtype()
    return np.dtype([("document", "<i8"), ("source", "<i8"), ("line", "<i8"), ("values", kind, (width,))])


def _rows(comparison: Comparison, notes: Notes, first: int) -> np.ndarray:
    rows = np.zeros(len(notes.documents), _row(comparison))
    rows["document"], rows["values"] = notes.documents + first, notes.values
    rows["source"], rows["line"] = notes.places.T
    return rows


def _file(output: Path) -> IO[bytes]:
    """Open a file for notes, which is gone when it is closed."""
    place = output.absolute().parent
    try:
        place.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=place)
    except OSError as error:
        raise UserError(f"{place}: may not be written: {error.strerror}") from None


def blocks(size: int, step: int = 1 << 16) -> Iterator[slice]:
    """Yield slices of at most `step` that cover `size` rows."""
    return (slice(start, start + step) for start in range(0, size, step))


def repeats(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the positions of keys (n,) that repeat an earlier one, of the last before them, and of the first."""
    order = np.argsort(keys, kind="stable")
    again = keys[order[1:]] == keys[order[:-1]]
    starts = np.concatenate(([0], np.where(again, 0, np.arange(1, len(keys))))) if len(keys) else order
    firsts = order[np.maximum.accumulate(starts)]
    return order[1:][again], order[:-1][again], firsts[1:][again]


def by_row(rows: np.ndarray, because: np.ndarray) -> Decision:
    """Return a decision with ascending rows (k,), of which each is there once, with the first of its reasons (k, 2)."""
    unique, first = np.unique(rows, return_index=True)
    return Decision(unique, because[first])
