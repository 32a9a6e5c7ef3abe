"""Does a configuration always give the same bytes, and what does that cost?

  python benchmarks/determinism.py CORPUS --output runs/determinism [--preset mini] [--steps 140]

CORPUS is a folder written by `ernie data build`.  All seven tasks are trained with dropout and several micro-batches,
once for each number of data workers and once more; a run's digest is the SHA-256 of every byte of its checkpoints and
its model.  Two things are done for determinism.  Batches are consumed in the order of the schedule, whichever is ready
first: the cost is at most the time that steps waited.  Sums over tokens have a fixed order, including those of the
embedding rows that tokens share: the cost is at most the time of those sums, relative to that of a step.

Set before the first run: all digests are equal, and determinism costs at most 1 % of a step's time.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from evidence import COMMON, MASKED, OTHERS, pretrain

from ernie.kernels.embedding import embed
from ernie.model.config import EncoderConfig
from ernie.train.log import read_records

WORKERS = (1, 1, 2, 4)
COSTS = 0.01  # of a step's time
WARM = 14  # warm-up steps, not timed
DATA = {"max_len": 128, "micro_batch_tokens": 2048}


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--steps", type=int, default=140)
    arguments = parser.parse_args()
    tree = {
        **COMMON,
        "schedule": {"method": "joint", "steps_per_task": arguments.steps // 7, "tasks": [MASKED, *OTHERS]},
        "model": {"preset": arguments.preset},
        "data": DATA,
        "train": {**COMMON["train"], "micro_batches": 2},
        "probe": {"batches": 4},
        "save": {"every": arguments.steps // 2},
    }
    sums = embedding_sum_seconds(tree)
    print("| data workers | step, ms | waiting for data | sums of embeddings' gradients | digest |")
    print("|---|---|---|---|---|")
    digests, costs = set(), []
    for number, workers in enumerate(WORKERS):
        run = arguments.output / f"{arguments.preset}-{arguments.steps}" / f"{number}-workers-{workers}"
        pretrain(arguments.corpus, {**tree, "data": {**DATA, "workers": workers}}, run, 0)
        steps = read_records(run, "step")[WARM:]
        seconds = statistics.mean(step["seconds"] for step in steps)
        waited = statistics.mean(step["waited"] for step in steps) / seconds
        of_run = digest(run)
        digests.add(of_run)
        costs.append(waited + sums / seconds)
        print(f"| {workers} | {1000 * seconds:.0f} | {waited:.3%} | {sums / seconds:.2%} | {of_run[:16]} |", flush=True)
    same = "all bytes are the same" if len(digests) == 1 else f"{len(digests)} different runs"
    holds = len(digests) == 1 and max(costs) <= COSTS
    print(f"{same}; determinism costs at most {max(costs):.2%}: {'as' if holds else 'not as'} expected")


def digest(run: Path) -> str:
    """The SHA-256 of the names and bytes of all files in a run's checkpoints and model."""
    files = [file for part in ("checkpoints", "model") for file in sorted((run / part).rglob("*")) if file.is_file()]
    state = hashlib.sha256()
    for file in files:
        state.update(f"{file.relative_to(run)}\0{file.stat().st_size}\0".encode())
        state.update(file.read_bytes())
    return state.hexdigest()


def embedding_sum_seconds(tree: dict[str, Any]) -> float:
    """The seconds that the gradients of the embeddings and their LayerNorm take in a step."""
    shape = EncoderConfig.preset(tree["model"]["preset"])
    tokens, width = tree["data"]["micro_batch_tokens"], shape.hidden_size
    rng = np.random.default_rng(0)
    rows = (16000, shape.max_positions, shape.segments, shape.task_vocab_size)
    matrices = [paddle.create_parameter([count, width], "float32") for count in rows]
    gain, offset = (paddle.create_parameter([width], "float32") for _ in range(2))
    ids = [rng.integers(count, size=tokens) for count in rows]
    seconds = []
    for _ in range(50):
        out = embed(ids, matrices, gain, offset, 1e-12)
        start = time.perf_counter()
        out.backward(paddle.ones_like(out))
        seconds.append(time.perf_counter() - start)
    return tree["train"]["micro_batches"] * statistics.median(seconds)


if __name__ == "__main__":
    main()
