"""The base of filters, which drop documents of a corpus or repair them, and are named in YAML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ernie.data.raw import RawDocument
from ernie.errors import UserError, nearest
from ernie.registry import Registry
from pretrain.corpus.clean.mapped import mapped, read_at
from pretrain.corpus.language import check_identifiable, identified_language

MAX_EXAMPLES = 3  # of each filter
# Marks that end a sentence: of Latin, Cyrillic and Greek texts, with quotation marks; of Chinese and Japanese; and of
# Hindi and its neighbors, Arabic, Urdu, Burmese, Ethiopic, Armenian and Khmer.
OTHER_ENDS = ("\u0964", "\u0965", "\u061f", "\u06d4", "\u104b", "\u1362", "\u1367", "\u0589", "\u17d4")
ENDS = (".", "!", "?", '"', "\u201d", "\u3002", "\uff01", "\uff1f", "\u300d", "\u300f", *OTHER_ENDS)
PLACE = np.dtype(("<i8", 2))  # source and line
_SHOWN = 60  # characters of a text in an example


class Rejected(NamedTuple):
    """Why a filter drops a document: `reason` is a short key for counting, `detail` says what was found."""

    reason: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Drops documents or repairs their text; the base of frozen dataclasses whose fields are their YAML keys.

    Filters are pickled and sent to worker processes.  What a filter does to a document depends on nothing else.  One
    that `repairs` may return another text, and is not applied to annotated documents, whose spans count characters.
    Any other returns the document itself.  With `hides`, no report shows what was there before.  One with
    `languages` looks at documents in these only, and passes the others.
    """

    languages: list[str] = field(default_factory=list)

    repairs: ClassVar[bool] = False
    hides: ClassVar[bool] = False
    variant_key: ClassVar[str] = "kind"

    @property
    def variant_name(self) -> str | None:
        """The name in YAML, see ernie.config; None for an unregistered filter."""
        return filters.name_of(type(self))

    @classmethod
    def variant(cls, key: str, given: Mapping[str, Any]) -> tuple[type[Filter], set[str]]:
        """Return the registered class that `kind` names in a YAML mapping and the keys consumed; see ernie.config."""
        if cls.variant_key not in given:
            raise UserError(f"{cls.variant_key}: this key is required.{nearest('', filters)}")
        return filters[str(given[cls.variant_key])], {cls.variant_key}

    @property
    def kind(self) -> str:
        """The name in YAML; that of the class for an unregistered filter."""
        return self.variant_name or type(self).__name__

    @property
    def name(self) -> str:
        """The name in reports."""
        return filter_name(self.kind, self.languages)

    def prepare(self) -> None:
        """Read what the filter needs, once before a corpus is built; what it keeps goes to the workers with it."""

    def __post_init__(self) -> None:
        if self.languages:
            require("py3langid", self.name)
            check_identifiable("languages", self.languages)

    def concerns(self, document: RawDocument) -> bool:
        """Whether the filter is for the language of a document, which is told as `language: identify` does."""
        return not self.languages or identified_language(document.text, "en") in self.languages

    def __call__(self, document: RawDocument) -> RawDocument | Rejected:
        """As `apply`, but for annotated documents, which are not repaired."""
        return document if self.repairs and document.spans is not None else self.apply(document)

    def apply(self, document: RawDocument) -> RawDocument | Rejected:
        """Return the document, repaired if need be, or why it is dropped."""
        raise NotImplementedError


@dataclass(frozen=True)
class Taken:
    """The notes that workers took for a comparison: `notes` (n,), in the order of the documents.

    They lie in a `file`, of the type `dtype`: a note has the number of its `document` and `values` (w,).  The file
    `located` has the source and the line of each document, as `PLACE`, and `names` are those of the sources.  The
    documents `dropped` by earlier comparisons, ascending, do not count.  `folder` is for temporary files.
    """

    file: Path
    dtype: np.dtype[Any]
    located: Path
    dropped: np.ndarray
    names: Sequence[str]
    folder: Path

    @property
    def notes(self) -> np.ndarray:
        """All notes, mapped anew: what was read of them goes from memory with the array."""
        return mapped(self.file, self.dtype)

    def at(self, positions: np.ndarray) -> np.ndarray:
        """Return the notes at positions (k,) anywhere."""
        return read_at(self.file, self.dtype, positions)

    def places(self, documents: np.ndarray) -> np.ndarray:
        """Return the sources and lines (k, 2) of documents (k,) anywhere."""
        return read_at(self.located, PLACE, documents)

    @property
    def size(self) -> int:
        """The number of notes."""
        return self.file.stat().st_size // self.dtype.itemsize

    def blocks(self, slices: Iterable[slice]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the positions (k,) of the notes that count in each slice, and these notes (k,)."""
        for block in slices:
            offset, count = block.start * self.dtype.itemsize, block.stop - block.start
            notes = np.fromfile(self.file, self.dtype, count, offset=offset)
            counts = self.counts(notes["document"])
            yield block.start + np.flatnonzero(counts), notes[counts]

    def rows(self) -> np.ndarray:
        """Return the positions of the notes that count."""
        return np.flatnonzero(self.counts(self.notes["document"]))

    def counts(self, documents: np.ndarray) -> np.ndarray:
        """Return whether the documents with these numbers count."""
        if not len(self.dropped):
            return np.ones(len(documents), bool)
        at = np.minimum(np.searchsorted(self.dropped, documents), len(self.dropped) - 1)
        return np.asarray(self.dropped[at] != documents)


class Decision(NamedTuple):
    """What a comparison found: the numbers of `documents` (k,), ascending, and of each something in numbers (k, c).

    A document with several findings is there several times.
    """

    documents: np.ndarray
    findings: np.ndarray


class Comparison(Filter):
    """Drops documents, or changes them, after a look at all of them.

    First the text is read and workers take notes of each document that reaches the filter.  Then all notes are looked
    at, in the order of the documents, so that the result does not depend on the workers.  A comparison may have several
    `rounds`: in each but the first, notes are taken of the documents with findings of the round before.
    """

    rounds: ClassVar[int] = 1

    def dtype(self) -> tuple[str, int]:
        """Return the type of the numbers in a note, and how many there are."""
        raise NotImplementedError

    def note(self, document: RawDocument) -> np.ndarray:
        """Return the note of a document (w,), or any number of them (r, w)."""
        raise NotImplementedError

    def note_again(self, document: RawDocument, findings: np.ndarray) -> np.ndarray:
        """Return the notes of a document (r, w) in a later round, given its findings (k, c) of the one before."""
        raise NotImplementedError

    def decide(self, taken: Taken, again: int) -> Decision:
        """Return what is found in the notes of a round, which are `again` taken so many times."""
        raise NotImplementedError

    def explain(self, findings: np.ndarray, names: Sequence[str]) -> Any:
        """Return what `follow` needs to know of a document's findings (k, c), by default why it is dropped."""
        raise NotImplementedError

    def apply(self, document: RawDocument) -> RawDocument:
        """Return the document: by itself, none is dropped."""
        return document

    def follow(self, document: RawDocument, explained: Any) -> RawDocument | Rejected:
        """Return what becomes of a document with findings."""
        assert isinstance(explained, Rejected)
        return explained


filters: Registry[type[Filter]] = Registry("filter", "ernie.filters", Filter)


@dataclass
class Tally:
    """What one filter did: documents it has `read`, `dropped` for each reason, and `changed`, with some examples.

    The texts that it changed have so many more `characters` than before, or fewer.
    """

    kind: str
    languages: Sequence[str] = ()
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    characters: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """That of the filter in reports."""
        return filter_name(self.kind, self.languages)

    def reject(self, document: RawDocument, rejected: Rejected) -> None:
        """Count a document that is dropped."""
        self.dropped[rejected.reason] += 1
        self._show(f"{document.place}: {rejected.detail}: {_quoted(document.text)}")

    def change(self, before: RawDocument, after: RawDocument, hide: bool) -> None:
        """Count a document that was changed; `hide` what was there before."""
        self.changed += 1
        old, new = (f"{document.title}\n{document.text}".strip() for document in (before, after))
        self.characters += len(new) - len(old)
        same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        start = max(0, same - _SHOWN // 4)
        became = _quoted(new[start:])
        self._show(f"{before.place}: {became}" if hide else f"{before.place}: {_quoted(old[start:])} became {became}")

    def add(self, other: Tally) -> None:
        """Add what the filter did to later documents."""
        self.read += other.read
        self.changed += other.changed
        self.characters += other.characters
        self.dropped.update(other.dropped)
        self.examples = (self.examples + other.examples)[:MAX_EXAMPLES]

    def summary(self) -> str:
        """Return the numbers in words."""
        number = self.dropped.total()
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.dropped.items()))
        dropped = f"{number:,} dropped" + (f" ({reasons})" if number else "")
        by = f" by {self.characters:+,} characters" if self.characters else ""
        return f"{self.read:,} read, {dropped}, {self.changed:,} changed{by}"

    def to_dict(self) -> dict[str, Any]:
        """Return what corpus.json contains."""
        return {**vars(self), "languages": list(self.languages), "dropped": dict(sorted(self.dropped.items()))}

    def _show(self, example: str) -> None:
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(example)


def filter_name(kind: str, languages: Sequence[str] = ()) -> str:
    """Return the name in reports of a filter of a kind, and for some languages."""
    return f"{kind} ({', '.join(languages)})" if languages else kind


def with_lines(document: RawDocument, lines: Sequence[str | None]) -> RawDocument:
    """Return the document with other lines, in which None stands for a line that is taken out.

    The document itself is returned where nothing changes.
    """
    kept = [i for i, line in enumerate(lines) if line is not None]
    text = "\n".join(line for line in lines if line is not None)
    if text == document.text:
        return document
    headings = frozenset(number for number, i in enumerate(kept) if i in document.headings)
    return document._replace(text=text, headings=headings)


def require(package: str, kind: str) -> None:
    """Raise UserError if the package that a kind of filter needs is not installed."""
    if find_spec(package) is None:
        raise UserError(f"the filter '{kind}' needs the package {package}: pip install 'ernie-continual[clean]'")


def check_shares(config: object, *names: str) -> None:
    """Raise UserError for the first field of a filter that is no share from 0 to 1."""
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise UserError(f"{name}: expected a share from 0 to 1, found {getattr(config, name)}")


def _quoted(text: str) -> str:
    shown = " ".join(text[: 2 * _SHOWN].split())[:_SHOWN]
    return f"'{shown}...'" if len(text) > _SHOWN else f"'{shown}'"
