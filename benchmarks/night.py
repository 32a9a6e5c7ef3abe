"""What does a night on two CPU cores buy?  An encoder from plain text, and short ablations of how it is trained.

  python benchmarks/night.py run mini --text DIR... [--data DATA] --output runs/night
  python benchmarks/night.py run small --text DIR... [--data DATA] --output runs/night
  python benchmarks/night.py run mini-chinese --text DIR... [--data DATA] --output runs/night-chinese
  python benchmarks/night.py ablate --minutes 20 --text DIR... --data DATA --output runs/night [ARM...]

DIR are folders of plain text, DATA is a folder with the files of benchmarks/finetune/. A tokenizer and a corpus are
made once, in OUTPUT. `run` pretrains by configs/pretrain/night-mini.yaml in 4 hours, or by night-small.yaml in 12. It
then fine-tunes on five tasks, on all of their training rows, over three seeds and the grid GRID, and prints the dev
scores at the best point of the grid beside the published ones of BERT's miniatures; without DATA it ends before that.
With `--one-point` it fine-tunes at POINT alone, a quarter of the work, which a later run without it completes.  (The
model of a best trial that was not kept is then trained once more.)
`mini-chinese` is mini for 1 hour, with a vocabulary of 8,000, fine-tuned on four tasks as recipe.py does, without a
grid.  `make night TEXT=DIR` is `run mini`, see docs/howto/night.md. `ablate` gives each arm of ARMS the same minutes,
and fine-tunes it on three tasks with few rows, at one point, over the seeds given.

Before training, the seconds of a step are measured, by trials of all arms in turn; only this needs the machine for
itself.  They say how many steps an arm has in its time, and are kept, so that a command that was interrupted resumes
with as many steps.  Training may then share the machine with other work, at low priority and over days.  Saving and
measuring held-out text are not counted.  Finished work is kept; results are small files under `--records` (by default
in OUTPUT).

Set before the first run, for the mean of CoLA (Matthews), SST-2 (accuracy), MRPC (F1), STS-B (Pearson) and RTE
(accuracy) on dev: small after 12 hours has at least 68, mini after 4 hours has at least 65, and at least 84 on SST-2.
Each score is the median of three seeds at the grid point whose dev median is best.  BERT-Small has 68.3 and BERT-Mini
60.1 in the mean, on GLUE's test sets (Turc et al., 2019, arXiv 1908.08962, and the tables of google-research/bert).
Ours are dev scores by which the grid point was chosen, so they are the higher for it.  The dev set of MRPC is the 500
rows of Microsoft's own validation set, not GLUE's.  Of each pretraining there is one seed.

Set before the first Chinese hour: the mean of the dev scores is at least 2 points above that of recipe.py's encoder,
which learned from the same text for 53 minutes on one core; there is too little text for more hours.

Predicted before the first night, from the ablation of 20 minutes (SST-2 78 on few rows, STS-B 74): mini has 64.5 in the
mean and 85 on SST-2, small 69 in the mean.  That was for a processor with AVX-512.  On a Zen 3, which makes a quarter
of the steps, mini is predicted to have 60.5 and 81 after one hour (3,400 steps), and 63 and 83.5 after four.  At one
point of the grid it has half a point less.

Set before the first ablation: an arm is taken into the configurations if its mean over the three tasks is above that of
`plain` by more than twice the standard error of the difference over at least three seeds of fine-tuning.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from cells import Rows, markdown
from page_tables import AT_POINT, MINIATURES, ablations, millions, night_scores, scored
from recipe import FINE_TUNING, RECIPES, ernie, set_options
from record_files import Records, cached_record, read_record, slug, this_machine

from ernie.atomic import make_folder, put_text
from ernie.data.read import find_inputs
from ernie.errors import Remark, UserError
from ernie.formatting import duration
from ernie.train.log import read_records
from ernie.train.run_folder import CARD
from finetune.config import load as load_tuning
from finetune.prepare import read_splits
from pretrain.config import load

HERE = Path(__file__).parent
CONFIGS = HERE.parent / "configs" / "pretrain"
TIMED, WARM = 30, 10  # steps of each stage in a trial, and how many of them are not timed
TRIALS = 3  # of each arm, in turn: other programs slow a machine down for minutes


@dataclass(frozen=True)
class Suite:
    """The tasks of a language, each with its measure, the grid, and the changes of all and of single configurations.

    `others` are scores of other encoders to compare with, in the order of the measures.
    """

    vocabulary: int
    measures: dict[str, str]
    grid: dict[str, tuple[float, ...]] | None
    tuning: tuple[str, ...]
    others: dict[str, tuple[float, ...]]
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)


GRID = {"peak": (1e-4, 3e-4), "batch": (8, 32), "epochs": (4,)}  # of the miniatures' own, the points that suit most
POINT = {"peak": (3e-4,), "batch": (32,), "epochs": (4,)}
POINT_NAME = ",".join(f"{name}={value:g}" for name, (value,) in POINT.items())
ENGLISH = Suite(
    16000,
    {"cola": "matthews", "sst2": "accuracy", "mrpc": "f1", "stsb": "pearson", "rte": "accuracy"},
    GRID,
    ("train.dropout=0.1",),
    MINIATURES,
)
CHINESE = Suite(
    8000,
    {"chnsenticorp": "accuracy", "msra_ner": "f1", "ocnli": "accuracy", "tnews": "accuracy"},
    None,
    FINE_TUNING,
    {"recipe.py's": (91.9, 52.5, 58.0, 43.1)},  # benchmarks/records/models/zh.md
    RECIPES["zh"].tasks,
)


@dataclass(frozen=True)
class Night:
    """The hours of a size, its tasks, and what its encoder has to reach: the mean over all, and single scores."""

    config: str
    hours: float
    suite: Suite
    mean: float
    scores: dict[str, float] = field(default_factory=dict)


NIGHTS = {
    "mini": Night("night-mini.yaml", 4, ENGLISH, 65.0, {"sst2": 84.0}),
    "small": Night("night-small.yaml", 12, ENGLISH, 68.0),
    "mini-chinese": Night("night-mini.yaml", 1, CHINESE, 63.4),
}
QUICK = {"sst2": ("local.train=glue/SST-2/train.tsv[:8000]",), "stsb": (), "cola": ()}  # the changes of NIGHT_TASKS
QUICK_TUNING = ("train.epochs=3", "train.batch=32", "train.lr.peak=5e-4", "train.dropout=0.1", "local.test=[]")

# The entries of `tasks` in night-mini.yaml, one for each stage: of knowledge masking, and of replaced-token detection.
WORDS, REPLACED = ("knowledge_masking", "longer"), ("replaced", "longer_replaced")


@dataclass(frozen=True)
class Arm:
    """Changes of a night's configuration: of `fields` of its entries in `tasks`, and others.

    The stages learn `entries`, with as many steps of each.  The steps take as long as those of the arm `as_fast_as`.
    """

    fields: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    entries: tuple[tuple[str, str], ...] = (WORDS,)
    as_fast_as: str | None = None

    def stages(self, steps: Sequence[int]) -> str:
        """The change of the configuration that gives the stages so many steps."""
        count = len(self.entries)
        stages = [
            {name: (whole + number) // count for number, name in enumerate(names)}
            for names, whole in zip(self.names, steps, strict=True)
        ]
        return f"schedule.stages={json.dumps(stages)}"

    @property
    def names(self) -> list[tuple[str, ...]]:
        """The names of the entries of each stage."""
        return list(zip(*self.entries, strict=True))

    @property
    def overrides(self) -> list[str]:
        """The other changes of the configuration."""
        named = [name for pair in self.entries for name in pair]
        return [*(f"tasks.{name}.{field}" for name in named for field in self.fields), *self.changes]


ARMS = {
    "plain": Arm(),
    "rate of 0.15": Arm(("initial_mask_rate=0.15",)),
    "rate of 0.3": Arm(("initial_mask_rate=0.3", "mask_rate=0.3")),
    "rare words": Arm(("rarity=0.25",), as_fast_as="plain"),
    "single tokens": Arm(("units=[token]",), as_fast_as="plain"),
    "replaced": Arm(entries=(REPLACED,)),
    "replaced, falling": Arm(("initial_mask_rate=0.3", "mask_rate=0.15"), entries=(REPLACED,)),
    "in turns": Arm(entries=(WORDS, REPLACED)),
    "replaced at last": Arm(changes=("tasks.longer_replaced.head_of=''",), entries=((WORDS[0], REPLACED[1]),)),
    "long throughout": Arm(changes=("tasks.knowledge_masking.max_len=128",)),
    "averages": Arm(changes=("train.ema=0.999",)),
    "linear cool-down": Arm(changes=("train.lr.decay=wsd",), as_fast_as="plain"),
    "linear decay": Arm(changes=("train.lr.decay=linear",), as_fast_as="plain"),
    "higher rate": Arm(changes=("train.lr.peak=2e-3",), as_fast_as="plain"),
    "lower rate": Arm(changes=("train.lr.peak=5e-4",), as_fast_as="plain"),
    "small batches": Arm(changes=("data.micro_batch_tokens=2048",)),
    "beta2 0.98": Arm(changes=("train.adam.beta2=0.98",), as_fast_as="plain"),
}
TAKEN = "in turns"  # which the configurations are


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run, ablate = commands.add_parser("run"), commands.add_parser("ablate")
    run.add_argument("size", choices=NIGHTS)
    run.add_argument("--hours", type=float, help="other than the size's")
    ablate.add_argument("arms", nargs="*", metavar="ARM", help=f"of {', '.join(ARMS)}; by default all")
    ablate.add_argument("--size", choices=("mini", "small"), default="mini")
    ablate.add_argument("--minutes", type=float, required=True)
    for command in (run, ablate):
        add_common(command, needs_data=command is ablate)
    add_one_point(run)
    arguments = parser.parse_args()
    check_numbers(parser, arguments)
    if unknown := set(getattr(arguments, "arms", ())).difference(ARMS):
        parser.error(f"ARM: expected some of {', '.join(ARMS)}; found {', '.join(sorted(unknown))}")
    try:
        suite = NIGHTS[arguments.size].suite
        check_data(arguments.data, suite.measures if arguments.command == "run" else QUICK)
        corpus = built_corpus(arguments.text, arguments.output, suite.vocabulary)
        (night if arguments.command == "run" else ablation)(arguments, corpus)
    except UserError as error:
        print(f"night.py: error: {error}", file=sys.stderr)
        sys.exit(2)


def add_common(parser: argparse.ArgumentParser, needs_data: bool) -> None:
    """Add the options of all commands."""
    parser.add_argument("--text", type=Path, nargs="+", required=True, metavar="DIR")
    parser.add_argument("--data", type=Path, required=needs_data)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3, help="of fine-tuning")
    parser.add_argument("--jobs", type=int, default=1, help="trials of fine-tuning at once, for more than two cores")
    parser.add_argument("--records", type=Path, metavar="DIR")


def add_one_point(parser: argparse.ArgumentParser) -> None:
    """Add the option of commands that fine-tune over a grid."""
    parser.add_argument("--one-point", action="store_true", help=f"fine-tune at one point of the grid, {POINT_NAME}")


def check_numbers(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """End the program if there is to be no time, or no seed."""
    for name in ("hours", "minutes", "seeds", "jobs"):
        if (value := getattr(arguments, name, None)) is not None and not 0 < value < math.inf:
            parser.error(f"--{name}: expected more than 0, found {value:g}")


def check_data(data: Path | None, tasks: Iterable[str]) -> None:
    """Read the rows to fine-tune on, so that what is wrong with them is told before the hours of pretraining.

    Raises UserError.
    """
    if data is not None:
        for task in tasks:
            read_splits(load_tuning(tuning_file(task), [], data).data)


def night(arguments: argparse.Namespace, corpus: Path) -> None:
    """Pretrain and fine-tune one size, and print its scores."""
    size, hours = arguments.size, arguments.hours or NIGHTS[arguments.size].hours
    folder = night_folder(size, hours, arguments.output)
    pace = paced(size, hours, corpus, arguments.output)
    model = pretrained(size, 3600 * hours, pace, ARMS[TAKEN], corpus, folder)
    if arguments.data is None:
        ernie("report", str(model))
        print(f"{model}: the encoder is in model/, its card is README.md, and its report report.html")
        return
    record = judged(
        arguments,
        model,
        folder,
        lambda: {"size": size, "hours": hours, "seconds": pace, **this_machine(), **amount_read(model)},
    )
    ernie("report", str(model), "--downstream", *(str(folder / task) for task in record["dev"]))
    print(markdown(table(size, record["dev"], None if arguments.one_point else hours)))
    if NIGHTS[size].suite is ENGLISH:
        draw(records_of(arguments), records_of(arguments) / "curve.png")


def judged(
    arguments: argparse.Namespace, model: Path, folder: Path, about: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Fine-tune an encoder unless that is done; return the record with its scores, and what else is known of it.

    A suite with a grid has two records: of the best points of the grid, unless only one is wanted, and of POINT.
    """
    suite, file = NIGHTS[arguments.size].suite, records_of(arguments) / f"{folder.name}.json"
    at_point = file.with_name(f"{file.stem}{AT_POINT}.json")
    wanted = [at_point] * bool(suite.grid) + [file] * (not arguments.one_point or not suite.grid)
    if not all(each.is_file() for each in wanted):
        fine_tune_all(arguments, model, folder)
        found = about()
        if suite.grid:
            cached_record(at_point, lambda: {**found, **scores_of(folder, suite, POINT_NAME)})
        if file in wanted:
            cached_record(file, lambda: {**found, **scores_of(folder, suite)})
    return read_record(wanted[-1])


def amount_read(run: Path) -> dict[str, int]:
    """The steps of a run, and how many tokens they read."""
    read = [record["tokens"] for record in read_records(run, "step")]
    return {"steps": len(read), "tokens": sum(read)}


def night_folder(size: str, hours: float, output: Path) -> Path:
    """The folder of all that is made in these hours."""
    return output / f"{size}-{hours:g}-hours"


def paced(size: str, hours: float, corpus: Path, output: Path) -> list[float]:
    """The seconds of a step of each stage, by trials that are kept."""
    [pace] = paces(size, [TAKEN], corpus, night_folder(size, hours, output) / "timed")
    return pace


def ablation(arguments: argparse.Namespace, corpus: Path) -> None:
    """Pretrain and fine-tune each arm, and print the table of all arms that have a record."""
    name = f"night-{arguments.size}-{arguments.minutes:g}-minutes"
    arms = list(arguments.arms or ARMS)
    for arm, pace in zip(arms, paces(arguments.size, arms, corpus, arguments.output / name / "timed"), strict=True):
        folder = arguments.output / name / slug(arm)
        model = pretrained(arguments.size, 60 * arguments.minutes, pace, ARMS[arm], corpus, folder)
        scores = {
            task: fine_tuned(arguments, model, task, ENGLISH.measures[task], folder / task, [*QUICK_TUNING, *changes])
            for task, changes in QUICK.items()
        }
        cached_record(records_of(arguments) / name / f"{slug(arm)}-0.json", partial(dict, seconds=pace, dev=scores))
    print(markdown(ablations(Records(records_of(arguments) / name))))


def records_of(arguments: argparse.Namespace) -> Path:
    """The folder of the records."""
    return arguments.records or arguments.output / "records"


def built_corpus(texts: list[Path], output: Path, vocabulary: int) -> Path:
    """The corpus of all texts, with a tokenizer trained on them; made unless they are there.

    A line says so where files have come, gone or grown since, which the corpus does not have.  Raises UserError for
    texts that are not there, and for an output that has a tokenizer of other texts, or is inside of the texts.
    """
    tokenizer, corpus, names = output / "tokenizer", output / "corpus", [str(text.resolve()) for text in texts]
    for text in texts:
        if output.resolve().is_relative_to(text.resolve()):
            raise UserError(f"{output}: is inside of {text}, and would be read, too; give another --output")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Remark)  # on what is not read: the commands say it
        sizes = {source.name: source.size for source in find_inputs(names)}
    known, now = output / "texts.json", {"texts": names, "sizes": sizes}
    before = read_record(known) if tokenizer.is_dir() and known.is_file() else now
    if before["texts"] != names:
        raise UserError(
            f"{output}: is of other texts, {', '.join(before['texts'])}; give another --output (make: OUTPUT=)"
        )
    is_built = (corpus / "corpus.json").is_file()
    if not is_built:
        make_folder(output)
        put_text(known, json.dumps(now) + "\n")
    elif before.get("sizes", sizes) != sizes:
        print(
            f"note: files of the texts have come, gone or changed since {corpus} was built, which has them as they "
            "were; give another --output (make: OUTPUT=) for one of the new text",
            file=sys.stderr,
        )
    words = [str(text) for text in texts]
    if not tokenizer.is_dir():
        ernie("tokenizer", "train", "--input", *words, "--vocab-size", str(vocabulary), "--output", str(tokenizer))
    if not is_built:  # one that was interrupted goes on
        ernie("data", "build", "--input", *words, "--tokenizer", str(tokenizer), "--output", str(corpus))
    return corpus


def pretrained(size: str, seconds: float, pace: Sequence[float], arm: Arm, corpus: Path, folder: Path) -> Path:
    """The folder of a run of as many steps as the seconds allow at this pace, made or resumed unless it is finished."""
    run, config = folder / "encoder", CONFIGS / NIGHTS[size].config
    if not (run / CARD).is_file():  # the last that a run writes
        written = [sum(stage.values()) for stage in load(config).schedule.table]
        planned = planned_steps(seconds, pace, written)
        parts = (f"{steps:,} steps of {each:.3f} seconds" for steps, each in zip(planned, pace, strict=True))
        print(f"by the trials, {duration(seconds)} are {' and '.join(parts)}", file=sys.stderr, flush=True)
        changes = [*arm.overrides, f"corpus={corpus}", arm.stages(planned)]
        ernie("pretrain", str(config), "--output", str(run), *set_options(changes))
    return run


def paces(size: str, arms: Sequence[str], corpus: Path, folder: Path) -> list[list[float]]:
    """The seconds of a step of each stage, for each arm: medians of trials, which are kept in the folder.

    The trials of different arms alternate.  Of a trial only its record is kept.
    """
    timed_arms = dict.fromkeys(ARMS[arm].as_fast_as or arm for arm in arms)
    trials: dict[str, list[list[float]]] = {arm: [] for arm in timed_arms}
    for number in range(TRIALS):
        for arm in timed_arms:
            name = f"{slug(arm)}-{number}"
            made = cached_record(folder / f"{name}.json", partial(timed, size, ARMS[arm], corpus, folder / name))
            shutil.rmtree(folder / name, ignore_errors=True)
            trials[arm].append(made["seconds"])
    medians = {arm: [statistics.median(stage) for stage in zip(*made, strict=True)] for arm, made in trials.items()}
    return [medians[ARMS[arm].as_fast_as or arm] for arm in arms]


def timed(size: str, arm: Arm, corpus: Path, run: Path) -> dict[str, Any]:
    """The seconds of a step of each stage in a short run: the mean over its entries of their medians."""
    stages = arm.stages([TIMED * len(names) for names in arm.names])
    trial = [stages, "train.lr.warmup=0", "save.every=1000000", "probe={every: 0, batches: 1}", f"corpus={corpus}"]
    config = str(CONFIGS / NIGHTS[size].config)
    ernie("pretrain", config, "--output", str(run), *set_options([*arm.overrides, *trial]))
    seconds: dict[str, list[float]] = {name: [] for names in arm.names for name in names}
    for record in read_records(run, "step"):
        for name in record["loss"]:
            seconds[name].append(record["seconds"])
    medians = {name: statistics.median(found[WARM:]) for name, found in seconds.items()}
    return {"seconds": [statistics.mean(medians[name] for name in names) for names in arm.names]}


def planned_steps(seconds: float, paces: Sequence[float], written: list[int]) -> list[int]:
    """The steps of each stage, in the proportion of those written, that together take the seconds at these paces."""
    unit = seconds / sum(pace * steps for pace, steps in zip(paces, written, strict=True))
    return [max(1, int(unit * steps)) for steps in written]


def fine_tuned(
    arguments: argparse.Namespace,
    model: Path,
    task: str,
    measure: str,
    run: Path,
    changes: Sequence[str],
    grid: Mapping[str, Sequence[float]] | None = None,
) -> list[float]:
    """Fine-tune what is missing; return the dev scores of all seeds, at the best point of a grid."""
    scores = run / "scores.json"
    changes = [*changes, *([f"grid={json.dumps(grid)}"] if grid else [])]
    if not scores.is_file() or len(read_record(scores)["trials"]) < planned_trials(grid) * arguments.seeds:
        words = [str(tuning_file(task)), "--data", str(arguments.data), "--model", str(model)]
        words += ["--seeds", str(arguments.seeds), "--jobs", str(arguments.jobs), "--output", str(run)]
        ernie("finetune", *words, *set_options(changes))
    return [100 * value for value in read_record(scores)["scores"]["dev"][measure]["values"]]


def planned_trials(grid: Mapping[str, Sequence[float]] | None) -> int:
    """The points of a grid; 1 without one."""
    return math.prod(map(len, (grid or {}).values()))


def fine_tune_all(arguments: argparse.Namespace, model: Path, folder: Path) -> None:
    """Fine-tune an encoder on each task of the size, over the grid if there is one."""
    suite = NIGHTS[arguments.size].suite
    grid = POINT if arguments.one_point and suite.grid else suite.grid
    for task, measure in suite.measures.items():
        changes = [*suite.tuning, *suite.rows.get(task, ())]
        fine_tuned(arguments, model, task, measure, folder / task, changes, grid)


def scores_of(folder: Path, suite: Suite, point: str = "") -> dict[str, dict[str, list[float]]]:
    """The scores of all seeds on dev, and on test where it has labels, of each task that was fine-tuned in a folder.

    They are those at one point of the grid, or else at the best.
    """
    found: dict[str, dict[str, list[float]]] = {"dev": {}, "test": {}}
    for task, measure in suite.measures.items():
        scores = read_record(folder / task / "scores.json")
        trials = [trial["scores"] for trial in scores["trials"] if trial["point"] == (point or scores["point"])]
        for split, of_tasks in found.items():
            if split in trials[0]:
                of_tasks[task] = [100 * trial[split][measure] for trial in trials]
    return found


def tuning_file(task: str) -> Path:
    """The configuration of fine-tuning on a task."""
    return HERE / "finetune" / f"{task}.yaml"


def table(size: str, dev: Mapping[str, Sequence[float]], hours: float | None, who: str = "ours") -> Rows:
    """The medians beside those of the others, and whether what was set for so many hours is reached.

    `hours` is None where nothing was set, as for a single point of the grid, and for others than us.
    """
    wanted = NIGHTS[size]
    measures = wanted.suite.measures
    medians = [statistics.median(dev[task]) for task in measures]
    rows = [["", *measures, "mean"]]
    for name, scores in {f"{who}, {size}": medians, **wanted.suite.others}.items():
        rows.append([name, *scored(scores)])
    if hours != wanted.hours:
        return rows
    least = [wanted.scores.get(task) for task in measures] + [wanted.mean]
    found = [*medians, statistics.mean(medians)]
    marks = [
        "" if low is None else f"{low:g}: {'met' if score >= low else 'missed'}"
        for low, score in zip(least, found, strict=True)
    ]
    return [*rows, ["at least", *marks]]


def draw(folder: Path, file: Path) -> None:
    """Draw the mean scores of English runs against their hours, beside the published ones of the miniatures.

    A dotted line joins those at one point of the grid.
    """
    figure, axes = plt.subplots(figsize=(6.5, 4.2))
    drawn: set[float] = set()
    sizes = [size for size, night in NIGHTS.items() if night.suite is ENGLISH]
    kinds = [(who, size) for who in (("", "ours"), ("peer-", "transformers")) for size in sizes]
    for color, ((prefix, label), size) in enumerate(kinds):
        for suffix, style, shown in (("", "-", ""), (AT_POINT, ":", ", one point of the grid")):
            runs = [read_record(path) for path in folder.glob(f"{prefix}{size}-[0-9]*-hours{suffix}.json")]
            points = sorted(
                (run["hours"], statistics.mean(night_scores(run["dev"])), millions(run))
                for run in runs
                if run["size"] == size
            )
            if points:
                hours, scores, read = zip(*points, strict=True)
                name = f"{label}, {size}{shown}"
                axes.plot(hours, scores, style, marker="o", color=f"C{color}", label=name)
                for point in zip(hours, scores, read, strict=True):
                    axes.annotate(f"{point[2]} M tokens", point[:2], (6, -12), textcoords="offset points", fontsize=8)
                drawn.update(hours)
    for name, scores in ENGLISH.others.items():
        axes.axhline(statistics.mean(scores), color="grey", linestyle="--")
        place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate(name, (0, statistics.mean(scores)), (6, 4), color="grey", **place)
    axes.set(xscale="log", xlabel="hours of pretraining", ylabel="mean of five GLUE tasks, %")
    axes.set_xticks(ticks := sorted(drawn), [f"{hours:.2g}" for hours in ticks])
    axes.minorticks_off()
    axes.margins(y=0.08)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
