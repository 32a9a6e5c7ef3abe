"""Does continual multi-task pretraining reach more in an hour than what one would use instead?

  python benchmarks/time_to_quality.py CORPUS --data GLUE --peer PYTHON --output runs/quality [--minutes 60]
  python benchmarks/time_to_quality.py CORPUS --data GLUE --peer PYTHON --output runs/quality --search

CORPUS is a folder that `ernie data build` wrote with a WordPiece tokenizer, GLUE one with the files of
benchmarks/finetuning.py, PYTHON the interpreter of an environment with torch and transformers.  The same text, the same
vocabulary, the same shape (4 layers of 256), and the machine for itself:

  continual      this library, continual multi-task learning
  masked         this library, knowledge masking only
  transformers   BertForMaskedLM in bf16, whole words masked

First the seconds of a step are measured, the arms in turns; that alone needs the machine for itself.  They tell how
many steps an arm has in the time, and so its learning rates; the runs themselves, seed by seed, may share the machine
with other work, and saving is not counted.  What an arm has after every twelfth of the time is fine-tuned on five tasks
by the same command.  What is done is kept, so that the command goes on where it was cut.  `--search` gives transformers
a tenth of the time for each of some batches and learning rates first, and says which of them has the lowest loss.

Set before the first run: continual has what transformers has after an hour within 20 minutes, and ends above it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from evidence import COMMON, FOUR, MASKED, fine_tune, pretrain
from finetuning import TASKS, write_rows

from ernie.data.shards import Corpus
from ernie.train.log import read_records

WITHIN = 1 / 3  # of the time: when continual has to have what transformers ends with
PARTS = 12  # parts of the time
ROUNDS, TRIAL, WARM = 3, 32, 12  # turns in which steps are timed; steps of a turn, and how many of them are not counted
# Without dropout on either side: no text is seen often.
SHAPE = {
    **{"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024},
    **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}
LENGTH = COMMON["data"]["max_len"]
PEER = Path(__file__).parent / "peers" / "pretrain_transformers.py"
ARMS = {
    "continual": {"method": "continual", "tasks": list(FOUR)},
    "masked": {"method": "continual", "tasks": [MASKED]},
    "transformers": None,
}
# Rows of a batch and peak learning rate of the peer; those tried, and the best of them.
TRIED = ((8, 2e-4), (8, 5e-4), (16, 2e-4), (16, 5e-4), (16, 1e-3), (64, 5e-4), (64, 1e-3))
CHOSEN = (16, 5e-4)


@dataclass(frozen=True)
class Part:
    """What an arm has after some of its time: a model, and the seconds of its steps so far."""

    model: Path
    seconds: float


def main() -> None:
    """Run what is missing, print the table, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--peer", metavar="PYTHON", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--search", action="store_true")
    arguments = parser.parse_args()
    if arguments.search:
        search(arguments)
        return
    folder = arguments.output / f"minutes-{arguments.minutes:g}"
    rows = {name: write_rows(task, arguments.data, arguments.output / "data" / name) for name, task in TASKS.items()}
    curves: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in ARMS}
    for seed in range(arguments.seeds):
        parts = {name: pretrained(arguments, name, folder / f"{name}-{seed}", seed) for name in ARMS}
        for name, found in parts.items():
            curve = []
            for number, part in enumerate(found, 1):
                scores = fine_tune(part.model, folder / f"{name}-{seed}" / "downstream" / str(number), rows, seed)
                curve.append((part.seconds / 60, statistics.mean(scores)))
                print(f"{name}-{seed}, {curve[-1][0]:.0f} minutes: {curve[-1][1]:.1%}", file=sys.stderr, flush=True)
            curves[name].append(curve)
    print(table(curves), end="\n\n")
    print(verdict(curves, arguments.minutes))
    draw(curves, folder / "time_to_quality.png")


def pretrained(arguments: argparse.Namespace, arm: str, run: Path, seed: int) -> list[Part]:
    """What an arm has after each part of the time; it is pretrained where it was not."""
    schedule, pace = ARMS[arm], paces(arguments)[arm if ARMS[arm] else peer_at(CHOSEN[0])]
    steps = round(60 * arguments.minutes / pace / PARTS) * PARTS
    if schedule is None:
        if not (run / f"part-{PARTS}").is_dir():
            theirs(arguments, run, seed, steps, PARTS, *CHOSEN)
        models = [run / f"part-{n}" for n in range(1, PARTS + 1)]
    else:
        tree = {**COMMON, "save": {"every": steps // PARTS, "keep_last": PARTS}}
        tasks = len(schedule["tasks"])
        pretrain(arguments.corpus, {"schedule": {**schedule, "steps_per_task": steps // tasks}, **tree}, run, seed)
        models = [run / "checkpoints" / f"step-{n * steps // PARTS:08d}" / "model" for n in range(1, PARTS + 1)]
    return [Part(model, pace * steps * n / PARTS) for n, model in enumerate(models, 1)]


def paces(arguments: argparse.Namespace) -> dict[str, float]:
    """The seconds of a step of each arm, of the peer for each of its batches: medians of rounds in turns, once."""
    place = arguments.output / "paces.json"
    if not place.exists():
        found: dict[str, list[float]] = {}
        for turn in range(ROUNDS):
            for arm, schedule in ARMS.items():
                if schedule is None:
                    continue
                run = arguments.output / "trials" / f"{arm}-{turn}"
                steps = {**schedule, "method": "joint", "steps_per_task": TRIAL // len(schedule["tasks"])}
                pretrain(arguments.corpus, {"schedule": steps, **COMMON}, run, 0)
                # The mean: a step of one task is longer than one of another.
                seconds = [record["seconds"] for record in read_records(run, "step")]
                found.setdefault(arm, []).append(statistics.mean(seconds[WARM:]))
            for rows in dict.fromkeys(rows for rows, _ in TRIED):
                run = arguments.output / "trials" / f"{peer_at(rows)}-{turn}"
                theirs(arguments, run, 0, TRIAL, 1, rows, CHOSEN[1])
                found.setdefault(peer_at(rows), []).append(statistics.mean(their_log(run, "seconds")[WARM:]))
        place.write_text(json.dumps({name: statistics.median(seconds) for name, seconds in found.items()}) + "\n")
    return json.loads(place.read_text(encoding="utf-8"))


def peer_at(rows: int) -> str:
    """What the peer is called where its batches have so many rows."""
    return f"transformers, {rows} rows"


def theirs(arguments: argparse.Namespace, run: Path, seed: int, steps: int, parts: int, rows: int, peak: float) -> None:
    """Pretrain with transformers on all training documents, one after the other."""
    corpus = Corpus.open(arguments.corpus)
    ids = arguments.output / "ids.npy"
    if not ids.exists():
        np.save(ids, np.concatenate([np.asarray(document.ids) for document in corpus.train]))
    options = {
        "ids": ids,
        "vocabulary": arguments.corpus / "tokenizer" / "vocab.txt",
        "shape": json.dumps(SHAPE),
        "output": run,
        "steps": steps,
        "parts": parts,
        "seed": seed,
        "rows": rows,
        "length": LENGTH,
        "peak": peak,
    }
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    subprocess.run([arguments.peer, str(PEER), *words], check=True)


def their_log(run: Path, key: str) -> list[float]:
    """A figure of every step of the peer."""
    return [json.loads(line)[key] for line in (run / "steps.jsonl").read_text(encoding="utf-8").splitlines()]


def search(arguments: argparse.Namespace) -> None:
    """The loss that transformers ends with for some batches and learning rates, a tenth of the time each."""
    print("| rows | peak | steps | loss of the last tenth |\n|---|---|---|---|")
    for rows, peak in TRIED:
        run = arguments.output / "search" / f"{rows}-{peak:g}"
        if not (run / "part-1").is_dir():
            theirs(arguments, run, 0, round(6 * arguments.minutes / paces(arguments)[peer_at(rows)]), 1, rows, peak)
        losses = their_log(run, "loss")
        print(
            f"| {rows} | {peak:g} | {len(losses):,} | {statistics.mean(losses[-len(losses) // 10 :]):.3f} |", flush=True
        )


def table(curves: dict[str, list[list[tuple[float, float]]]]) -> str:
    """The mean score of each arm after each part: the mean of its seeds, lowest to highest."""
    lines = [f"| part of the time | {' | '.join(curves)} |", f"|{'---|' * (len(curves) + 1)}"]
    for part in range(PARTS):
        cells = []
        for runs in curves.values():
            scores = [curve[part][1] for curve in runs]
            cells.append(f"{statistics.mean(scores):.1%} ({min(scores):.1%} to {max(scores):.1%})")
        lines.append(f"| {part + 1}/{PARTS} | {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(curves: dict[str, list[list[tuple[float, float]]]], minutes: float) -> str:
    """Whether what was set before the first run has come true."""
    ends = {name: statistics.mean(curve[-1][1] for curve in runs) for name, runs in curves.items()}
    times = [statistics.mean(curve[part][0] for curve in curves["continual"]) for part in range(PARTS)]
    scores = [statistics.mean(curve[part][1] for curve in curves["continual"]) for part in range(PARTS)]
    reached = next((time for time, score in zip(times, scores, strict=True) if score >= ends["transformers"]), None)
    when = "never" if reached is None else f"after {reached:.0f} minutes"
    kept = reached is not None and reached <= WITHIN * minutes and ends["continual"] > ends["transformers"]
    return (
        f"continual has what transformers ends with ({ends['transformers']:.1%}) {when}, and ends with "
        f"{ends['continual']:.1%}: {'as' if kept else 'not as'} was set"
    )


def draw(curves: dict[str, list[list[tuple[float, float]]]], file: Path) -> None:
    """Mean score against minutes, a line for each seed and one through their means."""
    figure, panel = plt.subplots(figsize=(7, 4.5))
    for number, (name, runs) in enumerate(curves.items()):
        for curve in runs:
            panel.plot(*zip(*curve, strict=True), color=f"C{number}", alpha=0.3)
        mean = np.mean(np.array(runs), axis=0)
        panel.plot(mean[:, 0], mean[:, 1], color=f"C{number}", marker="o", label=name)
    panel.set(xlabel="minutes of pretraining", ylabel="mean of five dev scores")
    panel.grid(alpha=0.3)
    panel.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
