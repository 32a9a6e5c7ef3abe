"""Does masking words, phrases and entities teach Chinese more than masking characters?

  python benchmarks/masking.py CORPUS --data DATA --output runs/masking [--steps 4000] [--seeds 0 1 2]

CORPUS is a folder that `ernie data build` wrote of Chinese text with a tokenizer whose tokens are characters; DATA has
the files that benchmarks/finetune/ names.  Two encoders that differ in nothing but the units that are masked (Sun et
al., 2019, arXiv 1904.09223, section 3.2) are pretrained and fine-tuned on four tasks alike, the first 8,000 rows of
each, seed by seed; and both tell the same hidden words of held-out text.  What is done is kept, so that the command
goes on where it was cut; what came out is a small file for each encoder under `--records` (by default in OUTPUT), and
all that are there make the table.

Set before the first run: the mean over the four tasks is higher with words, phrases and entities, in the mean of the
seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from evidence import COMMON, MASKED, ROWS, SEEDS, TUNED, hidden_words, kept, pretrain, read_records_of
from finetuning import spread
from recipe import FINE_TUNING, sets

UNITS = {"characters": ["token"], "words": ["word", "phrase", "entity"]}
TASKS = {"chnsenticorp": "accuracy", "msra_ner": "f1", "ocnli": "accuracy", "tnews": "accuracy"}
CONFIGS = Path(__file__).parent / "finetune"


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--records", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    folder = f"steps-{arguments.steps}"
    records = (arguments.records or arguments.output / "records") / folder

    def record(name: str, seed: int) -> dict[str, Any]:
        objectives = {MASKED: {**COMMON["objectives"][MASKED], "units": UNITS[name]}}
        schedule = {"stages": [{MASKED: arguments.steps}]}
        tree = {**COMMON, "schedule": schedule, "objectives": objectives}
        run = pretrain(arguments.corpus, tree, arguments.output / folder / f"{name}-{seed}", seed)
        return {
            "hidden words": hidden_words(run / "model", arguments.corpus),
            TUNED: {task: score(run, task, arguments.data, seed) for task in TASKS},
        }

    for seed in arguments.seeds:
        for name in UNITS:
            kept(records / f"{name}-{seed}.json", partial(record, name, seed))
    print(table({name: there for name in UNITS if (there := read_records_of(records, name, TUNED))}))


def score(pretrained: Path, task: str, data: Path, seed: int) -> float:
    """The dev score of a task after fine-tuning."""
    run = pretrained / "downstream" / task
    if not (run / "scores.json").exists():
        config = yaml.safe_load((CONFIGS / f"{task}.yaml").read_text(encoding="utf-8"))
        file = config["local"]["train"].partition("[")[0]  # whatever part of it the configuration takes
        changed = sets([*FINE_TUNING, f"local.train={file}[:{ROWS}]", "local.test=[]"])
        words = [str(CONFIGS / f"{task}.yaml"), "--data", str(data), "--model", str(pretrained), *changed]
        command = [sys.executable, "-m", "ernie.cli", "finetune", *words, "--seed", str(seed), "--output", str(run)]
        subprocess.run([*command, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    trial = json.loads((run / "scores.json").read_text(encoding="utf-8"))["trials"][0]
    return float(trial["scores"]["dev"][TASKS[task]])


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Each task's dev score, and their mean."""
    heads = [f"{name} ({measure})" for name, measure in TASKS.items()]
    lines = [f"| masked | hidden words' tokens | {' | '.join(heads)} | mean |", f"|{'---|' * (len(heads) + 3)}"]
    means: dict[str, float] = {}
    for name, records in found.items():
        columns = [spread([record[TUNED][task] for record in records]) for task in TASKS]
        of_each = [statistics.mean(record[TUNED].values()) for record in records]
        hidden = spread([record["hidden words"]["right"] for record in records])
        lines.append(f"| {', '.join(UNITS[name])} | {hidden} | {' | '.join(columns)} | {spread(of_each)} |")
        means[name] = statistics.mean(of_each)
    if set(means) == set(UNITS):
        more = means["words"] - means["characters"]
        lines += ["", f"words, phrases and entities: {more:+.1%} in the mean, {'as' if more > 0 else 'not as'} was set"]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
