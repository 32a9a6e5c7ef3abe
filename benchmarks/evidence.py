"""Does continual multi-task pretraining pay?  The ablation, and every task by itself, at a size two cores train.

  python benchmarks/evidence.py ablation CORPUS --output runs/evidence [--base MODEL] [--data GLUE] [--seeds 0 1 2]
  python benchmarks/evidence.py tasks    CORPUS --output runs/evidence [--base MODEL] [--data GLUE] [--seeds 0 1 2]
  python benchmarks/evidence.py alone    CORPUS --output runs/evidence [--base MODEL] [--data GLUE] [--seeds 0 1 2]

CORPUS is a folder that `ernie data build` wrote.  All arms begin with one encoder that knows masked words: so there is
something to forget, and passages mean something to it.  It is the folder MODEL, which has learnt from the same corpus,
or learns knowledge masking here, for BASE steps.  Each arm is pretrained, seed by seed, and where GLUE is given, a
folder with the files of benchmarks/finetuning.py, fine-tuned on five tasks, the first 8,000 rows of each; what is
done is kept, so that the command goes on where it was cut.  What came out of each arm is a small file under
`--records` (by default in OUTPUT): an arm that is there is not run again, and all that are there make the tables.

ablation: knowledge masking, capitalization, token-document relation and sentence reordering with equal steps each, in
three schedules (Sun et al., 2019, section 4.4).  Set before the first run: sequential learning loses at least 15 % of
the held-out masked accuracy of its first stage by the end, continual multi-task learning at most 5 % of its own best.

tasks: each of the others added to knowledge masking, at equal total steps.  Set before the first run: the task's own
held-out metric lies above that of always answering the most frequent label and above that of counting tokens (naive
Bayes for passages, each token's most frequent label for tokens), its 95 % interval wholly so; and where the task
embeddings change places, the held-out masked loss rises.  The interval is over documents, as is that of how far the
task lies beyond counting on the same ones.  What a task changes downstream is told with its interval,
whatever its sign.

alone: each of the others without knowledge masking, as many steps of it as `tasks` has with the same `--steps`: what it
costs a task to be learnt in turns with another.

`--beta1` and `--beta2` are AdamW's, and `--moments each_task` gives every task moments of its own; what is learnt with
others than the library's has records of its own.  Set before the first run of `tasks --steps 1600 --beta1 0.5 --beta2
0.999`, and of `tasks --steps 1600 --moments each_task`: IR relevance and sentence distance lie above both, the
intervals too, and the masked tokens are told no worse than with the library's.  Set before all tasks were run with
`--moments each_task` over three seeds: capitalization, token-document relation, discourse relation and IR relevance
lie above both on every seed, the intervals too; sentence reordering and sentence distance do not.
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

import numpy as np
import yaml
from finetuning import TASKS, ours, spread, write_rows

from ernie.data.batch import Packed
from ernie.data.shards import Corpus
from ernie.metrics import Score, score
from ernie.train.log import read_records
from pretrain import folder as run_folder
from pretrain.config import DataConfig, ModelConfig, PretrainConfig, ProbeConfig
from pretrain.feeds import sources
from pretrain.model import build_model
from pretrain.probe import Probe, first_batches
from pretrain.schedule import ScheduleConfig
from tasks.base import ClassifierTask
from tasks.objectives.knowledge_masking import KnowledgeMasking

FORGETS, KEEPS = 0.15, 0.05  # shares of an accuracy: what sequential learning loses, what continual learning may
# What an encoder of this size needs to show what it knows: one that was pretrained on 28 million tokens has 79.1 % so
# on 8,000 rows of SST-2, an untrained one 75.2 %; at 2e-4 without dropout (up to commit 6cf64a2) the former has 71.8 %.
# What came of that is under another key of the records: "downstream".
RECIPE = {"max_len": 128, "epochs": 3, "batch": 32, "peak": 5e-4, "dropout": 0.1}
ROWS = 8000  # that each task is learnt from, at most
TUNED = "fine-tuned with dropout"  # the key of a record with the dev scores
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
HIDDEN_BATCHES = 64  # of held-out text that words are hidden in
BASE = 3_000  # steps of knowledge masking before anything else is learnt
# What is learnt then: passages of some sentences, two parts to put into order, and enough held-out batches to tell.
# The rate is not the one that the first words were learnt at: with that, 800 steps more made an encoder worse (17.8 %
# right, which had been 19.5).  Which of two sentences are near is learnt at 2e-4, hardly at 1e-4 or 3e-4.
ADDED: dict[str, Any] = {
    **COMMON,
    "train": {"rate": {"peak": 2e-4, "warmup": 0.05}},
    "probe": {"batches": 96},
    "objectives": {
        **COMMON["objectives"],
        **{task: {"max_len": 128} for task in OTHERS},
        "sentence_reordering": {"max_len": 128, "segments": 2},
    },
}


def arms(experiment: str, steps: int) -> dict[str, dict[str, Any]]:
    """The schedule of each arm; `steps` are those of each of the ablation's tasks."""
    if experiment == "ablation":
        methods = ("sequential", "joint", "continual")
        return {name: {"method": name, "steps_per_task": steps, "tasks": list(FOUR)} for name in methods}
    if experiment == "alone":
        return {name: {"stages": [{name: steps}]} for name in OTHERS}
    total = 2 * steps
    alone = {MASKED: {"stages": [{MASKED: total}]}}
    return alone | {name: {"stages": [{MASKED: total // 2, name: total - total // 2}]} for name in OTHERS}


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=("ablation", "tasks", "alone"))
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--data", type=Path, metavar="GLUE")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--base", type=Path, metavar="MODEL")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--arms", nargs="+", metavar="ARM")
    parser.add_argument("--records", type=Path, metavar="DIR")
    parser.add_argument("--beta1", type=float)
    parser.add_argument("--beta2", type=float)
    parser.add_argument("--moments", choices=("shared", "each_task"), default="shared")
    arguments = parser.parse_args()
    adam = {name: value for name in ("beta1", "beta2") if (value := getattr(arguments, name)) is not None}
    name = "-".join([f"{arguments.experiment}-{arguments.steps}", *(f"{key}-{value:g}" for key, value in adam.items())])
    if arguments.moments != "shared":
        name += f"-moments-{arguments.moments}"
    folder, records = arguments.output / name, (arguments.records or arguments.output / "records") / name
    chosen = arms(arguments.experiment, arguments.steps)
    if odd := set(arguments.arms or ()).difference(chosen):
        parser.error(f"--arms: of {', '.join(chosen)}, found {', '.join(sorted(odd))}")
    rows = downstream_rows(arguments.data, arguments.output / "data") if arguments.data else {}

    def record(arm: str, seed: int) -> dict[str, Any]:
        base = arguments.base
        if base is None:
            begins = {"schedule": {"stages": [{MASKED: BASE}]}, **COMMON}
            base = pretrain(arguments.corpus, begins, arguments.output / "base", 0) / "model"
        model = {**COMMON["model"], "start_from": str(base.resolve())}
        learnt = {"ablation": FOUR, "tasks": (MASKED, arm), "alone": (arm,)}[arguments.experiment]
        objectives = {task: ADDED["objectives"][task] for task in learnt}
        train = {**ADDED["train"], "adam": adam, "moments": arguments.moments}
        tree = {"schedule": chosen[arm], **ADDED, "train": train, "model": model, "objectives": objectives}
        run = pretrain(arguments.corpus, tree, folder / f"{arm}-{seed}", seed)
        found = {task: measured(run, task) for task in (MASKED, *OTHERS)}
        added = arguments.experiment != "ablation" and arm != MASKED
        counted = counting(run, arm) if added else None
        return {
            "begins with": hidden_words(base, arguments.corpus),
            "measured": {task: [score.as_dict() for score in scores] for task, scores in found.items() if scores},
            "counting tokens": counted and counted.value,
            "beyond counting": counted and found[arm][-1].beyond(counted),
            "task ids swapped": swapped(run) if added and MASKED in learnt else None,
            TUNED: fine_tune(run, run / "downstream", rows, seed) if rows else [],
        }

    for seed in arguments.seeds:
        for arm in arguments.arms or chosen:
            kept(records / f"{arm}-{seed}.json", partial(record, arm, seed))
    found = {arm: there for arm in chosen if (there := read_records_of(records, arm))}
    print((ablation if arguments.experiment == "ablation" else each_task)(found), end="\n\n")
    if arguments.data:
        print(downstream(found))


def kept(place: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The record in a file, made where there is none yet."""
    if not place.exists():
        found = make()
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{place.stem} is done", file=sys.stderr, flush=True)
    return json.loads(place.read_text(encoding="utf-8"))


def read_records_of(records: Path, arm: str, having: str = "") -> list[dict[str, Any]]:
    """The records of an arm, seed by seed; those only that have this key, if it is given."""
    found = [json.loads(place.read_text(encoding="utf-8")) for place in sorted(records.glob(f"{arm}-[0-9].json"))]
    return [record for record in found if not having or having in record]


def slug(label: str) -> str:
    """The name of an arm's files."""
    return label.replace(", ", "-").replace(" ", "-")


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


def measured(run: Path, task: str) -> list[Score]:
    """The headline of a task after each stage."""
    return [
        Score(**next(iter(probe["scores"].values())))
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
    """Each added task by its own metric, beside what needs no encoder; and its task embedding."""
    heads = ["task", "metric", "held out", "majority", "counting tokens", "beyond counting", "intervals above both"]
    heads += ["task ids swapped"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name, records in arms.items():
        scores = [record["measured"][name][-1] for record in records]
        counted = [
            record["counting tokens"] or score["majority"] for record, score in zip(records, scores, strict=True)
        ]
        above = sum(score["low"] > max(score["majority"], other) for score, other in zip(scores, counted, strict=True))
        value = spread([score["value"] for score in scores])
        majority = statistics.median(score["majority"] for score in scores)
        swaps = [record["task ids swapped"] for record in records]
        counts = "" if name == MASKED else f"{statistics.median(counted):.1%}"
        beyond = [] if name == MASKED else [record["beyond counting"] for record in records]
        differences = "; ".join(f"{low:+.1%} to {high:+.1%}" for low, high in beyond)
        cells = [name, scores[0]["name"], value, f"{majority:.1%}", counts, differences, f"{above} of {len(scores)}"]
        cells.append("" if None in swaps else spread(swaps))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def counting(run: Path, task: str) -> Score:
    """The task's headline for one who counts tokens: naive Bayes, or of a token's labels the most frequent one.

    It counts as many training batches as the run has learnt from, and answers on those that the run was measured on.
    """
    config, corpus = run_folder.read(run)
    objective = config.objectives[task]
    assert isinstance(objective, ClassifierTask)
    steps = sum(stage.get(task, 0) for stage in config.schedule.table)
    learnt, held_out = (
        first_batches(next(source for source in sources(config, corpus, held_out=which) if source.name == task), count)
        for which, count in ((False, steps), (True, config.probe.batches))
    )
    counts = np.ones((objective.class_count(), corpus.tokenizer.vocab_size))
    seen = np.zeros(len(counts))
    for batch in learnt:
        labels, ids, of_each = labelled(batch)
        np.add.at(counts, (np.asarray(labels)[of_each], ids), 1)
        seen += np.bincount(labels, minlength=len(seen))
    told, right, items = [], [], []
    likely = np.log(counts / counts.sum(1, keepdims=True))
    for batch in held_out:
        labels, ids, of_each = labelled(batch)
        scores = np.tile(np.log(seen / seen.sum()), (len(labels), 1))
        np.add.at(scores, of_each, likely[:, ids].T)
        told.append(scores.argmax(1))
        right.append(labels)
        items.append(batch.samples[batch.layout.sequences_of(batch.labels["label"].positions), 1])
    answers, labels = np.concatenate(told), np.concatenate(right)
    return score(objective.metrics[0], answers, labels, np.zeros(len(labels)), np.concatenate(items))


def labelled(batch: Packed) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The targets of a batch, and the tokens that tell of them: ids, and the target that each belongs to."""
    labels = batch.labels["label"]
    if labels.positions is None:
        return labels.values, batch.ids, np.repeat(np.arange(batch.layout.sequences), batch.layout.lengths)
    return labels.values, batch.ids[labels.positions], np.arange(len(labels.values))


def hidden_words(model: Path, corpus: Path) -> dict[str, float]:
    """What a model tells of hidden words of held-out documents: the `loss`, the share of their tokens that is `right`,
    and that of always telling the most frequent one.

    The words are the same for every model of a vocabulary, whichever program has trained it.
    """
    opened, length = Corpus.open(corpus), COMMON["data"]["max_len"]
    config = PretrainConfig(
        corpus,
        ScheduleConfig(stages=[{MASKED: 1}]),
        objectives={MASKED: KnowledgeMasking(units=("word",), max_len=length)},
        model=ModelConfig(start_from=model),
        data=DataConfig(**COMMON["data"]),
        probe=ProbeConfig(batches=HIDDEN_BATCHES),
    )
    told = build_model(config, opened.tokenizer)
    if told.ernie.masked_head is None:
        raise SystemExit(f"{model}: knows no masked words")
    told.adopt_masked_head()
    scores = Probe(config, opened).measure(told, MASKED)
    accuracy = scores["accuracy"]
    return {"loss": math.log(scores["perplexity"].value), "right": accuracy.value, "majority": accuracy.majority}


def swapped(run: Path) -> float:
    """The share by which the held-out masked loss rises where the embeddings of a run's two tasks change places."""
    config, corpus = run_folder.read(run)
    config = replace(config, probe=ProbeConfig(**COMMON["probe"]))
    model = build_model(replace(config, model=ModelConfig(start_from=run / "model")), corpus.tokenizer)
    model.adopt_masked_head()
    probe = Probe(config, corpus)

    def loss() -> float:
        return math.log(probe.measure(model, MASKED)["perplexity"].value)

    assert model.ernie.embedding.task is not None
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
        found = [record[TUNED] for record in records if record.get(TUNED)]
        if not found:
            continue
        columns = [spread(list(column)) for column in zip(*found, strict=True)]
        lines.append(f"| {arm} | {' | '.join(columns)} | {spread([statistics.mean(row) for row in found])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
