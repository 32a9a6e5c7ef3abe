"""A page on a corpus: documents with what is marked in them, and statistics with plots."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from ernie.data.document import Mark
from ernie.data.shards import Corpus
from ernie.formatting import amount, compact, percent, plural
from ernie.report import page
from ernie.report.chapter import Chapter, write_chapters
from ernie.report.html_table import bar_table, facts
from ernie.report.panels import BLUE, VERMILION, Label, margin_labels, panels, style
from pretrain.corpus.look.choose import Chosen
from pretrain.corpus.look.runs import Run, Sentence, sentences
from pretrain.corpus.look.shown import NAMES, left_out, quantiles, tables
from pretrain.corpus.look.statistics import Lengths, Statistics

_BINS, _HEIGHT = 40, 1.5  # of a histogram; inches
_STYLE = """
.doc { border: 1px solid var(--line); border-radius: 10px; padding: 0.75rem 1.1rem 1rem; margin: 1rem 0;
       line-height: 1.9; overflow-wrap: anywhere; }
.doc header { color: var(--muted); font-size: 0.85rem; line-height: 1.5; margin-bottom: 0.5rem; }
.doc header b { color: var(--ink); }
.doc p { margin: 0.4rem 0; }
.doc .title { font-weight: 700; font-size: 1.15rem; }
.doc .heading { font-weight: 700; }
.doc sup { color: var(--muted); font-size: 0.65rem; margin-right: 0.2rem; user-select: none; }
.s { padding: 0.1rem 0; border-radius: 4px; }
.s:nth-of-type(even) { background: color-mix(in srgb, var(--ink) 6%, transparent); }
.e { background: rgb(224 117 26 / 0.28); border-radius: 4px; padding: 0.05rem 0.15rem; margin: 0 1px; }
.p { text-decoration: underline 2px var(--blue); text-underline-offset: 0.28em; }
.w { border-bottom: 2px dotted var(--muted); margin: 0 1px; }
.u { color: #c62828; outline: 1px solid currentcolor; border-radius: 3px; }
@media screen and (prefers-color-scheme: dark) { .u { color: #ff8a80; } }
@media print { .doc { break-inside: auto; } .e, .s { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


def corpus_page(corpus: Corpus, found: Statistics, chosen: Chosen, most: int, title: str) -> str:
    """Return the page of a corpus with its statistics and the chosen documents; 0 for `most` sentences shows all."""
    sizes = {name: getattr(corpus, name) for name in ("train", "held_out")}
    state = (
        f"A corpus of {plural(found.documents, 'document')}, {amount(sum(each.sentences for each in sizes.values()))} "
        f"sentences and {amount(sum(each.tokens for each in sizes.values()))} tokens"
    )
    tokenizer = corpus.tokenizer
    rows = {
        **{f"split {name}": f"{plural(len(each), 'document')}, {each.tokens:,} tokens" for name, each in sizes.items()},
        "language": corpus.language,
        "tokenizer": f"{tokenizer.kind}, {tokenizer.vocab_size:,} entries"
        + (", lower-cases" if tokenizer.lowercase else ""),
        **{f"tokens {name}": percent(share) for name, share in found.shares.items()},
    }
    with style():
        plots = write_chapters([Chapter("lengths", "Lengths", _lengths_note(found), _lengths(found))], None)
    parts = [facts(rows), *_documents(corpus, chosen, most), *plots, *_tables(found)]
    return page.page(title, state, parts, _STYLE)


def _documents(corpus: Corpus, chosen: Chosen, most: int) -> list[str]:
    if not chosen.numbers:
        return []
    samples = " ".join(f'<span class="{kind[0]}">{name}</span>' for kind, name in NAMES.items())
    cards = [f"<p>{samples}</p>", *(_document(corpus, chosen, number, most) for number in chosen.numbers)]
    note = f"Shown as the tokens read: {chosen.how}. Each sentence has its number."
    return [page.section("Documents", note, *cards)]


def _document(corpus: Corpus, chosen: Chosen, number: int, most: int) -> str:
    document = chosen.split[number]
    sizes = f"{plural(len(document), 'sentence')}, {plural(len(document.ids), 'token')}"
    head = f"<header><b>{chosen.split.name} {number:,}</b> · {escape(chosen.split.source(number))} · {sizes}</header>"
    paragraphs: list[str] = []
    for at, sentence in enumerate(sentences(document, corpus.tokenizer, most), 1):
        text = f'<span class="s"><sup>{at}</sup>{"".join(_run(run) for run in sentence.runs)}</span> '
        if not paragraphs or sentence.marks & Mark.BEGINS_PARAGRAPH:
            paragraphs.append(f"<p{_kind(sentence)}>")
        paragraphs[-1] += text
    if most and len(document) > most:
        paragraphs.append(page.paragraph(left_out(len(document), most), "note"))
    return f'<article class="doc">{head}{"".join(paragraphs)}</article>'


def _kind(sentence: Sentence) -> str:
    if sentence.marks & Mark.TITLE:
        return " class=title"
    return " class=heading" if sentence.marks & Mark.HEADING else ""


def _run(run: Run) -> str:
    if not run.kinds:
        return escape(run.text)
    kinds = " ".join(kind[0] for kind in NAMES if kind in run.kinds)  # the classes of _STYLE
    body = run.text.lstrip()
    return f'{run.text[: len(run.text) - len(body)]}<span class="{kinds}">{escape(body)}</span>'


def _lengths_note(found: Statistics) -> str:
    tokens, sentences = (
        ", ".join(f"{name} {value}" for name, value in quantiles(each).items())
        for each in (found.tokens, found.sentences)
    )
    return f"How many documents have each length. Tokens: {tokens}. Sentences: {sentences}."


def _lengths(found: Statistics) -> Figure:
    """Draw how many documents have how many tokens and sentences."""
    figure, panes = panels(["tokens a document", "sentences a document"], _HEIGHT)
    for axes, lengths in zip(panes, (found.tokens, found.sentences), strict=True):
        _histogram(axes, lengths)
    return figure


def _histogram(axes: Axes, lengths: Lengths) -> None:
    edges, counts = lengths.histogram(_BINS)
    axes.stairs(counts, edges - 0.5, fill=True, color=BLUE, alpha=0.85)
    axes.set_xscale("log")
    axes.set_xlim(edges[0] - 0.5, edges[-1] - 0.5)
    ticks = np.unique(np.round(np.geomspace(edges[0], max(edges[0], edges[-1] - 1), 5)).astype(int))
    axes.set_xticks(ticks)
    axes.xaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True, steps=[1, 2, 5, 10]))
    axes.set_ylim(0)
    median = lengths.quantile(0.5)
    axes.axvline(median, color=VERMILION, linewidth=1.2)
    margin_labels(axes, [Label(axes.get_ylim()[1], f"median {compact(median)}", VERMILION, bold=True)])


def _tables(found: Statistics) -> Iterator[str]:
    notes = {
        "documents by language": "As the build took each document, which decides how its sentences are split.",
        "documents by sources": "The files that the documents were read from.",
        "documents by hosts and folders": "Where the files lie that the documents were read from.",
        "documents by hosts of pages": "Where the pages come from that have an address.",
        "documents with the text of an earlier one": "Kept ones are learned more often than others.",
        "documents dropped": "What was read and is not in the corpus, by reason.",
    }
    tokens = {part.name: f"{part.tokens:,}" for part in found.parts}
    for title, counts in tables(found).items():
        of_parts = title in ("documents by sources", "documents by hosts and folders")
        head = ["", "documents", *(["tokens"] if of_parts else [])]
        rows = [[name, f"{count:,}", *([tokens[name]] if of_parts else [])] for name, count in counts.items()]
        bars = bar_table(title, [head, *rows], list(counts.values()))
        yield page.section(title[0].upper() + title[1:], notes[title], bars)
    if examples := found.dropped_examples:
        items = "".join(f"<li>{escape(example)}</li>" for example in examples)
        note = "The first ones, each with its file and line."
        yield page.section("Dropped or changed, for instance", note, f'<ul class="note">{items}</ul>')
