"""How two corpora differ, in sentences.

Documents are compared by hashes of 8 bytes of their tokens.  That takes some 170 bytes of memory for each document.

Legend: d documents of a corpus, in the order of its splits.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ernie.config import differences
from ernie.data.document import Document
from ernie.data.shards import SPLITS, Corpus
from ernie.errors import Remark
from ernie.formatting import percent, plural
from pretrain.corpus.clean.base import filter_name

_SHOWN = 5  # documents and tokens that a sentence names
_PREVIEW = 80  # characters of a document
_NAMES = {  # of numbers in a report
    "bytes": "bytes of text",
    "one_sentence": "documents of one sentence",
    "longest": "tokens of the longest document",
    "repeated": "documents with an earlier text",
    "unwrapped": "documents with lines put together",
    "stripped": "letters that lose a mark",
}
_ODD = np.uint64(0x9E3779B97F4A7C15)


class _Table(NamedTuple):
    """The documents of a corpus (d,): hashes of their text and of all, their split, index and place.

    `places` are hashes of a source's name and a line.  The title and the sentences belong to the text.
    """

    texts: np.ndarray
    contents: np.ndarray
    splits: np.ndarray
    indices: np.ndarray
    places: np.ndarray


def differing(one: Corpus, other: Corpus) -> Iterator[str]:
    """Yield a sentence on each way in which two corpora differ; none if there is none.

    The names of the files that were read are no difference.
    """
    said = False
    for sentence in _all(one, other):
        said = True
        yield sentence
    if said and one.fingerprint == other.fingerprint:
        yield "documents: the same in both, byte for byte"


def _all(one: Corpus, other: Corpus) -> Iterator[str]:
    yield from _settings(one, other)
    same_tokens = one.index["tokenizer"]["fingerprint"] == other.index["tokenizer"]["fingerprint"]
    if not same_tokens:
        yield from _tokenizers(one, other)
    if one.language != other.language:
        yield f"language: most of the text of A is '{one.language}', of B '{other.language}'"
    yield from _sizes(one, other)
    yield from _reports(one, other)
    if one.fingerprint == other.fingerprint:
        return
    if same_tokens:
        yield from _documents(one, other)
    else:
        yield from _places(one, other)


def _settings(one: Corpus, other: Corpus) -> Iterator[str]:
    for corpus in (one, other):
        if not corpus.recipe:
            warnings.warn(f"{corpus.folder}: has no recipe, so settings are not compared", Remark, stacklevel=2)
            return
    for key, (before, after) in differences(_by_kind(one.recipe), _by_kind(other.recipe)).items():
        yield f"settings: {key} is {_value(before)} in A and {_value(after)} in B"


def _by_kind(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe in which the filters are under their kinds, with numbers if there are several of a kind."""
    filters: dict[str, Any] = {}
    for each in recipe.get("clean", []):
        again = sum(other["kind"] == each["kind"] for other in filters.values()) + 1
        filters[f"{each['kind']} ({again})" if again > 1 else each["kind"]] = each
    return {**recipe, "clean": {"order": ", ".join(filters) or None, **filters}}


def _tokenizers(one: Corpus, other: Corpus) -> Iterator[str]:
    a, b = one.tokenizer, other.tokenizer
    for what, before, after in (
        ("kind", a.kind, b.kind),
        ("size", f"{a.vocab_size:,} entries", f"{b.vocab_size:,} entries"),
        ("case", *("lower-cased" if each.lowercase else "kept" for each in (a, b))),
        *((f"setting {key}", *map(_value, pair)) for key, pair in differences(a.settings, b.settings).items()),
    ):
        if before != after:
            yield f"tokenizer: its {what} is {before} in A and {after} in B"
    ours, theirs = set(a.tokens), set(b.tokens)
    for name, more in (("A", ours - theirs), ("B", theirs - ours)):
        if more:
            yield f"tokenizer: {len(more):,} of the entries are only in {name}, {_some(sorted(more))}"
    if ours == theirs and a.tokens != b.tokens:
        token = next(token for token, other in zip(a.tokens, b.tokens, strict=False) if token != other)
        yield f"tokenizer: the entries have other numbers, the first of them '{token}'"


def _sizes(one: Corpus, other: Corpus) -> Iterator[str]:
    for split in SPLITS:
        a, b = getattr(one, split), getattr(other, split)
        counts = {
            "documents": (len(a), len(b)),
            "sentences": (a.sentences, b.sentences),
            "tokens": (a.tokens, b.tokens),
        }
        for what, (before, after) in counts.items():
            if before != after:
                change = f" ({after / before - 1:+.1%})" if before else ""
                yield f"counts: {split} has {before:,} {what} in A and {after:,} in B{change}"


def _reports(one: Corpus, other: Corpus) -> Iterator[str]:
    """Yield sentences on the statistics that the builds reported, besides what `_sizes` says."""
    a, b = (_flat(corpus) for corpus in (one, other))
    for what in dict.fromkeys([*a, *b]):
        before, after = a.get(what, "none"), b.get(what, "none")
        if before != after:
            yield f"statistics: {what}: {before} in A and {after} in B"


def _flat(corpus: Corpus) -> dict[str, str]:
    """Return the statistics of a report under names that sentences can have."""
    report = corpus.report
    found = {title: f"{report[name]:,}" for name, title in _NAMES.items() if name in report}
    for key, title in (("dropped", "dropped for '{}'"), ("languages", "documents in '{}'"), ("marked", "spans of {}")):
        found |= {title.format(name): f"{number:,}" for name, number in report.get(key, {}).items()}
    tokens = max(1, corpus.train.tokens + corpus.held_out.tokens)
    found |= {
        f"share of tokens '{name}'": percent(number / tokens) for name, number in report.get("tokens", {}).items()
    }
    for each in report.get("clean", []):
        name = filter_name(each["kind"], each.get("languages", ()))
        found[f"changed by the filter {name}"] = f"{each['changed']:,}"
    return found


def _documents(one: Corpus, other: Corpus) -> Iterator[str]:
    a, b = _table(one), _table(other)
    rest_a, rest_b = _unmatched(a.contents, b.contents)
    if not len(rest_a) and not len(rest_b):
        yield "documents: the same ones in both, in another order, in other splits or in other shards"
    # Of those without an equal one: the same text with other marks, or another text at the same place.
    left_a, left_b, marked = _paired(a.texts, b.texts, rest_a, rest_b)
    if len(marked):
        yield _named("with the same text and other words, phrases or entities marked", one, a, marked)
    left_a, left_b, changed = _paired(a.places, b.places, left_a, left_b)
    if len(changed):
        yield _named("with another text at the same place", one, a, changed)
    for name, corpus, table, left in (("A", one, a, left_a), ("B", other, b, left_b)):
        if len(left):
            yield _named(f"only in {name}", corpus, table, left)
    if moved := _moved(a, b):
        yield f"documents: {plural(moved, 'text')} of A in another split of B"


def _places(one: Corpus, other: Corpus) -> Iterator[str]:
    yield "documents: as the tokenizers differ, only the places that they were read from can be compared"
    a, b = _table(one), _table(other)
    for name, corpus, table, left in zip("AB", (one, other), (a, b), _unmatched(a.places, b.places), strict=True):
        if len(left):
            yield _named(f"only in {name}", corpus, table, left)


def _table(corpus: Corpus) -> _Table:
    names = np.array([_hash(name.encode("utf-8", "surrogateescape")) for name in corpus.train.sources], np.uint64)
    texts, contents, places, splits, indices = ([np.zeros(0, kind)] for kind in ("u8", "u8", "u8", "i1", "i8"))
    for number, name in enumerate(SPLITS):
        split = getattr(corpus, name)
        both = np.empty((len(split), 2), np.uint64)
        for i, document in enumerate(split):
            both[i] = _hashes(document)
        texts.append(both[:, 0])
        contents.append(both[:, 1])
        places += [names[rows[:, 2]] + rows[:, 3].astype(np.uint64) * _ODD for rows in split.rows()]
        splits.append(np.full(len(split), number, np.int8))
        indices.append(np.arange(len(split)))
    return _Table(*(np.concatenate(parts) for parts in (texts, contents, splits, indices, places)))


def _hashes(document: Document) -> tuple[int, int]:
    text = b"".join((document.ids.tobytes(), document.ends.tobytes(), document.marks.tobytes()))
    return _hash(text), _hash(text + document.flags.tobytes())


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _ranked(keys: np.ndarray) -> np.ndarray:
    """Return keys (d,) that are all different: the first of equal ones keeps its own."""
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    starts = np.flatnonzero(np.diff(in_order, prepend=in_order[:1] + np.uint64(1)) != 0)
    ranks = np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys))))
    ranked = np.empty_like(keys)
    ranked[order] = in_order + ranks.astype(np.uint64) * _ODD
    return ranked


def _unmatched(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of two columns of keys that have no equal in the other one, each equal being used once."""
    a, b = _ranked(one), _ranked(other)
    return np.flatnonzero(~np.isin(a, b)), np.flatnonzero(~np.isin(b, a))


def _paired(
    one: np.ndarray, other: np.ndarray, rows: np.ndarray, others: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return those of some rows of two columns of keys that stay without an equal, and the rows that have one."""
    left, left_others = _unmatched(one[rows], other[others])
    return rows[left], others[left_others], np.delete(rows, left)


def _moved(one: _Table, other: _Table) -> int:
    """Return how many texts of one corpus are in another split of the other one."""
    (a, rows_a), (b, rows_b) = (np.unique(table.texts, return_index=True) for table in (one, other))
    _, in_a, in_b = np.intersect1d(a, b, assume_unique=True, return_indices=True)
    return int((one.splits[rows_a[in_a]] != other.splits[rows_b[in_b]]).sum())


def _named(what: str, corpus: Corpus, table: _Table, rows: np.ndarray) -> str:
    """Return a sentence on documents in some rows of a table, with the places and beginnings of a few."""
    lines = [f"documents: {len(rows):,} {what}"]
    for row in rows[:_SHOWN].tolist():
        split, index = getattr(corpus, SPLITS[table.splits[row]]), int(table.indices[row])
        lines.append(f"  {split.source(index)}: {_preview(corpus, split[index])}")
    if len(rows) > _SHOWN:
        lines.append(f"  and {len(rows) - _SHOWN:,} more")
    return "\n".join(lines)


def _preview(corpus: Corpus, document: Document) -> str:
    text = " ".join(corpus.tokenizer.decode(document.ids[:_PREVIEW].tolist()).split())
    return f"'{text[:_PREVIEW]}...'" if len(text) > _PREVIEW or len(document.ids) > _PREVIEW else f"'{text}'"


def _value(value: Any) -> str:
    return "not given" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"such as {', '.join(map(repr, names[:_SHOWN]))}{more}"
