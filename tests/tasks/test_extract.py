"""Extractive question answering: windows over a passage, what is learnt of an answer, and reading it off the logits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import vocabulary
from hypothesis import assume, given
from hypothesis import strategies as st

from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.data.raw import Place
from ernie.errors import UserError
from finetune.prepare import prepare
from tasks.downstream.base import Answer, Example
from tasks.downstream.extract import Extract
from tasks.downstream.windows import has_most_context, window_starts

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
TASK = Extract(max_len=20, stride=8, max_question=3, max_answer=4)


def row(context: str, *answers: tuple[str, int]) -> Row:
    given = {"text": [text for text, _ in answers], "answer_start": [start for _, start in answers]}
    return Row({"question": "where was it", "context": context, "answers": given})


def logits_of(example: Example, *peaks: dict[int, tuple[float, float]]) -> list[np.ndarray]:
    """Logits of the samples: 0 for all tokens but those of `peaks`, {place in the sample: (first, last)}."""
    logits = []
    for sample, peak in zip(example.samples, peaks, strict=True):
        scores = np.zeros((len(sample), 2), np.float32)
        for place, pair in peak.items():
            scores[place] = pair
        logits.append(scores)
    return logits


def read_off(task: Extract, example: Example) -> Answer:
    """The answer of a model that is sure of what the samples teach."""
    peaks = []
    for sample in example.samples:
        start, end = (sample.labels[name] for name in ("start", "end"))
        assert isinstance(start, int) and isinstance(end, int)
        peaks.append({start: (9.0, 9.0 * (start == end)), end: (9.0 * (start == end), 9.0)})
    return task.answer(example, logits_of(example, *peaks))


@st.composite
def passages(draw: st.DrawFn) -> tuple[str, int, int]:
    """A passage in English or Chinese, and the characters of some of its words."""
    words, between = draw(st.sampled_from([(ENGLISH, " "), (ENGLISH, "\n  "), (CHINESE, "")]))
    parts = draw(st.lists(st.sampled_from(words), min_size=1, max_size=40))
    first = draw(st.integers(0, len(parts) - 1))
    last = draw(st.integers(first, min(first + 2, len(parts) - 1)))
    start = len(between.join([*parts[:first], ""]))
    return between.join(parts), start, start + len(between.join(parts[first : last + 1]))


class TestWindows:
    @given(st.integers(0, 100), st.integers(1, 30), st.data())
    def test_they_cover_the_passage_overlap_by_the_stride_and_share_the_tokens_out(
        self, tokens: int, room: int, data: st.DataObject
    ) -> None:
        stride = data.draw(st.integers(0, room - 1))
        starts = window_starts(tokens, room, stride)
        assert starts == [i * (room - stride) for i in range(len(starts))]
        assert starts[-1] + room >= tokens
        assert len(starts) == 1 or starts[-1] + stride < tokens  # the last one shows something new
        best = np.zeros(tokens, int)
        for i, start in enumerate(starts):
            best[start : start + room] += has_most_context(starts, i, room, tokens)
        assert (best == 1).all()

    def test_a_token_belongs_to_the_window_in_which_it_stands_farthest_inside(self) -> None:
        starts = window_starts(16, 10, 4)  # tokens 0 to 9, 6 to 15
        assert has_most_context(starts, 0, 10, 16).tolist() == [True] * 8 + [False] * 2
        assert has_most_context(starts, 1, 10, 16).tolist() == [False] * 2 + [True] * 8

    @given(passages())
    def test_samples_show_every_token_of_the_passage_in_order(self, passage: tuple[str, int, int]) -> None:
        text, _, _ = passage
        example = TASK.example(row(text), TOKENIZER)
        _, windows = example.notes
        ids: dict[int, int] = {}
        for i, (sample, window) in enumerate(zip(example.samples, windows, strict=True)):
            n = len(window.offsets)
            assert len(sample) == window.begins + n + 1 <= TASK.max_len
            ids |= dict(enumerate(sample.ids[window.begins : window.begins + n].tolist(), i * (14 - 8)))
        assert list(ids.values()) == TOKENIZER.encode(text).ids.tolist()

    def test_a_long_question_is_cut_and_counted(self) -> None:
        asked = row("Paris is the capital") | {"question": "where was it what is"}
        example = TASK.example(Row(asked), TOKENIZER)
        assert example.cut == 2
        assert example.notes[1][0].begins == 3 + 2

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"max_len": 14}, r"max_len: 14 tokens cannot hold max_question 3 \+ stride 8 \+ 3"),
            ({"max_answer": 0}, "max_answer"),
            ({"stride": -1}, "stride"),
        ],
    )
    def test_settings_that_leave_no_room_are_refused(self, settings: dict[str, int], message: str) -> None:
        with pytest.raises(UserError, match=message):
            replace(TASK, **settings)


class TestLearning:
    @given(passages(), st.integers(0, 12))
    def test_what_is_learnt_reads_back_as_the_answer(self, passage: tuple[str, int, int], stride: int) -> None:
        text, start, end = passage
        spans = TOKENIZER.encode(text).offsets.tolist()
        tokens = [(a, b) for a, b in spans if a < end and start < b]  # some may reach beyond the answer's characters
        assume(tokens)
        # Where that is so, the window that shows the beginning best shows all of the answer.
        assume(len(tokens) <= stride // 2 or len(spans) <= 14)
        task = replace(TASK, stride=stride, max_len=20 + max(0, stride - 8), max_answer=len(tokens))
        answer = read_off(task, task.training_example(row(text, (text[start:end], start)), TOKENIZER))
        assert (answer["start"], answer["answer"]) == (tokens[0][0], text[tokens[0][0] : tokens[-1][1]])

    def test_an_answer_inside_a_token_is_answered_with_all_of_it(self) -> None:
        answer = read_off(TASK, TASK.training_example(row("the zzz capital", ("z", 5)), TOKENIZER))
        assert answer["answer"] == "zzz"

    def test_a_window_that_holds_only_a_part_learns_that_it_holds_none(self) -> None:
        words = ["it"] * 24
        words[12:15] = ["Paris", "of", "France"]
        context = " ".join(words)
        example = TASK.training_example(row(context, ("Paris of France", context.index("Paris"))), TOKENIZER)
        # 14 tokens a window, 6 of them new: the answer, 12 to 14, is cut by the first window's end (14).
        found = [(sample.labels["start"], sample.labels["end"]) for sample in example.samples]
        assert found == [(0, 0), (12 - 6 + 5, 14 - 6 + 5), (12 - 12 + 5, 14 - 12 + 5)]

    @pytest.mark.parametrize(("at", "windows"), [(11, [0, 1]), (12, [1, 2]), (6, [0, 1]), (5, [0])])
    def test_an_answer_that_touches_a_windows_border_from_inside_is_held(self, at: int, windows: list[int]) -> None:
        words = ["it"] * 24
        words[at : at + 3] = ["Paris", "of", "France"]
        context = " ".join(words)
        example = TASK.training_example(row(context, ("Paris of France", context.index("Paris"))), TOKENIZER)
        assert [i for i, sample in enumerate(example.samples) if sample.labels["start"]] == windows

    def test_spaces_at_an_answers_ends_do_not_push_it_out_of_a_window(self) -> None:
        for context, answer in ((" Paris it", " Paris"), ("it Paris ", "Paris ")):
            example = TASK.training_example(row(context, (answer, context.index(answer))), TOKENIZER)
            assert read_off(TASK, example)["answer"] == "Paris"

    def test_the_first_answer_is_learnt_and_all_are_right(self) -> None:
        asked = row("Paris of France", ("France", 9), ("Paris of France", 0))
        assert read_off(TASK, TASK.training_example(asked, TOKENIZER))["answer"] == "France"
        assert TASK.scores([asked], [{"answer": "paris of france"}]) == {"squad_f1": 1, "squad_exact": 1}

    @pytest.mark.parametrize("off", [-3, -2, -1, 1, 2, 3])
    def test_an_answer_a_little_beside_its_place_is_found_and_counted(self, off: int) -> None:
        context = "the Paris of France and the Paris of it"
        asked = [row(context, ("Paris", 4)), row(context, ("Paris", 28 + off)), row(context, ("Paris", 28 - off))]
        task = replace(TASK, max_len=40)
        found = [read_off(task, task.training_example(one, TOKENIZER))["start"] for one in asked]
        assert found == [4, 28, 28]
        split = Split("train", [Row(one, Place("squad.json", i)) for i, one in enumerate(asked, 1)])
        assert prepare(task, split, TOKENIZER).remarks == [
            "train: 2 rows with an answer that stands up to 3 characters beside its answer_start, "
            "the first at squad.json:2"
        ]

    @pytest.mark.parametrize("place", [0, 8, 99])
    def test_an_answer_that_stands_elsewhere_is_an_error_with_its_place(self, place: int) -> None:
        with pytest.raises(UserError, match=f"the answer 'Paris' does not stand at character {place} of the context"):
            TASK.training_example(row("the   Paris"[2:], ("Paris", place)), TOKENIZER)

    @pytest.mark.parametrize("starts", [{}, {"answer_start": []}, {"answer_start": None}, {"answer_start": [None]}])
    def test_without_a_place_the_first_occurrence_is_meant(self, starts: dict[str, object]) -> None:
        asked = Row(row("it Paris Paris") | {"answers": {"text": ["Paris"], **starts}})
        example = TASK.training_example(asked, TOKENIZER)
        assert read_off(TASK, example)["start"] == 3
        assert not example.odd
        with pytest.raises(UserError, match=r"the answer 'Paris' does not stand in the context$"):
            TASK.training_example(Row(asked | {"context": "it"}), TOKENIZER)

    def test_an_answer_longer_than_can_be_given_is_counted(self) -> None:
        split = Split("train", [row("the capital of France is it", ("capital of France is it", 4))])
        assert prepare(TASK, split, TOKENIZER).remarks == [
            "train: 1 row with an answer of more than max_answer 4 tokens, which cannot be given, the first at :0"
        ]


class TestWithoutAnAnswer:
    task = replace(TASK, no_answer=True, threshold=1.0)

    def test_rows_without_an_answer_must_be_allowed(self) -> None:
        for asked in (row("Paris"), row("Paris", ("", 0)), row("Paris", (" ", 0))):
            with pytest.raises(UserError, match="the question has no answer; data with such questions need no_answer"):
                TASK.training_example(asked, TOKENIZER)
            assert self.task.truth(asked) == []
            assert read_off(self.task, self.task.training_example(asked, TOKENIZER))["answer"] == ""

    @pytest.mark.parametrize(("nothing", "answer"), [(3.0, "Paris"), (5.0, "Paris"), (5.1, "")])
    def test_none_is_given_where_its_score_is_higher_by_more_than_the_threshold(
        self, nothing: float, answer: str
    ) -> None:
        example = self.task.example(row("it Paris it"), TOKENIZER)
        given = self.task.answer(example, logits_of(example, {0: (nothing, 0), 6: (2, 2)}))
        assert given["answer"] == answer
        assert given["start"] == (3 if answer else -1)
        assert given["score"] == pytest.approx(4 - nothing if answer else nothing - 4)

    def test_one_window_that_finds_an_answer_is_enough(self) -> None:
        example = self.task.example(row(" ".join(["it"] * 17 + ["Paris"])), TOKENIZER)
        sure, unsure = {0: (9.0, 9.0)}, {0: (1.0, 1.0), 5 + 11: (3.0, 3.0)}
        assert self.task.answer(example, logits_of(example, sure, unsure))["answer"] == "Paris"
        assert self.task.answer(example, logits_of(example, sure, sure | {16: (3.0, 3.0)}))["answer"] == ""

    def test_where_there_must_be_an_answer_there_is_one(self) -> None:
        example = TASK.example(row("it Paris it"), TOKENIZER)
        assert TASK.answer(example, logits_of(example, {0: (99, 99), 6: (2, 2)}))["answer"] == "Paris"

    @pytest.mark.parametrize("context", ["", " \u200b"])
    def test_a_passage_without_a_token_has_none(self, context: str) -> None:
        for task in (TASK, self.task):
            example = task.example(row(context), TOKENIZER)
            assert example.empty
            nothing = {"answer": "", "start": -1, "score": 0.0}
            assert task.answer(example, logits_of(example, {0: (1, 1)})) == nothing


class TestReadingOff:
    example = TASK.example(row("the capital of France is Paris it"), TOKENIZER)  # its tokens stand at 5 to 11

    def answer(self, peaks: dict[int, tuple[float, float]]) -> str:
        return TASK.answer(self.example, logits_of(self.example, peaks))["answer"]

    def test_the_best_pair_counts_not_the_best_of_each(self) -> None:
        # The best first token stands behind the best last one: 5 + 0, or 0 + 4, or 3 + 3.
        assert self.answer({10: (5, 0), 5: (0, 4), 8: (3, 3)}) == "France"

    def test_answers_longer_than_the_longest_are_not_given(self) -> None:
        assert self.answer({5: (9, 0), 8: (0, 9)}) == "the capital of France"
        assert self.answer({5: (9, 0), 9: (0, 9), 6: (0, 1)}) == "the capital"

    def test_the_question_and_the_special_tokens_are_never_the_answer(self) -> None:
        assert self.answer(dict.fromkeys((0, 1, 2, 3, 4, 12), (9, 9)) | {7: (1, 1)}) == "of"

    def test_an_answer_begins_where_its_window_shows_most_around_it(self) -> None:
        words = ["it", "is", "the", "capital"] * 5
        example = TASK.example(row(" ".join(words)), TOKENIZER)  # tokens 0 to 13 and 6 to 19; from 10 on the second
        first, second = {5 + 12: (9.0, 0.0)}, {5 + 8 - 6: (9.0, 0.0), 5 + 11 - 6: (1.0, 1.0)}
        given = TASK.answer(example, logits_of(example, first, second))
        assert given["start"] == len(" ".join([*words[:11], ""]))
        assert given["score"] == pytest.approx(2)

    def test_scores_are_finite_also_where_logits_are_huge(self) -> None:
        given = TASK.answer(self.example, logits_of(self.example, {6: (1e30, 1e30)}))
        assert given["answer"] == "capital"
        assert np.isfinite(given["score"])
