"""What comparisons decide, from notes that workers take of all documents.

The notes lie in files, so that memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ernie.data.parts import Item
from ernie.data.raw import Dropped
from ernie.data.work_folder import WorkFolder
from pretrain.corpus.clean.base import Comparison, Decision, Taken
from pretrain.corpus.clean.mapped import mapped
from pretrain.corpus.clean.pipeline import Pipeline, Verdicts
from pretrain.corpus.reading import Done, Made, Make


class Findings:
    """What the comparisons of a pipeline have found of all documents, which are numbered in order.

    `ends` (p,) are the numbers of documents as far as the end of each part, and `unchanged` (d,) how many of the first
    filters leave each document as it is.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names, self.ends, self.unchanged = names, np.zeros(0, np.int64), np.zeros(0, np.uint8)
        self._found: dict[int, tuple[Callable[[np.ndarray, Sequence[str]], Any], Decision]] = {}

    def set(self, number: int, explain: Callable[[np.ndarray, Sequence[str]], Any], decision: Decision) -> None:
        """Set those of the filter with this number, in place of earlier ones."""
        self._found[number] = (explain, decision)

    def __call__(self, part: int) -> Verdicts:
        """Return those in the part with this number."""
        if not len(self.ends):
            return Verdicts()
        verdicts: dict[int, dict[int, Any]] = {}
        first, stop = int(self.ends[part - 1]) if part else 0, int(self.ends[part])
        for number, (explain, decision) in self._found.items():
            here = slice(*np.searchsorted(decision.documents, (first, stop)).tolist())
            documents, starts = np.unique(decision.documents[here], return_index=True)
            own = np.split(np.array(decision.findings[here]), starts[1:])
            for document, findings in zip(documents.tolist(), own, strict=False):  # one of no documents, too
                verdicts.setdefault(document - first, {})[number] = explain(findings, self._names)
        return Verdicts(np.array(self.unchanged[first:stop]), verdicts)


def compare(
    pipeline: Pipeline,
    read: Callable[[Make[Verdicts, Noted], Findings, Done], Iterable[Made[Noted]]],
    names: Sequence[str],
    work: WorkFolder,
) -> Findings:
    """Return what the comparisons of a pipeline find of all documents.

    `read` takes the notes of the parts that are not done, in order, of documents of which something is found already;
    `names` are those of the documents' sources.  The notes lie in the folder `work`, where an interrupted comparison is
    gone on with.
    """
    findings = Findings(names)
    dropped = np.zeros(0, np.int64)
    for number, wanted in enumerate(pipeline.readings()):
        _read(pipeline, number, wanted, read, findings, work)
        findings.ends = _mapped(work, "ends", np.dtype(np.int64))
        findings.unchanged = _mapped(work, "unchanged", np.dtype(np.uint8))
        work.file("places")
        for each, again in wanted.items():
            comparison = _comparison(pipeline, each)
            name = f"notes-{each}-{again}"
            work.file(name)  # also where there are none
            taken = Taken(work.path / name, _row(comparison), work.path / "places", dropped, names, work.path)
            decision = comparison.decide(taken, again)
            is_last = again == comparison.rounds - 1
            findings.set(each, comparison.explain if is_last else _as_they_are, decision)
            if is_last and not comparison.repairs:
                dropped = np.union1d(dropped, decision.documents)
    return findings


def _read(
    pipeline: Pipeline,
    number: int,
    wanted: dict[int, int],
    read: Callable[[Make[Verdicts, Noted], Findings, Done], Iterable[Made[Noted]]],
    findings: Findings,
    work: WorkFolder,
) -> None:
    """Have the notes of a reading in files, as far as an interrupted comparison has not left them."""
    state = work.state or {"reading": 0}
    if number < state["reading"]:
        return
    if number > state["reading"] or len(state) == 1:
        state = {"reading": number, "parts": 0, "items": 0, "documents": 0}
    documents = state["documents"]
    for made in read(partial(take_notes, pipeline, wanted), findings, Done(state["parts"], state["items"])):
        for places, notes_of, unchanged in made.results:
            for each, taken in notes_of.items():
                rows = np.zeros(len(taken.documents), _row(_comparison(pipeline, each)))
                rows["document"], rows["values"] = taken.documents + documents, taken.values
                work.file(f"notes-{each}-{wanted[each]}").write(rows.tobytes())
            documents += len(places)
            if number == 0:
                work.file("places").write(places.tobytes())
                work.file("unchanged").write(unchanged.tobytes())
        if number == 0:
            work.file("ends").write(np.int64(documents).tobytes())
        state = {"reading": number, **vars(made.done), "documents": documents}
        work.save(state)


def _mapped(work: WorkFolder, name: str, dtype: np.dtype[Any]) -> np.ndarray:
    work.file(name)
    return mapped(work.path / name, dtype)


def _as_they_are(findings: np.ndarray, names: Sequence[str]) -> np.ndarray:
    return findings


class Notes(NamedTuple):
    """Notes of some documents: the documents' positions (n,), and values (n, w)."""

    documents: np.ndarray
    values: np.ndarray


# Of a batch: the places (d, 2) of its items, notes by filter, how many of the first filters leave each item as it is.
Noted = tuple[np.ndarray, dict[int, Notes], np.ndarray]


def take_notes(pipeline: Pipeline, wanted: Mapping[int, int], items: Sequence[Item], verdicts: Verdicts) -> Noted:
    """Return the places of items, notes of those that reach the `wanted` comparisons, and how many filters change none.

    The last is, for each item, the number of first filters that leave it as it is.
    """
    unchanged = np.zeros(len(items), np.uint8)
    taken: dict[int, list[tuple[int, np.ndarray]]] = {number: [] for number in wanted}
    for at, (_, item) in enumerate(items):
        if isinstance(item, Dropped):
            continue
        known = verdicts.of(at)
        reached, unchanged[at] = pipeline.reached(item, wanted, known)
        for number, document in reached.items():
            comparison = _comparison(pipeline, number)
            if not wanted[number]:
                if not comparison.concerns(document):
                    continue
                taken[number].append((at, np.atleast_2d(comparison.note(document))))
            elif number in known.found:
                taken[number].append((at, comparison.note_again(document, known.found[number])))
    places = np.array([(source, item.place.line) for source, item in items], "<i8").reshape(-1, 2)
    notes_of = {
        number: Notes(
            np.repeat([at for at, _ in notes], [len(values) for _, values in notes]),
            np.concatenate([values for _, values in notes]),
        )
        for number, notes in taken.items()
        if notes
    }
    return places, notes_of, unchanged


def _comparison(pipeline: Pipeline, number: int) -> Comparison:
    comparison = pipeline.filters[number]
    assert isinstance(comparison, Comparison)
    return comparison


def _row(comparison: Comparison) -> np.dtype[Any]:
    kind, width = comparison.dtype()
    return np.dtype([("document", "<i8"), ("values", kind, (width,))])
