"""Filters of a corpus: what each drops and repairs, what the report says, and that workers change nothing."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.config import ConfigError
from ernie.config import build as from_tree
from ernie.data.parts import Item, Part
from ernie.data.raw import Dropped, Place, RawDocument
from ernie.data.shards import Corpus
from ernie.data.work_folder import WorkFolder
from ernie.errors import UserError
from ernie.text.train import train_wordpiece
from ernie.yaml_tree import from_dict
from pretrain.corpus.build import build_corpus
from pretrain.corpus.clean.base import Comparison, Filter, Rejected, Taken, filters
from pretrain.corpus.clean.compare import Findings, Noted, compare
from pretrain.corpus.clean.duplicates import ExactDuplicates
from pretrain.corpus.clean.groups import blocks, repeats
from pretrain.corpus.clean.pipeline import Pipeline, Verdicts
from pretrain.corpus.config import CorpusConfig
from pretrain.corpus.reading import Done, Made, Make
from pretrain.corpus.report import CorpusReport

PROSE = (
    "The river that runs through the old city is slow and wide, and the people who live beside it have boats. "
    "In winter the ice is thick enough to walk on. Some of the boats are painted blue, others have kept their wood. "
    "What do they do with them when it freezes? They pull the boats to the meadow, where children play between them. "
    "Nobody has counted how many there are."
)
CHINESE = (
    "这条河流过老城，水流缓慢而宽阔，住在河边的人们都有自己的小船。冬天冰层很厚，可以在上面行走。\n孩子们在船中间玩耍。"
)
THAI = "\n".join(
    [
        "แม่น้ำไหลผ่านเมืองเก่าอย่างช้าๆ และกว้างมาก ผู้คนที่อาศัยอยู่ริมฝั่งมีเรือเป็นของตัวเอง",
        "ในฤดูหนาวน้ำแข็งหนาพอที่จะเดินได้ เด็กๆ เล่นกันอยู่ระหว่างเรือที่ทาสีฟ้า",
        "ไม่มีใครรู้ว่ามีเรือกี่ลำ แต่ทุกคนรู้จักชื่อของเรือแต่ละลำเป็นอย่างดี",
    ]
)
HINDI = "नदी पुराने शहर से होकर धीरे बहती है। किनारे के लोगों के पास नावें हैं।\nक्या सर्दियों में बर्फ जमती है? बच्चे वहाँ खेलते हैं।"
ARABIC = (
    "النهر الذي يمر عبر المدينة القديمة بطيء وواسع.\nهل يملك الناس على ضفتيه قوارب كثيرة؟\nلا أحد يعرف عددها تماما."
)
WORDS = [f"{start}{end}" for start in ("ba", "ke", "mu", "so", "ri", "tal") for end in ("n", "rd", "lim", "ve", "sto")]


def filter_of(kind: str, **keys: Any) -> Filter:
    """The filter of an entry under `clean`, prepared."""
    tree = {"input": ["in"], "tokenizer": "t", "clean": [{"kind": kind, **keys}]}
    (made,) = from_tree(CorpusConfig, from_dict(tree)).clean
    made.prepare()
    return made


def document(text: str, **keys: Any) -> RawDocument:
    return RawDocument(Place("in.txt", 1), text, **keys)


def story(seed: int, words: int = 120) -> str:
    rng = random.Random(seed)
    return " ".join(f"{rng.choice(WORDS)}{rng.choice(WORDS)}" for _ in range(words)) + "."


@pytest.fixture(scope="session")
def small_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cleaning")
    train_wordpiece([PROSE, CHINESE], vocab_size=120, lowercase=True, folder=folder)
    return folder


@pytest.fixture
def built(small_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that builds a corpus of texts, or of texts for each file, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def make(
        texts: list[str] | Mapping[str, list[str]], clean: list[dict[str, Any]], processes: int = 0, **keys: Any
    ) -> tuple[CorpusReport, Corpus]:
        for name, rows in (texts if isinstance(texts, Mapping) else {"in.jsonl": texts}).items():
            Path("in", name).parent.mkdir(parents=True, exist_ok=True)
            Path("in", name).write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
        tree = {"input": ["in"], "tokenizer": str(small_tokenizer), "segmenters": [], "held_out": 0, "clean": clean}
        config = from_tree(CorpusConfig, from_dict({**tree, **keys}))
        report = build_corpus(config, "corpus", processes=processes, overwrite=True)
        return report, Corpus.open("corpus")

    return make


@pytest.mark.parametrize(
    ("kind", "keys", "text", "reason"),
    [
        ("language", {"keep": ["en", "zh"]}, "Der Fluss fließt langsam durch die alte Stadt und ist sehr breit.", "de"),
        ("language", {"keep": ["en"]}, "17 23 42", "uncertain"),
        ("gopher_quality", {}, "Too short to be of use.", "too few words"),
        ("gopher_quality", {"max_words": 50}, PROSE, "too many words"),
        ("gopher_quality", {"min_words": 1}, "a b c d e f the of", "length of words"),
        ("gopher_quality", {"min_words": 1}, PROSE + " #a" * 20, "symbols"),
        ("gopher_quality", {"min_words": 1}, PROSE + " and so..." * 20, "symbols"),
        ("gopher_quality", {"min_words": 1}, "\n".join(f"- {s}" for s in PROSE.split(". ")), "bullets"),
        ("gopher_quality", {"min_words": 1}, "\n".join(f"{s}…" for s in PROSE.split(". ")), "lines cut off"),
        ("gopher_quality", {"min_words": 1}, "the price of 123 456 789 101", "words without letters"),
        ("gopher_quality", {"min_words": 1}, "Buy cheap shoes online today", "too few stop words"),
        ("gopher_repetition", {}, f"{PROSE}\n" + "Read more\n" * 10, "repeated lines"),
        ("gopher_repetition", {}, f"{PROSE} " + "buy now " * 60, "repeated 2-grams"),
        ("gopher_repetition", {}, f"{PROSE} {PROSE}", "repeated 5-grams"),
        ("c4", {}, "Home\nLog in\nAbout us", "too few sentences"),
        ("c4", {}, PROSE + "\nif (x) { return; }", "code"),
        ("c4", {}, PROSE + "\nLorem ipsum dolor sit amet.", "filler text"),
        ("fineweb", {}, PROSE + "\nHome" * 20, "lines without punctuation"),
        ("fineweb", {}, PROSE + "\n" + "Please subscribe to our letter.\n" * 9, "repeated lines"),
        ("fineweb", {}, "\n".join(PROSE[:25] + f"{i}." for i in range(3)) + f"\n{PROSE}", "short lines"),
    ],
)
def test_a_filter_drops_what_breaks_its_rules(kind: str, keys: dict[str, Any], text: str, reason: str) -> None:
    found = filter_of(kind, **keys)(document(text))
    assert isinstance(found, Rejected)
    assert found.reason == reason


@pytest.mark.parametrize("kind", ["language", "gopher_quality", "gopher_repetition", "c4", "fineweb", "unicode"])
@pytest.mark.parametrize("text", [PROSE, CHINESE, THAI])
def test_good_text_is_kept_as_it_is(kind: str, text: str) -> None:
    keys: dict[str, Any] = {"language": {"keep": ["en", "zh", "th"]}, "c4": {"min_sentences": 3}}.get(kind, {})
    good = document(text, title="The river")
    assert filter_of(kind, **keys)(good) is good


@pytest.mark.parametrize("kind", ["c4", "fineweb"])
@pytest.mark.parametrize("text", [HINDI, ARABIC])
def test_sentences_may_end_in_the_marks_of_other_scripts(kind: str, text: str) -> None:
    keys = {"min_sentences": 3} if kind == "c4" else {}
    assert filter_of(kind, **keys)(good := document(text)) is good


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("unicode", "donâ€™t &amp; can\u0301t\x00\tit", "don’t & cańt\tit"),
        ("unicode", "今天，天气很好！“是的”", "今天，天气很好！“是的”"),
        (
            "personal_data",
            "Write to anna.weber@mail.de, or 邮箱anna@mail.cn。",
            "Write to email@example.com, or 邮箱email@example.com。",
        ),
        (
            "personal_data",
            "From 8.8.8.8 and 2001:4860:4860::8888 to 10.0.0.1.",
            "From 192.0.2.1 and 192.0.2.1 to 10.0.0.1.",
        ),
        ("personal_data", "+49 30 1234567, (212) 555-0199, 电话13912345678。", "555-0100, 555-0100, 电话555-0100。"),
        ("personal_data", "On 2020-01-02 at 12:30:45, version 1.2.3 cost 10,000,000.", None),
        ("personal_data", "In 1998-2004, ISBN 978-3-16-148410-0, 3.14159265358979.", None),
    ],
)
def test_text_is_repaired(kind: str, before: str, after: str | None) -> None:
    found = filter_of(kind)(document(before, title=before))
    assert isinstance(found, RawDocument)
    assert (found.text, found.title) == (after or before,) * 2


def test_lines_that_are_no_text_are_taken_out_and_headings_stay() -> None:
    lines = [
        "Log in",
        "The river",
        PROSE + "[12]",
        "We use cookies to serve you.",
        "In winter",
        "Yes.",
        PROSE[:105].strip(),
    ]
    found = filter_of("c4")(document("\n".join(lines), headings=frozenset({1, 4})))
    assert isinstance(found, RawDocument)
    assert found.text.split("\n") == ["The river", PROSE, "In winter", PROSE[:105].strip()]
    assert found.headings == {0, 2}


def test_annotated_documents_are_not_repaired() -> None:
    annotated = document("Write to a@b.de.", spans=np.array([[0, 5, 0]]))
    assert filter_of("personal_data")(annotated) is annotated


def test_masked_text_is_in_no_report(built) -> None:
    report, _ = built([PROSE + " Write to anna.weber@mail.de."], [{"kind": "personal_data"}])
    assert report.counts.clean[0].changed == 1
    assert "email@example.com" in report.table()
    assert "anna.weber" not in report.table() + json.dumps(report.to_dict())


def test_without_filters_the_report_has_none(built) -> None:
    report, corpus = built([PROSE], [])
    assert "clean" not in corpus.report
    assert "cleaning" not in report.table()


def test_the_report_has_what_each_filter_dropped_and_changed(built) -> None:
    texts = [PROSE, "Too short.", PROSE.replace("'", "") + " Caf&eacute;.", "[not json"]
    report, corpus = built(texts, [{"kind": "unicode"}, {"kind": "gopher_quality"}])
    repair, quality = corpus.report["clean"]
    assert (repair["kind"], repair["read"], repair["changed"], repair["dropped"]) == ("unicode", 4, 1, {})
    assert "Caf&eacute;" in repair["examples"][0]
    assert quality["dropped"] == {"too few words": 2}
    assert quality["examples"][0] == "in/in.jsonl:2: 2 words: 'Too short.'"
    assert corpus.report["dropped"] == {"gopher_quality: too few words": 2}
    assert "4 read, 2 dropped (2 too few words), 0 changed" in report.table()


def test_a_corpus_of_which_nothing_is_kept_names_the_filter(built) -> None:
    with pytest.raises(UserError, match=r"1 gopher_quality: too few words.*in\.jsonl:1: 2 words"):
        built(["Too short."], [{"kind": "gopher_quality"}])


def test_of_equal_texts_the_first_is_kept(built) -> None:
    texts = [story(1), story(2), story(1).upper().replace(" ", "  "), story(1), story(3)]
    report, corpus = built(texts, [{"kind": "exact_duplicates"}])
    assert [corpus.train.source(i) for i in range(3)] == [f"in/in.jsonl:{line}" for line in (1, 2, 5)]
    assert report.counts.clean[0].examples[0].startswith("in/in.jsonl:3: its text is that of in/in.jsonl:1:")
    assert built(texts, [{"kind": "exact_duplicates", "fold": False}])[0].counts.total("documents") == 4


def test_near_duplicates_are_found_and_others_are_kept(built) -> None:
    rng = random.Random(0)
    originals = [story(seed) for seed in range(60)]
    near, far = [], []
    for text in originals:
        words = text.split()
        words[rng.randrange(120)] = "changed"
        near.append(" ".join(words))  # a Jaccard coefficient of about 0.92
        far.append(" ".join(word if i % 6 else "changed" for i, word in enumerate(text.split())))
    report, corpus = built([*originals, *near, *far], [{"kind": "near_duplicates"}])
    kept = {int(corpus.train.source(i).rpartition(":")[2]) for i in range(len(corpus.train))}
    assert kept == {*range(1, 61), *range(121, 181)}
    assert report.counts.clean[0].examples[0].startswith("in/in.jsonl:61: its text is nearly that of in/in.jsonl:1:")


@pytest.mark.parametrize("kind", ["exact_duplicates", "near_duplicates"])
def test_comparing_a_few_notes_at_a_time_finds_the_same(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)
    texts = [story(rng.randrange(40)) for _ in range(150)]
    texts += [" ".join(word if rng.random() > 0.04 else "changed" for word in text.split()) for text in texts]
    each = filter_of(kind)
    assert isinstance(each, Comparison)
    type_of_values, width = each.dtype()
    notes = np.zeros(len(texts), np.dtype([("document", "<i8"), ("values", type_of_values, (width,))]))
    notes["document"] = 3 * np.arange(len(texts))
    for row, text in zip(notes, texts, strict=True):
        row["values"] = each.note(document(text))
    notes.tofile(tmp_path / "notes")
    np.column_stack((np.zeros(900, np.int64), np.arange(900))).tofile(tmp_path / "places")
    taken = Taken(tmp_path / "notes", notes.dtype, tmp_path / "places", notes["document"][::7], ["in"], tmp_path)
    whole = each.decide(taken, 0)
    assert len(whole.documents) > 60
    monkeypatch.setattr("pretrain.corpus.clean.groups.AT_ONCE", 16)
    monkeypatch.setattr("pretrain.corpus.clean.duplicates._PAIRS", 5)
    monkeypatch.setattr(blocks, "__defaults__", (7,))
    parts = each.decide(taken, 0)
    assert np.array_equal(parts.documents, whole.documents)
    assert np.array_equal(parts.findings, whole.findings)
    # By definition: of equal notes that count all but the first, and with each an earlier one that is alike.
    values = {int(row["document"]): row["values"] for row in notes if row["document"] % 21}
    least = 1.0 if kind == "exact_duplicates" else 0.75
    for found, (_, place) in zip(whole.documents.tolist(), whole.findings.tolist(), strict=True):
        assert place < found
        assert (values[place] == values[found]).mean() >= least
    copies = {at for at in values for other in values if other < at and (values[other] == values[at]).all()}
    assert copies <= set(whole.documents.tolist())


def test_keys_that_repeat_are_found_with_their_first_and_last() -> None:
    later, before, first = repeats(np.array([7, 5, 7, 9, 7, 5], np.uint64))
    assert sorted(zip(later.tolist(), before.tolist(), first.tolist(), strict=True)) == [
        (2, 0, 0),
        (4, 2, 0),
        (5, 1, 1),
    ]
    assert [len(part) for part in repeats(np.zeros(0, np.uint64))] == [0, 0, 0]


def test_documents_with_parts_of_a_test_set_are_dropped(built) -> None:
    test_set = " ".join(PROSE.split()[5:25])
    Path("test.tsv").write_text(f"text\tlabel\n{test_set}\t1\nA row of eight words that stands alone.\t0\nshort\t1\n")
    texts = [
        PROSE,
        story(1),
        story(2) + " " + " ".join(test_set.upper().split()[:13]),
        story(3) + " a row of eight words, that stands alone",
        story(4) + " short " + " ".join(test_set.split()[:12]),
    ]
    report, corpus = built(texts, [{"kind": "decontamination", "files": ["test.tsv"]}])
    assert [corpus.train.source(i).rpartition(":")[2] for i in range(2)] == ["2", "5"]
    assert report.counts.clean[0].dropped == {"test set": 3}
    assert "is in test.tsv" in report.counts.clean[0].examples[0]


def test_improbable_documents_are_dropped(built) -> None:
    Path("good.txt").write_text(PROSE)
    texts = [PROSE, story(1), PROSE.split(". ")[1] + "."]
    _, corpus = built(texts, [{"kind": "perplexity", "reference": ["good.txt"], "drop": 0.34}])
    assert [corpus.train.source(i).rpartition(":")[2] for i in range(2)] == ["1", "3"]


@pytest.mark.parametrize(("temperature", "expected"), [(1, (40, 10)), (2, (20, 10)), (1000, (10, 10))])
def test_sources_are_mixed_by_weight_and_temperature(built, temperature: float, expected: tuple[int, int]) -> None:
    texts = {
        f"{name}/a.jsonl": [story(i + offset)[:500] for i in range(n)]
        for name, n, offset in (("wiki", 40, 0), ("web", 10, 50))
    }
    clean = [{"kind": "mix", "weights": {"in/wiki": 1, "*": 1}, "temperature": temperature}]
    _, corpus = built(texts, clean)
    found = [corpus.train.source(i).split("/")[1] for i in range(len(corpus.train))]
    assert (found.count("wiki"), found.count("web")) == expected


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"kind": "gopher"}, "no filter is called 'gopher'. Did you mean"),
        ({"keep": ["en"]}, "kind: this key is required"),
        ({"kind": "language", "keep": ["english"]}, "'english' is no language that is recognized"),
        ({"kind": "language", "keep": []}, "expected at least one language"),
        ({"kind": "gopher_quality", "max_bullets": 90}, "expected a share from 0 to 1"),
        ({"kind": "gopher_repetition", "max_top": [0.2]}, "expected 3 shares"),
        ({"kind": "near_duplicates", "similarity": 0.1}, "expected a number from 0.3 to 1"),
        ({"kind": "repeated_passages", "words": 1}, "words: expected at least 2"),
        ({"kind": "decontamination", "files": []}, "expected at least one file"),
        ({"kind": "perplexity", "reference": []}, "expected at least one file"),
        ({"kind": "language", "keep": ["deu"]}, "no language that is recognized. Codes have two letters, such as de"),
        ({"kind": "perplexity", "reference": ["a"], "drop": 1}, "drop: 1 is all of the documents"),
        ({"kind": "mix", "weights": {"*": 0}}, "weights above 0"),
        ({"kind": "c4", "languages": ["deu"]}, r"clean\[0\].*languages: 'deu' is no language that is recognized"),
    ],
)
def test_wrong_settings_are_told(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_tree(CorpusConfig, from_dict({"input": ["in"], "tokenizer": "t", "clean": [entry]}))


GERMAN = "Der Fluss ist langsam und breit, und die Leute haben Boote. Im Winter liegt dort Eis, auf dem niemand geht."
SPANISH = "El río es lento y ancho, y la gente tiene barcas. En invierno hay hielo, y nadie camina sobre él."


def test_a_filter_with_languages_looks_at_documents_in_these_only(built) -> None:
    common = {"kind": "gopher_quality", "min_words": 1}
    clean = [
        {**common, "languages": ["en"]},
        {**common, "languages": ["de"], "stop_words": ["der", "und", "im"]},
        {**common, "languages": ["es"], "stop_words": ["mañana", "ayer"]},
    ]
    report, corpus = built([PROSE, GERMAN, SPANISH, "Buy cheap shoes online today, this is the best shop."], clean)
    assert [corpus.train.source(i).rpartition(":")[2] for i in range(len(corpus.train))] == ["1", "2"]
    counts = [(each.name, each.read, dict(each.dropped)) for each in report.counts.clean]
    assert counts == [
        ("gopher_quality (en)", 2, {"too few stop words": 1}),
        ("gopher_quality (de)", 1, {}),
        ("gopher_quality (es)", 1, {"too few stop words": 1}),
    ]
    assert report.counts.dropped["gopher_quality (es): too few stop words"] == 1


def test_repeated_passages_may_be_listed_for_each_language(built) -> None:
    clean = [{"kind": "repeated_passages", "words": 8, "languages": [language]} for language in ("en", "de")]
    one = [{"kind": "repeated_passages", "words": 8}]
    texts = [PROSE, f"{PROSE} It is the first of many.", GERMAN, f"{GERMAN} Das ist neu hier.", story(3)]
    of_each, corpus = built(texts, clean)
    found = [corpus.train[i].ids.tolist() for i in range(len(corpus.train))]
    together, corpus = built(texts, one)
    assert found == [corpus.train[i].ids.tolist() for i in range(len(corpus.train))]
    assert [each.changed for each in of_each.counts.clean] == [1, 1]
    assert together.counts.clean[0].changed == 2


def test_sources_in_other_languages_need_no_weight(built) -> None:
    texts = {"wiki/a.jsonl": [PROSE, story(1)], "netz/a.jsonl": [GERMAN]}
    report, _ = built(texts, [{"kind": "mix", "weights": {"in/wiki": 1}, "languages": ["en"]}])
    assert report.counts.total("documents") == 3


def test_pages_without_addresses_are_told_of_a_filter_for_one_language(built) -> None:
    report, _ = built([GERMAN], [{"kind": "url", "words": ["casino"], "languages": ["de"]}])
    assert "the filter url drops pages" in report.table()


@pytest.mark.parametrize("processes", [0, 2])
def test_comparisons_with_languages_compare_documents_in_these_only(built, processes: int) -> None:
    Path("gut.txt").write_text(GERMAN)
    texts = [PROSE, GERMAN, PROSE, GERMAN, SPANISH, f"Boote Boote Eis Winter, {GERMAN[::-1][:40]}. {GERMAN[:30]}"]
    clean = [
        {"kind": "exact_duplicates", "languages": ["en"]},
        {"kind": "perplexity", "reference": ["gut.txt"], "drop": 0.4, "languages": ["de"]},
    ]
    report, corpus = built(texts, clean, processes)
    assert [corpus.train.source(i).rpartition(":")[2] for i in range(len(corpus.train))] == ["1", "2", "4", "5"]
    assert [each.read for each in report.counts.clean] == [2, 3]


def test_of_a_source_that_is_one_long_document_the_document_is_kept(built) -> None:
    texts = {"book/a.jsonl": [story(0, 5000)], "web/a.jsonl": [story(1)]}
    _, corpus = built(texts, [{"kind": "mix", "weights": {"in/book": 1, "*": 1}, "temperature": 1000}])
    assert len(corpus.train) == 2
    assert corpus.report["dropped"] == {}


def test_sources_that_no_weight_names_are_told(built) -> None:
    with pytest.raises(UserError, match=r"the source in/in\.jsonl matches no pattern"):
        built([PROSE], [{"kind": "mix", "weights": {"wiki/*": 1}}])
    with pytest.raises(UserError, match=r"there is no text of 'wiki/\*' to mix"):
        built([PROSE], [{"kind": "mix", "weights": {"wiki/*": 1, "*": 2}}])


@pytest.mark.parametrize(
    ("package", "entry"),
    [
        ("ftfy", {"kind": "unicode"}),
        ("py3langid", {"kind": "language", "keep": ["en"]}),
        ("rensa", {"kind": "near_duplicates"}),
        ("py3langid", {"kind": "c4", "languages": ["de"]}),
    ],
)
def test_a_filter_without_its_package_names_the_command(
    package: str, entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"needs the package {package}: pip install 'ernie-continual\[clean\]'"):
        from_tree(CorpusConfig, from_dict({"input": ["in"], "tokenizer": "t", "clean": [entry]}))


def test_the_number_of_processes_and_the_size_of_chunks_change_nothing(
    built, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "test.txt").write_text(" ".join(story(3).split()[:20]))
    texts = [story(seed % 29) + " donâ€™t" * (seed % 3) + " a@b.de" * (seed % 2) for seed in range(80)]
    texts += ["", "x", story(0), story(0).upper(), f"{story(90)} {story(6, 20)}"]
    clean: list[dict[str, Any]] = [
        {"kind": "unicode"},
        {"kind": "personal_data"},
        {"kind": "gopher_quality", "min_stop_words": 0},
        {"kind": "exact_duplicates"},
        {"kind": "decontamination", "files": ["test.txt"]},
        {"kind": "near_duplicates", "similarity": 0.9},
        {"kind": "repeated_passages", "words": 4},
        {"kind": "mix", "weights": {"*": 1}},
        {"kind": "perplexity", "reference": ["test.txt"], "drop": 0.2},
    ]
    report, _ = built(texts, clean, held_out=0.1)
    assert [tally.kind for tally in report.counts.clean if tally.dropped or tally.changed] == [
        *("unicode", "personal_data", "gopher_quality", "exact_duplicates", "decontamination", "near_duplicates"),
        *("repeated_passages", "perplexity"),
    ]
    first = Path("corpus/corpus.json").read_bytes()
    monkeypatch.setattr("pretrain.corpus.reading.CHUNK", 3000)
    monkeypatch.setattr("ernie.data.parts.PART", 5000)
    built(texts, clean, processes=2, held_out=0.1)
    assert Path("corpus/corpus.json").read_bytes() == first


TEXTS = st.lists(
    st.sampled_from(
        [PROSE, CHINESE, "Read more", "- a bullet", "#a #b", "donâ€™t wait.", "a@b.de", "", "Yes, we can."]
    ),
    max_size=8,
).map("\n".join)
PIPELINES = st.lists(
    st.sampled_from(["unicode", "gopher_quality", "gopher_repetition", "c4", "fineweb", "personal_data"]),
    max_size=4,
    unique=True,
)


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(TEXTS, max_size=6), kinds=PIPELINES)
def test_counts_add_up_and_only_repairs_change_what_is_kept(texts: list[str], kinds: list[str]) -> None:
    pipeline = Pipeline([filter_of(kind) for kind in kinds])
    tallies = pipeline.tallies()
    given_documents = [document(text) for text in texts]
    left = [pipeline(each, tallies) for each in given_documents]
    read = len(texts)
    for tally in tallies:
        assert tally.read == read
        read -= tally.dropped.total()
    assert read == sum(not isinstance(each, Dropped) for each in left)
    if not any(filters[kind].repairs for kind in kinds):
        kept = [
            (before, after)
            for before, after in zip(given_documents, left, strict=True)
            if not isinstance(after, Dropped)
        ]
        assert all(before is after for before, after in kept)
        assert not any(tally.changed for tally in tallies)


@settings(max_examples=50, deadline=None)
@given(text=TEXTS, kinds=PIPELINES)
def test_what_is_kept_is_kept_again(text: str, kinds: list[str]) -> None:
    repairs = Pipeline([filter_of(kind) for kind in kinds if filters[kind].repairs])
    once = repairs(document(text), repairs.tallies())
    if not isinstance(once, Dropped):
        assert repairs(once, repairs.tallies()) is once


COMPARED = st.lists(
    st.sampled_from(
        [
            *("unicode", "gopher_quality", "gopher_repetition", "c4", "fineweb", "personal_data"),
            *("exact_duplicates", "near_duplicates", "repeated_passages"),
        ]
    ),
    min_size=1,
    max_size=5,
    unique=True,
)


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(TEXTS, max_size=8), kinds=COMPARED)
def test_filters_that_left_a_document_as_it_was_need_not_see_it_again(texts: list[str], kinds: list[str]) -> None:
    pipeline = Pipeline([filter_of(kind, **({"words": 4} if kind == "repeated_passages" else {})) for kind in kinds])
    findings, items = Findings(), [(0, document(text)) for text in texts]
    if pipeline.comparisons:
        findings = noted(pipeline, items)
    counts = []
    for verdicts in (known := findings(0), replace(known, unchanged=np.zeros(0, np.uint8))):
        tallies = pipeline.tallies()
        left = [pipeline(own, tallies, verdicts.of(at)) for at, (_, own) in enumerate(items)]
        counts.append((left, [tally.to_dict() for tally in tallies]))
    assert counts[0] == counts[1]


def noted(pipeline: Pipeline, items: list[Item]) -> Findings:
    """What the comparisons of a pipeline find of documents that are read as one part."""

    def read(make: Make[Verdicts, Noted], findings: Findings, done: Done) -> Iterator[Made[Noted]]:
        if not done.parts:
            yield Made(Part(0, (), 0), len(items), 0, [make(items, findings(0))], [], Done(1))

    with tempfile.TemporaryDirectory() as folder, WorkFolder(Path(folder) / "notes") as work:
        found = compare(pipeline, read, ["in.txt"], work)
        found.unchanged = np.array(found.unchanged)  # it is mapped, and the folder goes
        found.ends = np.array(found.ends)
        return found


@dataclass(frozen=True)
class Watched(Filter):
    """Drops what holds "bad", takes "odd" out, and remembers what it has seen."""

    seen: list[str]
    repairs = True

    def apply(self, document: RawDocument) -> RawDocument | Rejected:
        self.seen.append(document.text)
        if "bad" in document.text:
            return Rejected("bad", "it is bad")
        return document._replace(text=document.text.replace("odd ", "")) if "odd " in document.text else document


@dataclass(frozen=True)
class Failing(Filter):
    """Has a mistake."""

    def apply(self, document: RawDocument) -> RawDocument | Rejected:
        return Rejected(document.text[1000], "")


@pytest.mark.parametrize("processes", [0, 2])
def test_a_filter_that_fails_names_the_document_and_its_own_line(
    processes: int, small_tokenizer: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "The boat is slow."}\n')
    config = CorpusConfig([str(tmp_path / "in.jsonl")], small_tokenizer, "en", [], clean=[Failing()])
    message = r"in\.jsonl:1: the filter Failing fails: IndexError: .* \(.*test_cleaning\.py:\d+\)"
    with pytest.raises(UserError, match=message):
        build_corpus(config, tmp_path / "corpus", processes=processes)


def test_in_a_build_a_filter_before_a_comparison_sees_a_document_again_only_if_it_changed_or_dropped_it(
    small_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = ["The boat is slow.", "An odd boat is slow.", "A bad boat.", "The boat is slow.", "The river is wide."]
    Path("in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    first, last = Watched([]), Watched([])
    clean = [first, ExactDuplicates(), last]
    config = CorpusConfig(["in.jsonl"], small_tokenizer, "en", [], held_out=0, clean=clean, sample_mb=1e-9)
    report = build_corpus(config, "corpus")
    assert report.counts.total("documents") == 3
    assert [tally.read for tally in report.counts.clean] == [5, 4, 3]
    for text in texts:
        again = "odd" in text or "bad" in text
        assert first.seen.count(text) == texts.count(text) * (1 + again)
    assert last.seen.count("The river is wide.") == 1
