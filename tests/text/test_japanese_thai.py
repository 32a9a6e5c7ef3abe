"""Japanese, Thai and traditional Chinese: where sentences end, and which words, phrases and entities are marked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.errors import UserError
from ernie.text import sentences as module
from ernie.text.segment.base import Kind
from ernie.text.segment.chinese_lists import SIMPLIFIED, variants
from ernie.text.segment.chinese_names import ChineseNames
from ernie.text.segment.tagged import Part, Word, spans_of
from ernie.text.sentences import detect_script, lacking, split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["今日は寒い。", "明日は晴れるだろう。", "本当？", "ええ！"],
        ["彼は「行こう。もう遅い。」と言った。", "雨だった。"],
        ["「本当ですか？」", "「はい。」", "二人は笑った。"],
        ["『吾輩は猫である。名前はまだ無い。』という本だ。", "有名だ。"],
        ["すごい！と思った。", "なぜ？って聞いた。"],
        ["雨（小雨。）だった。", "次の日（月曜）は晴れ。"],
        ["えっと……それは違う。", "そうか。"],
        ["値段は3.5倍です。", "https://a.jp/?q=1!x を見た。"],
        ["終わった。", "ところで、次は何？", "とはいえ、まだ早い。"],
        ["「東京」は駅だ。", "「大阪。」が次だ。"],
        ["閉じない「括弧。", "続く。"],
    ],
)
def test_japanese_sentences(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences), "ja") == sentences


def test_sentences_end_in_a_japanese_quotation_that_is_too_long() -> None:
    text = f"「{'長い話だ。' * 60}」と言った。"
    assert len(split_sentences(text, "ja")) == 60  # the last one holds the end of the quotation


@given(st.text(alphabet="あ。！？「」『』（）…とは、 Aa1.", max_size=60))
def test_no_character_of_a_japanese_text_is_lost(text: str) -> None:
    found = split_sentences(text, "ja")
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence.strip() == sentence != "" for sentence in found)


THAI = ["ฉันชอบกินข้าวผัดที่กรุงเทพมหานคร", "แม่น้ำเจ้าพระยาไหลผ่านเมืองอย่างช้าๆ", "เขามีเรือหนึ่งลำ"]


def test_thai_sentences_are_those_of_the_package() -> None:
    pytest.importorskip("pycrfsuite")
    assert split_sentences(" ".join(THAI), "th") == THAI
    assert split_sentences("  ", "th") == []


def test_thai_without_its_package_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    lacking.cache_clear()
    try:
        with pytest.raises(UserError, match=r"package pythainlp: pip install 'ernie-continual\[languages\]'"):
            split_sentences(THAI[0], "th")
        assert lacking("ja") == ""
    finally:
        lacking.cache_clear()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("今日は寒い。", "ja"),
        ("東京大学の", "ja"),
        ("江水很慢。她住在北京大学旁边。日本语的の字很多见。", "zh"),
        ("國立臺灣大學", "zh"),
        (THAI[0], "th"),
        (f"{THAI[0]} is Thai, and this is much more than four fifths of a text, {'all in English ' * 9}", "en"),
        ("Größe, naïve.", "en"),
        ("1998", "en"),
        ("", "en"),
    ],
)
def test_the_script_tells_the_language(text: str, language: str) -> None:
    assert detect_script(text) == language


def marked(text: str, spans: np.ndarray, kind: Kind) -> list[str]:
    return [text[first:stop] for first, stop, found in spans.tolist() if found == kind]


def test_japanese_words_names_and_compounds_are_marked() -> None:
    pytest.importorskip("sudachidict_core")
    from ernie.text.segment.sudachi import Sudachi

    text = "国立東京大学の田中太郎教授は本を読んだ。\n田中太郎さんは京都に行く。"
    spans = Sudachi().mark(text)
    assert marked(text, spans, Kind.ENTITY) == ["東京大学", "田中太郎", "田中太郎", "京都"]
    assert "国立東京大学" in marked(text, spans, Kind.PHRASE)
    assert "".join(marked(text, spans, Kind.WORD)) == text.replace("。", "").replace("\n", "")
    assert not [span for span in marked(text, spans, Kind.PHRASE) if "\n" in span]
    long = "長い文" * 9_000  # longer than the library takes at once
    assert "".join(marked(long, Sudachi().mark(long), Kind.WORD)) == long
    assert marked(text, Sudachi(entities=False, phrases=False).mark(text), Kind.ENTITY) == []


def test_thai_words_names_and_compounds_are_marked() -> None:
    pytest.importorskip("pythainlp")
    from ernie.text.segment.thai import Thai

    text = f"{THAI[0]}\n\n{THAI[1]}"
    spans = Thai().mark(text)
    assert "".join(marked(text, spans, Kind.WORD)) == "".join(text.split())
    assert marked(text, spans, Kind.ENTITY) == ["กรุงเทพมหานคร"]
    assert "แม่น้ำเจ้าพระยา" in marked(text, spans, Kind.PHRASE)


def test_runs_of_nouns_are_phrases_unless_something_is_between_them() -> None:
    name, noun, other, mark = Part.NAME, Part.NOUN, Part.OTHER, Part.MARK
    words = [
        Word(0, 2, name),
        Word(2, 3, noun),
        Word(4, 5, noun),
        Word(5, 6, other),
        Word(6, 7, mark),
        Word(7, 9, name),
    ]
    found = spans_of(words, phrases=True, entities=True).tolist()
    assert [span[:2] for span in found if span[2] == Kind.PHRASE] == [[0, 3]]
    assert [span[:2] for span in found if span[2] == Kind.ENTITY] == [[0, 2], [7, 9]]
    assert [span[:2] for span in found if span[2] == Kind.WORD] == [[0, 2], [2, 3], [4, 5], [5, 6], [7, 9]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("他在臺北市和廣東省的張北縣工作", ["臺北市", "廣東省", "張北縣"]),
        ("他是國立臺灣大學的學生", ["國立臺灣大學"]),
        ("總統比爾·克林頓說", ["比爾·克林頓"]),
        ("劉曉明主席的話", ["劉曉明"]),
    ],
)
def test_names_are_found_in_traditional_chinese(text: str, expected: list[str]) -> None:
    spans = ChineseNames().fit([]).spans(list(text), np.array([0]))
    assert ["".join(text[first:stop]) for first, stop, _ in spans.tolist()] == expected


@pytest.mark.parametrize("text", ["這是張國華的書", "这是张国华的书"])
def test_persons_known_from_traditional_text_are_found_in_both_scripts(text: str) -> None:
    sample = "張國華主席說。張國華主席去。"
    spans = ChineseNames().fit([(list(sample), np.array([0]))]).spans(list(text), np.array([0]))
    assert spans[:, :2].tolist() == [[2, 5]]


def test_the_tables_of_characters_fit_together() -> None:
    assert all(len(one) == len(other) == 1 and one != other for one, other in SIMPLIFIED.items())
    assert not set(SIMPLIFIED) & set(SIMPLIFIED.values())
    assert variants(["这里"]) >= {"这里", "這裡"} and variants(["的"]) == {"的"}
