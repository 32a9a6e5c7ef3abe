"""Does continual multi-task pretraining reach a higher quality in an hour than the alternatives?

  python benchmarks/time_to_quality.py CORPUS --data GLUE --peer PYTHON --output runs/quality [--minutes 60]
  python benchmarks/time_to_quality.py CORPUS --data GLUE --peer PYTHON --output runs/quality --search

CORPUS is a folder written by `ernie data build` with a WordPiece tokenizer, GLUE one with the files of
benchmarks/finetuning.py, PYTHON the interpreter of an environment with torch and transformers.  All arms have the same
text, the same vocabulary, the same shape (4 layers of 256), and an otherwise idle machine:

  continual          this library, continual multi-task learning
  masked             this library, knowledge masking only
  continual-moments  continual learning of the tasks that can be learned in so few steps, as in
                     benchmarks/pretrain/en.yaml: AdamW moments for each task, beta2 0.999
  masked-beta2       knowledge masking only, beta2 0.999, to compare with it
  transformers       BertForMaskedLM, compiled, in the faster precision here, whole words masked, at 1e-4
  transformers-2e-4, transformers-3e-4    the same at other peak learning rates

First the seconds of a step are measured, the arms in turns; only this needs the idle machine.  They determine how many
steps an arm has in the time, and so its learning rates; the runs themselves, seed by seed, may share the machine with
other work, and saving is not counted.  The model of an arm after every part of the time is fine-tuned on five tasks by
the same command (`--at` selects some of the parts, to save time), and predicts the same held-out words, all of which
are masked: training losses cannot be compared, since ours shows every tenth word that is to be predicted.  Finished
work is kept, so that an interrupted command resumes where it stopped; the results of each part of an arm are a small
file under `--records` (by default in OUTPUT), and the table shows all files; the seconds of a step are beside them.
Missing seconds are measured in turns with `masked`, whose recorded seconds may be from another machine: then an arm's
are scaled by the ratio of the two.  `--search` first gives transformers a fifth of the time for each of several
learning rates, and prints the loss of each.

Set before the first run: continual reaches what transformers ends with within a third of the time, and ends above it.
The same was expected of continual-moments before the first hour of transformers-2e-4 and transformers-3e-4.  Which of
these two is run with more seeds was decided by seed 0: the one with the lower training loss over the 500 steps before
half of the time.
Set before the first run of continual-moments: its mean of dev scores at the end is above that of masked-beta2, over
three seeds by more than the standard error of the difference, and its loss of hidden words is at most 0.1 higher.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from evidence import COMMON, MASKED, SEEDS, downstream_rows, fine_tune, hidden_words, pretrain
from outcomes import report
from page_tables import quality, quality_means
from record_files import TUNED, Records, cached_record
from transformers_peer import Transformers, logged

from ernie.train.log import read_records

# Turns in which steps are timed; steps of a turn for each task, and how many of them are warm-up.
ROUNDS, TRIAL, WARM = 3, 40, 12
HUNDREDTHS = 100  # steps are a multiple of this, since the arms' shares are in hundredths
# Without dropout on either side: no text is repeated often.
SHAPE = {
    **{"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024},
    **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}
LENGTH = COMMON["data"]["max_len"]


@dataclass(frozen=True)
class Arm:
    """One of our arms: its stages, with each task's share of all steps, and its `own` changes of the configuration."""

    stages: tuple[dict[str, float], ...]
    own: dict[str, Any] = field(default_factory=dict)

    @property
    def tree(self) -> dict[str, Any]:
        """The configuration without schedule and corpus."""
        return COMMON | {key: COMMON[key] | value for key, value in self.own.items()}


@dataclass(frozen=True)
class Peer:
    """An arm of transformers: its peak learning rate."""

    peak: float


_BETA2 = {"adam": {"beta2": 0.999}}
# Little time is best spent on words (as in benchmarks/pretrain/en.yaml); each new task starts with a twentieth and
# continues with a hundredth per stage; IR relevance, which is learned late and on passages, gets more.
ARMS: dict[str, Arm | Peer] = {
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
        {"train": _BETA2 | {"moments": "each_task"}, "tasks": {"ir_relevance": {"max_len": 128}}},
    ),
    "masked-beta2": Arm(({MASKED: 1.0},), {"train": _BETA2}),
    "transformers": Peer(1e-4),
    "transformers-2e-4": Peer(2e-4),
    "transformers-3e-4": Peer(3e-4),
}
# Transformers: rows of a batch, and the peak learning rates that --search tries.
ROWS, TRIED = 16, (5e-5, 1e-4, 2e-4, 3e-4, 5e-4)
SEARCHED = 1 / 5  # of the time, for each of them
PRECISION = "fp32"  # 1,024 tokens take 0.30 s, in bf16 0.41 s; uncompiled 0.33 s and 0.59 s (torch 2.15)


@dataclass(frozen=True)
class Part:
    """The state of an arm after a part of its time: its model, and the seconds of its steps so far."""

    model: Path
    seconds: float


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--peer", metavar="PYTHON", help="needed for the arm transformers")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--parts", type=int, default=12, help="number of parts of the time; each leaves a model")
    parser.add_argument("--at", type=int, nargs="+", metavar="PART", help="fine-tune these only")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--records", type=Path, metavar="DIR")
    parser.add_argument("--search", action="store_true")
    arguments = parser.parse_args()
    if arguments.peer is None and (arguments.search or any(isinstance(ARMS[arm], Peer) for arm in arguments.arms)):
        parser.error("the arms of transformers need --peer PYTHON; or name others with --arms")
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

    all_parts = range(1, arguments.parts + 1)
    folders = parts(records, arguments.parts)
    for seed in arguments.seeds:
        for arm in arguments.arms:
            for number in arguments.at or all_parts:
                cached_record(folders[number] / f"{arm}-{seed}.json", partial(record, arm, seed, number))
    targets = ["hour-beside-transformers", "hour-beside-masked-words"]
    report(Records(records), quality, quality_means, targets=targets)


def parts(records: Path, count: int) -> dict[int, Path]:
    """The folders of the records of each part of the time."""
    return {number: records / f"{number}-of-{count}" for number in range(1, count + 1)}


def pretrained(arguments: argparse.Namespace, arm: str, run: Path, seed: int) -> list[Part]:
    """Pretrain an arm unless that is done; return its state after each part of the time."""
    kind, pace = ARMS[arm], paces(arguments)[timed(arm)]
    count = arguments.parts
    steps = round(60 * arguments.minutes / pace / count / HUNDREDTHS) * count * HUNDREDTHS
    if isinstance(kind, Peer):
        options = {"seed": seed, "steps": steps, "parts": count, "peak": kind.peak, "precision": PRECISION}
        models = peer(arguments).pretrain(run, **options)
    else:
        # Stages end in checkpoints too, and none may be deleted.
        tree = {**kind.tree, "save": {"every": steps // count, "keep_last": count + len(kind.stages)}}
        pretrain(arguments.corpus, {"schedule": stages(kind.stages, steps), **tree}, run, seed)
        models = [run / "checkpoints" / f"step-{n * steps // count:08d}" / "model" for n in range(1, count + 1)]
    return [Part(model, pace * steps * n / count) for n, model in enumerate(models, 1)]


def timed(arm: str) -> str:
    """The arm whose seconds of a step count for this one: a learning rate does not change them."""
    return "transformers" if isinstance(ARMS[arm], Peer) else arm


def paces(arguments: argparse.Namespace) -> dict[str, float]:
    """The seconds of a step of each requested arm: medians of rounds in turns, measured once."""
    file = (arguments.records or arguments.output / "records") / "paces.json"
    known: dict[str, float] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if missing := [arm for arm in dict.fromkeys(map(timed, arguments.arms)) if arm not in known]:
        times: dict[str, list[float]] = {}
        for turn in range(ROUNDS):
            for arm in dict.fromkeys(["masked", *missing]):
                run = arguments.output / "trials" / f"{arm}-{turn}"
                times.setdefault(arm, []).append(step_seconds(arguments, arm, run))
        medians = {name: statistics.median(seconds) for name, seconds in times.items()}
        scale = known.get("masked", medians["masked"]) / medians["masked"]  # `known` may be from another machine
        known |= {arm: round(medians[arm] * scale, 4) for arm in medians if arm not in known}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return known


def stages(shares: tuple[dict[str, float], ...], steps: int) -> dict[str, Any]:
    """The schedule that gives each task its share of the steps."""
    return {"stages": [{task: round(share * steps) for task, share in stage.items()} for stage in shares]}


def step_seconds(arguments: argparse.Namespace, arm: str, run: Path) -> float:
    """The mean seconds of a step, weighted over tasks, whose steps differ in length; measured in some steps of each."""
    ours = ARMS[arm]
    if isinstance(ours, Peer):
        peer(arguments).pretrain(run, seed=0, steps=TRIAL, parts=1, peak=ours.peak, precision=PRECISION)
        return statistics.mean(logged(run, "seconds")[WARM:])
    tasks = {task: sum(stage.get(task, 0) for stage in ours.stages) for task in ours.stages[-1]}
    schedule = {"method": "joint", "steps_per_task": TRIAL, "tasks": list(tasks)}
    pretrain(arguments.corpus, {"schedule": schedule, **ours.tree}, run, 0)
    times: dict[str, list[float]] = {}
    for record in list(read_records(run, "step"))[WARM * len(tasks) :]:
        (task,) = record["loss"]
        times.setdefault(task, []).append(record["seconds"])
    return sum(share * statistics.median(times[task]) for task, share in tasks.items())


def peer(arguments: argparse.Namespace) -> Transformers:
    """Transformers with our shape, on our text."""
    return Transformers(arguments.peer, arguments.corpus, arguments.output / "ids.npy", SHAPE, ROWS, LENGTH)


def search(arguments: argparse.Namespace) -> None:
    """Print the final loss of transformers for several learning rates."""
    steps = round(60 * arguments.minutes * SEARCHED / paces(arguments)["transformers"])
    print(f"{steps:,} steps\n\n| peak | loss of the last tenth |\n|---|---|")
    for peak in TRIED:
        run = arguments.output / "search" / f"{peak:g}"
        peer(arguments).pretrain(run, seed=0, steps=steps, parts=1, peak=peak, precision=PRECISION)
        losses = logged(run, "loss")
        print(f"| {peak:g} | {statistics.mean(losses[-steps // 10 :]):.3f} |", flush=True)


if __name__ == "__main__":
    main()
