"""Does continual multi-task pretraining reach more in an hour than what one would use instead?

  python benchmarks/time_to_quality.py CORPUS --data GLUE --peer PYTHON --output runs/quality [--minutes 60]
  python benchmarks/time_to_quality.py CORPUS --data GLUE --peer PYTHON --output runs/quality --search

CORPUS is a folder that `ernie data build` wrote with a WordPiece tokenizer, GLUE one with the files of
benchmarks/finetuning.py, PYTHON the interpreter of an environment with torch and transformers.  The same text, the same
vocabulary, the same shape (4 layers of 256), and the machine for itself:

  continual          this library, continual multi-task learning
  masked             this library, knowledge masking only
  continual-moments  continual learning of the tasks that so few steps do teach, as benchmarks/pretrain/en.yaml has it:
                     AdamW's moments for each task, beta2 0.999
  masked-beta2       knowledge masking only, beta2 0.999, to compare with it
  transformers       BertForMaskedLM, compiled, in the precision that is the faster one here, whole words masked

First the seconds of a step are measured, the arms in turns; that alone needs the machine for itself.  They tell how
many steps an arm has in the time, and so its learning rates; the runs themselves, seed by seed, may share the machine
with other work, and saving is not counted.  What an arm has after every part of the time is fine-tuned on five tasks
by the same command (`--at` names some of the parts, for less), and asked for the same held-out words, all of which are
hidden: the losses of training cannot be compared, as ours shows every tenth word that is to be told.  What is done is
kept, so that the command goes on where it was cut; what came out of each part of an arm is a small file under
`--records` (by default in OUTPUT), and all that are there make the table; the seconds of a step lie beside them.  Those
that are missing are measured, in turns with `masked`, whose seconds lie there from another machine perhaps: then an
arm's are as many times as long as they are here.  `--search` gives transformers a fifth of the
time for each of some learning rates first, and says which of them has the lowest loss.

Set before the first run: continual has what transformers has at the end within a third of the time, and ends above it.
Set before the first run of continual-moments: its mean of dev scores at the end is above that of masked-beta2, over
three seeds by more than the standard error of the difference, and its loss of hidden words is at most 0.1 higher.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from evidence import (
    COMMON,
    MASKED,
    SEEDS,
    TUNED,
    downstream_rows,
    fine_tune,
    hidden_words,
    kept,
    pretrain,
    read_records_of,
)

from ernie.data.shards import Corpus
from ernie.train.log import read_records

WITHIN = 1 / 3  # of the time: when continual has to have what transformers ends with
# Turns in which steps are timed; steps of a turn for each task, and how many of them are not counted.
ROUNDS, TRIAL, WARM = 3, 40, 12
HUNDREDTHS = 100  # of the steps: the shares of the arms are such
# Without dropout on either side: no text is seen often.
SHAPE = {
    **{"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024},
    **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}
LENGTH = COMMON["data"]["max_len"]
PEER = Path(__file__).parent / "peers" / "pretrain_transformers.py"


@dataclass(frozen=True)
class Arm:
    """The stages of one of ours, each task by its share of all steps, and what of the configuration is its own."""

    stages: tuple[dict[str, float], ...]
    own: dict[str, Any] = field(default_factory=dict)

    @property
    def tree(self) -> dict[str, Any]:
        """The configuration, but for schedule and corpus."""
        return COMMON | {key: COMMON[key] | value for key, value in self.own.items()}


_BETA2 = {"adam": {"beta2": 0.999}}
# So little time is best spent on words (as in benchmarks/pretrain/en.yaml); each new task has a twentieth, and goes on
# with a hundredth a stage; IR relevance, which is learnt late and in passages, more.
ARMS: dict[str, Arm | None] = {
    "continual": Arm(
        (
            {MASKED: 0.58},
            {MASKED: 0.08, "capitalization": 0.05},
            {MASKED: 0.08, "capitalization": 0.01, "token_document": 0.05},
            {MASKED: 0.08, "capitalization": 0.01, "token_document": 0.01, "sentence_reordering": 0.05},
        )
    ),
    "masked": Arm(({MASKED: 1.0},)),
    "continual-moments": Arm(
        (
            {MASKED: 0.62},
            {MASKED: 0.08, "ir_relevance": 0.08},
            {MASKED: 0.05, "ir_relevance": 0.03, "capitalization": 0.03},
            {MASKED: 0.05, "ir_relevance": 0.03, "capitalization": 0.01, "token_document": 0.02},
        ),
        {"train": _BETA2 | {"moments": "each_task"}, "objectives": {"ir_relevance": {"max_len": 128}}},
    ),
    "masked-beta2": Arm(({MASKED: 1.0},), {"train": _BETA2}),
    "transformers": None,
}
# The peer: rows of a batch, the peak learning rates that --search tries, and the one that is taken.
ROWS, TRIED, CHOSEN = 16, (5e-5, 1e-4, 2e-4, 3e-4, 5e-4), 1e-4
SEARCHED = 1 / 5  # of the time: for each of them
PRECISION = "fp32"  # 1,024 tokens: 0.30 s, in bf16 0.41 s; not compiled 0.33 s and 0.59 s (torch 2.15)


@dataclass(frozen=True)
class Part:
    """What an arm has after some of its time: a model, and the seconds of its steps so far."""

    model: Path
    seconds: float


@dataclass(frozen=True)
class Point:
    """The mean of five dev scores after so many minutes, of each seed that was fine-tuned with dropout, and the losses
    of hidden words, of each."""

    minutes: float
    scores: list[float]
    losses: list[float]

    @property
    def mean(self) -> float:
        return statistics.mean(self.scores)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--peer", metavar="PYTHON", help="needed for the arm transformers")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--parts", type=int, default=12, help="into how many the time is divided; each leaves a model")
    parser.add_argument("--at", type=int, nargs="+", metavar="PART", help="fine-tune these only")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--records", type=Path, metavar="DIR")
    parser.add_argument("--search", action="store_true")
    arguments = parser.parse_args()
    if arguments.peer is None and (arguments.search or "transformers" in arguments.arms):
        parser.error("the arm transformers needs --peer PYTHON; or name others with --arms")
    if arguments.search:
        search(arguments)
        return
    name = f"minutes-{arguments.minutes:g}"
    folder, records = arguments.output / name, (arguments.records or arguments.output / "records") / name
    rows = downstream_rows(arguments.data, arguments.output / "data")

    def record(arm: str, seed: int, number: int) -> dict[str, Any]:
        run = folder / f"{arm}-{seed}"
        part = pretrained(arguments, arm, run, seed)[number - 1]
        scores = fine_tune(part.model, run / "downstream" / str(number), rows, seed)
        hidden = hidden_words(part.model, arguments.corpus)
        return {"minutes": part.seconds / 60, "hidden words": hidden, TUNED: scores}

    every = range(1, arguments.parts + 1)
    places = parts(records, arguments.parts)
    for seed in arguments.seeds:
        for arm in arguments.arms:
            for number in arguments.at or every:
                kept(places[number] / f"{arm}-{seed}.json", partial(record, arm, seed, number))
    curves = {arm: tuned for arm in ARMS if (tuned := {n: p for n, p in points(places, arm).items() if p.scores})}
    print(table(curves), end="\n\n")
    if all(arguments.parts in curves.get(arm, {}) for arm in ("continual", "transformers")):
        print(verdict(curves, arguments.minutes))


def parts(records: Path, count: int) -> dict[int, Path]:
    """Where the records of each part of the time lie."""
    return {number: records / f"{number}-of-{count}" for number in range(1, count + 1)}


def points(places: dict[int, Path], arm: str) -> dict[int, Point]:
    """What there is of an arm, part by part."""
    found = {number: there for number, place in places.items() if (there := read_records_of(place, arm))}
    return {
        number: Point(
            there[0]["minutes"],
            [statistics.mean(record[TUNED]) for record in there if TUNED in record],
            [record["hidden words"]["loss"] for record in there],
        )
        for number, there in found.items()
    }


def pretrained(arguments: argparse.Namespace, arm: str, run: Path, seed: int) -> list[Part]:
    """What an arm has after each part of the time; it is pretrained where it was not."""
    ours, pace = ARMS[arm], paces(arguments)[arm]
    count = arguments.parts
    steps = round(60 * arguments.minutes / pace / count / HUNDREDTHS) * count * HUNDREDTHS
    if ours is None:
        if not (run / f"part-{count}").is_dir():
            theirs(arguments, run, seed, steps, count, CHOSEN)
        models = [run / f"part-{n}" for n in range(1, count + 1)]
    else:
        # Stages end in checkpoints too, and none may go.
        tree = {**ours.tree, "save": {"every": steps // count, "keep_last": count + len(ours.stages)}}
        pretrain(arguments.corpus, {"schedule": stages(ours.stages, steps), **tree}, run, seed)
        models = [run / "checkpoints" / f"step-{n * steps // count:08d}" / "model" for n in range(1, count + 1)]
    return [Part(model, pace * steps * n / count) for n, model in enumerate(models, 1)]


def paces(arguments: argparse.Namespace) -> dict[str, float]:
    """The seconds of a step of each arm that is asked for: medians of rounds in turns, once."""
    place = (arguments.records or arguments.output / "records") / "paces.json"
    known: dict[str, float] = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    if missing := [arm for arm in arguments.arms if arm not in known]:
        found: dict[str, list[float]] = {}
        for turn in range(ROUNDS):
            for arm in dict.fromkeys(["masked", *missing]):
                run = arguments.output / "trials" / f"{arm}-{turn}"
                found.setdefault(arm, []).append(step_seconds(arguments, arm, run))
        medians = {name: statistics.median(seconds) for name, seconds in found.items()}
        elsewhere = known.get("masked", medians["masked"]) / medians["masked"]
        known |= {arm: round(medians[arm] * elsewhere, 4) for arm in medians if arm not in known}
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return known


def stages(shares: tuple[dict[str, float], ...], steps: int) -> dict[str, Any]:
    """The schedule that gives each task its share of the steps."""
    return {"stages": [{task: round(share * steps) for task, share in stage.items()} for stage in shares]}


def step_seconds(arguments: argparse.Namespace, arm: str, run: Path) -> float:
    """The seconds of a step in the mean, in some steps of each task: one of one task is longer than one of another."""
    ours = ARMS[arm]
    if ours is None:
        theirs(arguments, run, 0, TRIAL, 1, CHOSEN)
        return statistics.mean(their_log(run, "seconds")[WARM:])
    tasks = {task: sum(stage.get(task, 0) for stage in ours.stages) for task in ours.stages[-1]}
    schedule = {"method": "joint", "steps_per_task": TRIAL, "tasks": list(tasks)}
    pretrain(arguments.corpus, {"schedule": schedule, **ours.tree}, run, 0)
    found: dict[str, list[float]] = {}
    for record in list(read_records(run, "step"))[WARM * len(tasks) :]:
        (task,) = record["loss"]
        found.setdefault(task, []).append(record["seconds"])
    return sum(share * statistics.median(found[task]) for task, share in tasks.items())


def theirs(arguments: argparse.Namespace, run: Path, seed: int, steps: int, parts: int, peak: float) -> None:
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
        "rows": ROWS,
        "length": LENGTH,
        "precision": PRECISION,
        "peak": peak,
    }
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    subprocess.run([arguments.peer, str(PEER), *words], check=True)


def their_log(run: Path, key: str) -> list[float]:
    """A figure of every step of the peer."""
    return [json.loads(line)[key] for line in (run / "steps.jsonl").read_text(encoding="utf-8").splitlines()]


def search(arguments: argparse.Namespace) -> None:
    """The loss that transformers ends with for some learning rates."""
    steps = round(60 * arguments.minutes * SEARCHED / paces(arguments)["transformers"])
    print(f"{steps:,} steps\n\n| peak | loss of the last tenth |\n|---|---|")
    for peak in TRIED:
        run = arguments.output / "search" / f"{peak:g}"
        if not (run / "part-1").is_dir():
            theirs(arguments, run, 0, steps, 1, peak)
        losses = their_log(run, "loss")
        print(f"| {peak:g} | {statistics.mean(losses[-steps // 10 :]):.3f} |", flush=True)


def table(curves: dict[str, dict[int, Point]]) -> str:
    """The mean score of each arm after each part: the mean of its seeds, lowest to highest."""
    lines = [f"| part of the time | {' | '.join(curves)} |", f"|{'---|' * (len(curves) + 1)}"]
    for number in sorted(set().union(*curves.values())):
        cells = [cell(curve[number]) if number in curve else "" for curve in curves.values()]
        lines.append(f"| {number} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(point: Point) -> str:
    """A point in the table."""
    scores = f"{point.mean:.1%} ({min(point.scores):.1%} to {max(point.scores):.1%})"
    return f"{scores}, hidden words {statistics.mean(point.losses):.2f} ({point.minutes:.0f} minutes)"


def verdict(curves: dict[str, dict[int, Point]], minutes: float) -> str:
    """Whether what was set before the first run has come true."""
    ours, theirs = (
        [curve[number] for number in sorted(curve)] for curve in (curves["continual"], curves["transformers"])
    )
    reached = next((point.minutes for point in ours if point.mean >= theirs[-1].mean), None)
    when = "never" if reached is None else f"after {reached:.0f} minutes"
    kept_to = reached is not None and reached <= WITHIN * minutes and ours[-1].mean > theirs[-1].mean
    return (
        f"continual has what transformers ends with ({theirs[-1].mean:.1%}) {when}, and ends with "
        f"{ours[-1].mean:.1%}: {'as' if kept_to else 'not as'} was set"
    )


if __name__ == "__main__":
    main()
