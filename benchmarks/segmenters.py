"""The accuracy of segmenters for words, phrases and entities against gold annotation, and their speed.

    python benchmarks/segmenters.py --fit-en WIKI... --conll2000 conll2000.zip --conll2003 eng.testb
    python benchmarks/segmenters.py --fit-zh NEWS.jsonl... --peoples-daily 199801.txt --msra msra_test_bio.txt
    python benchmarks/segmenters.py --use jieba --msra msra_test_bio.txt

The segmenters are fitted to about 8 MB of the plain text in --fit-en or --fit-zh (as read by `ernie data build`), or
without these to the words of the gold files themselves, never to their annotation.  Then each gold file is segmented,
and a table printed: precision, recall and F1 of spans with the same boundaries (for words, only of several Chinese
characters), and the share of spans that are right or inside a gold span.
"""

from __future__ import annotations

import argparse
import re
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ernie.data.raw import ReadOptions
from ernie.data.read import find_inputs
from ernie.text.segment import default_segmenters
from ernie.text.segment.base import Batch, Kind, Segmenter, combine, segmenters
from ernie.text.sentences import split_sentences
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece
from pretrain.corpus.sample import sample

SAMPLE_BYTES = 8_000_000
_ENTITY_TAGS = ("nr", "ns", "nt", "nz")
_CHINESE = re.compile("[\u3400-\u9fff]+")


class Gold(NamedTuple):
    """Sentences as a tokenizer's units, the start of each, and the annotated spans (k, 3): first, stop, kind."""

    words: list[str]
    starts: np.ndarray
    spans: np.ndarray


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit-en", nargs="+", metavar="PATH")
    parser.add_argument("--fit-zh", nargs="+", metavar="PATH")
    parser.add_argument("--conll2000", type=Path, metavar="ZIP", help="NLTK's zip; its test.txt")
    parser.add_argument("--conll2003", type=Path, metavar="FILE")
    parser.add_argument("--peoples-daily", type=Path, metavar="FILE", help="word/tag, a paragraph a line")
    parser.add_argument("--msra", type=Path, metavar="FILE", help="a character and its BIO tag a line")
    parser.add_argument("--use", nargs="+", metavar="KIND", help="measure these instead of the default segmenters")
    arguments = parser.parse_args()
    files = (
        ("CoNLL-2000 noun phrases", "en", arguments.fit_en, Kind.PHRASE, arguments.conll2000, read_conll2000),
        ("CoNLL-2003 entities", "en", arguments.fit_en, Kind.ENTITY, arguments.conll2003, read_bio),
        ("People's Daily words", "zh", arguments.fit_zh, Kind.WORD, arguments.peoples_daily, read_peoples_daily),
        ("People's Daily entities", "zh", arguments.fit_zh, Kind.ENTITY, arguments.peoples_daily, read_peoples_daily),
        ("MSRA entities", "zh", arguments.fit_zh, Kind.ENTITY, arguments.msra, read_bio),
    )
    print("| gold | spans | found | precision | recall | F1 | right or inside | ms/MB |\n|---|" + "---|" * 7)
    for name, language, text, kind, path, read in files:
        if path is not None:
            gold = read(path)
            used = arguments.use
            unfitted = [segmenters[use]() for use in used] if used else default_segmenters(language)
            fitted = fit(unfitted, language, text, gold)
            print(f"| {name} | {measure(fitted, gold, kind)} |", flush=True)


def fit(unfitted: Sequence[Segmenter], language: str, text: Sequence[str] | None, gold: Gold) -> list[Segmenter]:
    """Fit segmenters to plain text, or to the words of the gold sentences."""
    batches = [(gold.words, gold.starts)] if text is None else list(plain(text, language))
    return [segmenter.fit(batches) for segmenter in unfitted]


def plain(paths: Sequence[str], language: str) -> Iterator[Batch]:
    """Yield about SAMPLE_BYTES of plain text, one batch per document."""
    for document in sample(find_inputs(paths), ReadOptions(), SAMPLE_BYTES):
        words: list[str] = []
        starts = []
        for paragraph in document.text.split("\n"):
            for sentence in split_sentences(paragraph, language):
                starts.append(len(words))
                words += UNITS.split(sentence)
        yield words, np.array(starts, np.int64)


def measure(fitted: Sequence[Segmenter], gold: Gold, kind: Kind) -> str:
    """The cells of the table for spans of a kind."""
    start = time.perf_counter()
    spans = combine(fitted, gold.words, gold.starts)
    milliseconds = 1000 * (time.perf_counter() - start)
    megabytes = sum(len(word.encode()) + word.isascii() for word in gold.words) / 1e6
    predicted, expected = _set(spans, kind), _set(gold.spans, kind)
    if kind == Kind.WORD:
        predicted, expected = ({span for span in spans if span[1] - span[0] > 1} for spans in (predicted, expected))
    right = len(predicted & expected)
    gold_span = np.zeros(len(gold.words) + 1, np.int64)  # the number of each word's gold span, or 0
    for number, (first, stop) in enumerate(sorted(expected), 1):
        gold_span[first:stop] = number
    inside = sum(
        gold_span[first] > 0 and bool((gold_span[first:stop] == gold_span[first]).all()) for first, stop in predicted
    )
    precision, recall = right / max(1, len(predicted)), right / max(1, len(expected))
    f1 = 2 * precision * recall / max(1e-9, precision + recall)
    return (
        f"{len(expected):,} | {len(predicted):,} | {precision:.1%} | {recall:.1%} | {f1:.1%} | "
        f"{inside / max(1, len(predicted)):.1%} | {milliseconds / megabytes:.0f}"
    )


UNITS = WordPiece(SPECIAL_TOKENS, lowercase=False)


def gather(sentences: Iterable[Sequence[tuple[str, int, Kind | None]]]) -> Gold:
    """Gold from sentences of (token, number, kind): adjacent tokens of one number form a span, except of kind None."""
    words: list[str] = []
    starts, spans = [], []
    for sentence in sentences:
        starts.append(len(words))
        last = None
        for token, number, kind in sentence:
            first = len(words)
            words += UNITS.split(token)
            if kind is not None and last == number:
                spans[-1][1] = len(words)
            elif kind is not None:
                spans.append([first, len(words), int(kind)])
            last = number if kind is not None else None
    return Gold(words, np.array(starts), np.array(spans, np.int64).reshape(-1, 3))


def read_bio(path: Path) -> Gold:
    """Read entities from one token per line, its tag (BIO or IOB1) last, with a blank line between sentences."""
    return gather(_bio(path.read_text(encoding="utf-8-sig").split("\n"), -1, "", Kind.ENTITY))


def read_conll2000(path: Path) -> Gold:
    """Read the noun phrases in NLTK's zip of CoNLL-2000."""
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("conll2000/test.txt").decode().split("\n")
    return gather(_bio(lines, 2, "NP", Kind.PHRASE))


def read_peoples_daily(path: Path) -> Gold:
    """Read words, and entities by their tags; adjacent tokens tagged nr form one person."""
    words, names = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        tagged = [token.rsplit("/", 1) for token in line.split() if "/" in token]
        if not tagged:
            continue
        words.append([(word, i, Kind.WORD if _CHINESE.fullmatch(word) else None) for i, (word, _) in enumerate(tagged)])
        numbers: list[int] = []
        last = ""
        for _, tag in tagged:
            numbers.append(numbers[-1] if tag == last == "nr" else len(numbers))
            last = tag
        names.append(
            [(word, number, Kind.ENTITY if tag in _ENTITY_TAGS else None)
             for (word, tag), number in zip(tagged, numbers, strict=True)]
        )  # fmt: skip
    gold = gather(words)
    return gold._replace(spans=np.concatenate((gold.spans, gather(names).spans)))


def _bio(lines: Sequence[str], column: int, label: str, kind: Kind) -> Iterator[list[tuple[str, int, Kind | None]]]:
    sentence: list[tuple[str, int, Kind | None]] = []
    number, last = 0, "O"
    for line in [*lines, ""]:
        fields = line.split()
        if not fields:
            if sentence:
                yield sentence
            sentence, last = [], "O"
            continue
        tag = fields[column]
        number += tag[0] == "B" or tag[1:] != last[1:]
        sentence.append((fields[0], number, kind if tag != "O" and tag.endswith(label) else None))
        last = tag


def _set(spans: np.ndarray, kind: Kind) -> set[tuple[int, int]]:
    return {(first, stop) for first, stop, of_kind in spans.tolist() if of_kind == kind}


if __name__ == "__main__":
    main()
