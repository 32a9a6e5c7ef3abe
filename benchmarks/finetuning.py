"""Fine-tuning a published encoder: our dev scores and time beside those of transformers with PyTorch.

The same rows, the same recipe and the same machine, seed by seed in turns; scores of both sides are computed by the
same code from their predictions.  Finished work is kept, so that an interrupted command resumes where it stopped.

  python benchmarks/finetuning.py --data GLUE --model FOLDER --peer PYTHON --output runs/benchmarks/finetuning

GLUE is a folder with the tasks' files as in TASKS, FOLDER a Hugging Face folder of a BERT, PYTHON the interpreter of
an environment that has torch and transformers (without it, only ours runs).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ernie.config import dump
from ernie.data.labeled.read import read_split
from ernie.data.labeled.row import RowOptions
from tasks.downstream.metrics import accuracy, f1, matthews, pearson, spearman

RECIPE = {"max_len": 128, "epochs": 3, "batch": 32, "peak": 5e-5}
SEEDS = (0, 1, 2)
SIDES = ("ours", "transformers")
MEASURES = {"accuracy": accuracy, "f1": f1, "matthews": matthews, "pearson": pearson, "spearman": spearman}
PEER = Path(__file__).parent / "peers" / "finetune_transformers.py"


@dataclass(frozen=True)
class Task:
    """A task: its files, their columns, its label names and its measures; `rows` limits the train split."""

    train: tuple[str, ...]
    dev: tuple[str, ...]
    text: str
    label: str
    measures: tuple[str, ...]
    text_pair: str = ""
    labels: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    quote: str | None = None
    rows: int = 0


_STS = ("genre", "file", "year", "old", "score", "a", "b")
TASKS = {
    "SST-2": Task(
        train=("SST-2/train.tsv",),
        dev=("SST-2/dev.tsv",),
        text="sentence",
        label="label",
        labels=("0", "1"),
        measures=("accuracy",),
        rows=8000,
    ),
    "CoLA": Task(
        train=("CoLA/train_part1.tsv", "CoLA/train_part2_held_out.tsv"),
        dev=("CoLA/dev.tsv",),
        columns=("source", "label", "mark", "sentence"),
        text="sentence",
        label="label",
        labels=("0", "1"),
        measures=("matthews",),
    ),
    "RTE": Task(
        train=("RTE/train.tsv",),
        dev=("RTE/dev.tsv",),
        text="sentence1",
        text_pair="sentence2",
        label="label",
        labels=("not_entailment", "entailment"),
        measures=("accuracy",),
    ),
    "MRPC": Task(
        train=("MRPC/msr-para-train.tsv",),
        dev=("MRPC/msr-para-val.tsv",),
        text="#1 String",
        text_pair="#2 String",
        label="Quality",
        labels=("0", "1"),
        measures=("f1", "accuracy"),
    ),
    "STS-B": Task(
        train=("STS-B/sts-train.csv",),
        dev=("STS-B/sts-dev.csv",),
        columns=_STS,
        text="a",
        text_pair="b",
        label="score",
        measures=("pearson", "spearman"),
    ),
}


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--peer", metavar="PYTHON")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    sides = [side for side in arguments.sides if side == "ours" or arguments.peer]
    for seed in SEEDS:
        for name in arguments.tasks:
            for side in sides:
                file = arguments.output / f"{name}-{side}-{seed}.json"
                if file.exists():
                    continue
                rows = write_rows(TASKS[name], arguments.data, arguments.output / "data" / name)
                if side == "ours":
                    result = ours(name, arguments.model, arguments.output / "runs", rows, seed, RECIPE)
                else:
                    result = theirs(arguments, name, *rows, seed)
                file.write_text(json.dumps(result) + "\n", encoding="utf-8")
                print(file.stem, result, file=sys.stderr, flush=True)
    print(table(arguments.output, arguments.tasks))


def write_rows(task: Task, data: Path, folder: Path) -> tuple[Path, Path]:
    """Write the rows of both splits as JSON lines with `a`, `b` and a numeric label, for both sides."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in ("train", "dev"):
        options = RowOptions(format="tsv", columns=task.columns, quote=task.quote)
        rows = read_split(name, [str(data / file) for file in getattr(task, name)], options).rows
        chosen = rows[: task.rows] if task.rows and name == "train" else rows
        path = folder / f"{name}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for row in chosen:
                label = task.labels.index(row[task.label]) if task.labels else float(row[task.label])
                record: dict[str, Any] = {"a": row[task.text], "label": label}
                if task.text_pair:
                    record["b"] = row[task.text_pair]
                file.write(json.dumps(record) + "\n")
        paths.append(path)
    return paths[0], paths[1]


def ours(
    name: str, model: str, folder: Path, rows: tuple[Path, Path], seed: int, recipe: dict[str, Any]
) -> dict[str, Any]:
    """Fine-tune with this library's own command; the run and its configuration go into `folder`."""
    task, (train, dev) = TASKS[name], rows
    kind = {"kind": "classify", "labels": ["0", "1"]} if task.labels else {"kind": "regress"}
    config = {
        "task": {
            **kind,
            "text": "a",
            "text_pair": "b" if task.text_pair else "",
            "max_len": recipe["max_len"],
            "metrics": list(task.measures),
        },
        "data": {"train": str(train), "dev": str(dev)},
        "train": {key: recipe[key] for key in ("epochs", "batch", "dropout") if key in recipe}
        | {"lr": {"peak": recipe["peak"]}},
    }
    folder.mkdir(parents=True, exist_ok=True)
    file, run = folder / f"{name}.yaml", folder / f"{name}-{seed}"
    file.write_text(dump(config), encoding="utf-8")
    words = ("finetune", str(file), "--model", model, "--seed", str(seed), "--output", str(run), "--quiet")
    subprocess.run([sys.executable, "-m", "ernie.cli", *words], check=True, stdout=subprocess.DEVNULL)
    trial = json.loads((run / "scores.json").read_text(encoding="utf-8"))["trials"][0]
    return {"scores": trial["scores"]["dev"], "seconds": trial["seconds"]}


def theirs(arguments: argparse.Namespace, name: str, train: Path, dev: Path, seed: int) -> dict[str, Any]:
    """Fine-tune with transformers; the best epoch on dev counts, as for ours."""
    task = TASKS[name]
    recipe = json.dumps({**RECIPE, "outputs": len(task.labels) or 1})
    options = {"model": arguments.model, "train": train, "dev": dev, "recipe": recipe, "seed": seed}
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    done = subprocess.run([arguments.peer, str(PEER), *words], check=True, stdout=subprocess.PIPE, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    labels = [json.loads(line)["label"] for line in dev.read_text(encoding="utf-8").splitlines()]
    epochs = [{name: MEASURES[name](labels, answers) for name in task.measures} for answers in result["answers"]]
    return {"scores": max(epochs, key=lambda scores: scores[task.measures[0]]), "seconds": result["train_seconds"]}


def table(output: Path, tasks: list[str]) -> str:
    """The table: median, lowest and highest of the finished seeds, for each task and measure."""
    lines = ["| task | measure | ours | transformers | time, ours / transformers |", "|---|---|---|---|---|"]
    for name in tasks:
        runs = {
            side: [json.loads(path.read_text()) for path in sorted(output.glob(f"{name}-{side}-?.json"))]
            for side in SIDES
        }
        for measure in TASKS[name].measures:
            cells = [spread([run["scores"][measure] for run in runs[side]]) for side in SIDES]
            times = [statistics.median(run["seconds"] for run in runs[side]) if runs[side] else 0.0 for side in SIDES]
            ratio = f"{times[0]:.0f} s / {times[1]:.0f} s" if all(times) else ""
            lines.append(f"| {name} | {measure} | {cells[0]} | {cells[1]} | {ratio} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Median, lowest and highest in percent; for a single seed its value."""
    if len(values) < 2:
        return "".join(f"{value:.1%}" for value in values)
    return f"{statistics.median(values):.1%} ({min(values):.1%} to {max(values):.1%}, {len(values)} seeds)"


if __name__ == "__main__":
    main()
