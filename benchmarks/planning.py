"""How well the planner predicts: measure this machine, then run a few steps in each of many layouts.

  python benchmarks/planning.py CORPUS [--output FOLDER] [--layouts '{data: 2}' ...]

An encoder of 4 layers of 256 is trained on masked tokens of a corpus in fp32, with 8 micro-batches of 1,024 tokens per
step.  Each layout is a run of `ernie pretrain`, which reports the cost of its steps; beside it is the planner's
prediction for the measured machine.  The last lines are the rank correlations of predicted and actual time and memory.
Finished runs are kept, and so is the measurement of the machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ernie.parallel.layout import ParallelConfig
from ernie.train.log import read_records
from pretrain.config import load
from pretrain.planner.cost import cost, work_of
from pretrain.planner.machine import Machine
from tasks.downstream.metrics import spearman

LAYOUTS = (
    "{data: 1}",
    "{data: 1, recompute: true}",
    "{data: 2}",
    "{data: 2, recompute: true}",
    "{sharding: 2}",
    "{sharding: 2, sharding_stage: 2}",
    "{sharding: 2, sharding_stage: 3}",
    "{tensor: 2}",
    "{tensor: 2, sequence: true}",
    "{tensor: 2, recompute: true}",
    "{pipeline: 2}",
    "{pipeline: 2, stages: [3, 1]}",
    "{pipeline: 2, recompute: true}",
    "{data: 4}",
    "{sharding: 4}",
    "{sharding: 4, sharding_stage: 3}",
    "{data: 2, tensor: 2}",
    "{data: 2, pipeline: 2}",
    "{tensor: 4}",
    "{tensor: 2, pipeline: 2}",
    "{pipeline: 4}",
)
STEPS = 24
RUN = {
    "schedule": {"stages": [{"knowledge_masking": STEPS}]},
    "model": {"preset": "mini", "vocab_size": 16000},
    "data": {"max_len": 128, "micro_batch_tokens": 1024, "workers": 0},
    "train": {"micro_batches": 8, "precision": "fp32", "lr": {"peak": 1e-4}},
}


def main() -> None:
    """Measure, run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--output", type=Path, default=Path("runs/benchmarks/planning"))
    parser.add_argument("--layouts", nargs="+", default=LAYOUTS, metavar="BLOCK")
    arguments = parser.parse_args()
    folder = arguments.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump({"corpus": str(arguments.corpus.resolve()), **RUN}), encoding="utf-8")
    if not (folder / "cache" / "ernie-continual" / "machine.json").is_file():
        ernie(folder, "plan", str(file), "--devices", "2", "--calibrate")
    print("| layout | step, s | predicted | memory of a process, MB | predicted |\n|---|---|---|---|---|")
    scores = []
    for number, text in enumerate(arguments.layouts):
        layout = ParallelConfig(**yaml.safe_load(text))
        run = folder / f"run-{number}"
        if not (run / "model").is_dir():
            block = [f"parallel={text}", f"parallel.data={layout.degree('data')}"]
            overrides = [word for key in block for word in ("--set", key)]
            ernie(folder, "pretrain", str(file), "--output", str(run), "--processes", str(layout.processes), *overrides)
        scores.append(score := {**read_score(run), **predicted(file, layout, folder)})
        cells = [text.strip("{}"), f"{score['seconds']:.2f}", f"{score['predicted_seconds']:.2f}"]
        cells += [f"{score[key] / 1e6:.0f}" for key in ("memory", "predicted_memory")]
        print(f"| {' | '.join(cells)} |", flush=True)
    for what in ("seconds", "memory"):
        actual, planned = ([score[key] for score in scores] for key in (what, f"predicted_{what}"))
        print(f"\nrank correlation of {what} over {len(scores)} layouts: {spearman(planned, actual):.3f}")


def ernie(folder: Path, *words: str) -> None:
    """Run an `ernie` command with its own cache folder, which holds the measurement for these layers."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run([sys.executable, "-m", "ernie.cli", *words], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"ernie {' '.join(words)}: {done.stdout}{done.stderr}")


def read_score(run: Path) -> dict[str, Any]:
    """The measured cost that a run reports."""
    return next(iter(read_records(run, "layout")))


def predicted(file: Path, layout: ParallelConfig, folder: Path) -> dict[str, float]:
    """The cost that the planner predicts for a layout."""
    config, machine = load(file), Machine.read(folder / "cache" / "ernie-continual" / "machine.json")
    shape = config.model.shape(None)
    stages = layout.layers_per_stage(shape.layers) if layout.pipeline > 1 else ()
    prediction = cost(work_of(config, shape), replace(layout, stages=stages), machine)
    assert prediction is not None, f"{layout}: does not fit into the memory of this machine"
    return {"predicted_seconds": prediction.seconds, "predicted_memory": prediction.memory}


if __name__ == "__main__":
    main()
