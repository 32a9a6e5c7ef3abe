"""Does masking words, phrases and entities teach Chinese more than masking characters?

  python benchmarks/masking.py CORPUS --data DATA --output runs/masking [--steps 6000] [--seeds 3]

CORPUS is a folder that `ernie data build` wrote of Chinese text with a tokenizer whose tokens are characters; DATA has
the files that benchmarks/finetune/ names.  Two encoders that differ in nothing but the units that are masked (Sun et
al., 2019, arXiv 1904.09223, section 3.2) are pretrained and fine-tuned on four tasks alike, seed by seed; what is done
is kept, so that the command goes on where it was cut.

Set before the first run: the mean over the four tasks is higher with words, phrases and entities, in the mean of the
seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from evidence import COMMON, MASKED, pretrain
from finetuning import spread
from recipe import FINE_TUNING, RECIPES, sets

UNITS = {"characters": ["token"], "words, phrases, entities": ["word", "phrase", "entity"]}
TASKS = RECIPES["zh"].tasks
MEASURES = {"chnsenticorp": "accuracy", "msra_ner": "f1", "ocnli": "accuracy", "tnews": "accuracy"}
CONFIGS = Path(__file__).parent / "finetune"


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    found: dict[str, list[list[float]]] = {name: [] for name in UNITS}
    for seed in range(arguments.seeds):
        for name, units in UNITS.items():
            objectives = {MASKED: {**COMMON["objectives"][MASKED], "units": units}}
            tree = {**COMMON, "schedule": {"stages": [{MASKED: arguments.steps}]}, "objectives": objectives}
            run = arguments.output / f"steps-{arguments.steps}" / f"{name.split(',')[0]}-{seed}"
            pretrain(arguments.corpus, tree, run, seed)
            found[name].append([score(run, task, arguments.data, seed) for task in TASKS])
            print(f"{run.name} is done", file=sys.stderr, flush=True)
    print(table(found))


def score(pretrained: Path, task: str, data: Path, seed: int) -> float:
    """The dev score of a task after fine-tuning."""
    run = pretrained / "downstream" / task
    if not (run / "scores.json").exists():
        changed = sets([*FINE_TUNING, *TASKS[task]])
        words = [str(CONFIGS / f"{task}.yaml"), "--data", str(data), "--model", str(pretrained), *changed]
        command = [sys.executable, "-m", "ernie.cli", "finetune", *words, "--seed", str(seed), "--output", str(run)]
        subprocess.run([*command, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    trial = json.loads((run / "scores.json").read_text(encoding="utf-8"))["trials"][0]
    return float(trial["scores"]["dev"][MEASURES[task]])


def table(found: dict[str, list[list[float]]]) -> str:
    """Each task's dev score, and their mean."""
    heads = [f"{name} ({MEASURES[name]})" for name in TASKS]
    lines = [f"| masked | {' | '.join(heads)} | mean |", f"|{'---|' * (len(heads) + 2)}"]
    for name, rows in found.items():
        columns = [spread(list(column)) for column in zip(*rows, strict=True)]
        lines.append(f"| {name} | {' | '.join(columns)} | {spread([statistics.mean(row) for row in rows])} |")
    means = [statistics.mean(statistics.mean(row) for row in rows) for rows in found.values()]
    verdict = "as was set" if means[1] > means[0] else "not as was set"
    return "\n".join([*lines, "", f"words, phrases and entities: {means[1] - means[0]:+.1%} in the mean, {verdict}"])


if __name__ == "__main__":
    main()
