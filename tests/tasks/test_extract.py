"""Extractive question answering: windows over a passage, training targets, and decoding answers from logits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.helpers import vocabulary

from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.data.raw import Place
from ernie.errors import UserError
from finetune.prepare import prepare
from tasks.downstream.base import (
    Answer,
    Example,
    truncation_note,
)
from tasks.downstream.extract import Extract
from tasks.downstream.scoring import score_answers
from tasks.downstream.windows import windows_of, with_most_context

ENGLISH = [
    "Paris",
    "is",
    "the",
    "capital",
    "of",
    "France",
    "(France)",
    "unbelievable",
    "Zürich's",
    "zzz",
    "3.5",
    "\u200b",
]
CHINESE = ["北京", "是", "中国", "的", "首都", "，", "2008", "年", "奥运会", "ERNIE模型", "。", "龘"]
TOKENIZER = vocabulary(
    "where was it what is the capital of france paris zurich ' s ( ) . 北京是中国的首都，2008年奥运会模型。",
    *("un", "##believ", "##able", "er", "##nie", "3", "5"),
)
FALLBACK = vocabulary("where was it w", *(f"##{n}" for n in range(10)))  # w16 is w, ##1, ##6
TASK = Extract(max_len=20, stride=8, max_question=3, max_answer=4)


def row(context: str, *answers: tuple[str, int]) -> Row:
    found = {"text": [text for text, _ in answers], "answer_start": [start for _, start in answers]}
    return Row({"question": "where was it", "context": context, "answers": found})


def logits_of(example: Example, *peaks: dict[int, tuple[float, float]]) -> list[np.ndarray]:
    """Logits of the samples: 0 for all tokens except those of `peaks`, {position in the sample: (start, end)}."""
    logits = []
    for sample, peak in zip(example.samples, peaks, strict=True):
        scores = np.zeros((len(sample), 2), np.float32)
        for position, pair in peak.items():
            scores[position] = pair
        logits.append(scores)
    return logits


def decode_targets(task: Extract, example: Example) -> Answer:
    """The answer of a model that predicts the samples' targets with confidence."""
    peaks = []
    for sample in example.samples:
        start, end = (sample.labels[name] for name in ("start", "end"))
        assert isinstance(start, int) and isinstance(end, int)
        peaks.append({start: (9.0, 9.0 * (start == end)), end: (9.0 * (start == end), 9.0)})
    return task.answer(example, logits_of(example, *peaks))


@st.composite
def passages(draw: st.DrawFn) -> tuple[str, int, int]:
    """A passage in English or Chinese, and the character span of some of its words."""
    words, separator = draw(st.sampled_from([(ENGLISH, " "), (ENGLISH, "\n  "), (CHINESE, "")]))
    parts = draw(st.lists(st.sampled_from(words), min_size=1, max_size=40))
    first = draw(st.integers(0, len(parts) - 1))
    last = draw(st.integers(first, min(first + 2, len(parts) - 1)))
    start = len(separator.join([*parts[:first], ""]))
    return separator.join(parts), start, start + len(separator.join(parts[first : last + 1]))


class TestWindows:
    @given(st.integers(0, 100), st.integers(1, 30), st.data())
    def test_windows_cover_the_passage_overlap_by_the_stride_and_own_each_token_once(
        self, tokens: int, size: int, data: st.DataObject
    ) -> None:
        stride = data.draw(st.integers(0, size - 1))
        windows = windows_of(tokens, size, stride)
        starts, stops = zip(*windows, strict=True)
        assert [*starts] == [i * (size - stride) for i in range(len(starts))]
        assert [*stops] == [min(start + size, tokens) for start in starts] and stops[-1] == tokens
        assert len(starts) == 1 or starts[-1] + stride < tokens  # the last one has new tokens
        for token, number in enumerate(with_most_context(windows)):
            around = [min(token - start, stop - 1 - token) for start, stop in windows]
            assert around[number] == max(around) >= 0 and around.index(max(around)) == number

    def test_a_token_belongs_to_the_window_that_gives_it_the_most_context(self) -> None:
        assert with_most_context([(0, 10), (6, 16)]).tolist() == [0] * 8 + [1] * 8

    @given(passages())
    def test_samples_contain_every_token_of_the_passage_in_order(self, passage: tuple[str, int, int]) -> None:
        text, _, _ = passage
        example = TASK.example(row(text), TOKENIZER)
        _, windows = example.notes
        ids: dict[int, int] = {}
        for i, (sample, window) in enumerate(zip(example.samples, windows, strict=True)):
            n = len(window.offsets)
            assert len(sample) == window.begins + n + 1 <= TASK.max_len
            ids |= dict(enumerate(sample.ids[window.begins : window.begins + n].tolist(), i * (14 - 8)))
        assert list(ids.values()) == TOKENIZER.encode(text).ids.tolist()

    def test_a_long_question_is_truncated_and_counted(self) -> None:
        asked = row("Paris is the capital") | {"question": "where was it what is"}
        example = TASK.example(Row(asked), TOKENIZER)
        assert (example.cut, truncation_note(TASK)) == (2, "max_question 3")
        assert example.notes[1][0].begins == 3 + 2

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"max_len": 14}, r"max_len: 14 tokens cannot hold max_question 3 \+ stride 8 \+ 3"),
            ({"max_answer": 0}, "max_answer"),
            ({"stride": -1}, "stride"),
        ],
    )
    def test_settings_that_leave_no_space_are_rejected(self, settings: dict[str, int], message: str) -> None:
        with pytest.raises(UserError, match=message):
            replace(TASK, **settings)


class TestTargets:
    @given(passages(), st.integers(0, 12))
    def test_targets_decode_to_the_answer(self, passage: tuple[str, int, int], stride: int) -> None:
        text, start, end = passage
        spans = TOKENIZER.encode(text).offsets.tolist()
        tokens = [(a, b) for a, b in spans if a < end and start < b]  # some may reach beyond the answer's characters
        assume(tokens)
        # Then the window with the most context for the start contains the whole answer.
        assume(len(tokens) <= stride // 2 or len(spans) <= 14)
        task = replace(TASK, stride=stride, max_len=20 + max(0, stride - 8), max_answer=len(tokens))
        answer = decode_targets(task, task.training_example(row(text, (text[start:end], start)), TOKENIZER))
        assert (answer["start"], answer["answer"]) == (tokens[0][0], text[tokens[0][0] : tokens[-1][1]])

    def test_an_answer_inside_a_token_yields_the_whole_token(self) -> None:
        answer = decode_targets(TASK, TASK.training_example(row("the zzz capital", ("z", 5)), TOKENIZER))
        assert answer["answer"] == "zzz"

    def test_a_window_that_holds_only_part_of_the_answer_is_labeled_as_having_none(self) -> None:
        words = ["it"] * 24
        words[12:15] = ["Paris", "of", "France"]
        context = " ".join(words)
        example = TASK.training_example(row(context, ("Paris of France", context.index("Paris"))), TOKENIZER)
        # 14 tokens per window, 6 of them new: the first window ends (at 14) inside the answer, 12 to 14.
        found = [(sample.labels["start"], sample.labels["end"]) for sample in example.samples]
        assert found == [(0, 0), (12 - 6 + 5, 14 - 6 + 5), (12 - 12 + 5, 14 - 12 + 5)]

    @pytest.mark.parametrize(("at", "windows"), [(11, [0, 1]), (12, [1, 2]), (6, [0, 1]), (5, [0])])
    def test_an_answer_at_the_inner_edge_of_a_window_is_labeled(self, at: int, windows: list[int]) -> None:
        words = ["it"] * 24
        words[at : at + 3] = ["Paris", "of", "France"]
        context = " ".join(words)
        example = TASK.training_example(row(context, ("Paris of France", context.index("Paris"))), TOKENIZER)
        assert [i for i, sample in enumerate(example.samples) if sample.labels["start"]] == windows

    def test_spaces_around_an_answer_do_not_push_it_out_of_a_window(self) -> None:
        for context, answer in ((" Paris it", " Paris"), ("it Paris ", "Paris ")):
            example = TASK.training_example(row(context, (answer, context.index(answer))), TOKENIZER)
            assert decode_targets(TASK, example)["answer"] == "Paris"

    def test_the_first_answer_is_the_target_and_all_count_as_correct(self) -> None:
        asked = row("Paris of France", ("France", 9), ("Paris of France", 0))
        assert decode_targets(TASK, TASK.training_example(asked, TOKENIZER))["answer"] == "France"
        assert score_answers(TASK, [asked], [{"answer": "paris of france"}]) == {"squad_f1": 1, "squad_exact": 1}

    @pytest.mark.parametrize("off", [-3, -2, -1, 1, 2, 3])
    def test_an_answer_slightly_off_its_offset_is_found_and_counted(self, off: int) -> None:
        context = "the Paris of France and the Paris of it"
        asked = [row(context, ("Paris", 4)), row(context, ("Paris", 28 + off)), row(context, ("Paris", 28 - off))]
        task = replace(TASK, max_len=40)
        found = [decode_targets(task, task.training_example(item, TOKENIZER))["start"] for item in asked]
        assert found == [4, 28, 28]
        split = Split("train", [Row(item, Place("squad.json", i)) for i, item in enumerate(asked, 1)])
        assert prepare(task, split, TOKENIZER).remarks == [
            "train: 2 rows with an answer that stands up to 3 characters beside its answer_start, "
            "the first at squad.json:2"
        ]

    @pytest.mark.parametrize("offset", [0, 8, 99])
    def test_an_answer_that_is_not_at_its_offset_raises_an_error_with_the_offset(self, offset: int) -> None:
        with pytest.raises(UserError, match=f"the answer 'Paris' does not stand at character {offset} of the context"):
            TASK.training_example(row("the   Paris"[2:], ("Paris", offset)), TOKENIZER)

    @pytest.mark.parametrize("starts", [{}, {"answer_start": []}, {"answer_start": None}, {"answer_start": [None]}])
    def test_without_an_offset_the_first_occurrence_is_used(self, starts: dict[str, object]) -> None:
        asked = Row(row("it Paris Paris") | {"answers": {"text": ["Paris"], **starts}})
        example = TASK.training_example(asked, TOKENIZER)
        assert decode_targets(TASK, example)["start"] == 3
        assert not example.warnings
        with pytest.raises(UserError, match=r"the answer 'Paris' does not stand in the context$"):
            TASK.training_example(Row(asked | {"context": "it"}), TOKENIZER)

    @pytest.mark.parametrize(
        "answers",
        [["Paris", "it"], [{"text": "Paris"}, {"text": "it"}], [{"text": "Paris", "answer_start": 3}, {"text": "it"}]],
    )
    def test_answers_may_be_a_list_of_texts_or_of_objects(self, answers: object) -> None:
        asked = Row(row("it Paris Paris") | {"answers": answers})
        assert TASK.target(asked) == ["Paris", "it"]
        assert decode_targets(TASK, TASK.training_example(asked, TOKENIZER))["start"] == 3

    @pytest.mark.parametrize(
        "answers",
        ["Paris", 3, None, [3], {"text": "Paris"}, {"text": ["a", "b"], "answer_start": [1]}, [{"answer_start": 1}]],
    )
    def test_answers_of_another_form_are_an_error_that_names_the_column(self, answers: object) -> None:
        with pytest.raises(UserError, match=r"^column 'answers': "):
            TASK.target(Row(row("it") | {"answers": answers}))

    def test_an_answer_that_every_window_cuts_is_refused_with_the_stride_that_holds_it(self) -> None:
        task = Extract(max_len=48, stride=8, max_question=8)
        words = [f"w{n}" for n in range(60)]
        answer = " ".join(words[14:20])  # from before the second window begins to behind the first
        given = row(" ".join(words), (answer, " ".join(words).index(answer)))
        message = r"^row 0: the answer stands in no window .* task\.stride to at least 29, or a smaller"
        with pytest.raises(UserError, match=message):
            prepare(task, Split("train", [given]), FALLBACK)
        (kept,) = prepare(replace(task, stride=29), Split("train", [given]), FALLBACK).examples
        assert not kept.warnings
        assert decode_targets(replace(task, stride=29), kept)["answer"] == answer

    def test_an_answer_that_no_window_holds_is_counted_where_it_judges_or_is_too_long(self) -> None:
        task = Extract(max_len=48, stride=8, max_question=8)
        words = [f"w{n}" for n in range(60)]
        context = " ".join(words)
        cut, long = " ".join(words[14:20]), " ".join(words[8:28])
        rows = [row(context, (answer, context.index(answer))) for answer in (cut, long)]
        too_long = "an answer of more than max_answer 30 tokens, which cannot be given"
        assert prepare(task, Split("dev", rows), FALLBACK).remarks == [
            "dev: 1 row with an answer that no window holds (stride 8), which cannot be given, the first at row 0",
            f"dev: 1 row with {too_long}, the first at row 0",
        ]
        both = row(context, (cut, context.index(cut)), ("w1", 3))
        assert prepare(task, Split("dev", [both]), FALLBACK).remarks == []
        assert prepare(task, Split("dev", [both, row(context, ("elsewhere", 0))]), FALLBACK).remarks == [
            "dev: 1 row with an answer that does not stand in the context, and so cannot be given, the first at row 0"
        ]
        assert prepare(task, Split("train", rows[1:]), FALLBACK).remarks == [
            f"train: 1 row with {too_long}, and is learned as none, since no window holds it, the first at row 0"
        ]

    def test_an_answer_longer_than_max_answer_is_counted(self) -> None:
        split = Split("train", [row("the capital of France is it", ("capital of France is it", 4))])
        assert prepare(TASK, split, TOKENIZER).remarks == [
            "train: 1 row with an answer of more than max_answer 4 tokens, which cannot be given, the first at row 0"
        ]

    @pytest.mark.parametrize("split", ["train", "dev"])
    def test_an_answer_that_the_tokenizer_drops_is_counted(self, split: str) -> None:
        given = row("it \u200b Paris", ("\u200b", 3))
        assert prepare(TASK, Split(split, [given]), TOKENIZER).remarks == [
            f"{split}: 1 row with an answer without any token, which cannot be given, the first at row 0"
        ]
        both = row("it \u200b Paris", ("\u200b", 3), ("Paris", 5))
        assert prepare(TASK, Split("dev", [both]), TOKENIZER).remarks == []


class TestWithoutAnAnswer:
    task = replace(TASK, no_answer=True, threshold=1.0)

    def test_rows_without_an_answer_need_no_answer_enabled(self) -> None:
        for asked in (row("Paris"), row("Paris", ("", 0)), row("Paris", (" ", 0))):
            with pytest.raises(UserError, match="the question has no answer; data with such questions need no_answer"):
                TASK.training_example(asked, TOKENIZER)
            assert self.task.target(asked) == []
            assert decode_targets(self.task, self.task.training_example(asked, TOKENIZER))["answer"] == ""

    @pytest.mark.parametrize(("null_score", "answer"), [(3.0, "Paris"), (5.0, "Paris"), (5.1, "")])
    def test_no_answer_is_predicted_if_its_score_is_higher_by_more_than_the_threshold(
        self, null_score: float, answer: str
    ) -> None:
        example = self.task.example(row("it Paris it"), TOKENIZER)
        predicted = self.task.answer(example, logits_of(example, {0: (null_score, 0), 6: (2, 2)}))
        assert predicted["answer"] == answer
        assert predicted["start"] == (3 if answer else -1)
        assert predicted["score"] == pytest.approx(4 - null_score if answer else null_score - 4)

    def test_one_window_that_finds_an_answer_is_enough(self) -> None:
        example = self.task.example(row(" ".join(["it"] * 17 + ["Paris"])), TOKENIZER)
        sure, unsure = {0: (9.0, 9.0)}, {0: (1.0, 1.0), 5 + 11: (3.0, 3.0)}
        assert self.task.answer(example, logits_of(example, sure, unsure))["answer"] == "Paris"
        assert self.task.answer(example, logits_of(example, sure, sure | {16: (3.0, 3.0)}))["answer"] == ""

    def test_without_no_answer_there_is_always_an_answer(self) -> None:
        example = TASK.example(row("it Paris it"), TOKENIZER)
        assert TASK.answer(example, logits_of(example, {0: (99, 99), 6: (2, 2)}))["answer"] == "Paris"

    @pytest.mark.parametrize("context", ["", " \u200b"])
    def test_a_passage_without_tokens_has_no_answer(self, context: str) -> None:
        for task in (TASK, self.task):
            example = task.example(row(context), TOKENIZER)
            assert example.empty
            empty = {"answer": "", "start": -1, "score": 0.0}
            assert task.answer(example, logits_of(example, {0: (1, 1)})) == empty


class TestDecoding:
    example = TASK.example(row("the capital of France is Paris it"), TOKENIZER)  # its tokens are at 5 to 11

    def answer(self, peaks: dict[int, tuple[float, float]]) -> str:
        return TASK.answer(self.example, logits_of(self.example, peaks))["answer"]

    def test_the_best_pair_wins_not_the_best_of_each(self) -> None:
        # The best start comes after the best end: 5 + 0, or 0 + 4, or 3 + 3.
        assert self.answer({10: (5, 0), 5: (0, 4), 8: (3, 3)}) == "France"

    def test_answers_longer_than_max_answer_are_not_predicted(self) -> None:
        assert self.answer({5: (9, 0), 8: (0, 9)}) == "the capital of France"
        assert self.answer({5: (9, 0), 9: (0, 9), 6: (0, 1)}) == "the capital"

    @pytest.mark.parametrize("most", [2**63 - 1, 10**30])
    def test_answers_may_be_of_any_length(self, most: int) -> None:
        task = replace(TASK, max_answer=most)
        whole = task.answer(self.example, logits_of(self.example, {5: (9, 0), 11: (0, 9)}))
        assert whole["answer"] == "the capital of France is Paris it"

    def test_the_question_and_the_special_tokens_are_never_the_answer(self) -> None:
        assert self.answer(dict.fromkeys((0, 1, 2, 3, 4, 12), (9, 9)) | {7: (1, 1)}) == "of"

    def test_an_answer_starts_only_in_the_window_with_the_most_context(self) -> None:
        words = ["it", "is", "the", "capital"] * 5
        # Tokens 0 to 13 and 6 to 19; the second window owns 10 and up.
        example = TASK.example(row(" ".join(words)), TOKENIZER)
        first, second = {5 + 12: (9.0, 0.0)}, {5 + 8 - 6: (9.0, 0.0), 5 + 11 - 6: (1.0, 1.0)}
        predicted = TASK.answer(example, logits_of(example, first, second))
        assert predicted["start"] == len(" ".join([*words[:11], ""]))
        assert predicted["score"] == pytest.approx(2)

    def test_scores_are_finite_even_for_huge_logits(self) -> None:
        predicted = TASK.answer(self.example, logits_of(self.example, {6: (1e30, 1e30)}))
        assert predicted["answer"] == "capital"
        assert np.isfinite(predicted["score"])
