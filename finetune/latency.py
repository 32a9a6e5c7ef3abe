"""How early and how well a run's translator answers, at several distances from the source.

Ma et al., 2019, "STACL" (arXiv 1810.08398), figure 6: quality against latency.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ernie.beside import put_text
from ernie.data.batch import plan_by_length
from ernie.decode.latency import Latency
from ernie.model.inference import evaluating, tokenizer_of
from finetune.model import BATCH_TOKENS, FinetunedModel
from finetune.prepare import Prepared
from tasks.downstream.translate import Translate

LATENCY_FILE = "latency.json"
DISTANCES: tuple[int | None, ...] = (1, 3, 5, 7, 9, None)
MOST_ROWS = 500  # of dev: enough for a curve, and a small part of the time that learning took


@dataclass(frozen=True)
class Point:
    """The quality at a distance of `wait_k` tokens (None: whole sentences), which is one that was `learnt` or not.

    `latency` are the means in tokens, each row's measured against its reference, `score` is the deciding measure, over
    `rows` of the dev split; `seconds` it took to compute a token that was written, which the latency does not count.
    """

    wait_k: int | None
    learnt: bool
    latency: Latency
    score: float
    rows: int
    seconds: float

    @property
    def name(self) -> str:
        """The distance in words."""
        return "whole" if self.wait_k is None else f"k = {self.wait_k}"


def measure_latency(model: FinetunedModel, task: Translate, dev: Prepared) -> list[Point]:
    """A point for each of the usual distances and for those that were learnt, the shortest first."""
    asked = sorted({*DISTANCES, *task.paths}, key=lambda k: float("inf") if k is None else k)
    return [_point(model, task, dev, k) for k in asked]


def write_latency(folder: Path, points: list[Point]) -> None:
    """Write them as JSON into a run's folder."""
    put_text(folder / LATENCY_FILE, json.dumps([asdict(point) for point in points], indent=2) + "\n")


def _point(model: FinetunedModel, task: Translate, dev: Prepared, k: int | None) -> Point:
    translator = task.translator(model.ernie, model.head, model.task_id, task.policy(k))
    rows, examples = dev.rows[:MOST_ROWS], dev.examples[:MOST_ROWS]
    texts, found, written, spent = [""] * len(rows), [], 0, 0.0
    tokenizer = tokenizer_of(model.ernie)
    with evaluating(model):
        for chosen in plan_by_length([example.tokens for example in examples], BATCH_TOKENS):
            sources = [examples[i].samples[0].ids[1:-1] for i in chosen]
            began = time.perf_counter()
            progress = translator.translate(sources)
            spent += time.perf_counter() - began
            for i, one in zip(chosen, progress, strict=True):
                texts[i] = tokenizer.decode(one.written)
                written += len(one.written)
                if one.delays:
                    reference = tokenizer.encode(task.truth(rows[i])).ids
                    found.append(Latency.of(one.behind, one.source, max(1, len(reference))))
    scores = task.scores(rows, [{"translation": text} for text in texts])
    latency = Latency.mean(found or [Latency(0.0, 0.0, 0.0, 0.0, 0.0)])
    return Point(k, k in task.paths, latency, scores[task.scored_by[0]], len(rows), spent / max(1, written))
