"""The latency and quality of a run's translator at several distances from the source, measured on live input.

Ma et al., 2019, "STACL" (arXiv 1810.08398), figure 6: quality against latency.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from ernie.atomic import put_text
from ernie.data.batch import plan_by_length
from ernie.data.labeled.row import Row
from ernie.decode.latency import Latency
from ernie.decode.translator import Progress
from ernie.text.scripts import words_in
from finetune.prepare import Prepared
from inference.commands.translate_lines import END, read_words
from inference.task_model import BATCH_TOKENS, TaskModel
from inference.translator import TextTranslator
from tasks.downstream.scoring import score_answers
from tasks.downstream.translate import Translate

LATENCY_FILE = "latency.json"
DISTANCES: tuple[int | None, ...] = (1, 3, 5, 7, 9, None)
MOST_ROWS = 500  # rows of dev: enough for a curve, at a small fraction of the training time


@dataclass(frozen=True)
class Point:
    """The quality at a distance of `wait_k` tokens (None: whole sentences); `trained` if the model was trained for it.

    `latency` holds mean latencies in words, as a reader of the translation sees them.  Each word of a source is pushed
    alone; a delay counts the words pushed until a word of the translation came.  In scripts without spaces a character
    is a word.  `token_latency` is that of the policy in tokens, which the paper plots: it counts a token as written
    although the rest of its word is missing.  AL and LAAL are against each row's reference.

    `score` is the deciding metric over `rows` rows of the dev split; `left_out` longer ones cannot be read live.
    `seconds` is the computing time per written token, not counted in the latency.  Tokens less probable than the
    `confidence` waited for more of the source, up to `max_wait_k` tokens behind; so did those that would not have been
    the next ones with `agreement` source tokens less.
    """

    wait_k: int | None
    trained: bool
    latency: Latency
    token_latency: Latency
    score: float
    rows: int
    left_out: int
    seconds: float
    confidence: float = 0.0
    agreement: int = 0
    max_wait_k: int | None = None

    @property
    def name(self) -> str:
        """The distance as text."""
        return "whole" if self.wait_k is None else f"k = {self.wait_k}"


def measure_latency(model: TaskModel, task: Translate, dev: Prepared) -> list[Point]:
    """Return a point for each of the usual distances and those trained for, the shortest first.

    There is none if all rows of dev are too long to be read live.
    """
    distances = sorted({*DISTANCES, *task.paths}, key=lambda k: float("inf") if k is None else k)
    translator, given = TextTranslator(model), dev.rows[:MOST_ROWS]
    rows = [row for row in given if not translator.problem(row.text(task.text))]
    return [_point(model, task, rows, len(given) - len(rows), k) for k in distances] if rows else []


def write_latency(folder: Path, points: list[Point]) -> None:
    """Write the points as JSON to a run's folder."""
    put_text(folder / LATENCY_FILE, json.dumps([asdict(point) for point in points], indent=2) + "\n")


def _point(model: TaskModel, task: Translate, rows: Sequence[Row], left_out: int, k: int | None) -> Point:
    translator = TextTranslator(model, task.policy(k))
    began = time.perf_counter()
    translations = translate_live(translator, [row.text(task.text) for row in rows])
    seconds = time.perf_counter() - began
    words, tokens = [], []
    for row, live in zip(rows, translations, strict=True):
        if live.delays:
            references = task.target(row)
            reference = references if isinstance(references, str) else references[0]
            words.append(Latency.of(live.delays, live.words, max(1, len(words_in(reference)))))
            length = len(model.tokenizer.encode(reference).ids)
            tokens.append(Latency.of(live.progress.source_delays, live.progress.source, max(1, length)))
    scores = score_answers(task, rows, [{"translation": live.text} for live in translations])
    written = sum(len(live.progress.written) for live in translations)
    nothing = [Latency(0.0, 0.0, 0.0, 0.0, 0.0)]
    return Point(
        wait_k=k,
        trained=k in task.paths,
        latency=Latency.mean(words or nothing),
        token_latency=Latency.mean(tokens or nothing),
        score=scores[task.scored_by[0]],
        rows=len(rows),
        left_out=left_out,
        seconds=seconds / max(1, written),
        confidence=task.confidence,
        agreement=task.agreement,
        max_wait_k=task.max_wait_k,
    )


class Live(NamedTuple):
    """A translation of live input: its text, for each word of it how many of the source's `words` had been read."""

    text: str
    delays: list[int]
    words: int
    progress: Progress


def translate_live(translator: TextTranslator, texts: Sequence[str]) -> list[Live]:
    """Translate texts as if they arrived word by word, all at the same pace.

    Raises UserError for a text with more tokens than the model has positions for.
    """
    results: dict[int, Live] = {}
    for chosen in plan_by_length([len(text) for text in texts], BATCH_TOKENS):
        for i, live in zip(chosen, _live_batch(translator, [texts[i] for i in chosen]), strict=True):
            results[i] = live
    return [results[i] for i in range(len(texts))]


def _live_batch(translator: TextTranslator, texts: Sequence[str]) -> list[Live]:
    sources = [_words_of(text) for text in texts]
    state = translator.begin(len(texts))
    outputs = [""] * len(texts)
    delays: list[list[int]] = [[] for _ in texts]
    read = [0] * len(texts)
    for pieces in (*zip_longest(*sources, fillvalue=""), None):
        if pieces is None:
            state, new = translator.finish(state)
        else:
            read = [count + len(words_in(piece)) for count, piece in zip(read, pieces, strict=True)]
            state, new = translator.push(state, pieces)
        for n, text in enumerate(new):
            outputs[n] += text
            delays[n] += [read[n]] * len(words_in(text))
    return list(map(Live, outputs, delays, read, state.progress))


def _words_of(text: str) -> list[str]:
    """Split a text into words as live input is; a line break within it is a space."""
    return [str(word) for word in read_words(StringIO(" ".join(text.splitlines()))) if word != END]
