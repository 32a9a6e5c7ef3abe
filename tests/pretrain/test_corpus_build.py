"""The corpus builder: the corpus holds all of the text, and its bytes do not depend on the machine."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ernie.data.document import Document, Flag, Mark
from ernie.data.raw import Place, RawDocument, ReadOptions
from ernie.data.read import find_inputs
from ernie.data.shards import Corpus
from ernie.errors import UserError
from ernie.text.segment.base import Kind, Segmenter
from ernie.text.segment.mined import ChineseWords, EnglishPhrases, Mined
from ernie.text.sentences import split_sentences
from ernie.text.train import train_sentencepiece, train_wordpiece
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece
from pretrain.corpus.build import build_corpus
from pretrain.corpus.clean.compare import Findings
from pretrain.corpus.clean.duplicates import ExactDuplicates
from pretrain.corpus.config import CorpusConfig
from pretrain.corpus.engine import LocalEngine
from pretrain.corpus.progress import ConsoleProgress
from pretrain.corpus.reading import readings
from pretrain.corpus.report import CorpusReport, Counts
from pretrain.corpus.sample import fit, sample, sample_language
from pretrain.corpus.units import UnitTable

WORDS = [
    *("the", "river", "runs", "past", "an", "old", "stone", "mill", "where", "Anna", "Weber", "grinds", "wheat", "for"),
    *(
        "Berlin",
        "and",
        "nobody",
        "asks",
        "why",
        "winter",
        "comes",
        "early",
        "but",
        "rain",
        "falls",
        "late",
        "New",
        "York",
    ),
]


def story(seed: int, sentences: int = 6) -> str:
    """A document of random sentences, three per paragraph."""
    rng = random.Random(seed)
    drawn = [" ".join(rng.choices(WORDS, k=rng.randint(4, 12))).capitalize() + "." for _ in range(sentences)]
    return "\n".join(" ".join(drawn[i : i + 3]) for i in range(0, sentences, 3))


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    texts = [story(seed) for seed in range(50)] + ["江泽民在北京讲话。今天天气很好。"]
    train_wordpiece(texts, vocab_size=120, lowercase=True, folder=folder)
    return folder


@pytest.fixture(scope="session")
def subword(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("subword")
    texts = [story(seed) for seed in range(50)] + ["今天天气很好"] * 20
    train_sentencepiece(texts, vocab_size=60, lowercase=True, folder=folder)
    return folder


@pytest.fixture
def corpus_from(tokenizer: Path, tmp_path: Path):
    """A function that writes `content` to a file and builds a corpus from it."""

    def make(content: str | bytes, name: str = "in.txt", **keys: Any) -> Corpus:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        keys = {"tokenizer": tokenizer, "language": "en", "segmenters": [], "held_out": 0.0, **keys}
        build_corpus(CorpusConfig([str(tmp_path / name)], **keys), tmp_path / "corpus", overwrite=True)
        return Corpus.open(tmp_path / "corpus")

    return make


def words(corpus: Corpus, document: Document, i: int) -> list[str]:
    """The tokens of sentence `i` as text."""
    return [corpus.tokenizer.tokens[token] for token in document.sentence(i).ids]


def flagged(corpus: Corpus, document: Document, flag: Flag) -> list[str]:
    """The tokens that have `flag`."""
    return [corpus.tokenizer.tokens[token] for token in document.ids[(document.flags & int(flag)) != 0]]


@dataclass(frozen=True)
class Fixed(Segmenter):
    """Marks every occurrence of a run of words."""

    run: tuple[str, ...]
    what: Kind = Kind.PHRASE

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        size = len(self.run)
        found = [i for i in range(len(words)) if tuple(words[i : i + size]) == self.run]
        return np.array([(i, i + size, self.what) for i in found], dtype=np.int64).reshape(-1, 3)


@dataclass(frozen=True)
class Crashing(Segmenter):
    """Ends its process, like the kernel does when memory runs out."""

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        os._exit(9)


class TestContent:
    def test_every_sentence_is_stored_as_the_tokenizer_encodes_it(self, corpus_from):
        stories = [story(seed) for seed in range(20)]
        corpus = corpus_from("\n\n".join(stories), read=ReadOptions(titles=False))
        assert len(corpus.train) == 20
        for text, document in zip(stories, corpus.train, strict=True):
            sentences = [s for line in text.split("\n") for s in split_sentences(line, "en")]
            assert len(document) == len(sentences)
            for i, sentence in enumerate(sentences):
                expected = corpus.tokenizer.encode(sentence).ids
                np.testing.assert_array_equal(document.sentence(i).ids, expected)

    def test_pieces_after_the_first_continue_the_word(self, corpus_from):
        corpus = corpus_from("Nobody grindswheat.")
        document = corpus.train[0]
        continued = [token.startswith("##") for token in words(corpus, document, 0)]
        assert any(continued)
        assert ((document.flags & int(Flag.CONTINUES_WORD)) != 0).tolist() == continued

    def test_capitals_are_detected_before_lowercasing(self, corpus_from):
        corpus = corpus_from("Anna asks the RIVER 7 times.")
        document = corpus.train[0]
        cased = "".join(flagged(corpus, document, Flag.CASED)).replace("##", "")
        assert cased == "annaaskstherivertimes"
        assert "".join(flagged(corpus, document, Flag.CAPITALIZED)).replace("##", "") == "annariver"

    def test_capitals_are_detected_with_a_lowercasing_sentencepiece_model(self, corpus_from, subword):
        corpus = corpus_from("Anna Weber grinds (WHEAT) for Berlin ½ a day.", tokenizer=subword)
        document = corpus.train[0]
        capitalized = corpus.tokenizer.decode(document.ids[(document.flags & int(Flag.CAPITALIZED)) != 0])
        assert capitalized.replace(" ", "") == "annaweberwheatberlin"

    def test_pieces_of_a_chinese_clause_are_separate_words(self, corpus_from, subword):
        corpus = corpus_from("今天天气很好", language="zh", tokenizer=subword)
        assert len(corpus.train[0].ids) > 2
        assert flagged(corpus, corpus.train[0], Flag.CONTINUES_WORD) == []

    def test_titles_headings_and_paragraphs_are_marked(self, corpus_from):
        text = '<doc id="1" title="The River">\nThe River\n\nIt runs.\nWinter rain.\nIt falls. It is late.\n</doc>\n'
        document = corpus_from(text).train[0]
        begins = int(Mark.BEGINS_PARAGRAPH)
        assert document.marks.tolist() == [begins | Mark.TITLE, begins, begins | Mark.HEADING, begins, 0]

    def test_a_sentence_without_tokens_does_not_shift_the_marks_of_the_others(self, corpus_from):
        lines = ["The River", "", "It runs.", "\ufffd", "Winter rain.", "It falls. It is late."]
        document = corpus_from("\n".join(['<doc id="1" title="The River">', *lines, "</doc>", ""])).train[0]
        begins = int(Mark.BEGINS_PARAGRAPH)
        assert document.marks.tolist() == [begins | Mark.TITLE, begins, begins | Mark.HEADING, begins, 0]

    def test_a_document_knows_its_file_and_line(self, corpus_from):
        corpus = corpus_from("It runs.\n\n\nIt falls.\n")
        assert [corpus.train.source(i).rpartition("/")[2] for i in range(2)] == ["in.txt:1", "in.txt:4"]


class TestSpans:
    def test_phrases_of_a_segmenter_are_marked_over_their_pieces(self, corpus_from):
        corpus = corpus_from("We saw New York. New York slept.", segmenters=[Fixed(("New", "York"))])
        document = corpus.train[0]
        text = "".join(
            ("|" if flags & Flag.BEGINS_PHRASE else "") + corpus.tokenizer.tokens[token].removeprefix("##")
            for token, flags in zip(document.ids, document.flags.tolist(), strict=True)
            if flags & (Flag.BEGINS_PHRASE | Flag.CONTINUES_PHRASE)
        )
        assert text == "|newyork|newyork"

    def test_words_of_a_segmenter_merge_units(self, corpus_from):
        corpus = corpus_from("今天天气很好。", language="zh", segmenters=[Fixed(("天", "气"), Kind.WORD)])
        assert flagged(corpus, corpus.train[0], Flag.CONTINUES_WORD) == ["气"]

    def test_annotated_spans_are_marked(self, corpus_from):
        row = {"text": "We saw New York.\nAnna saw it.", "spans": [[7, 15, "phrase"], [17, 21, "entity"]]}
        corpus = corpus_from(json.dumps(row), "in.jsonl")
        document = corpus.train[0]
        begins = "".join(flagged(corpus, document, Flag.BEGINS_ENTITY))
        assert begins and "anna".startswith(begins)
        phrase = flagged(corpus, document, Flag.BEGINS_PHRASE | Flag.CONTINUES_PHRASE)
        assert "".join(phrase).replace("##", "") == "newyork"

    def test_annotation_decides_its_own_kinds_and_segmenters_the_others(self, corpus_from):
        segmenters = [Fixed(("北", "京"), Kind.PHRASE), Fixed(("讲", "话"), Kind.ENTITY)]
        corpus = corpus_from(
            "江/nr 泽民/nr 在/p 北京/ns 讲话/v 。/w\n",
            language="zh",
            segmenters=segmenters,
            read=ReadOptions(format="tagged"),
        )
        document = corpus.train[0]
        assert flagged(corpus, document, Flag.BEGINS_ENTITY | Flag.CONTINUES_ENTITY) == list("江泽民北京")
        assert flagged(corpus, document, Flag.BEGINS_PHRASE | Flag.CONTINUES_PHRASE) == list("北京")
        assert flagged(corpus, document, Flag.CONTINUES_WORD) == list("民京话")

    def test_segmenters_mark_the_title_of_an_annotated_document(self, corpus_from):
        row = {"text": "Anna saw New York.", "title": "New York", "spans": [[0, 4, "entity"]]}
        corpus = corpus_from(json.dumps(row), "in.jsonl", segmenters=[Fixed(("New", "York"))])
        document = corpus.train[0]
        marked = (document.flags & int(Flag.BEGINS_PHRASE | Flag.CONTINUES_PHRASE)) != 0
        title = len(document.sentence(0).ids)
        assert marked[:title].all()
        assert not marked[title:].any()

    def test_annotation_offsets_do_not_count_the_title(self, corpus_from):
        row = {"text": "Anna saw it.", "title": "The River", "spans": [[0, 4, "entity"]]}
        corpus = corpus_from(json.dumps(row), "in.jsonl")
        document = corpus.train[0]
        entity = (document.flags & int(Flag.BEGINS_ENTITY | Flag.CONTINUES_ENTITY)) != 0
        start = len(document.sentence(0).ids)
        assert not entity[:start].any()
        assert entity[start]


class TestDeterminism:
    @pytest.fixture
    def config(self, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CorpusConfig:
        monkeypatch.setattr("pretrain.corpus.reading.CHUNK", 3000)
        monkeypatch.chdir(tmp_path)
        Path("in").mkdir()
        for part in range(3):
            text = "\n\n".join(story(100 * part + i, 1 + i % 9) for i in range(40))
            Path(f"in/{part}.txt.gz").write_bytes(gzip.compress(text.encode() + b"\n\nbad \xff byte\n"))
        return CorpusConfig(["in"], tokenizer, held_out=0.2, shard_tokens=1000)

    @staticmethod
    def content(folder: str) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}

    def test_the_number_of_processes_changes_nothing(self, config):
        for processes in (0, 1, 3):
            build_corpus(config, f"c{processes}", processes=processes)
        first = self.content("c0")
        assert len([name for name in first if name.endswith(".ids")]) > 3
        assert first == self.content("c1") == self.content("c3")

    def test_the_hash_seed_changes_nothing(self, config):
        command = [sys.executable, "-m", "ernie.cli", "data", "build", "--input", "in", "--processes", "0"]
        for seed in ("1", "2"):
            arguments = ["--tokenizer", str(config.tokenizer), "--output", f"c{seed}"]
            environment = {**os.environ, "PYTHONHASHSEED": seed}
            subprocess.run([*command, *arguments], env=environment, check=True, capture_output=True)
        assert self.content("c1") == self.content("c2")

    def test_resetting_the_unit_table_changes_nothing(self, config, monkeypatch):
        build_corpus(config, "c0")
        monkeypatch.setattr("pretrain.corpus.units.MAX_UNITS", 5)
        build_corpus(config, "c1")
        assert self.content("c0") == self.content("c1")

    def test_the_unit_table_holds_no_more_than_its_limit_and_one_chunk(self, monkeypatch):
        monkeypatch.setattr("pretrain.corpus.units.MAX_UNITS", 5)
        table = UnitTable(WordPiece([*SPECIAL_TOKENS, "a"], lowercase=True))
        for chunk in range(4):
            units = [f"a{chunk}{i}" for i in range(10)]
            table.tokenize(units, units)
            assert len(table) == 10

    def test_chunk_boundaries_do_not_change_a_shard(self, config, monkeypatch):
        rows = ['{"text": "It runs. It falls."}', '{"text": ""}', "nonsense"] * 20
        Path("in/rows.jsonl").write_text("\n".join(rows))
        for size in (1, 3000, 1 << 20):
            monkeypatch.setattr("pretrain.corpus.reading.CHUNK", size)
            monkeypatch.setattr("pretrain.corpus.sample._BATCH", size)
            build_corpus(replace(config, shard_tokens=1 << 20), f"c{size}")
        examples = Corpus.open("c1").report["examples"]
        assert any("empty" in example for example in examples) and any("not JSON" in example for example in examples)
        assert self.content("c1") == self.content("c3000") == self.content(f"c{1 << 20}")

    @pytest.mark.parametrize("processes", [0, 2])
    def test_the_parts_that_workers_read_change_nothing(self, config, processes, monkeypatch):
        rows = [json.dumps({"text": story(i, 1 + i % 9)}) for i in range(60)]
        Path("in/rows.jsonl").write_text("\n".join([*rows, "nonsense", rows[3]]))
        for size in (1 << 23, 3000, 300):
            monkeypatch.setattr("ernie.data.parts.PART", size)
            build_corpus(replace(config, drop_repeated=True), f"c{size}", processes=processes)
        assert self.content(f"c{1 << 23}") == self.content("c3000") == self.content("c300")

    def test_a_crashed_worker_is_reported_and_leaves_no_files(self, config):
        crashing = CorpusConfig(config.input, config.tokenizer, segmenters=[Crashing()])
        with pytest.raises(UserError, match=r"a worker process was killed.*fewer --processes"):
            build_corpus(crashing, "c", processes=1)
        assert sorted(path.name for path in Path().iterdir()) == ["in"]


class TestMemory:
    @pytest.mark.parametrize("row", ['{"text": ""}', '{"content": "It runs."}', '{"text": "", "title": "The River"}'])
    def test_documents_without_text_count_toward_chunk_sizes(self, tokenizer, tmp_path, monkeypatch, row):
        monkeypatch.setattr("pretrain.corpus.reading.CHUNK", 5000)
        monkeypatch.setattr("pretrain.corpus.sample._BATCH", 5000)
        (tmp_path / "in.jsonl").write_text('{"text": "It runs."}\n' + f"{row}\n" * 500)
        batches: list[int] = []

        @dataclass(frozen=True)
        class Learning(Segmenter):
            needs_fit = True

            def fit(self, documents):
                batches.append(len(documents))
                return Fixed(("it",))

        config = CorpusConfig([str(tmp_path / "in.jsonl")], tokenizer, "en", [Learning()], held_out=0)
        build_corpus(config, tmp_path / "c")
        with LocalEngine(0, tmp_path / "c") as engine:
            inputs = find_inputs(config.input)
            (made,) = readings(inputs, config.read, engine, lambda items, verdicts: len(items), Findings())
        assert len(made.results) > 20 and sum(made.results) == 501
        assert batches[0] > 20 or "content" in row  # dropped documents are not used for fitting


class TestHeldOut:
    def test_the_held_out_share_is_about_as_requested(self, corpus_from):
        corpus = corpus_from("\n\n".join(story(seed, 3) for seed in range(400)), held_out=0.25)
        assert 70 <= len(corpus.held_out) <= 130
        assert len(corpus.train) + len(corpus.held_out) == 400

    def test_equal_documents_fall_into_one_split(self, corpus_from):
        texts = [story(seed, 3) for seed in range(30)]
        corpus = corpus_from("\n\n".join(texts * 3), held_out=0.5)
        train, held_out = ({doc.ids.tobytes() for doc in split} for split in (corpus.train, corpus.held_out))
        assert train and held_out and not train & held_out

    def test_at_least_one_of_few_documents_is_held_out(self, corpus_from):
        texts = [story(seed, 3) for seed in range(10)]
        corpus = corpus_from("\n\n".join(texts), held_out=1e-9)
        assert (len(corpus.train), len(corpus.held_out)) == (9, 1)
        assert corpus.report["splits"]["train"]["documents"] == 9
        again = corpus_from("\n\n".join(reversed(texts)), held_out=1e-9)
        assert again.held_out[0].ids.tolist() == corpus.held_out[0].ids.tolist()

    def test_nothing_is_held_out_if_disabled_or_with_a_single_document(self, corpus_from):
        assert len(corpus_from("\n\n".join(story(seed, 3) for seed in range(10)), held_out=0.0).held_out) == 0
        assert len(corpus_from(story(1), held_out=0.02).held_out) == 0

    def test_if_all_documents_are_equal_all_are_for_training(self, corpus_from):
        corpus = corpus_from("\n\n".join([story(1, 3)] * 5), held_out=0.02)
        assert (len(corpus.train), len(corpus.held_out)) == (5, 0)

    def test_an_empty_training_split_raises_an_error(self, corpus_from):
        with pytest.raises(UserError, match="held_out: all of the 2 documents that are kept would be held out"):
            corpus_from("\n\n".join(story(seed, 3) for seed in range(2)), held_out=0.999999)


class TestReport:
    def test_kept_and_dropped_documents_are_counted_with_reasons(self, corpus_from):
        rows = ['{"text": "It runs. It falls."}', '{"text": "One only."}', '{"text": " "}', "nonsense", '{"body": 1}']
        report = corpus_from("\n".join(rows), "in.jsonl").report
        assert report["dropped"] == {"empty": 1, "no text": 1, "not JSON": 1}
        assert report["splits"]["train"]["documents"] == 2
        assert report["one_sentence"] == 1
        assert any("in.jsonl:4: not JSON" in example for example in report["examples"])

    def test_short_documents_are_dropped_on_request(self, corpus_from):
        text = "It runs. It falls.\n\nOne only.\n\nTwo. It is.\n"
        report = corpus_from(text, min_sentences=2, min_tokens=6, read=ReadOptions(titles=False)).report
        assert report["dropped"]["too few sentences"] == 1
        assert report["splits"]["train"]["documents"] + report["dropped"].get("too few tokens", 0) == 2

    def test_repeated_texts_are_counted_and_dropped_on_request(self, corpus_from, monkeypatch):
        monkeypatch.setattr("pretrain.corpus.reading.CHUNK", 2_000)  # some documents each
        texts = [story(seed % 7) for seed in range(20)]
        assert corpus_from("\n\n".join(texts)).report["repeated"] == 13

        def splits(corpus: Corpus) -> list[list[list[int]]]:
            return [[document.ids.tolist() for document in split] for split in (corpus.train, corpus.held_out)]

        corpus = corpus_from("\n\n".join(texts), drop_repeated=True, held_out=0.3)
        assert (corpus.report["repeated"], corpus.report["dropped"]) == (0, {"exact_duplicates: earlier text": 13})
        assert any("its text is that of" in each for each in corpus.report["clean"][0]["examples"])
        assert splits(corpus) == splits(corpus_from("\n\n".join(texts[:7]), held_out=0.3))

    def test_documents_that_are_dropped_are_not_counted_as_repeated(self, corpus_from):
        report = corpus_from("It.\n\nIt.\n\nIt runs and it falls.\n", min_tokens=4).report
        assert (report["repeated"], report["dropped"]) == (0, {"too few tokens": 2})

    def test_many_repeated_texts_are_noted(self):
        counts = Counts(repeated=3)
        counts.splits["train"].update(documents=100, sentences=200, tokens=2000)
        assert "3% of the documents have the text of an earlier one" in CorpusReport(counts, "en", 2.0).table()
        counts.repeated = 1
        shown = CorpusReport(counts, "en", 2.0).table()
        assert "kept with an earlier text    1\n" in shown
        assert "drop_repeated" not in shown

    def test_a_document_with_only_a_title_is_empty(self, corpus_from):
        rows = [{"text": "", "title": "The River"}, {"text": "It runs."}]
        report = corpus_from("\n".join(map(json.dumps, rows)), "in.jsonl").report
        assert report["dropped"] == {"empty": 1}

    def test_unknown_tokens_are_counted(self, corpus_from):
        report = corpus_from("It runs ☃ ☃.").report
        assert report["tokens"]["unknown"] == 2

    def test_the_table_shows_shares_and_speed(self):
        counts = Counts(bytes=3_000_000)
        counts.splits["train"].update(documents=10, sentences=20, tokens=200)
        counts.tokens.update({"unknown": 5})
        table = CorpusReport(counts, "en", seconds=1.5).table()
        assert "unknown                      2.50%" in table
        assert "3.0 MB in 1.5 s: 2.0 MB/s" in table
        assert "no document is held out" in table
        assert "blank line" not in table
        counts.splits["train"]["documents"] = 1
        assert "a blank line separates documents" in CorpusReport(counts, "en", seconds=1.5).table()
        counts.splits["held_out"].update(documents=1)
        assert "no document is held out" not in CorpusReport(counts, "en", seconds=1.5).table()

    def test_an_unusually_long_document_is_reported(self, corpus_from):
        report = corpus_from("It runs.\n" * 40_000).report
        assert report["longest"] == report["splits"]["train"]["tokens"] > 100_000
        counts = Counts(longest=report["longest"])
        assert f"a document of {counts.longest:,} tokens is rarely" in CorpusReport(counts, "en", 1.0).table()
        assert "rarely" not in CorpusReport(Counts(longest=5_000), "en", 1.0).table()

    def test_progress_ends_at_the_size_of_the_input(self, tokenizer, tmp_path, monkeypatch):
        monkeypatch.setattr("ernie.data.parts.PART", 500)
        text = "\n\n".join(story(seed) for seed in range(20))
        (tmp_path / "in.txt").write_text(text)
        steps = []
        config = CorpusConfig([str(tmp_path / "in.txt")], tokenizer, held_out=0)
        build_corpus(config, tmp_path / "c", progress=lambda done, total, counts: steps.append((done, total)))
        assert len(steps) > 5
        assert steps[-1] == (len(text), len(text))
        assert steps == sorted(steps)

    def test_progress_says_when_the_text_is_read_to_compare_documents(self, tokenizer, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr("ernie.data.parts.PART", 500)
        monkeypatch.setattr("pretrain.corpus.progress._SECONDS_BETWEEN_LINES", 0)
        (tmp_path / "in.txt").write_text("\n\n".join(story(seed) for seed in range(20)))
        config = CorpusConfig([str(tmp_path / "in.txt")], tokenizer, held_out=0, clean=[ExactDuplicates()])
        with ConsoleProgress() as progress:
            build_corpus(config, tmp_path / "c", progress=progress)
        lines = capsys.readouterr().err.splitlines()
        compared = [line.endswith("MB read to compare documents") for line in lines]
        assert all(compared[: len(lines) // 2])
        assert not any(compared[len(lines) // 2 :])
        assert lines[-1].endswith("MB read, 20 documents kept, 0 dropped")


class TestErrors:
    def test_no_kept_document_raises_an_error_that_shows_the_first_reason(self, corpus_from):
        with pytest.raises(UserError, match=r"no document of the input is kept \(1 not JSON\)\. First: .*in\.jsonl:1"):
            corpus_from("nonsense", "in.jsonl")

    def test_an_empty_file_raises_an_error(self, corpus_from, tmp_path):
        with pytest.raises(UserError, match="no document of the input is kept"):
            corpus_from("")
        assert not (tmp_path / "corpus").exists()

    def test_an_existing_corpus_is_rejected_before_any_work(self, corpus_from, tokenizer, tmp_path):
        corpus_from("It runs.")
        with pytest.raises(UserError, match="holds a corpus already"):
            build_corpus(CorpusConfig(["nowhere.txt"], tokenizer), tmp_path / "corpus")

    def test_a_truncated_gzip_leaves_no_partial_corpus(self, corpus_from, tmp_path):
        whole = gzip.compress(story(1, 300).encode())
        with pytest.raises(UserError, match="breaks off"):
            corpus_from(whole[:-200], "in.txt.gz")
        assert [path.name for path in tmp_path.iterdir()] == ["in.txt.gz"]

    def test_the_rest_of_a_truncated_gzip_can_be_left_out_and_is_counted(self, tokenizer, tmp_path):
        text = "\n\n".join(story(seed) for seed in range(200))
        (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode())[:-200])
        (tmp_path / "b.txt").write_text("The river runs.")
        recipe = CorpusConfig(
            [str(tmp_path / "a.txt.gz"), str(tmp_path / "b.txt")], tokenizer, read=ReadOptions(damaged="drop")
        )
        report = build_corpus(recipe, tmp_path / "corpus", processes=0)
        assert report.counts.dropped == {"rest of a damaged file": 1}
        (said,) = report.counts.damaged
        assert re.fullmatch(r".*a\.txt\.gz: the gzip file breaks off after line \d+\. Fetch it again, .*", said)
        assert f"damaged, and left out from there on:\n  {said}" in report.table()
        assert json.loads((tmp_path / "corpus" / "corpus.json").read_text())["report"]["damaged"] == [said]
        assert 150 < report.counts.total("documents") < 201
        build_corpus(recipe, tmp_path / "two", processes=2)
        for file in (tmp_path / "corpus").rglob("*.npy"):
            assert file.read_bytes() == (tmp_path / "two" / file.relative_to(tmp_path / "corpus")).read_bytes()

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [("held_out", 1.5, "held_out"), ("shard_tokens", 0, "shard_tokens"), ("input", [], "input")],
    )
    def test_an_invalid_recipe_raises_an_error(self, key, value, message):
        with pytest.raises(UserError, match=message):
            CorpusConfig(**{"input": ["a.txt"], "tokenizer": Path("t"), key: value})


class TestSample:
    def test_every_input_contributes_about_equally(self, tmp_path):
        for name, documents in (("z.txt", 5), ("b.txt", 2000), ("c.txt", 2000)):
            (tmp_path / name).write_text("\n\n".join(f"{name} {'x' * 100}." for _ in range(documents)))
        taken = list(sample(find_inputs([tmp_path]), ReadOptions(), 200_000))
        counts = {name: sum(name in document.text for document in taken) for name in ("z.txt", "b.txt", "c.txt")}
        assert counts["z.txt"] == 5
        assert abs(counts["b.txt"] - counts["c.txt"]) <= 1
        assert 199_000 <= sum(len(document.text) for document in taken) <= 200_000

    def test_a_long_document_is_cut_between_lines_with_its_headings_and_spans(self, tmp_path):
        text, long = "\n".join(["It runs. It falls."] * 10_000), "word " * 20_000
        spans = [[i * 19 + 3, i * 19 + 7, "phrase"] for i in range(10_000)]
        (tmp_path / "a.jsonl").write_text(json.dumps({"text": text, "headings": [3, 9000], "spans": spans}))
        (tmp_path / "b.jsonl").write_text(json.dumps({"text": long}))
        other, one = sample(find_inputs([tmp_path]), ReadOptions(), 100_000)
        assert one.text == text[: len(one.text)] and text[len(one.text)] == "\n"
        assert 49_900 <= len(one.text) <= 50_000
        assert one.headings == {3}
        assert [one.text[start:stop] for start, stop, _ in one.spans] == ["runs"] * (one.text.count("\n") + 1)
        assert other.text == long[: len(other.text)] and other.text.endswith("word")

    def test_empty_files_take_no_share(self, tmp_path):
        for i in range(60):
            (tmp_path / f"{i}.txt").write_text("")
        (tmp_path / "full.txt").write_text("今天天气很好。\n\n" * 1000)
        inputs = find_inputs([tmp_path])
        assert sum(len(document.text.encode()) for document in sample(inputs, ReadOptions(), 10_000)) >= 9_000
        assert sample_language(inputs, ReadOptions()) == "zh"

    def test_the_language_is_that_of_most_of_the_text_not_of_most_files(self, tmp_path):
        for i in range(20):
            (tmp_path / f"poem-{i}.txt").write_text("今天天气很好。" * 300)
        for i in range(3):
            (tmp_path / f"novel-{i}.txt").write_text("It runs. It falls. " * 10_000)
        assert sample_language(find_inputs([tmp_path]), ReadOptions()) == "en"
        assert sample_language(find_inputs([tmp_path / "poem-*.txt"]), ReadOptions()) == "zh"

    def test_segmenters_learn_the_language_of_the_corpus_not_of_the_first_words(self, tmp_path):
        documents = [RawDocument(Place("a", 1), "今天天气很好。" * 50), RawDocument(Place("b", 1), story(1))]
        with LocalEngine(0, tmp_path) as workers:
            broadcast = workers.broadcast(WordPiece([*SPECIAL_TOKENS, "it"], lowercase=True))
            fitted = {language: fit([Mined()], documents, language, broadcast, workers)[0] for language in ("en", "zh")}
            (chosen,) = fit([Mined("zh")], documents, "en", broadcast, workers)
        assert isinstance(fitted["en"], EnglishPhrases)
        assert isinstance(fitted["zh"], ChineseWords)
        assert isinstance(chosen, ChineseWords)

    def test_only_some_of_many_inputs_are_read(self, tmp_path):
        for i in range(50):
            (tmp_path / f"{i}.txt").write_text("\n\n".join("x" * 1000 + "." for _ in range(40)))
        taken = list(sample(find_inputs([tmp_path]), ReadOptions(), 100_000))
        assert len({document.place.file for document in taken}) <= 4
