"""Does one configuration give the same bytes every time, and what does that cost?

  python benchmarks/determinism.py CORPUS --output runs/determinism [--preset mini] [--steps 140]

CORPUS is a folder that `ernie data build` wrote.  All seven tasks are learnt with dropout and several micro-batches,
once for each number of data workers and once more; a run's digest is the SHA-256 of every byte of its checkpoints and
of its model.  Two things are done for determinism's sake.  Batches are handed over in the order of the schedule,
whichever is ready first: its cost is at most the time that steps waited.  Sums over tokens are made in one order, the
rows of embeddings that tokens share among them: its cost is at most the time of those sums, beside that of a step.

Set before the first run: all digests are one, and determinism costs at most 1 % of a step's time.
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
WARM = 14  # steps that are not timed
DATA = {"max_len": 128, "batch_tokens": 2048}


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
    sums = summing(tree)
    print("| data workers | step, ms | waiting for data | sums of embeddings' gradients | digest |")
    print("|---|---|---|---|---|")
    digests, costs = set(), []
    for number, workers in enumerate(WORKERS):
        run = arguments.output / f"{arguments.preset}-{arguments.steps}" / f"{number}-workers-{workers}"
        pretrain(arguments.corpus, {**tree, "data": {**DATA, "workers": workers}}, run, 0)
        steps = read_records(run, "step")[WARM:]
        seconds = statistics.mean(step["seconds"] for step in steps)
        waited = statistics.mean(step["waited"] for step in steps) / seconds
        found = digest(run)
        digests.add(found)
        costs.append(waited + sums / seconds)
        print(f"| {workers} | {1000 * seconds:.0f} | {waited:.3%} | {sums / seconds:.2%} | {found[:16]} |", flush=True)
    same = "all bytes are the same" if len(digests) == 1 else f"{len(digests)} different runs"
    kept = len(digests) == 1 and max(costs) <= COSTS
    print(f"{same}; determinism costs at most {max(costs):.2%}: {'as' if kept else 'not as'} was set")


def digest(run: Path) -> str:
    """The SHA-256 of all files of a run's checkpoints and model, and of their names."""
    files = [file for part in ("checkpoints", "model") for file in sorted((run / part).rglob("*")) if file.is_file()]
    found = hashlib.sha256()
    for file in files:
        found.update(f"{file.relative_to(run)}\0{file.stat().st_size}\0".encode())
        found.update(file.read_bytes())
    return found.hexdigest()


def summing(tree: dict[str, Any]) -> float:
    """The seconds that gradients of the embeddings take in a step, those of their LayerNorm with them."""
    shape = EncoderConfig.preset(tree["model"]["preset"])
    tokens, width = tree["data"]["batch_tokens"], shape.hidden_size
    rng = np.random.default_rng(0)
    rows = (16000, shape.max_positions, shape.segments, shape.task_vocab_size)
    tables = [paddle.create_parameter([count, width], "float32") for count in rows]
    gain, offset = (paddle.create_parameter([width], "float32") for _ in range(2))
    ids = [rng.integers(count, size=tokens) for count in rows]
    seconds = []
    for _ in range(50):
        out = embed(ids, tables, gain, offset, 1e-12)
        began = time.perf_counter()
        out.backward(paddle.ones_like(out))
        seconds.append(time.perf_counter() - began)
    return tree["train"]["micro_batches"] * statistics.median(seconds)


if __name__ == "__main__":
    main()
