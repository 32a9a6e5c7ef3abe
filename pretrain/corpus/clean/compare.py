"""What comparisons decide, from notes that workers take of all documents.

The notes lie in a file, so that memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ernie.data.parts import Item
from ernie.data.raw import Dropped
from ernie.data.work_folder import WorkFolder
from pretrain.corpus.clean.base import Comparison, Decision
from pretrain.corpus.clean.pipeline import Pipeline, Verdict
from pretrain.corpus.reading import Done, Made


class Verdicts:
    """What the comparisons of a pipeline say of all documents, which are numbered in order.

    `ends` (p,) are the numbers of documents as far as the end of each part.
    """

    def __init__(self, names: Sequence[str], ends: np.ndarray):
        self._names, self._ends = names, ends
        self._found: list[tuple[int, Comparison, np.ndarray, np.ndarray]] = []

    def add(self, number: int, comparison: Comparison, documents: np.ndarray, because: np.ndarray) -> None:
        """Add those of the filter with this number: the ascending numbers of the documents it drops, and why."""
        self._found.append((number, comparison, documents, because))

    def __call__(self, part: int) -> dict[int, Verdict]:
        """Return those on the part with this number, by the positions of documents in it."""
        verdicts: dict[int, Verdict] = {}
        first, stop_at = self._ends[part - 1] if part else 0, self._ends[part]
        for number, comparison, documents, because in self._found:
            start, stop = np.searchsorted(documents, (first, stop_at)).tolist()
            for document, (one, two) in zip(documents[start:stop].tolist(), because[start:stop].tolist(), strict=True):
                verdicts[document - first] = Verdict(number, comparison.explain((one, two), self._names))
        return verdicts


def compare(
    pipeline: Pipeline, read: Callable[[Done], Iterable[Made[Noted]]], names: Sequence[str], work: WorkFolder
) -> Verdicts:
    """Return what the comparisons of a pipeline say of all documents.

    `read` takes the notes of the parts that are not done, in order; `names` are those of the documents' sources.  The
    notes lie in the folder `work`, where an interrupted comparison is gone on with.
    """
    state = work.state or {"parts": 0, "items": 0, "documents": 0}
    documents = state["documents"]
    for made in read(Done(state["parts"], state["items"])):
        for size, notes_of in made.results:
            for number, taken in notes_of.items():
                rows = _rows(_comparison(pipeline, number), taken, documents)
                work.file(f"notes-{number}").write(rows.tobytes())
            documents += size
        work.file("ends").write(np.int64(documents).tobytes())
        state = {**vars(made.done), "documents": documents}
        work.save(state)
    verdicts = Verdicts(names, np.array(_mapped(work, "ends", np.dtype(np.int64))))
    dropped = np.zeros(0, np.int64)
    for number in pipeline.comparisons:
        comparison = _comparison(pipeline, number)
        notes = _mapped(work, f"notes-{number}", _row(comparison))
        rows = np.flatnonzero(np.isin(notes["document"], dropped, invert=True))
        decision = comparison.decide(notes, rows, names)
        found = np.array(notes["document"][decision.rows])
        del notes
        verdicts.add(number, comparison, found, decision.because)
        dropped = np.concatenate((dropped, found))
    return verdicts


def _mapped(work: WorkFolder, name: str, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the rows in a file of a folder, mapped into memory."""
    work.file(name)
    path = work.path / name
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)  # which cannot be mapped


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
