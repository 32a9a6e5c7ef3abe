"""Documents of a corpus as they are shown: in a terminal with colors, or in plain text with brackets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ernie.data.document import Mark
from ernie.data.shards import Corpus
from ernie.formatting import percent, plural
from pretrain.corpus.look.choose import Chosen
from pretrain.corpus.look.runs import Run, Sentence, sentences
from pretrain.corpus.look.statistics import QUANTILES, Lengths, Statistics

Line = list[tuple[str, str]]  # texts, each with its look, see ernie.terminal.print_styled

_MUTED, _TITLE = "2", "1"
_LOOKS = {"entity": "1;33", "phrase": "4;34", "word": "36", "unknown": "1;31"}
_BRACKETS = {"entity": ("[", "]"), "phrase": ("{", "}"), "word": ("<", ">")}
NAMES = {"entity": "entity", "phrase": "phrase", "word": "word of several tokens", "unknown": "unknown token"}
_MOST_HOSTS = 12
_BINS, _BAR = 12, 40
_SPACE = " \t"


def legend(colors: bool) -> Line:
    """Return the line that explains the looks of documents."""
    parts: Line = [("marked:", _MUTED if colors else "")]
    for kind, name in NAMES.items():
        opens, closes = ("", "") if colors else _BRACKETS.get(kind, ("", ""))
        parts += [("  ", ""), (f"{opens}{name}{closes}", _LOOKS[kind] if colors else "")]
    return parts


def document_lines(corpus: Corpus, chosen: Chosen, number: int, most: int, colors: bool) -> Iterator[Line]:
    """Yield the lines of a document, a sentence each, after its number and source; 0 for `most` shows all."""
    document = chosen.split[number]
    sizes = f"{plural(len(document), 'sentence')}, {plural(len(document.ids), 'token')}"
    yield [
        (f"{chosen.split.name} {number:,}", _TITLE if colors else ""),
        (f"  {chosen.split.source(number)}  {sizes}", _MUTED if colors else ""),
    ]
    for at, sentence in enumerate(sentences(document, corpus.tokenizer, most), 1):
        if at > 1 and sentence.marks & Mark.BEGINS_PARAGRAPH:
            yield []
        yield [(f"{at:>4}  ", _MUTED if colors else ""), *_sentence(sentence, colors)]
    if most and len(document) > most:
        yield [(left_out(len(document), most), _MUTED if colors else "")]
    yield []


def left_out(size: int, most: int) -> str:
    """Return a sentence on those that are not shown."""
    return f"{plural(size - most, 'more sentence')} not shown: --sentences 0 shows all"


def _sentence(sentence: Sentence, colors: bool) -> Line:
    name = "title" if sentence.marks & Mark.TITLE else "heading" if sentence.marks & Mark.HEADING else ""
    parts: Line = [(f"({name}) ", _MUTED if colors else "")] if name else []
    if not colors:
        return [*parts, (bracketed(sentence.runs), "")]
    for run in sentence.runs:
        text = run.text.lstrip(_SPACE)
        look = ";".join(_looks(run)) or (_TITLE if name else "")
        parts += [(run.text[: len(run.text) - len(text)], ""), (text, look)]
    return parts


def _looks(run: Run) -> list[str]:
    """Return the looks of a run; those of an entity and a phrase are seen together."""
    look = next((_LOOKS[kind] for kind in ("unknown", "entity", "word") if kind in run.kinds), None)
    if "phrase" in run.kinds:
        return [_LOOKS["phrase"]] if look is None else [look, "4"]
    return [] if look is None else [look]


def bracketed(runs: list[Run]) -> str:
    """Return a sentence in which [entities], {phrases} and <words of several tokens> are in brackets."""
    text, opened = "", list[str]()
    for run in runs:
        # A bracket closes with all that were opened inside of it.
        while any(kind not in run.kinds or kind in run.begins for kind in opened):
            text += _BRACKETS[opened.pop()][1]
        body = run.text.lstrip(_SPACE)
        text += run.text[: len(run.text) - len(body)]
        for kind in _BRACKETS:
            if kind in run.kinds and kind not in opened:
                text += _BRACKETS[kind][0]
                opened.append(kind)
        text += body
    return text + "".join(_BRACKETS[kind][1] for kind in reversed(opened))


def statistics_lines(found: Statistics) -> Iterator[str]:
    """Yield the statistics of a corpus as lines of text, with bars."""
    yield from _lengths("tokens a document", found.tokens)
    yield from _lengths("sentences a document", found.sentences)
    for title, counts in tables(found).items():
        yield from ("", title, *_bars(counts))
    if found.shares:
        yield from ("", "shares of the tokens")
        yield from (f"  {name:<28} {percent(share)}" for name, share in found.shares.items())
    if examples := found.dropped_examples:
        yield from ("", "dropped or changed, for instance", *(f"  {example}" for example in examples))
    yield ""


def tables(found: Statistics) -> dict[str, dict[str, int]]:
    """Return the counts of documents under titles, without those of which there are none."""
    places = "hosts and folders" if found.by_folder else "sources"
    all_tables = {
        "documents by language": found.languages,
        f"documents by {places}": {part.name: part.documents for part in found.parts},
        "documents by hosts of pages": found.hosts(_MOST_HOSTS),
        "documents with the text of an earlier one": found.repeated,
        "documents dropped": found.dropped,
    }
    return {title: counts for title, counts in all_tables.items() if any(counts.values())}


def quantiles(lengths: Lengths) -> dict[str, str]:
    """Return the mean and some quantiles of lengths, under their names."""
    return {"mean": f"{lengths.mean:,.1f}", **{name: f"{lengths.quantile(at):,}" for name, at in QUANTILES.items()}}


def _lengths(title: str, lengths: Lengths) -> Iterator[str]:
    yield f"{title}: {', '.join(f'{name} {value}' for name, value in quantiles(lengths).items())}"
    edges, counts = lengths.histogram(_BINS)
    ranges = [f"{low:,}" if high == low + 1 else f"{low:,} to {high - 1:,}" for low, high in pairwise(edges.tolist())]
    yield from _bars(dict(zip(ranges, counts.tolist(), strict=True)))


def _bars(counts: dict[str, int]) -> Iterator[str]:
    width, most = max(28, *map(len, counts)), max(1, *counts.values())
    for name, count in counts.items():
        bar = "#" * -(-_BAR * count // most)
        yield f"  {name:<{width}} {count:>10,}  {bar}".rstrip()
