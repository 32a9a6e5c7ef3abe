"""The latency and quality of a run's translator at several distances from the source.

Ma et al., 2019, "STACL" (arXiv 1810.08398), figure 6: quality against latency.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ernie.atomic import put_text
from ernie.data.batch import plan_by_length
from ernie.decode.latency import Latency
from ernie.model.inference import evaluating, tokenizer_of
from finetune.model import BATCH_TOKENS, FinetunedModel
from finetune.prepare import Prepared
from tasks.downstream.translate import Translate

LATENCY_FILE = "latency.json"
DISTANCES: tuple[int | None, ...] = (1, 3, 5, 7, 9, None)
MOST_ROWS = 500  # of dev: enough for a curve, at a small fraction of the training time


@dataclass(frozen=True)
class Point:
    """The quality at a distance of `wait_k` tokens (None: whole sentences); `trained` if the model was trained for it.

    `latency` holds mean latencies in tokens, AL and LAAL against each row's reference; `score` is the deciding metric
    over `rows` rows of the dev split; `seconds` is the computing time per written token, not counted in the latency.
    """

    wait_k: int | None
    trained: bool
    latency: Latency
    score: float
    rows: int
    seconds: float

    @property
    def name(self) -> str:
        """The distance as text."""
        return "whole" if self.wait_k is None else f"k = {self.wait_k}"


def measure_latency(model: FinetunedModel, task: Translate, dev: Prepared) -> list[Point]:
    """Return a point for each of the usual distances and those trained for, the shortest first."""
    distances = sorted({*DISTANCES, *task.paths}, key=lambda k: float("inf") if k is None else k)
    return [_point(model, task, dev, k) for k in distances]


def write_latency(folder: Path, points: list[Point]) -> None:
    """Write the points as JSON to a run's folder."""
    put_text(folder / LATENCY_FILE, json.dumps([asdict(point) for point in points], indent=2) + "\n")


def _point(model: FinetunedModel, task: Translate, dev: Prepared, k: int | None) -> Point:
    translator = task.translator(model.ernie, model.head, model.task_id, task.policy(k))
    rows, examples = dev.rows[:MOST_ROWS], dev.examples[:MOST_ROWS]
    texts, latencies, written, seconds = [""] * len(rows), [], 0, 0.0
    tokenizer = tokenizer_of(model.ernie)
    with evaluating(model):
        for chosen in plan_by_length([example.tokens for example in examples], BATCH_TOKENS):
            sources = [examples[i].samples[0].ids[1:-1] for i in chosen]
            began = time.perf_counter()
            translations = translator.translate(sources)
            seconds += time.perf_counter() - began
            for i, progress in zip(chosen, translations, strict=True):
                texts[i] = tokenizer.decode(progress.written)
                written += len(progress.written)
                if progress.delays:
                    reference = tokenizer.encode(task.reference(rows[i])).ids
                    latencies.append(Latency.of(progress.source_delays, progress.source, max(1, len(reference))))
    scores = task.scores(rows, [{"translation": text} for text in texts])
    latency = Latency.mean(latencies or [Latency(0.0, 0.0, 0.0, 0.0, 0.0)])
    return Point(k, k in task.paths, latency, scores[task.scored_by[0]], len(rows), seconds / max(1, written))
