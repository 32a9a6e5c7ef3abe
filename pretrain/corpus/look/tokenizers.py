"""Tokenizers compared on texts: how many tokens they need, what they lose, and how fast they are."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ernie.data.raw import RawDocument
from ernie.formatting import plural
from ernie.report import page
from ernie.report.html_table import bar_table, table
from ernie.text.coverage import Coverage, coverage
from ernie.text.scripts import words_in
from ernie.text.tokenizer import Tokenizer

_WARM = 20  # documents that are encoded before the time is taken


@dataclass(frozen=True)
class Texts:
    """A group of texts: those of a language, or of an input."""

    name: str
    texts: list[str]

    @cached_property
    def words(self) -> int:
        """The number of words; in scripts written without spaces every letter and mark is one."""
        return sum(len(words_in(text)) for text in self.texts)

    @cached_property
    def size(self) -> int:
        """The bytes of the texts."""
        return sum(len(text.encode()) for text in self.texts)

    def __str__(self) -> str:
        size = f"{self.size / 1e6:.2f} MB"
        return f"{self.name}: {plural(len(self.texts), 'document')}, {plural(self.words, 'word')}, {size}"


@dataclass(frozen=True)
class Measured:
    """What a tokenizer did with a group of texts, in `seconds`."""

    tokenizer: str
    group: Texts
    counts: Coverage
    seconds: float

    @property
    def per_word(self) -> float:
        """Tokens a word: the tokenizer's fertility."""
        return self.counts.tokens / max(1, self.group.words)

    @property
    def per_character(self) -> float:
        """Tokens a character."""
        return self.counts.tokens / max(1, self.counts.characters)

    @property
    def covered(self) -> float:
        """The share of the tokens that are neither unknown nor pieces of bytes."""
        return 1 - (self.counts.unknown + self.counts.pieces) / max(1, self.counts.tokens)

    @property
    def speed(self) -> float:
        """MB of text a second."""
        return self.group.size / 1e6 / max(self.seconds, 1e-9)


_MEASURES: tuple[tuple[str, str, Callable[[Measured], float], Callable[[float], str]], ...] = (
    (
        "Tokens a word",
        "Fewer make sequences shorter. In scripts written without spaces, each letter and mark counts as a word.",
        lambda each: each.per_word,
        "{:.3f}".format,
    ),
    ("Tokens a character", "Fewer make sequences shorter.", lambda each: each.per_character, "{:.3f}".format),
    (
        "Not covered",
        "The share of the tokens that are unknown, or single bytes of a character that the vocabulary lacks.",
        lambda each: 1 - each.covered,
        "{:.2%}".format,
    ),
    (
        "Speed",
        "MB of text a second: one pass in one process, on this machine.",
        lambda each: each.speed,
        "{:.1f}".format,
    ),
)


def grouped(documents: Iterable[RawDocument], group_of: Callable[[RawDocument], str]) -> list[Texts]:
    """Return the texts of documents in groups, the largest first."""
    groups: dict[str, list[str]] = defaultdict(list)
    for document in documents:
        groups[group_of(document)].append(document.text)
    return sorted((Texts(name, texts) for name, texts in groups.items()), key=lambda group: (-group.size, group.name))


def measured(tokenizers: dict[str, Tokenizer], groups: Sequence[Texts]) -> list[Measured]:
    """Return what each tokenizer, given by name, does with each group, in the order of the groups."""
    found = []
    for group in groups:
        for name, tokenizer in tokenizers.items():
            coverage(tokenizer, group.texts[:_WARM])
            started = time.perf_counter()
            for text in group.texts:
                tokenizer.encode(text)
            seconds = time.perf_counter() - started
            found.append(Measured(name, group, coverage(tokenizer, group.texts), seconds))
    return found


def rows(found: Sequence[Measured]) -> list[list[str]]:
    """Return what was measured as a table, header first."""
    head = ["", "tokens a word", "tokens a character", "covered", "unknown", "bytes", "letters stripped", "MB/s"]
    return [head, *(_row(each) for each in found)]


def _row(each: Measured) -> list[str]:
    counts, tokens = each.counts, max(1, each.counts.tokens)
    shares = (
        each.covered,
        counts.unknown / tokens,
        counts.pieces / tokens,
        counts.stripped / max(1, counts.characters),
    )
    return [
        each.tokenizer,
        f"{each.per_word:.3f}",
        f"{each.per_character:.3f}",
        *(f"{share:.2%}" for share in shares),
        f"{each.speed:.1f}",
    ]


def comparison_page(tokenizers: dict[str, Tokenizer], found: Sequence[Measured]) -> str:
    """Return a page with a plot of each measure and a table of all."""
    described = [
        ["", "kind", "entries", "case"],
        *([name, *described_as(tokenizer)] for name, tokenizer in tokenizers.items()),
    ]
    groups = list({id(each.group): each.group for each in found}.values())
    parts = [table("Tokenizers", described)]
    for title, note, value, formatted in _MEASURES:
        lines = [[each.group.name, each.tokenizer, formatted(value(each))] for each in found]
        bars = bar_table(title, [["", "tokenizer", title.lower()], *lines], [value(each) for each in found])
        parts.append(page.section(title, note, bars))
    parts += [page.section(str(group), "All measures.", table(group.name, rows(of(found, group)))) for group in groups]
    return page.page("Tokenizers compared", f"On {'; '.join(map(str, groups))}", parts)


def described_as(tokenizer: Tokenizer) -> list[str]:
    """Return a tokenizer's kind, size and case."""
    case = "lower-cases" if tokenizer.lowercase else "keeps capitals"
    return [tokenizer.kind, f"{tokenizer.vocab_size:,}", case]


def of(found: Sequence[Measured], group: Texts) -> list[Measured]:
    """Return what was measured on a group."""
    return [each for each in found if each.group is group]
