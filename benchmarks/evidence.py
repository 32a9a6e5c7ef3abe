"""Does continual multi-task pretraining pay?  The ablation, and every task by itself, at a size two cores train.

  python benchmarks/evidence.py ablation CORPUS --output runs/evidence [--data GLUE] [--steps 1000] [--seeds 0 1 2]
  python benchmarks/evidence.py tasks    CORPUS --output runs/evidence [--data GLUE]

CORPUS is a folder that `ernie data build` wrote.  Each arm is pretrained, seed by seed, and where GLUE is given, a
folder with the files of benchmarks/finetuning.py, fine-tuned on five tasks, the first 3,000 rows of each; what is done
is kept, so that the command goes on where it was cut.  What came out of each arm is a small file under `--records` (by
default in OUTPUT): an arm that is there is not run again, and all that are there make the tables.

ablation: knowledge masking, capitalization, token-document relation and sentence reordering with equal steps each, in
three schedules (Sun et al., 2019, section 4.4).  Set before the first run: sequential learning loses at least 15 % of
the held-out masked accuracy of its first stage by the end, continual multi-task learning at most 5 % of its own best.

tasks: each of the others added to knowledge masking, at equal total steps.  Set before the first run: the task's own
held-out metric lies above that of always answering the most frequent label, its 95 % interval wholly so; and where
the task embeddings change places, the held-out masked loss rises.  What a task changes downstream is told with its
interval, whatever its sign.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from finetuning import TASKS, ours, spread, write_rows

from ernie.train.log import read_records
from pretrain import folder as run_folder
from pretrain.config import ModelConfig
from pretrain.model import build_model
from pretrain.probe import Probe

FORGETS, KEEPS = 0.15, 0.05  # shares of an accuracy: what sequential learning loses, what continual learning may
RECIPE = {"max_len": 128, "epochs": 3, "batch": 32, "peak": 2e-4}
ROWS = 3000  # that each task is learnt from
SEEDS = (0, 1, 2)
MASKED = "knowledge_masking"
FOUR = (MASKED, "capitalization", "token_document", "sentence_reordering")
OTHERS = (*FOUR[1:], "sentence_distance", "discourse_relation", "ir_relevance")
COMMON: dict[str, Any] = {
    "model": {"preset": "mini", "dropout": 0.0, "attention_dropout": 0.0},  # no text is seen often
    "data": {"max_len": 64, "batch_tokens": 1024},
    "train": {"rate": {"peak": 1e-3, "warmup": 0.05}},
    "probe": {"batches": 32},
    "objectives": {MASKED: {"share": 0.25}},
}


def arms(experiment: str, steps: int) -> dict[str, dict[str, Any]]:
    """The schedule of each arm; `steps` are those of each of the ablation's tasks."""
    if experiment == "ablation":
        methods = ("sequential", "joint", "continual")
        return {name: {"method": name, "steps_per_task": steps, "tasks": list(FOUR)} for name in methods}
    total = 2 * steps
    alone = {MASKED: {"stages": [{MASKED: total}]}}
    return alone | {name: {"stages": [{MASKED: total // 2, name: total - total // 2}]} for name in OTHERS}


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=("ablation", "tasks"))
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--data", type=Path, metavar="GLUE")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--records", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    name = f"{arguments.experiment}-{arguments.steps}"
    folder, records = arguments.output / name, (arguments.records or arguments.output / "records") / name
    chosen = arms(arguments.experiment, arguments.steps)
    rows = downstream_rows(arguments.data, arguments.output / "data") if arguments.data else {}

    def record(arm: str, seed: int) -> dict[str, Any]:
        run = pretrain(arguments.corpus, {"schedule": chosen[arm], **COMMON}, folder / f"{arm}-{seed}", seed)
        found = {task: measured(run, task) for task in (MASKED, *OTHERS)}
        return {
            "measured": {task: scores for task, scores in found.items() if scores},
            "task ids swapped": swapped(run) if arguments.experiment == "tasks" and arm != MASKED else None,
            "downstream": fine_tune(run, run / "downstream", rows, seed) if rows else [],
        }

    for seed in arguments.seeds:
        for arm in chosen:
            kept(records / f"{arm}-{seed}.json", partial(record, arm, seed))
    found = {arm: there for arm in chosen if (there := read_records_of(records, arm))}
    print((ablation if arguments.experiment == "ablation" else each_task)(found), end="\n\n")
    if all(record["downstream"] for records in found.values() for record in records):
        print(downstream(found))


def kept(place: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The record in a file, made where there is none yet."""
    if not place.exists():
        found = make()
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{place.stem} is done", file=sys.stderr, flush=True)
    return json.loads(place.read_text(encoding="utf-8"))


def read_records_of(records: Path, arm: str) -> list[dict[str, Any]]:
    """The records of an arm, seed by seed."""
    return [json.loads(place.read_text(encoding="utf-8")) for place in sorted(records.glob(f"{arm}-[0-9].json"))]


def downstream_rows(data: Path, folder: Path) -> dict[str, tuple[Path, Path]]:
    """The rows of both splits of each task."""
    return {name: write_rows(replace(task, rows=ROWS), data, folder / name) for name, task in TASKS.items()}


def pretrain(corpus: Path, tree: dict[str, Any], run: Path, seed: int) -> Path:
    """The folder of a run that is done; `tree` is its configuration."""
    if not (run / "model").is_dir():
        run.parent.mkdir(parents=True, exist_ok=True)
        config = run.with_name(f"{run.name}.yaml")
        tree = {"corpus": str(corpus.resolve()), **tree}
        config.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
        words = ("pretrain", str(config), "--seed", str(seed), "--output", str(run), "--quiet")
        subprocess.run([sys.executable, "-m", "ernie.cli", *words], check=True, stdout=subprocess.DEVNULL)
    return run


def fine_tune(model: Path, folder: Path, rows: dict[str, tuple[Path, Path]], seed: int) -> list[float]:
    """The headline of each task's dev scores after fine-tuning, in the order of TASKS; what is done is in `folder`."""
    scores = []
    for name, task in TASKS.items():
        place = folder / f"{name}.json"
        if not place.exists():
            found = ours(name, str(model), folder, rows[name], seed, RECIPE)
            place.write_text(json.dumps(found) + "\n", encoding="utf-8")
        scores.append(json.loads(place.read_text(encoding="utf-8"))["scores"][task.measures[0]])
    return scores


def measured(run: Path, task: str) -> list[dict[str, Any]]:
    """The headline of a task after each stage."""
    return [
        next(iter(probe["scores"].values()))
        for probe in read_records(run, "probe")
        if probe["task"] == task and probe["ends_stage"]
    ]


def ablation(arms: dict[str, list[dict[str, Any]]]) -> str:
    """What each schedule has forgotten of the masked tokens, and where its tasks end."""
    lines = [f"| schedule | {' | '.join(FOUR)} | masked tokens forgotten |", f"|{'---|' * (len(FOUR) + 2)}"]
    for name, records in arms.items():
        ends = [spread([record["measured"][task][-1]["value"] for record in records]) for task in FOUR]
        lost = [forgotten([score["value"] for score in record["measured"][MASKED]], name) for record in records]
        judged = ""
        if name == "sequential":
            judged = ", as expected" if statistics.median(lost) >= FORGETS else f", less than {FORGETS:.0%}"
        if name == "continual":
            judged = ", as expected" if statistics.median(lost) <= KEEPS else f", more than {KEEPS:.0%}"
        lines.append(f"| {name} | {' | '.join(ends)} | {spread(lost)}{judged} |")
    return "\n".join(lines)


def forgotten(scores: Sequence[float], schedule: str) -> float:
    """The share that is lost of the first stage's score (sequential), or of the best one."""
    reference = scores[0] if schedule == "sequential" else max(scores)
    return 1 - scores[-1] / reference


def each_task(arms: dict[str, list[dict[str, Any]]]) -> str:
    """Each added task by its own metric, beside always answering the most frequent label; and its task embedding."""
    lines = ["| task | metric | held out | majority | intervals above it | task ids swapped |", f"|{'---|' * 6}"]
    for name, records in arms.items():
        scores = [record["measured"][name][-1] for record in records]
        above = sum(score["low"] > score["majority"] for score in scores)
        value = spread([score["value"] for score in scores])
        majority = statistics.median(score["majority"] for score in scores)
        swaps = "" if name == MASKED else spread([record["task ids swapped"] for record in records])
        cells = [name, scores[0]["name"], value, f"{majority:.1%}", f"{above} of {len(scores)}", swaps]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def swapped(run: Path) -> float:
    """The share by which the held-out masked loss rises where the embeddings of a run's two tasks change places."""
    config, corpus = run_folder.read(run)
    model = build_model(replace(config, model=ModelConfig(start_from=run / "model")), corpus.tokenizer)
    model.adopt_masked_head()
    probe = Probe(config, corpus)

    def loss() -> float:
        return math.log(probe.measure(model, MASKED)["perplexity"].value)

    table, before = model.ernie.embedding.task.weight, loss()
    rows = table.numpy()
    rows[[0, 1]] = rows[[1, 0]]
    table.set_value(rows)
    return loss() / before - 1


def downstream(arms: dict[str, list[dict[str, Any]]]) -> str:
    """The dev scores after fine-tuning, and their mean."""
    heads = [f"{name} ({task.measures[0]})" for name, task in TASKS.items()]
    lines = [f"| pretrained with | {' | '.join(heads)} | mean |", f"|{'---|' * (len(heads) + 2)}"]
    for arm, records in arms.items():
        found = [record["downstream"] for record in records]
        columns = [spread(list(column)) for column in zip(*found, strict=True)]
        lines.append(f"| {arm} | {' | '.join(columns)} | {spread([statistics.mean(row) for row in found])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
