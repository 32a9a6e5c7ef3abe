"""Counts of what was kept and dropped: summed chunk by chunk, reported at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ernie.data.document import Flag
from ernie.data.raw import DAMAGED, Dropped
from ernie.data.shard_writer import Documents
from ernie.formatting import plural
from ernie.text.coverage import MANY_STRIPPED
from ernie.text.surrogates import printable
from pretrain.corpus.clean.base import Tally
from pretrain.corpus.hosts import OTHERS, add_hosts

MAX_EXAMPLES = 10
_RARE = 100_000  # tokens: few texts are longer
_FEW_HELD_OUT = 10  # documents
MANY_UNKNOWN = 0.05  # of the tokens: more than in text of a language that the tokenizer was trained on
_MANY_REPEATED = 0.01  # of the documents
_FIRST_HOSTS = 3  # that are named

FRACTIONS = {  # fractions of tokens in the report: a name, and the flags that count towards it
    "continue a word": Flag.CONTINUES_WORD,
    "in phrases": Flag.BEGINS_PHRASE | Flag.CONTINUES_PHRASE,
    "in entities": Flag.BEGINS_ENTITY | Flag.CONTINUES_ENTITY,
    "of capitalized words": Flag.CAPITALIZED,
}


@dataclass
class Counts:
    """Sums over documents; `bytes` of their text in UTF-8.  `splits` holds the documents, sentences, tokens of each.

    `longest` is the number of tokens of the longest document.  `repeated` counts documents with the text of an earlier
    one, and is set at the end.  `unwrapped` documents had lines that were put together, `languages` counts those of
    each language, `hosts` those of each host, and `marked` the spans that each dictionary has found.  The tokenizer
    takes a mark off the `stripped` ones of the `characters`, see `ernie.text.coverage`.  `damaged` says of which files
    the rest is left out.  `clean` has what each filter did, with examples of its own.
    """

    bytes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    splits: dict[str, Counter[str]] = field(default_factory=lambda: {"train": Counter(), "held_out": Counter()})
    one_sentence: int = 0
    longest: int = 0
    repeated: int = 0
    unwrapped: int = 0
    characters: int = 0
    stripped: int = 0
    languages: Counter[str] = field(default_factory=Counter)
    hosts: Counter[str] = field(default_factory=Counter)
    marked: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    clean: list[Tally] = field(default_factory=list)

    def drop(self, item: Dropped) -> None:
        """Count a document that is not kept."""
        self.dropped[item.reason] += 1
        if item.reason == DAMAGED:
            self.damaged.append(f"{printable(item.place.file)}: {item.detail}")
        elif len(self.examples) < MAX_EXAMPLES and not item.by_kind:
            self.examples.append(f"{item.place}: {item.reason}: {item.detail}")

    def keep(self, split: str, documents: Documents, unk_id: int) -> None:
        """Count documents that are kept."""
        sizes = {"documents": len(documents.docs), "sentences": len(documents.ends), "tokens": len(documents.ids)}
        self.splits[split].update(sizes)
        self.longest = max(self.longest, int(np.diff(documents.docs[:, 0], prepend=0).max(initial=0)))
        self.tokens["unknown"] += int(np.count_nonzero(documents.ids == unk_id))
        # A histogram of the 256 possible flag bytes takes one pass over the tokens instead of one per name.
        histogram = np.bincount(documents.flags, minlength=256)
        for name, flags in FRACTIONS.items():
            self.tokens[name] += int(histogram[(np.arange(256) & flags) != 0].sum())

    def add(self, other: Counts) -> None:
        """Add the counts of a later chunk."""
        self.bytes += other.bytes
        self.one_sentence += other.one_sentence
        self.unwrapped += other.unwrapped
        self.characters += other.characters
        self.stripped += other.stripped
        self.longest = max(self.longest, other.longest)
        self.dropped.update(other.dropped)
        self.tokens.update(other.tokens)
        self.languages.update(other.languages)
        add_hosts(self.hosts, other.hosts)
        self.marked.update(other.marked)
        self.examples = (self.examples + other.examples)[:MAX_EXAMPLES]
        self.damaged += other.damaged
        for name, sizes in other.splits.items():
            self.splits[name].update(sizes)
        self.clean = self.clean or [Tally(tally.kind, tally.languages) for tally in other.clean]
        for mine, others in zip(self.clean, other.clean, strict=True):
            mine.add(others)

    def state(self) -> dict[str, Any]:
        """Return the counts as plain data, from which `restored` makes them."""
        return {**vars(self), "clean": [vars(tally) for tally in self.clean]}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Counts:
        """Return counts from their `state`."""
        counters = {name: Counter(state[name]) for name in ("dropped", "languages", "hosts", "marked", "tokens")}
        splits = {name: Counter(sizes) for name, sizes in state["splits"].items()}
        clean = [Tally(**{**tally, "dropped": Counter(tally["dropped"])}) for tally in state["clean"]]
        return cls(**{**state, **counters, "splits": splits, "clean": clean})

    def total(self, what: str) -> int:
        """Return the number of documents, sentences or tokens in both splits."""
        return sum(sizes[what] for sizes in self.splits.values())


@dataclass(frozen=True)
class CorpusReport:
    """The counts of a whole corpus, and its build time in seconds."""

    counts: Counts
    language: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return what corpus.json contains: all but the time, so that the same text gives the same bytes."""
        sums = ("dropped", "languages", "hosts", "marked")
        counters = {name: dict(sorted(getattr(self.counts, name).items())) for name in sums}
        clean = [tally.to_dict() for tally in self.counts.clean]
        plain = {name: value for name, value in vars(self.counts).items() if name != "clean"}
        return {**plain, **counters, **({"clean": clean} if clean else {})}

    def table(self) -> str:
        """The report for people."""
        counts = self.counts
        kept, dropped = counts.total("documents"), sum(counts.dropped.values())
        rows = [
            ("documents read", f"{kept + dropped:,}"),
            ("  kept for training", _sizes(counts.splits["train"])),
            ("  kept held out", _sizes(counts.splits["held_out"])),
            ("  kept with only one sentence", f"{counts.one_sentence:,}"),
            ("  kept with an earlier text", f"{counts.repeated:,}"),
            *([("  kept with lines put together", f"{counts.unwrapped:,}")] if counts.unwrapped else []),
            ("  dropped", f"{dropped:,}"),
            *((f"    {reason}", f"{number:,}") for reason, number in sorted(counts.dropped.items())),
            *((f"cleaning: {tally.name}", tally.summary()) for tally in counts.clean),
            ("language", self.language),
            *((f"  documents in {name}", f"{number:,}") for name, number in self._languages),
            *([("hosts", self._hosts)] if counts.hosts else []),
            ("tokens", f"{counts.total('tokens'):,}"),
            ("  in the longest document", f"{counts.longest:,}"),
            *((f"  {name}", _fraction(number, counts.total("tokens"))) for name, number in counts.tokens.items()),
            *([("letters that lose a mark", f"{counts.stripped:,}")] if counts.stripped else []),
            ("text", f"{counts.bytes / 1e6:.1f} MB in {self.seconds:.1f} s: {self.speed:.1f} MB/s"),
        ]
        width = max(30, *(len(name) for name, _ in rows))
        lines = [f"{name:<{width}} {value}" for name, value in rows]
        if not counts.splits["held_out"]["documents"]:
            lines.append(
                "no document is held out: a run on this corpus cannot be measured, and 'ernie pretrain' needs that"
                + "; a blank line separates documents in a text file, and these files hold one" * (kept == 1)
            )
        elif counts.splits["held_out"]["documents"] < _FEW_HELD_OUT:
            lines.append(
                f"only {plural(counts.splits['held_out']['documents'], 'document')} held out: the intervals of a run's "
                "scores, which are over documents, mean little then; --set held_out=0.1 holds out a tenth"
            )
        if counts.longest > _RARE:
            lines.append(
                f"a document of {counts.longest:,} tokens is rarely one text: are documents separated as "
                "docs/howto/corpus.md says for such a file, by a blank line for instance?"
            )
        unknown = counts.tokens["unknown"] / max(counts.total("tokens"), 1)
        if unknown > MANY_UNKNOWN:
            lines.append(
                f"{unknown:.0%} of the tokens are unknown: the tokenizer lacks characters of this text, or a script "
                "without spaces gives words too long for WordPiece, where 'ernie tokenizer train --kind sentencepiece' "
                "helps"
            )
        if counts.stripped > MANY_STRIPPED * counts.characters:
            lines.append(
                f"{counts.stripped / counts.characters:.0%} of the characters lose a mark that is part of a letter, as "
                "か is not が: the tokenizer strips accents, and one trained with --strip-accents no keeps them"
            )
        for name in sorted(name for name, number in counts.marked.items() if not number):
            lines.append(f"{name}: none of its entries occurs in the text: are they words of it, one a line?")
        if counts.unwrapped:
            lines.append(
                f"in {plural(counts.unwrapped, 'document')} lines were wrapped at a width, and were put together to "
                "paragraphs: --set read.wrapped=false keeps each line a paragraph"
            )
        if counts.repeated > _MANY_REPEATED * kept:
            lines.append(
                f"{counts.repeated / kept:.0%} of the documents have the text of an earlier one, and are learned more "
                "often than others: --set drop_repeated=true keeps the first of each"
            )
        for tally in counts.clean:
            if tally.kind == "url" and tally.read and not counts.hosts and not tally.dropped:
                lines.append(
                    "no document that is kept has an address, by which the filter url drops pages: web archives have "
                    "them, and read.fields.url names the field of rows"
                )
        for tally in counts.clean:
            if tally.examples:
                lines += [f"cleaning: {tally.name}, for instance:", *(f"  {example}" for example in tally.examples)]
        if counts.damaged:
            shown = [f"  {each}" for each in counts.damaged[:MAX_EXAMPLES]]
            more = len(counts.damaged) - len(shown)
            also = [f"  and {more:,} more, all of them in corpus.json under report.damaged"] if more else []
            lines += ["damaged, and left out from there on:", *shown, *also]
        if counts.examples:
            lines += ["dropped, for instance:", *(f"  {example}" for example in counts.examples)]
        return "\n".join(lines)

    @property
    def _languages(self) -> list[tuple[str, int]]:
        """The number of documents in each language, where there are several."""
        return self.counts.languages.most_common() if len(self.counts.languages) > 1 else []

    @property
    def _hosts(self) -> str:
        """The number of hosts, and those that most documents are from."""
        hosts = Counter(self.counts.hosts)
        more = " or more" if hosts.pop(OTHERS, 0) else ""
        first = ", ".join(f"{host} {number:,}" for host, number in hosts.most_common(_FIRST_HOSTS))
        return f"{len(hosts):,}{more}; documents of the most frequent: {first}"

    @property
    def speed(self) -> float:
        """MB of text a second."""
        return self.counts.bytes / 1e6 / max(self.seconds, 1e-9)


def _sizes(sizes: Counter[str]) -> str:
    return f"{sizes['documents']:,} ({sizes['sentences']:,} sentences, {sizes['tokens']:,} tokens)"


def _fraction(number: int, total: int) -> str:
    return f"{number / max(total, 1):.2%}"
