"""Extractive question answering: the stretch of a passage that answers a question, or that there is none.

Passages longer than a sample are read in windows that overlap, as in BERT's for SQuAD (Devlin et al., 2019, sections
4.2 and 4.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeGuard, TypeVar

import numpy as np

from ernie.data.batch import Layout, Packed
from ernie.data.labelled.row import Row
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer
from tasks.base import pair
from tasks.downstream.base import Answer, Example, FinetuneTask, finetune_task, rounded
from tasks.downstream.reading import cmrc_exact, cmrc_f1, squad_exact, squad_f1

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss

T = TypeVar("T")
_NEAR = 3  # characters by which an answer's place may be off: three of CMRC 2018's are by one or two
_CANDIDATES = 20  # beginnings and ends of a window that are combined


class Window(NamedTuple):
    """One sample's view: the characters (n, 2) of the passage's tokens in it, and where they begin in the sample.

    `best` (n,) says for which of them this window has the most context of all windows.
    """

    offsets: np.ndarray
    begins: int
    best: np.ndarray


@finetune_task("extract")
@dataclass(frozen=True, kw_only=True)
class Extract(FinetuneTask):
    """The answer to `question` in `context`, as it stands there.

    `answers` is a column {text: [...], answer_start: [...]}, as of SQuAD's files; all of them count as right, the
    first is learnt.  `stride` is how many tokens two windows of a passage overlap, `max_question` where questions
    are cut, `max_answer` the longest answer, in tokens.  With `no_answer` a question may have none: none is given
    where the score for it is above that of the best answer by more than `threshold`.
    """

    max_len: int = 384
    question: str = "question"
    context: str = "context"
    answers: str = "answers"
    stride: int = 128
    max_question: int = 64
    max_answer: int = 30
    no_answer: bool = False
    threshold: float = 0.0

    measures: ClassVar = {
        "squad_f1": squad_f1,
        "squad_exact": squad_exact,
        "cmrc_f1": cmrc_f1,
        "cmrc_exact": cmrc_exact,
    }
    usual: ClassVar = 2
    per_token: ClassVar = True
    answer_field: ClassVar = "answers"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_question + self.stride + 3 >= self.max_len:
            raise UserError(
                f"max_len: {self.max_len} tokens cannot hold max_question {self.max_question} + stride {self.stride} "
                "+ 3 and something new"
            )
        if self.max_answer < 1 or self.stride < 0:
            raise UserError("max_answer and stride: expected at least 1 and 0")

    def truth(self, row: Row) -> list[str]:
        texts, _ = self._answers(row)
        if not texts and not self.no_answer:
            raise UserError("the question has no answer; data with such questions need no_answer: true")
        return texts

    def _answers(self, row: Row) -> tuple[list[str], list[int]]:
        """The texts of the right answers, and where they begin, as far as the row says."""
        found = row.cell(self.answers)
        given: Any = found if isinstance(found, dict) else {}
        texts, starts = given.get("text"), given.get("answer_start") or []
        if _all(str, texts) and _all(int, starts):
            return texts, starts
        raise UserError(f"column '{self.answers}': expected {{text: [...], answer_start: [...]}}, found {found!r}")

    def answered(self, answer: Answer) -> str:
        return answer["answer"]

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return self._example(row, tokenizer, None)

    def labelled(self, row: Row, tokenizer: Tokenizer) -> Example:
        return self._example(row, tokenizer, self._span(row))

    def _span(self, row: Row) -> tuple[int, int]:
        """The first answer's characters [start, end); (-1, -1) for none."""
        texts, context = self.truth(row), row.text(self.context)
        if not texts:
            return -1, -1
        _, starts = self._answers(row)
        given = starts[0] if starts else context.find(texts[0])
        around = [start for start in range(given - _NEAR, given + _NEAR + 1) if start >= 0]
        start = next((i for i in sorted(around, key=lambda i: abs(i - given)) if context.startswith(texts[0], i)), None)
        if start is None or given < 0:
            raise UserError(f"the answer '{texts[0]}' does not stand at character {given} of the context")
        return start, start + len(texts[0])

    def _example(self, row: Row, tokenizer: Tokenizer, span: tuple[int, int] | None) -> Example:
        asked = tokenizer.encode(row.text(self.question)).ids
        question = asked[: self.max_question]
        text = row.text(self.context)
        context = tokenizer.encode(text)
        room = self.max_len - len(question) - 3
        starts = window_starts(len(context.ids), room, self.stride)
        samples, windows = [], []
        for i, start in enumerate(starts):
            stop = min(start + room, len(context.ids))
            labels = {} if span is None else _target(context.offsets[start:stop], span, len(question) + 2)
            samples.append(pair(tokenizer, question, context.ids[start:stop], self.max_len, **labels))
            best = _has_most_context(starts, i, room, len(context.ids))
            windows.append(Window(context.offsets[start:stop], len(question) + 2, best))
        empty = not (len(asked) and len(context.ids))
        return Example(tuple(samples), (text, windows), len(asked) - len(question), empty)

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.heads import TokenHead

        return TokenHead(model.config, 2)

    def logits(self, head: nn.Layer, hidden_TD: Tensor, layout: Layout) -> Tensor:
        return head(hidden_TD, np.arange(layout.tokens))

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        from ernie.model.losses import span_cross_entropy

        return span_cross_entropy(logits, batch.layout, batch.labels["start"].values, batch.labels["end"].values)

    def answer(self, example: Example, logits: list[np.ndarray]) -> Answer:
        text, windows = example.notes
        found = [self._best(window, scores) for window, scores in zip(windows, logits, strict=True)]
        score, start, end = max(found)
        nothing = min(float(scores[0].sum()) for scores in logits)
        if self.no_answer and nothing - score > self.threshold:
            return {"answer": "", "start": -1, "score": rounded(nothing - score)}
        return {"answer": text[start:end], "start": start, "score": rounded(score - nothing)}

    def _best(self, window: Window, scores: np.ndarray) -> tuple[float, int, int]:
        """The best stretch of a window: its score and characters."""
        n = len(window.offsets)
        begins, ends = scores[window.begins : window.begins + n].astype(np.float64).T
        best = (-np.inf, 0, 0)
        for b in np.argsort(-np.where(window.best, begins, -np.inf), kind="stable")[:_CANDIDATES]:
            if not window.best[b]:
                break
            stop = min(n, b + self.max_answer)
            e = b + int(ends[b:stop].argmax())
            if begins[b] + ends[e] > best[0]:
                best = (begins[b] + ends[e], int(window.offsets[b, 0]), int(window.offsets[e, 1]))
        return best


def _all(kind: type[T], found: Any) -> TypeGuard[list[T]]:
    return isinstance(found, list) and all(isinstance(item, kind) for item in found)


def window_starts(tokens: int, room: int, stride: int) -> list[int]:
    """Where the windows of a passage begin; the last one ends with it."""
    starts = [0]
    while starts[-1] + room < tokens:
        starts.append(starts[-1] + room - stride)
    return starts


def _has_most_context(starts: Sequence[int], i: int, room: int, tokens: int) -> np.ndarray:
    """For each token of window `i`, whether no other window shows more of what stands around it."""
    stops = [min(start + room, tokens) for start in starts]
    places = np.arange(starts[i], stops[i])

    def context(j: int) -> np.ndarray:
        left, right = places - starts[j], stops[j] - 1 - places
        inside = (left >= 0) & (right >= 0)
        return np.where(inside, np.minimum(left, right) + 0.01 * (stops[j] - starts[j]), -1.0)

    own = context(i)
    others = [(j, context(j)) for j in range(len(starts)) if j != i]
    return np.all([own > there if j < i else own >= there for j, there in others], axis=0) & (own >= 0)


def _target(offsets: np.ndarray, span: tuple[int, int], begins: int) -> dict[str, Any]:
    """The first and the last token of the answer in a window; those of [CLS] where it does not hold all of it."""
    start, end = span
    nowhere = {"start": 0, "end": 0}
    if start < 0 or not len(offsets) or start < offsets[0, 0] or end > offsets[-1, 1]:
        return nowhere
    touched = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return {"start": int(touched[0]) + begins, "end": int(touched[-1]) + begins} if len(touched) else nowhere
