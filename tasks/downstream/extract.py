"""Extractive question answering: the span of a passage that answers a question, if there is any.

As in BERT for SQuAD (Devlin et al., 2019, sections 4.2 and 4.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ernie.data.batch import Layout, Packed
from ernie.data.labeled.questions import read_answers
from ernie.data.labeled.row import Row
from ernie.errors import UserError, about
from ernie.text.tokenizer import Tokenizer
from tasks.base import pair
from tasks.downstream.answer_metrics import cmrc_exact, cmrc_f1, squad_exact, squad_f1
from tasks.downstream.base import Answer, Example, LogitsTask, encode_start, finetune_task, log_mean_softmax, rounded
from tasks.downstream.hooks import EvaluationExamples, ExportNotes
from tasks.downstream.loss_settings import ClassLoss
from tasks.downstream.windows import Window, touched, windows_of, with_most_context

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss

_NEAR = 3  # characters that an answer_start may be off: three in CMRC 2018 are off by one or two
_CANDIDATES = 20  # start positions tried in a window, each with its best end


@finetune_task("extract")
@dataclass(frozen=True, kw_only=True)
class Extract(ClassLoss, LogitsTask, EvaluationExamples, ExportNotes):
    """The answer to `question`, as a span of `context`.

    `answers` is a column {text: [...], answer_start: [...]}, or a list of texts or, as in SQuAD's files, of {text: ...,
    answer_start: ...}. All answers are accepted; the first one is the training target.  `stride` is the overlap of two
    windows of a passage in tokens, `max_question` the length to which questions are cut, `max_answer` the maximum
    length of an answer in tokens.  With `no_answer` a question may have none: the answer is empty if the no-answer
    score exceeds the best answer's by more than `threshold`.
    """

    one_answer: ClassVar[bool] = False
    max_len: int = 384
    question: str = "question"
    context: str = "context"
    answers: str = "answers"
    stride: int = 128
    max_question: int = 64
    max_answer: int = 30
    no_answer: bool = False
    threshold: float = 0.0

    column_fields: ClassVar = ("question", "context", "answers")
    known_metrics: ClassVar = {
        "squad_f1": squad_f1,
        "squad_exact": squad_exact,
        "cmrc_f1": cmrc_f1,
        "cmrc_exact": cmrc_exact,
    }
    default_metrics: ClassVar = 2
    decoding_fields: ClassVar = ("max_answer", "threshold")
    per_token: ClassVar = True
    answer_fields: ClassVar = ("answers",)
    truncating_field: ClassVar = "max_question"  # the context is never cut, but divided into windows

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_question + self.stride + 3 >= self.max_len:
            raise UserError(
                f"max_len: {self.max_len} tokens cannot hold max_question {self.max_question} + stride {self.stride} "
                "+ 3 and something new"
            )
        if self.max_answer < 1 or self.stride < 0:
            raise UserError("max_answer and stride: expected at least 1 and 0")

    @property
    def texts(self) -> tuple[str, ...]:
        return self.question, self.context

    def target(self, row: Row) -> list[str]:
        answers = self._answers(row)
        if not answers and not self.no_answer:
            raise UserError("the question has no answer; data with such questions need no_answer: true")
        return [text for text, _ in answers]

    def _answers(self, row: Row) -> list[tuple[str, int | None]]:
        """Return the accepted answers, and their start positions if the row has them."""
        with about(f"column '{self.answers}'"):
            return [(text, start) for text, start in read_answers(row.cell(self.answers)) if text.strip()]

    def prediction(self, answer: Answer) -> str:
        return answer["answer"]

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return self._example(row, tokenizer, None)

    def training_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        self.target(row)
        answers = self._answers(row)
        if not answers:
            return self._example(row, tokenizer, (-1, -1))
        text, given = answers[0]
        start = _place(row.text(self.context), text, given)
        example = self._example(row, tokenizer, (start, start + len(text)))
        remark = (f"an answer that stands up to {_NEAR} characters beside its answer_start",)
        return replace(example, warnings=example.warnings + remark) if given not in (None, start) else example

    def unlabeled_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return self._example(row, tokenizer, (-1, -1))

    def evaluation_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        spans = self._spans(row)
        example = self._example(row, tokenizer, None, spans)
        if self.target(row) and not spans:
            warnings = "an answer that does not stand in the context, and so cannot be given"
            return replace(example, warnings=(*example.warnings, warnings))
        return example

    def _spans(self, row: Row) -> list[tuple[int, int]]:
        """Return where the accepted answers of a row stand in its context; others are left out."""
        spans = []
        for text, given in self._answers(row):
            with suppress(UserError):
                start = _place(row.text(self.context), text, given)
                spans.append((start, start + len(text)))
        return spans

    def _example(
        self,
        row: Row,
        tokenizer: Tokenizer,
        span: tuple[int, int] | None,
        accepted: Sequence[tuple[int, int]] = (),
    ) -> Example:
        """Make the windows of a row; `span` is the target's characters, (-1, -1) for none, None if unknown.

        `accepted` are the characters of all answers by which the row is evaluated.
        """
        full_question = encode_start(tokenizer, row.text(self.question), self.max_question)
        question = full_question[: self.max_question]
        text = row.text(self.context)
        context = tokenizer.encode(text)
        size, begins = self.max_len - len(question) - 3, len(question) + 2
        parts = windows_of(len(context.ids), size, self.stride)
        most_context = with_most_context(parts)
        answer = touched(context.offsets, *span) if span else None
        samples, windows = [], []
        for i, (start, stop) in enumerate(parts):
            labels = _target(answer, start, stop, begins) if span else {}
            samples.append(pair(tokenizer, question, context.ids[start:stop], self.max_len, **labels))
            windows.append(Window(context.offsets[start:stop], begins, most_context[start:stop] == i))
        empty = not (len(full_question) and len(context.ids))
        wanted = accepted or ([span] if span and span[0] >= 0 else [])
        given = [tokens for found in wanted if (tokens := touched(context.offsets, *found))]
        if wanted and not given:
            warnings: tuple[str, ...] = ("an answer without any token, which cannot be given",)
        else:
            warnings = self._warnings(given, parts, learned=span is not None)
        return Example(tuple(samples), (text, windows), len(full_question) - len(question), empty, warnings)

    def _warnings(
        self, answers: Sequence[tuple[int, int]], windows: Sequence[tuple[int, int]], *, learned: bool
    ) -> tuple[str, ...]:
        """Return a remark if none of the answers, first and last token, can be given.

        Raises UserError for an answer to be learned that is short enough, but that every window cuts.
        """
        short = [(first, last) for first, last in answers if last - first < self.max_answer]
        held = [answer for answer in answers if any(start <= answer[0] and answer[1] < stop for start, stop in windows)]
        if learned and short and not held:
            raise UserError(
                f"the answer stands in no window as a whole: windows overlap by stride {self.stride} tokens, and "
                f"answers have up to max_answer {self.max_answer}; set task.stride to at least {self.max_answer - 1}, "
                "or a smaller task.max_answer"
            )
        if not answers or {*short} & {*held}:
            return ()
        if not short:
            lost = ", and is learned as none, since no window holds it" if learned and not held else ""
            return (f"an answer of more than max_answer {self.max_answer} tokens, which cannot be given{lost}",)
        return (f"an answer that no window holds (stride {self.stride}), which cannot be given",)

    @property
    def reading(self) -> str:
        none = f"; there is none if the sum at [CLS] is larger by over {self.threshold:g}" if self.no_answer else ""
        return (
            "The last axis holds the scores of a token as the first and as the last of the answer, which is the span "
            f"of at most {self.max_answer} tokens of the {self.context} with the largest sum of both{none}."
        )

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.heads import TokenHead

        return TokenHead(model.config, 2)

    def logits(self, head: nn.Layer, hidden_TD: Tensor, layout: Layout) -> Tensor:
        return head(hidden_TD, np.arange(layout.tokens))

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        from ernie.model.losses import span_logits

        scores, among = span_logits(logits, batch.layout)
        targets = np.concatenate([batch.labels["start"].values, batch.labels["end"].values])
        weights = None if batch.weights is None else np.concatenate([batch.weights, batch.weights])
        return self.class_loss(scores, targets, weights, among)

    def divergence(self, logits: Tensor) -> Tensor:
        N, L = logits.shape[0] // 4, logits.shape[1]  # the starts of both passes come before the ends
        return super().divergence(logits.reshape([2, 2, N, L]).transpose([1, 0, 2, 3]).reshape([4 * N, L]))

    def mean_logits(self, members: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        # Over the tokens of all windows: spans of different windows are compared by their logits.
        means = log_mean_softmax([np.concatenate(windows).T for windows in members]).T
        return np.split(means, np.cumsum([len(window) for window in members[0]])[:-1])

    def answer(self, example: Example, logits: list[np.ndarray]) -> Answer:
        text, windows = example.notes
        candidates = [self._best(window, scores) for window, scores in zip(windows, logits, strict=True)]
        score, start, end = max(candidates)
        if not len(windows[0].offsets):
            return {"answer": "", "start": -1, "score": 0.0}  # the passage has no tokens
        no_answer_score = min(float(scores[0].sum()) for scores in logits)
        if self.no_answer and no_answer_score - score > self.threshold:
            return {"answer": "", "start": -1, "score": rounded(no_answer_score - score)}
        return {"answer": text[start:end], "start": start, "score": rounded(score - no_answer_score)}

    def _best(self, window: Window, scores: np.ndarray) -> tuple[float, int, int]:
        """Return the best span of a window: its score and character offsets."""
        n = len(window.offsets)
        begins, ends = scores[window.begins : window.begins + n].astype(np.float64).T
        best = (-np.inf, 0, 0)
        for b in np.argsort(-np.where(window.best, begins, -np.inf), kind="stable")[:_CANDIDATES].tolist():
            if not window.best[b]:
                break
            stop = min(n, b + self.max_answer)
            e = b + int(ends[b:stop].argmax())
            if begins[b] + ends[e] > best[0]:
                best = (begins[b] + ends[e], int(window.offsets[b, 0]), int(window.offsets[e, 1]))
        return best


def _place(context: str, answer: str, given: int | None) -> int:
    """Return where an answer begins: the occurrence nearest to the given position, or the first if none is given.

    Raises UserError if it does not occur nearby.
    """
    if given is None:
        given = context.find(answer)
    around = sorted(range(max(0, given - _NEAR), given + _NEAR + 1), key=lambda i: abs(i - given))
    start = next((i for i in around if context.startswith(answer, i)), None)
    if start is None or given < 0:
        where = f"at character {given} of the context" if given >= 0 else "in the context"
        raise UserError(f"the answer '{answer}' does not stand {where}")
    return start


def _target(answer: tuple[int, int] | None, start: int, stop: int, begins: int) -> dict[str, int]:
    """Return the answer's first and last token in a window's sample; both are [CLS] if the window lacks a part of
    it."""
    if answer is None or answer[0] < start or answer[1] >= stop:
        return {"start": 0, "end": 0}
    return {"start": answer[0] - start + begins, "end": answer[1] - start + begins}
