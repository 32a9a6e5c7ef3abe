"""A corpus of two languages: every document is cut and marked as one of its own language."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ernie.data.document import Flag
from ernie.data.shards import Corpus
from ernie.errors import Remark, UserError
from ernie.text import sentences
from ernie.text.segment import tagged
from ernie.text.segment.dictionary import Dictionary
from ernie.text.segment.mined import Mined
from ernie.text.train import train_sentencepiece, train_wordpiece
from pretrain.corpus import build
from pretrain.corpus import config as config_module
from pretrain.corpus.build import build_corpus
from pretrain.corpus.config import CorpusConfig
from pretrain.corpus.language import document_language, identified_language

ENGLISH = "The Spree runs past the mill. Anna Weber lives there. It is slow."
CHINESE = "江水很慢。她住在北京大学旁边。天气很好。我们去公园吧。"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    train_wordpiece([ENGLISH, CHINESE, "河" * 3], vocab_size=150, lowercase=True, folder=folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with texts in both languages."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    rng = random.Random(2)
    drawn = [rng.choice(((ENGLISH, " Again."), (CHINESE, "天气很好。"))) for _ in range(30)]
    mixed = [text + more * number for number, (text, more) in enumerate(drawn)]
    Path("in/a.txt").write_text("\n\n".join([ENGLISH] * 3))
    Path("in/b.txt").write_text("\n\n".join([CHINESE] * 12))
    Path("in/c.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in mixed))
    return tmp_path


def built(tokenizer: Path, output: str = "corpus", *, inputs: str = "in", processes: int = 0, **keys: Any) -> Corpus:
    config = CorpusConfig([inputs], tokenizer, **{"held_out": 0.0, "sample_mb": 1.0, **keys})
    build_corpus(config, output, processes=processes, overwrite=True)
    return Corpus.open(output)


def sentences_of(corpus: Corpus, file: str) -> list[int]:
    numbers = range(len(corpus.train))
    return [len(corpus.train[i]) for i in numbers if corpus.train.source(i).startswith(file)]


def test_each_document_is_split_by_the_rules_of_its_language(folder: Path, tokenizer: Path) -> None:
    corpus = built(tokenizer)
    assert corpus.language == "zh"
    assert sentences_of(corpus, "in/a.txt") == [3, 3, 3]
    assert sentences_of(corpus, "in/b.txt") == [4] * 12
    languages = corpus.report["languages"]
    assert languages["en"] > 3 and languages["zh"] > 12 and sum(languages.values()) == 45


def test_paragraphs_of_the_other_language_are_split_by_its_rules(folder: Path, tokenizer: Path) -> None:
    Path("abstracts.txt").write_text(
        f"{CHINESE * 3}\nMill v. Weber was long. It is 3.\n1998.\n\n{ENGLISH} {ENGLISH} {ENGLISH}\n{CHINESE}\n"
    )
    assert sentences_of(built(tokenizer, inputs="abstracts.txt"), "abs") == [15, 13]
    assert sentences_of(built(tokenizer, inputs="abstracts.txt", language="zh"), "abs") == [14, 5]


def test_a_language_that_is_given_is_that_of_all_documents(folder: Path, tokenizer: Path) -> None:
    corpus = built(tokenizer, language="zh")
    assert sentences_of(corpus, "in/a.txt") == [1, 1, 1]
    assert corpus.report["languages"] == {"zh": 45}


def test_documents_are_marked_by_the_segmenters_of_their_language(folder: Path, tokenizer: Path) -> None:
    def entities(corpus: Corpus) -> list[list[int]]:
        mask = int(Flag.BEGINS_ENTITY | Flag.CONTINUES_ENTITY)
        return [((document.flags & mask) != 0).tolist() for document in corpus.train]

    mixed = built(tokenizer, "mixed")
    for language, file in (("en", "in/a.txt"), ("zh", "in/b.txt")):
        own = built(tokenizer, language, inputs=file, language=language)
        of_file = [i for i in range(len(mixed.train)) if mixed.train.source(i).startswith(file)]
        found = [entities(mixed)[i] for i in of_file]
        assert any(map(any, found))
        assert found == entities(own)


def test_segmenters_learn_from_the_documents_of_their_language(
    folder: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: dict[str, set[str]] = {}
    fit = build.fit

    def watched(segmenters, documents, language: str, *others: Any) -> Any:
        learned[language] = {document.text[:5] for document in documents}
        return fit(segmenters, documents, language, *others)

    monkeypatch.setattr(build, "fit", watched)
    for segmenters in (None, [Mined()]):
        built(tokenizer, segmenters=segmenters)
        assert learned == {"en": {ENGLISH[:5]}, "zh": {CHINESE[:5]}, "ja": set(), "th": set()}


@pytest.mark.parametrize("file", ["in/a.txt", "in/b.txt"])
@pytest.mark.parametrize("segmenters", [None, [Mined()]])
def test_a_language_that_the_sample_lacks_does_not_stop_the_build(
    folder: Path, tokenizer: Path, file: str, segmenters: list | None
) -> None:
    corpus = built(tokenizer, inputs=file, segmenters=segmenters)
    assert len(corpus.report["languages"]) == 1


def test_processes_and_chunks_change_nothing(folder: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = built(tokenizer, "first")
    monkeypatch.setattr("pretrain.corpus.reading.CHUNK", 700)
    assert built(tokenizer, "second").fingerprint == first.fingerprint
    assert built(tokenizer, "third", processes=2).fingerprint == first.fingerprint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ENGLISH, "en"),
        (CHINESE, "zh"),
        (ENGLISH * 200 + CHINESE, "en"),
        ("x " * 5000 + CHINESE * 2000, "zh"),
        ("1998. 1999!", "zh"),
        ("", "zh"),
        ("Ünïcödé only.", "en"),
    ],
)
def test_the_language_is_that_of_the_whole_document(text: str, expected: str) -> None:
    assert document_language(text, "zh") == expected


def test_a_dictionary_that_matches_nothing_is_noted(folder: Path, tokenizer: Path) -> None:
    Path("good.tsv").write_text("Anna Weber\n北京大学\n")
    Path("bad.tsv").write_text("nobody here\n")
    config = CorpusConfig(["in"], tokenizer, segmenters=[Dictionary(Path("good.tsv")), Dictionary(Path("bad.tsv"))])
    report = build_corpus(config, "corpus")
    assert report.counts.marked["good.tsv"] >= 15
    assert "bad.tsv: none of its entries occurs in the text" in report.table()
    assert "good.tsv" not in report.table()
    assert "documents in zh" in report.table()


def test_the_same_texts_under_another_folder_are_the_same_corpus(folder: Path, tokenizer: Path) -> None:
    first = built(tokenizer, "first")
    Path("in").rename("elsewhere")
    again = built(tokenizer, "again", inputs="elsewhere")
    assert again.fingerprint == first.fingerprint
    assert again.train.source(0) != first.train.source(0)
    (Path("elsewhere") / "a.txt").write_text(ENGLISH)
    assert built(tokenizer, "other", inputs="elsewhere").fingerprint != first.fingerprint


JAPANESE = "国立東京大学の田中太郎教授は、「行こう。」と言った。外は雨だった。"
THAI = "ฉันชอบกินข้าวผัดที่กรุงเทพมหานคร แม่น้ำเจ้าพระยาไหลผ่านเมืองอย่างช้าๆ เขามีเรือหนึ่งลำ"


@pytest.fixture
def four(folder: Path) -> Path:
    """A file with a document in each of four languages."""
    pytest.importorskip("pycrfsuite")
    pytest.importorskip("sudachidict_core")
    Path("four.txt").write_text("\n\n".join([ENGLISH, CHINESE, JAPANESE, THAI]), encoding="utf-8")
    train_wordpiece([ENGLISH, CHINESE, JAPANESE, THAI], vocab_size=60, lowercase=True, folder=Path("words"))
    train_sentencepiece([ENGLISH, CHINESE, JAPANESE, THAI], vocab_size=200, lowercase=True, folder=Path("pieces"))
    return folder


def entities_of(corpus: Corpus, document: int) -> list[str]:
    flags, ids = corpus.train[document].flags, corpus.train[document].ids
    firsts = np.flatnonzero(flags & Flag.BEGINS_ENTITY).tolist()
    found = []
    for first in firsts:
        stop = first + 1
        while stop < len(flags) and flags[stop] & Flag.CONTINUES_ENTITY:
            stop += 1
        found.append(corpus.tokenizer.decode(ids[first:stop].tolist()).removeprefix("##"))
    return found


def test_japanese_and_thai_are_split_and_marked_by_rules_of_their_own(four: Path) -> None:
    corpus = built(Path("words"), inputs="four.txt")
    assert corpus.report["languages"] == {"en": 1, "ja": 1, "th": 1, "zh": 1}
    assert sentences_of(corpus, "four") == [3, 4, 2, 3]
    assert entities_of(corpus, 2) == ["東京大学", "田中太郎"] and entities_of(corpus, 3) == ["กรุงเทพมหานคร"]


def test_spans_of_texts_do_not_depend_on_how_a_tokenizer_splits_them(four: Path) -> None:
    corpus = built(Path("pieces"), inputs="four.txt")
    assert entities_of(corpus, 2)[0].startswith("東京大学")
    assert sentences_of(corpus, "four") == [3, 4, 2, 3]
    again = built(Path("pieces"), "again", inputs="four.txt", processes=2)
    assert again.fingerprint == corpus.fingerprint


def test_annotation_overrides_what_marks_a_text(four: Path) -> None:
    row = {"text": JAPANESE, "spans": [[0, 2, "entity"]]}
    Path("row.jsonl").write_text(json.dumps(row), encoding="utf-8")
    assert entities_of(built(Path("words"), inputs="row.jsonl"), 0) == ["国立"]


def test_thai_without_its_package_is_dropped_and_said(four: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "find_spec", lambda name: None)
    sentences.lacking.cache_clear()
    try:
        corpus = built(Path("words"), inputs="four.txt")
        assert corpus.report["dropped"] == {"no rules for its language": 1} and len(corpus.train) == 3
        assert corpus.report["examples"] == [
            "four.txt:7: no rules for its language: Thai sentences are split by the package pythainlp: "
            "pip install 'ernie-continual[languages]'"
        ]
        with pytest.raises(UserError, match="language: Thai sentences are split by the package pythainlp"):
            built(Path("words"), inputs="four.txt", language="th")
    finally:
        sentences.lacking.cache_clear()


def test_japanese_without_its_package_is_split_but_not_marked_and_said(
    four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tagged, "find_spec", lambda name: None)
    with pytest.warns(Remark, match=r"nothing is marked in documents in 'ja' without pip install"):
        corpus = built(Path("words"), inputs="four.txt")
    assert sentences_of(corpus, "four") == [3, 4, 2, 3] and entities_of(corpus, 2) == []


GERMAN = (
    "Der Fluss ist langsam und breit, und die Leute am Ufer haben Boote. Bei Frost liegt dort Eis, das keinen hält. "
    "Nur die Enten bleiben, weil sie keinen anderen Ort haben."
)


def test_languages_of_one_script_are_told_apart_when_they_are_identified(folder: Path, tokenizer: Path) -> None:
    pytest.importorskip("py3langid")
    lines = "The people of the river have old boats. Anna Weber lives there with her brothers. It is slow in winter."
    Path("both.txt").write_text(f"{GERMAN}\n\n{lines}\n\n{CHINESE}", encoding="utf-8")
    by_script = built(tokenizer, inputs="both.txt")
    assert by_script.report["languages"] == {"en": 2, "zh": 1} and len(entities_of(by_script, 0)) > 3
    identified = built(tokenizer, "identified", inputs="both.txt", language="identify")
    assert identified.report["languages"] == {"de": 1, "en": 1, "zh": 1}
    # German nouns have capitals, and are no names; what else is marked is the same.
    assert entities_of(identified, 0) == [] and entities_of(identified, 1) == entities_of(by_script, 1) != []
    assert sentences_of(identified, "both") == sentences_of(by_script, "both") == [3, 3, 4]
    again = built(tokenizer, "again", inputs="both.txt", language="identify", processes=1)
    assert again.fingerprint == identified.fingerprint


@pytest.mark.parametrize("text", ["1998", "", "ok.", "Zq xv."])
def test_a_text_that_identifies_no_language_is_english(text: str) -> None:
    pytest.importorskip("py3langid")
    assert identified_language(text, "en") == "en"


def test_identifying_languages_without_the_package_is_an_error(
    tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"language: identify needs the package py3langid: pip install"):
        CorpusConfig(["in"], tokenizer, language="identify")


def test_a_language_that_the_sample_lacks_is_marked_where_that_needs_no_sample(four: Path) -> None:
    Path("late.txt").write_text("\n\n".join([ENGLISH * 300, JAPANESE]), encoding="utf-8")
    corpus = built(Path("words"), inputs="late.txt", sample_mb=0.01)
    assert entities_of(corpus, 1) == ["東京大学", "田中太郎"]
