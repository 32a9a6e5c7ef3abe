"""`repeated_passages`: what is taken out is what a comparison of all stretches with all others would take out."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.data.parts import Item, Part
from ernie.data.raw import Dropped, Place, RawDocument
from ernie.data.shards import Corpus
from ernie.data.work_folder import WorkFolder
from ernie.text.train import train_wordpiece
from pretrain.corpus.build import build_corpus
from pretrain.corpus.clean.base import Filter
from pretrain.corpus.clean.compare import Findings, Noted, compare
from pretrain.corpus.clean.duplicates import ExactDuplicates
from pretrain.corpus.clean.passages import RepeatedPassages
from pretrain.corpus.clean.pipeline import Pipeline, Verdicts
from pretrain.corpus.config import CorpusConfig
from pretrain.corpus.look.statistics import statistics
from pretrain.corpus.reading import Done, Made, Make
from pretrain.corpus.report import CorpusReport


def cleaned(texts: Sequence[str | RawDocument], *filters: Filter, part: int = 2) -> list[RawDocument | Dropped]:
    """What filters leave of documents, of which `part` are read at a time."""
    given_documents = [
        text if isinstance(text, RawDocument) else RawDocument(Place("in", line), text)
        for line, text in enumerate(texts, 1)
    ]
    parts: list[list[Item]] = [
        [(0, document) for document in given_documents[at : at + part]] for at in range(0, len(texts), part)
    ]
    pipeline = Pipeline(filters)

    def read(make: Make[Verdicts, Noted], findings: Findings, done: Done) -> Iterator[Made[Noted]]:
        for number in range(done.parts, len(parts)):
            noted = make(parts[number], findings(number))
            yield Made(Part(0, (), 0), len(parts[number]), 0, [noted], [], Done(number + 1))

    left: list[RawDocument | Dropped] = []
    tallies = pipeline.tallies()
    with tempfile.TemporaryDirectory() as folder, WorkFolder(Path(folder) / "notes") as work:
        findings = compare(pipeline, read, ["in"], work)
        for number, items in enumerate(parts):
            found = findings(number)
            for at, (_, item) in enumerate(items):
                assert isinstance(item, RawDocument)
                left.append(pipeline(item, tallies, found.of(at)))
    return left


def texts_of(left: Sequence[RawDocument | Dropped]) -> list[str]:
    return ["" if isinstance(each, Dropped) else each.text for each in left]


def by_definition(documents: Sequence[Sequence[str]], size: int) -> list[list[str]]:
    """The words that are in no stretch of `size` words which an earlier one that it does not overlap equals."""
    left = []
    stretches: list[tuple[int, int, tuple[str, ...]]] = []
    for number, words in enumerate(documents):
        gone: set[int] = set()
        for start in range(len(words) - size + 1):
            stretch = tuple(words[start : start + size])
            if any(same == stretch and (other < number or at + size <= start) for other, at, same in stretches):
                gone.update(range(start, start + size))
            stretches.append((number, start, stretch))
        left.append([word for at, word in enumerate(words) if at not in gone])
    return left


WORDS = st.sampled_from(["a", "b", "b.", "river", "河"])
PHRASES = st.lists(WORDS, min_size=1, max_size=9)


@settings(max_examples=200, deadline=None)
@given(
    phrases=st.lists(PHRASES, min_size=1, max_size=4),
    order=st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=1, max_size=6),
    size=st.integers(2, 7),
    part=st.integers(1, 3),
    at_once=st.integers(1, 40),
)
def test_what_is_left_is_what_the_definition_leaves(
    phrases: list[list[str]], order: list[list[int]], size: int, part: int, at_once: int
) -> None:
    documents = [[word for i in row for word in phrases[i % len(phrases)]] for row in order]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pretrain.corpus.clean.groups.AT_ONCE", at_once)
        patch.setattr("pretrain.corpus.clean.passages.AT_ONCE", at_once)
        left = cleaned([" ".join(words) for words in documents], RepeatedPassages(size), part=part)
    assert [text.split() for text in texts_of(left)] == by_definition(documents, size)


def words_of(seed: int, number: int) -> list[str]:
    """Words of which no two are the same, so that nothing repeats by chance."""
    return [f"w{seed}x{i}" for i in range(number)]


@pytest.mark.parametrize("size", [10, 50])
def test_planted_passages_stay_where_they_are_first_and_nothing_else_is_taken(size: int) -> None:
    rng = random.Random(size)
    passages = [words_of(1000 + i, size + rng.choice([-1, 0, 1, 3 * size])) for i in range(30)]
    documents, expected, seen = [], [], set()
    for number in range(200):
        own = words_of(number, rng.randrange(1, 200))
        planted = rng.randrange(len(passages))
        at = rng.randrange(len(own) + 1)
        documents.append(" ".join([*own[:at], *passages[planted], *own[at:]]))
        stays = planted not in seen or len(passages[planted]) < size
        expected.append(" ".join([*own[:at], *(passages[planted] if stays else []), *own[at:]]))
        seen.add(planted)
    assert len(seen) == 30
    assert texts_of(cleaned(documents, RepeatedPassages(size), part=7)) == expected


NOTICE = "We use cookies to\nserve you better, on every page."


def test_lines_of_which_nothing_is_left_go_and_headings_stay_where_they_are() -> None:
    text = f"The river\nIt is slow. {NOTICE} It is long.\nIn winter\nIt is icy."
    document = RawDocument(Place("in", 2), text, headings=frozenset({0, 3}))
    assert texts_of(cleaned([NOTICE, document], RepeatedPassages(10))) == [
        NOTICE,
        "The river\nIt is slow.\nIt is long.\nIn winter\nIt is icy.",
    ]
    within = RawDocument(Place("in", 2), f"One.\n{NOTICE}\nThe river\nIt is slow.", headings=frozenset({3}))
    found = cleaned([NOTICE, within], RepeatedPassages(10))[1]
    assert isinstance(found, RawDocument)
    assert (found.text, found.headings) == ("One.\nThe river\nIt is slow.", {1})


def test_letters_of_chinese_are_words_and_leave_no_space() -> None:
    notice = "本站使用的图片来自网络。"
    left = cleaned([notice, f"河水很慢，{notice}冬天有冰。"], RepeatedPassages(12))
    assert texts_of(left)[1] == "河水很慢，冬天有冰。"


def test_a_document_without_a_word_left_is_dropped_and_names_the_earlier_one() -> None:
    found = cleaned(["One. " + NOTICE, NOTICE], RepeatedPassages(10))[1]
    assert isinstance(found, Dropped)
    assert found.reason == "repeated_passages: earlier text"
    assert found.detail == "all of its text is in earlier passages, the first in in:1"


def test_annotated_documents_are_neither_changed_nor_compared() -> None:
    annotated = RawDocument(Place("in", 1), NOTICE, spans=np.array([[0, 2, 0]]))
    assert texts_of(cleaned([annotated, NOTICE, annotated], RepeatedPassages(10))) == [NOTICE] * 3


def test_what_an_earlier_filter_drops_is_no_earlier_text_and_a_later_one_sees_what_is_left() -> None:
    alone, twice = "It is slow and wide here.", f"{NOTICE} It is slow and wide here."
    texts = [f"One. {NOTICE}", f"one {NOTICE}", twice, alone]
    filters = (ExactDuplicates(), RepeatedPassages(10), ExactDuplicates())
    assert texts_of(cleaned(texts, *filters)) == [f"One. {NOTICE}", "", alone, ""]
    loud = NOTICE.upper()  # which the first filter drops; what is kept would be lost with it
    assert texts_of(cleaned([NOTICE, loud, f"{loud} End."], *filters)) == [NOTICE, "", f"{loud} End."]


def test_the_report_counts_and_shows_what_was_taken_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [f"The river is slow. {NOTICE} It is long.", f"Anna rows here. {NOTICE} She lives there.", NOTICE]
    Path("in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    train_wordpiece(texts, vocab_size=80, lowercase=True, folder=Path("tokenizer"))
    config: Any = CorpusConfig(
        ["in.jsonl"], Path("tokenizer"), "en", [], held_out=0, clean=[RepeatedPassages(words=10)]
    )
    report: CorpusReport = build_corpus(config, "corpus")
    tally = report.counts.clean[0]
    assert (tally.read, tally.changed, tally.dropped) == (3, 1, {"earlier text": 1})
    assert f"1 changed by -{len(NOTICE) + 1} characters" in report.table()
    assert "cookies" in tally.examples[0] and "She lives there" in tally.examples[0]
    corpus = Corpus.open("corpus")
    sentences = [corpus.tokenizer.decode(corpus.train[1].sentence(i).ids) for i in range(2)]
    assert sentences == ["anna rows here.", "she lives there."]
    assert statistics(corpus, most=9).repeated == {"kept": 0, "repeated_passages: earlier text": 1}
    assert sorted(path.name for path in Path().iterdir()) == ["corpus", "in.jsonl", "tokenizer"]
