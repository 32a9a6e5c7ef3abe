"""Which documents of a corpus are looked at: by number, by source, or drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np

from ernie.data import seeded_rng
from ernie.data.shards import Corpus, Split
from ernie.errors import UserError, nearest
from ernie.formatting import plural

_PLACE = re.compile(r"(.+):(\d+)")


class Chosen(NamedTuple):
    """The numbers of documents of a split, and a sentence that says how they were chosen."""

    split: Split
    numbers: list[int]
    how: str


def choose(corpus: Corpus, split: str, numbers: Sequence[int], source: str | None, count: int, seed: int) -> Chosen:
    """Return the documents with these `numbers` of a split, or up to `count` drawn ones, of a `source` if it is given.

    A source is the name of a file, a pattern of names, or a file and a line, as reports give it.  Raises UserError for
    numbers and sources that there are not.
    """
    documents: Split = getattr(corpus, split)
    size = f"the split {split} has {plural(len(documents), 'document')}"
    if numbers:
        if outside := [number for number in numbers if not 0 <= number < len(documents)]:
            raise UserError(f"--document {outside[0]}: {size}, numbered from 0")
        return Chosen(documents, list(numbers), "chosen by number")
    found = np.arange(len(documents)) if source is None else _of_source(documents, source)
    where = size if source is None else f"{plural(len(found), 'document')} of the split {split} from {source}"
    if len(found) <= count:
        return Chosen(documents, found.tolist(), f"{where}: all of them")
    drawn = seeded_rng.permute(np.arange(count), len(found), seeded_rng.key("look", seed))
    return Chosen(documents, found[np.sort(drawn)].tolist(), f"{where}: {count:,} drawn with the seed {seed}")


def _of_source(documents: Split, source: str) -> np.ndarray:
    """Return the numbers of the documents of a source."""
    names = documents.sources
    match = [i for i, name in enumerate(names) if name == source or fnmatchcase(name, source)]
    line = None
    if not match and (place := _PLACE.fullmatch(source)):
        line = int(place[2])
        match = [i for i, name in enumerate(names) if name == place[1]]
    if not match:
        raise UserError(f"--source {source}: no document is from there.{nearest(source, names)}")
    found, first = [np.zeros(0, np.int64)], 0
    for rows in documents.rows():
        chosen = np.isin(rows[:, 2], match)
        if line is not None:
            chosen &= rows[:, 3] == line
        found.append(first + np.flatnonzero(chosen))
        first += len(rows)
    numbers = np.concatenate(found)
    if not len(numbers):
        at = "in this split" if line is None else f"that begins at line {line} in this split"
        raise UserError(
            f"--source {source}: there is no document {at}; it may be in the other one (--split), or was dropped"
        )
    return numbers
