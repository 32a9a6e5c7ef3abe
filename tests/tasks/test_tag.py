"""Sequence labeling: both tag formats, long sentences in several samples, words without tokens."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import vocabulary

from ernie.data.document import IGNORE
from ernie.data.labeled.row import Row
from ernie.data.raw import Place
from ernie.errors import UserError
from tasks.downstream.base import Example
from tasks.downstream.scoring import score_answers
from tasks.downstream.tag import Tag, as_bio, entities, joined
from tasks.downstream.word_splitting import split_words

TOKENIZER = vocabulary("anna lives in new york 北京天安门 .", "un", "##believ", "##able")
LABELS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
TASK = Tag(labels=LABELS, max_len=9)
TAGS = st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"]), max_size=12)


def spans(tags: list[str]) -> set[tuple[str, int, int]]:
    """The entities that BIO or IOB1 tags spell: maximal runs of a type, cut before each B."""
    kinds = ["" if tag == "O" else tag[2:] for tag in tags]
    cuts = [
        i for i in range(len(tags) + 1) if i in (0, len(tags)) or kinds[i] != kinds[i - 1] or tags[i].startswith("B")
    ]
    return {(kinds[a], a, b) for a, b in pairwise(cuts) if kinds[a]}


def one_hot(chosen: list[str], labels: tuple[str, ...] = LABELS) -> np.ndarray:
    return np.eye(len(labels), dtype=np.float32)[[labels.index(label) for label in chosen]]


def predicted_tags(task: Tag, example: Example, tags: list[str]) -> list[str]:
    """The prediction of a model that emits `tags` at the words' first tokens and nonsense at all others."""
    firsts = example.notes.firsts
    logits, begin = [], 0
    for sample, positions in zip(example.samples, firsts, strict=True):
        scores = np.full((len(sample), len(task.labels)), 99, np.float32)
        scores[positions] = one_hot(tags[begin : begin + len(positions)], task.labels)
        logits.append(scores)
        begin += len(positions)
    return task.answer(example, logits)["tags"]


class TestFormats:
    @given(TAGS)
    def test_any_tags_become_valid_bio_with_the_same_entities(self, tags: list[str]) -> None:
        bio = as_bio(tags)
        for before, tag in zip(["O", *bio], bio, strict=False):
            assert not tag.startswith("I-") or before[2:] == tag[2:]
        assert {tag == "O" for tag in tags} == {tag == "O" for tag in bio}
        assert spans(bio) == spans(tags)
        assert as_bio(bio) == bio

    @given(TAGS)
    def test_entities_have_offsets_and_words(self, tags: list[str]) -> None:
        words = [f"w{i}" for i in range(len(tags))]
        found = entities(words, as_bio(tags))
        assert {(item["type"], item["start"], item["end"]) for item in found} == spans(tags)
        assert all(item["text"] == " ".join(words[item["start"] : item["end"]]) for item in found)

    def test_iob1_of_conll_2003(self) -> None:
        assert as_bio("I-ORG O I-MISC O I-PER B-PER I-LOC".split()) == "B-ORG O B-MISC O B-PER B-PER B-LOC".split()

    def test_types_may_contain_a_hyphen(self) -> None:
        assert as_bio(["B-work-of-art", "I-work-of-art"]) == ["B-work-of-art", "I-work-of-art"]
        assert entities(["a"], ["B-work-of-art"])[0]["type"] == "work-of-art"

    @pytest.mark.parametrize("tag", ["PER", "X-PER", "B-", "B", "", "o", "BPER"])
    def test_a_tag_in_another_format_raises_an_error_that_suggests_entities_false(self, tag: str) -> None:
        with pytest.raises(UserError, match=f"tag '{tag}' is not O, B-TYPE or I-TYPE, .* need entities: false$"):
            as_bio(["O", tag])

    def test_a_number_as_a_tag_raises_an_error_that_says_how_to_name_it(self) -> None:
        row = Row({"token": ["a", "b"], "tag": [0, 1]})
        with pytest.raises(UserError, match=r"tag '0' is not O, .*; numbers get their names by data\.values"):
            TASK.target(row)
        assert replace(TASK, entities=False, labels=()).target(row) == ["0", "1"]

    @given(TAGS, st.sampled_from(["BIES", "BMES", "BILU"]))
    def test_tags_that_mark_last_and_single_words_have_the_same_entities(self, tags: list[str], marks: str) -> None:
        first, inner, last, single = marks
        bio = as_bio(tags)
        marked = []
        for tag, following in zip(bio, [*bio[1:], "O"], strict=False):
            ends = not following.startswith("I-")
            mark = (single if ends else first) if tag.startswith("B-") else last if ends else inner
            marked.append(tag if tag == "O" else mark + tag[1:])
        assert as_bio(marked) == bio

    def test_a_tag_after_the_last_word_of_an_entity_begins_another(self) -> None:
        assert as_bio("B-X E-X I-X S-X I-X L-X E-X".split()) == "B-X I-X B-X B-X B-X I-X B-X".split()

    def test_chinese_characters_are_joined_without_spaces(self) -> None:
        assert joined(list("北京天安门")) == "北京天安门"
        assert joined(["New", "York"]) == "New York"
        assert joined(["北", "京", "2008", "年"]) == "北京 2008 年"
        assert joined(["𠮷", "野", "や"]) == "𠮷野や"
        assert joined(["대한민국", "서울", "1"]) == "대한민국 서울 1"  # Korean separates words by spaces


class TestLabels:
    def test_a_type_with_only_b_or_only_i_tags_gets_both(self) -> None:
        rows = [Row({"token": ["a", "b"], "tag": ["I-PER", "O"]}), Row({"token": ["a"], "tag": ["B-LOC"]})]
        assert Tag().adapted_to(rows).labels == LABELS

    def test_other_tags_are_used_unchanged(self) -> None:
        task = Tag(entities=False).adapted_to([Row({"token": ["a", "b"], "tag": ["NN", "VB"]})])
        assert task.labels == ("NN", "VB")
        assert task.scored_by == ("accuracy",)
        assert score_answers(task, [Row({"tag": ["NN", "VB"]})], [{"tags": ["NN", "NN"]}]) == {"accuracy": 0.5}

    def test_tags_in_another_format_are_reported(self) -> None:
        rows = [Row({"token": ["a"], "tag": [tag]}, Place("train.txt", i)) for i, tag in enumerate(["O", "x", "B-A"])]
        task = Tag().adapted_to(rows)
        assert task.labels == ("B-A", "I-A", "O")
        with pytest.raises(UserError, match=r"^tag 'x' is not"):
            task.target(rows[1])
        with pytest.raises(UserError, match=r"^train\.txt:1: tag 'x' is not"):
            Tag().adapted_to(rows[1:2])

    def test_an_unknown_tag_raises_an_error_that_lists_the_labels(self) -> None:
        with pytest.raises(UserError, match="label 'B-ORG' is not one of B-LOC, B-PER"):
            TASK.target(Row({"tag": ["B-ORG"]}))

    def test_tags_without_entities_have_no_entity_metrics(self) -> None:
        with pytest.raises(UserError, match="metrics: tags that spell no entities have only the metric accuracy"):
            Tag(entities=False, metrics=("f1",))

    def test_words_and_tags_must_have_equal_length(self) -> None:
        with pytest.raises(UserError, match="has 2 words and 1 tags"):
            TASK.training_example(Row({"token": ["anna", "lives"], "tag": ["O"]}), TOKENIZER)


class TestLongSentences:
    @given(st.lists(st.sampled_from(["anna", "unbelievable", "york", "京", "zzz", "\u200b", ""]), max_size=30))
    def test_every_word_of_any_sentence_gets_its_own_tag(self, words: list[str]) -> None:
        tags = [LABELS[i % len(LABELS)] for i in range(len(words))]
        task = replace(TASK, entities=False, max_len=8)
        row = Row({"token": words, "tag": tags})
        example = task.training_example(row, TOKENIZER)
        assert all(len(sample) <= 8 for sample in example.samples)
        targets = np.concatenate([sample.labels["tag"] for sample in example.samples])
        assert [task.labels[i] for i in targets[targets != IGNORE]] == tags
        assert predicted_tags(task, task.example(row, TOKENIZER), tags) == tags

    def test_a_word_is_never_split_across_two_samples(self) -> None:
        row = Row({"token": ["anna", "unbelievable", "anna", "unbelievable"]})
        example = replace(TASK, max_len=8).example(row, TOKENIZER)
        un = TOKENIZER.encode("un").ids[0]
        assert [len(sample) for sample in example.samples] == [7, 5]  # 1 + 3 + 1 words' tokens, then 3
        assert [int((sample.ids == un).sum()) for sample in example.samples] == [1, 1]

    def test_a_word_longer_than_a_sample_is_truncated_and_counted(self) -> None:
        long = "un" + "able" * 10
        tokenizer = vocabulary("anna", "un", "##able")
        example = replace(TASK, max_len=8).example(Row({"token": ["anna", long, "anna"]}), tokenizer)
        assert example.cut == 11 - 6
        assert [len(sample) for sample in example.samples] == [3, 8, 3]
        assert predicted_tags(TASK, example, ["O", "B-LOC", "O"]) == ["O", "B-LOC", "O"]

    def test_a_word_without_tokens_is_encoded_as_unk(self) -> None:
        example = TASK.example(Row({"token": ["anna", "\u200b", "york"]}), TOKENIZER)
        assert example.samples[0].ids.tolist()[2] == TOKENIZER.unk_id
        assert predicted_tags(TASK, example, ["B-PER", "O", "B-LOC"]) == ["B-PER", "O", "B-LOC"]

    def test_an_entity_continues_in_the_next_sample(self) -> None:
        words = ["in"] * 6 + ["new", "york"]
        example = TASK.example(Row({"token": words}), TOKENIZER)
        assert [len(sample) for sample in example.samples] == [9, 3]
        assert predicted_tags(TASK, example, ["O"] * 6 + ["B-LOC", "I-LOC"])[-2:] == ["B-LOC", "I-LOC"]

    def test_no_words_have_no_tags(self) -> None:
        example = TASK.example(Row({"token": []}), TOKENIZER)
        assert example.empty
        assert predicted_tags(TASK, example, []) == []


class TestPredictions:
    def test_predictions_are_valid_bio_with_entities_and_words(self) -> None:
        words = ["Anna", "lives", "in", "New", "York", "."]
        example = TASK.example(Row({"token": words}), TOKENIZER)
        scores = np.zeros((8, 5), np.float32)
        scores[1:7] = one_hot("I-PER O O B-LOC I-LOC O".split())
        sure = pytest.approx(np.e / (np.e + 4), abs=1e-6)  # a logit of 1 beside four of 0
        assert TASK.answer(example, [scores]) == {
            "tags": "B-PER O O B-LOC I-LOC O".split(),
            "entities": [
                {"type": "PER", "start": 0, "end": 1, "text": "Anna", "score": sure},
                {"type": "LOC", "start": 3, "end": 5, "text": "New York", "score": sure},
            ],
            "words": words,
        }

    def test_plain_text_is_split_into_words_and_chinese_characters(self) -> None:
        example = TASK.example(Row({"token": "Anna in 北京."}), TOKENIZER)
        assert example.notes.words == ["Anna", "in", "北", "京", "."]

    def test_other_tags_are_predicted_without_entities(self) -> None:
        task = Tag(entities=False, labels=("NN", "VB"))
        example = task.example(Row({"token": ["anna"]}), TOKENIZER)
        answer = task.answer(example, [np.float32([[0, 0], [0, 1], [0, 0]])])
        assert answer == {"tags": ["VB"], "words": ["anna"]}


class TestRawText:
    """Text that is split into words as the training rows were."""

    CONLL = "The U.S. and Al-Ain , said Mr. Smith 's lawyer ( J. Doe ) : `` don't go '' . It rose 3.5 %".split()

    @pytest.mark.parametrize(
        ("trained_on", "text", "words"),
        [
            (CONLL, "The U.S. and Al-Ain", "The|U.S.|and|Al-Ain"),
            (CONLL, "In Paris, Mr. Jones's dog (a-b) won't.", "In|Paris|,|Mr.|Jones|'s|dog|(|a-b|)|won't|."),
            (CONLL, "Mr. Jones’s dog", "Mr.|Jones|’s|dog"),
            (["'t", "'nt", "n't", "x't", "."], "It isn't.", "It|is|n't|."),
            (CONLL, 'He left the U.S.: "3.5%... -2"', 'He|left|the|U.S.|:|"|3.5|%|...|-2|"'),
            (["Anna", "in", "Paris", "."], "The U.S. and Al-Ain.", "The|U.S.|and|Al-Ain|."),
            (["Anna,", "in", "Paris."], "Al-Ain, the U.S.", "Al-Ain,|the|U.S."),
            (["Al", "-", "Ain", ",", "U", "."], "the Al-Ain", "the|Al|-|Ain"),
            (list("我在北京 A"), "在Al 京", "在|A|l|京"),
            (["我", "在", "北", "Al-Ain", "。"], "他在Al-Ain。", "他|在|Al-Ain|。"),
        ],
    )
    def test_it_has_the_words_of_the_training_rows(self, trained_on: list[str], text: str, words: str) -> None:
        rows = [Row({"token": trained_on, "tag": ["O"] * (len(trained_on) - 1) + ["B-X"]})]
        found = Tag().adapted_to(rows).example(Row({"token": text}), TOKENIZER).notes
        assert found.words == words.split("|")
        assert [text[start:end] for start, end in found.spans] == found.words

    def test_entities_have_characters_their_exact_text_and_a_score(self) -> None:
        task = replace(TASK, splitting="marks")
        example = task.example(Row({"token": "Anna,  in  New\tYork."}), TOKENIZER)
        scores = np.zeros((8, 5), np.float32)
        scores[1:7] = one_hot("B-PER O O B-LOC I-LOC O".split())
        scores[4] *= 3
        person, place = task.answer(example, [scores])["entities"]
        sure, surer = np.e / (np.e + 4), np.e**3 / (np.e**3 + 4)
        expected = {"type": "PER", "start": 0, "end": 4, "text": "Anna", "score": pytest.approx(sure, abs=1e-6)}
        assert person == {**expected, "words": [0, 1]}
        assert (place["start"], place["end"], place["text"], place["words"]) == (11, 19, "New\tYork", [3, 5])
        assert place["score"] == pytest.approx((sure + surer) / 2, abs=1e-6)

    @given(st.text("aB.-,'’ 北京\u0301\u200b3(é", max_size=20), st.sampled_from(["marks", "spaces", "characters"]))
    def test_words_are_exact_parts_of_any_text_in_order_and_none_is_lost(self, text: str, splitting: Any) -> None:
        spans = split_words(text, splitting, ("B.", "'a"), TOKENIZER)
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
        assert not "".join(text[a:b] for (_, a), (b, _) in pairwise([(0, 0), *spans, (len(text), 0)])).strip()

    def test_a_word_may_have_a_hundred_thousand_marks(self) -> None:
        text = "!" * 50_000 + "a" + "?" * 50_000
        spans = split_words(text, "marks", ("'a",), TOKENIZER)
        assert spans == [(i, i + 1) for i in range(len(text))]

    @pytest.mark.parametrize("begins", ["A." * 20_000, "-" + "1" * 40_000])
    def test_initials_and_numbers_before_many_marks_are_not_read_again_for_each(self, begins: str) -> None:
        spans = split_words(f"{begins}{'?.' * 20_000}", "marks", ("'a",), TOKENIZER)
        assert spans[-1] == (len(begins) + 39_999, len(begins) + 40_000)

    def test_a_model_that_was_told_nothing_splits_as_its_tokenizer(self) -> None:
        assert TASK.example(Row({"token": "Al-Ain"}), TOKENIZER).notes.words == ["Al", "-", "Ain"]
        rows = [Row({"token": "Anna in York", "tag": ["O", "O", "B-LOC"]})]
        assert Tag().adapted_to(rows).splitting is None

    def test_chinese_words_cannot_be_found_in_raw_text_which_is_remarked_on(self) -> None:
        rows = [Row({"token": ["北京", "是", "首都"], "tag": ["B-LOC", "O", "O"]})]
        task = Tag().adapted_to(rows)
        assert task.splitting == "segmented"
        (odd,) = task.example(Row({"token": "北京"}), TOKENIZER).warnings
        assert odd.startswith("Chinese text, which is split into characters though the training rows had words")
        assert not task.example(Row({"token": ["北京"]}), TOKENIZER).warnings

    @pytest.mark.parametrize("tokens", ["['Anna', 'in', 'York']", '["Anna", "in", "York"]', "['Anna' 'in' 'York']"])
    def test_lists_of_words_and_tags_may_be_spelled_as_text(self, tokens: str) -> None:
        row = Row({"token": tokens, "tag": "['B-PER', 'O', 'B-LOC']"})
        assert TASK.training_example(row, TOKENIZER).notes.words == ["Anna", "in", "York"]
        assert TASK.target(row) == ["B-PER", "O", "B-LOC"]
        assert Tag().adapted_to([row]).splitting == "marks"
        assert TASK.example(Row({"token": "[1] see"}), TOKENIZER).notes.words == ["[", "1", "]", "see"]


def test_evaluation_rows_need_a_tag_for_each_word() -> None:
    task = Tag(labels=("O", "B-X"))
    row = Row({"token": ["a", "b"], "tag": ["O", "B-X"]})
    assert len(task.evaluation_example(row, TOKENIZER).samples) == 1
    with pytest.raises(UserError, match="has 3 words and 2 tags"):
        task.evaluation_example(Row(row | {"token": ["a", "b", "c"]}), TOKENIZER)


@pytest.mark.parametrize(
    ("marks", "learned"),
    [
        ("BI", "B I I O B I O B"),
        ("I", "I I I O I I O I"),
        ("BIES", "B I E O B E O S"),
        ("BMES", "B M E O B E O S"),
        ("BILU", "B I L O B L O U"),
    ],
)
def test_rows_of_any_scheme_are_learned_in_that_of_the_labels_and_scored_in_bio(marks: str, learned: str) -> None:
    task = Tag(labels=("O", *(f"{mark}-X" for mark in marks)), max_len=16)
    for tags in ("B-X I-X I-X O B-X I-X O B-X", "B-X I-X E-X O B-X E-X O S-X"):
        row = Row({"token": list("abcdefgh"), "tag": tags.split()})
        example = task.training_example(row, TOKENIZER)
        targets = np.concatenate([sample.labels["tag"] for sample in example.samples])
        assert [task.labels[i].partition("-")[0] for i in targets[targets != IGNORE]] == learned.split()
        assert task.target(row) == "B-X I-X I-X O B-X I-X O B-X".split()


def test_labels_of_no_scheme_are_refused_and_those_of_parts_of_speech_are_not() -> None:
    with pytest.raises(UserError, match="labels: tag 'NN' is not O, B-TYPE or I-TYPE"):
        Tag(labels=("O", "B-X", "NN"))
    assert Tag(labels=("NN", "VB"), entities=False).labels == ("NN", "VB")
