"""Sentence vectors: texts that belong together get vectors that point in the same direction.

Legend: T packed tokens, N sequences, P rows, C candidates, D width.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ernie.data.batch import Packed, pack
from ernie.data.labeled.row import Row, as_list, is_empty
from ernie.errors import NotFinite, UserError
from ernie.formatting import plural
from ernie.text.blank import is_blank
from ernie.text.tokenizer import Tokenizer
from tasks.downstream.base import Answer, Example, FinetuneTask, encode_start, finetune_task, rounded, text_example
from tasks.downstream.hooks import (
    ComparesAnswers,
    ComparesRows,
    EncoderConditions,
    GroupedRows,
    LossOfVectors,
    PartialTraining,
    SplitRemarks,
)
from tasks.downstream.labels import label_in, number_in
from tasks.downstream.metrics import Pair, cosine_spearman, partner_recall, partner_reciprocal_rank

if TYPE_CHECKING:
    from paddle import Tensor

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss
    from ernie.model.sentence_embedding import SentenceHead

_PAIR = "pair"  # the label of a row's first sample: the number of its samples, and its score as a cosine


@finetune_task("embed")
@dataclass(frozen=True, kw_only=True)
class Embed(
    FinetuneTask,
    ComparesRows,
    ComparesAnswers,
    GroupedRows,
    LossOfVectors,
    EncoderConditions,
    PartialTraining,
    SplitRemarks,
):
    """A vector of length 1 for each text, with a large cosine between two texts that belong together.

    `text` names the column of a text, `text_pair` that of a text that belongs to it.  The model learns to tell the
    latter from those of the other rows in a micro-batch, by a softmax over cosines divided by `temperature`: in-batch
    negatives (Henderson et al., 2017, arXiv 1705.00652, section 4; van den Oord et al., 2018, arXiv 1807.03748).
    `negatives` names a column with a text, or a list of them, that do not belong to it.  With `symmetric` it also
    learns to find the text by its pair.

    With `score`, a column of numbers, it learns the cosine of the two texts by squared error instead.  `limits` are the
    numbers that stand for the cosines 0 and 1; without it scores are cosines.

    With `teacher_scores`, a column with the scores that a cross-encoder gives to the pair and to each of the negatives,
    it learns those as cosines divided by `temperature`.  `distillation` compares their margins (`margin_mse`) or their
    distributions over a row's texts (`kl`).

    With `simcse` it learns from `text` alone: the same text twice, under different dropout (Gao et al., 2021, arXiv
    2104.08821, section 3).  The dev split still needs pairs to judge by.

    `query_prompt` stands before each text, and `document_prompt` before its pair and its negatives, as encoders such as
    E5 want.  The model keeps them as its prompts `query` and `document`.

    `pooling` makes one vector of those of the tokens: their `mean`, or that of [CLS].  `dimensions` lists lengths of
    prefixes of the vectors, over which the loss is averaged, so that each prefix serves as a shorter vector (Kusupati
    et al., 2022, arXiv 2205.13147, section 3).
    """

    text: str = "text"
    text_pair: str = "text_pair"
    negatives: str = ""
    score: str = ""
    limits: tuple[float, float] | None = None
    teacher_scores: str = ""
    distillation: Literal["margin_mse", "kl"] = "margin_mse"
    simcse: bool = False
    query_prompt: str = ""
    document_prompt: str = ""
    pooling: Literal["mean", "cls"] = "mean"
    temperature: float = 0.05
    symmetric: bool = False
    dimensions: tuple[int, ...] = ()

    face: ClassVar[str] = "encode"
    grouped_by: ClassVar = "text"
    compared: ClassVar = ("vector", "pair_vector")
    column_fields: ClassVar = ("text", "text_pair", "negatives", "score", "teacher_scores")
    known_metrics: ClassVar = {
        "spearman": cosine_spearman,
        "mrr": partner_reciprocal_rank,
        "recall_at_1": partner_recall,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.text_pair:
            raise UserError("text_pair: expected the column of the text that belongs to the other")
        if not 0 < self.temperature < math.inf:
            raise UserError(f"temperature: expected a number above 0, found {self.temperature:g}")
        if self.limits is not None and not self.limits[0] < self.limits[1]:
            raise UserError(f"limits: expected a smaller and a larger number, found {list(self.limits)}")
        if any(size < 1 for size in self.dimensions) or len({*self.dimensions}) < len(self.dimensions):
            raise UserError(f"dimensions: expected different lengths above 0, found {list(self.dimensions)}")
        if self.limits is not None and not self.score:
            raise UserError("limits: has no effect without the column `score`; leave it out")
        if "spearman" in self.metrics and not self.score:
            raise UserError("metrics: spearman compares cosines with numbers; name their column by task.score")
        if self.teacher_scores and not self.negatives:
            raise UserError("teacher_scores: are those of the pair and of its `negatives`; name their column")
        if self.distillation == "kl" and not self.teacher_scores:
            raise UserError("distillation: has no effect without the column `teacher_scores`; leave it out, or name it")
        if self.teacher_scores and (self.score or self.simcse or self.symmetric):
            other = "score" if self.score else "simcse" if self.simcse else "symmetric"
            raise UserError(f"teacher_scores: are learned in place of anything else; leave out {other}")
        if self.document_prompt and self.simcse:
            raise UserError("document_prompt: has no effect with `simcse`, whose texts get query_prompt; leave it out")
        for key, given in (("negatives", bool(self.negatives)), ("symmetric", self.symmetric)):
            if given and self.score and not self.simcse:
                raise UserError(f"{key}: has no effect on cosines that are learned from `score`; drop one of them")
            if given and self.simcse:
                raise UserError(f"{key}: has no effect with `simcse`, which learns from single texts; drop one of them")

    @property
    def answer_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        """The field of the column to judge by: a score, or the text to be found."""
        return ("score",) if self.score else ("text_pair",)

    @property
    def scored_by(self) -> tuple[str, ...]:
        return self.metrics or (("spearman",) if self.score else ("mrr", "recall_at_1"))

    @property
    def compares_rows(self) -> bool:
        return self.simcse or not (self.score or self.teacher_scores)

    @property
    def compares_passes(self) -> bool:
        return self.simcse

    def check_encoder(self, ernie: ErnieModel, task_id: int, encoder: str) -> None:
        width, longest = ernie.config.hidden_size, max(self.dimensions, default=0)
        if longest > width:
            raise UserError(f"task.dimensions: {longest}, but the vectors of {encoder} have {width} numbers")
        if task_id:
            raise UserError(
                f"train.task_id: {task_id}, but a model of the kind embed is used as an encoder, with the task "
                "embedding 0; leave it out"
            )

    def initialize(self, ernie: ErnieModel, head: Any) -> None:
        from ernie.model.sentence import SentenceConfig, SentenceLayer

        layers = (SentenceLayer("Normalize"),)
        given = {"query": self.query_prompt, "document": self.document_prompt}
        prompts = given if any(given.values()) else {}
        ernie.sentence_config = SentenceConfig(
            (self.pooling,), layers, max_len=self.max_len, prompts=prompts, similarity="cosine"
        )

    # Rows

    def target(self, row: Row) -> Pair:
        return row.text(self.text), row.text(self.text_pair), self._number(row) if self.score else None

    def group_of(self, row: Row) -> str:
        return row.text(self.text)

    def _number(self, row: Row) -> float:
        label_in(row, self.score)  # raises for an empty cell
        return number_in(row, self.score)

    def _cosine(self, row: Row) -> float:
        """Return the score of a row as a cosine."""
        number = self._number(row)
        low, high = self.limits or (-1.0, 1.0)
        if not low <= number <= high:
            raise UserError(
                f"column '{self.score}': expected a score from {low:g} to {high:g}, found {number:g}; task.limits says "
                "which are the lowest and the highest"
            )
        return number if self.limits is None else (number - low) / (high - low)

    def _negatives(self, row: Row) -> list[str]:
        """Return the texts that do not belong to the row's text.  Raises UserError if one of them does."""
        if not self.negatives or is_empty(cell := row.cell(self.negatives)):
            return []
        is_list = as_list(cell) is not None
        texts = row.texts(self.negatives) if is_list else [row.text(self.negatives)]
        if (positive := row.text(self.text_pair)) in texts:
            raise UserError(
                f"column '{self.negatives}': '{positive:.60}' is also the text of '{self.text_pair}', which belongs to "
                "the row; take it out"
            )
        return texts

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return self._example([row.text(self.text), row.text(self.text_pair)], tokenizer, None)

    def training_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        text = row.text(self.text)
        if self.simcse:
            return self._example([text, text], tokenizer, 0.0)
        pair = row.text(self.text_pair)
        if self.teacher_scores:
            return self._taught_example([text, pair, *self._negatives(row)], self._taught(row), tokenizer)
        return self._example([text, pair, *self._negatives(row)], tokenizer, self._cosine(row) if self.score else 0.0)

    def _taught(self, row: Row) -> list[float]:
        """Return the teacher's scores of the pair and the negatives.  Raises UserError if there are others."""
        negatives, found = self._negatives(row), as_list(row.cell(self.teacher_scores))
        is_number = [isinstance(score, (int, float)) and math.isfinite(score) for score in found or ()]
        if not negatives:
            raise UserError(f"column '{self.negatives}': expected at least one text, whose score is compared")
        if found is None or not all(is_number) or len(found) != 1 + len(negatives):
            raise UserError(
                f"column '{self.teacher_scores}': expected {1 + len(negatives)} numbers, for '{self.text_pair}' and "
                f"for each of '{self.negatives}', found {found!r:.60}"
            )
        return [float(score) for score in found]

    def _taught_example(self, texts: Sequence[str], taught: Sequence[float], tokenizer: Tokenizer) -> Example:
        """Return an example in which each candidate has a target: its number, from 1, and its score."""
        targets = [np.empty((0, 2)), *(np.array([[number, score]], float) for number, score in enumerate(taught, 1))]
        return self._of_texts(texts, tokenizer, [{_PAIR: values} for values in targets])

    def _example(self, texts: Sequence[str], tokenizer: Tokenizer, cosine: float | None) -> Example:
        # The row's only target is at its first sample.
        values = [np.empty((0, 2)) if index else np.array([[len(texts), cosine]], float) for index in range(len(texts))]
        return self._of_texts(texts, tokenizer, [{} if cosine is None else {_PAIR: each} for each in values])

    def _of_texts(self, texts: Sequence[str], tokenizer: Tokenizer, labels: Sequence[dict[str, Any]]) -> Example:
        """Return an example with a sample for each text, which has labels of its own."""
        prompts = [self.query_prompt, *[self.query_prompt if self.simcse else self.document_prompt] * (len(texts) - 1)]
        encoded = [
            encode_start(tokenizer, prompt + text, self.max_len) for prompt, text in zip(prompts, texts, strict=True)
        ]
        parts = [
            text_example(tokenizer, ids, None, self.max_len, own) for ids, own in zip(encoded, labels, strict=True)
        ]
        samples = tuple(sample for part in parts for sample in part.samples)
        return Example(
            samples,
            None,
            sum(part.cut for part in parts),
            any(part.empty for part in parts) or any(map(is_blank, texts)),
        )

    def remarks_on(self, rows: Sequence[Row]) -> list[str]:
        if self.score:
            scores = {self._number(row) for row in rows}
            return [f"every row has the score {min(scores):g}; no correlation is defined"] * (len(scores) == 1)
        counts = Counter(row.text(self.text_pair) for row in rows)
        again = sum(counts.values()) - len(counts)
        if not again:
            return []
        return [
            f"{plural(again, 'row')} with the '{self.text_pair}' of an earlier row; such rows are no negatives of each "
            "other"
        ]

    # Model

    def head(self, model: ErnieModel) -> SentenceHead:
        from ernie.model.sentence_embedding import SentenceHead

        return SentenceHead(model, self.pooling)

    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        return ernie.encode_packed(batch, task_id, batch.layout.starts if self.pooling == "cls" else None)

    def head_loss(self, head: Any, hidden_TD: Tensor, batch: Packed) -> Loss:
        return self.vector_loss(self.vectors(head, hidden_TD, batch), batch)

    def vectors(self, head: Any, hidden_TD: Tensor, batch: Packed) -> Tensor:
        import paddle

        with paddle.amp.auto_cast(enable=False):  # at level O2 Paddle would cast to half precision
            return head(hidden_TD, batch.layout)

    def vector_loss(self, vectors_ND: Tensor, batch: Packed) -> Loss:
        import paddle

        from ernie.model.losses import Loss

        if self.teacher_scores:
            return self._taught_loss(vectors_ND, batch)
        labels = batch.labels[_PAIR].values
        sizes, cosines = labels[:, 0].astype(np.int64), labels[:, 1]
        firsts = np.cumsum(sizes) - sizes
        with paddle.amp.auto_cast(enable=False):
            totals = [
                self._loss_of(vectors_ND[:, :width], firsts, cosines, batch)
                for width in self.dimensions or (vectors_ND.shape[1],)
            ]
        return Loss(sum(totals[1:], totals[0]) / len(totals), len(labels), None, cosines)

    def _taught_loss(self, vectors_ND: Tensor, batch: Packed) -> Loss:
        """Return the loss against the teacher's scores, summed over the candidates of all rows."""
        import paddle
        from paddle.nn.functional import normalize

        from ernie.model.losses import Loss, listwise_divergence, margin_error

        numbers_C, taught_C = batch.labels[_PAIR].values.T
        firsts_P = np.flatnonzero(numbers_C == 1)
        row_C = np.repeat(np.arange(len(firsts_P)), np.diff([*firsts_P, len(numbers_C)]))
        candidates_C = np.arange(len(numbers_C)) + row_C + 1  # a text stands before those of its row
        texts_C = (firsts_P + np.arange(len(firsts_P)))[row_C]
        learn = margin_error if self.distillation == "margin_mse" else listwise_divergence
        with paddle.amp.auto_cast(enable=False):
            totals = []
            for width in self.dimensions or (vectors_ND.shape[1],):
                unit_ND = normalize(vectors_ND[:, :width], axis=1)
                own_CD, other_CD = (paddle.gather(unit_ND, paddle.to_tensor(rows)) for rows in (texts_C, candidates_C))
                totals.append(learn((own_CD * other_CD).sum(axis=1) / self.temperature, taught_C, firsts_P))
        return Loss(sum(totals[1:], totals[0]) / len(totals), len(numbers_C), None, taught_C)

    def _loss_of(self, vectors_ND: Tensor, firsts: np.ndarray, cosines: np.ndarray, batch: Packed) -> Tensor:
        """Return the loss of vectors of one length, summed over the rows, whose first samples are at `firsts` (P,)."""
        import paddle
        from paddle.nn.functional import normalize

        from ernie.model.losses import contrastive, squared_error

        others = np.setdiff1d(np.arange(batch.layout.sequences), [*firsts, *(firsts + 1)])  # mined negatives
        unit_ND = normalize(vectors_ND, axis=1)
        texts_PD, pairs_PD = (paddle.gather(unit_ND, paddle.to_tensor(chosen)) for chosen in (firsts, firsts + 1))
        if not self.compares_rows:
            return squared_error((texts_PD * pairs_PD).sum(axis=1, keepdim=True), cosines).total
        columns = np.concatenate([firsts + 1, others])
        candidates_CD = paddle.gather(unit_ND, paddle.to_tensor(columns))
        excluded_PC = _excluded(batch, firsts, columns)
        total = contrastive(texts_PD, candidates_CD, self.temperature, excluded_PC)
        if not self.symmetric:
            return total
        return (total + contrastive(pairs_PD, texts_PD, self.temperature, excluded_PC[:, : len(firsts)].T)) / 2

    def answer_all(
        self, ernie: ErnieModel, head: Any, examples: Sequence[Example], task_id: int
    ) -> Sequence[Answer | UserError]:
        from ernie.kernels.precision import to_numpy
        from ernie.model.inference import NOT_FINITE
        from ernie.model.sentence import normalized

        packed = pack([sample for example in examples for sample in example.samples])
        hidden_TD = self.encode(ernie, head, packed, task_id)
        vectors_P2D = normalized(to_numpy(head(hidden_TD, packed.layout))).reshape(len(examples), 2, -1)
        return [_answer(*pair) if np.isfinite(pair).all() else NotFinite(NOT_FINITE) for pair in vectors_P2D]

    def prediction(self, answer: Answer) -> tuple[np.ndarray, np.ndarray]:
        return np.array(answer["vector"]), np.array(answer["pair_vector"])


def _answer(text_D: np.ndarray, pair_D: np.ndarray) -> Answer:
    vectors = {"vector": text_D, "pair_vector": pair_D}
    shown: Answer = {name: vector_D.astype(np.float64).round(6).tolist() for name, vector_D in vectors.items()}
    return {**shown, "cosine": rounded(text_D @ pair_D)}


def _excluded(batch: Packed, firsts: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return which candidates (P, C) are no negatives of a row, and are not its own pair either.

    They have the very tokens of a pair of that text, in its own row or in another.
    """
    contents = [ids.tobytes() for ids in np.split(batch.ids, batch.layout.offsets[1:-1])]
    numbers = {content: number for number, content in enumerate(dict.fromkeys(contents))}
    content_N = np.array([numbers[content] for content in contents])
    texts_P, pairs_P, candidates_C = (content_N[chosen] for chosen in (firsts, firsts + 1, columns))
    same_text_PP = (texts_P[:, None] == texts_P).astype(np.float32)
    same_pair_PC = (pairs_P[:, None] == candidates_C).astype(np.float32)
    excluded_PC = same_text_PP @ same_pair_PC > 0
    np.fill_diagonal(excluded_PC, False)  # the first candidates are the pairs
    return excluded_PC
