"""Does masking words, phrases and entities teach more Chinese than masking characters?

  python benchmarks/masking.py CORPUS --data DATA --output runs/masking [--steps 4000] [--seeds 0 1 2]

CORPUS is a folder written by `ernie data build` from Chinese text with a tokenizer whose tokens are characters; DATA
has the files named in benchmarks/finetune/.  Two encoders that differ only in the masked units (Sun et al., 2019, arXiv
1904.09223, section 3.2) are pretrained and fine-tuned alike on four tasks, on the first 8,000 rows of each, seed by
seed; and both predict the same masked words of held-out text.  Finished work is kept, so that an interrupted command
resumes where it stopped; the results of each encoder are a small file under `--records` (by default in OUTPUT), and the
table shows all files.

Set before the first run: the mean over the four tasks is higher with words, phrases and entities, on average over the
seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from evidence import COMMON, MASKED, ROWS, SEEDS, hidden_words, pretrain
from outcomes import report
from page_tables import masking
from recipe import FINE_TUNING, set_options
from record_files import TUNED, Records, cached_record

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
        tasks = {MASKED: {**COMMON["tasks"][MASKED], "units": UNITS[name]}}
        schedule = {"stages": [{MASKED: arguments.steps}]}
        tree = {**COMMON, "schedule": schedule, "tasks": tasks}
        run = pretrain(arguments.corpus, tree, arguments.output / folder / f"{name}-{seed}", seed)
        return {
            "hidden words": hidden_words(run / "model", arguments.corpus),
            TUNED: {task: score(run, task, metric, arguments.data, seed) for task, metric in TASKS.items()},
        }

    for seed in arguments.seeds:
        for name in UNITS:
            cached_record(records / f"{name}-{seed}.json", partial(record, name, seed))
    report(Records(records), masking, targets=["masking"])


def score(pretrained: Path, task: str, metric: str, data: Path, seed: int, rows: int = ROWS) -> float:
    """Fine-tune on the first rows of a task unless that is done; return the dev score."""
    run = pretrained / "downstream" / task
    if not (run / "scores.json").exists():
        config = yaml.safe_load((CONFIGS / f"{task}.yaml").read_text(encoding="utf-8"))
        file = config["local"]["train"].partition("[")[0]  # without the slice that the configuration takes
        overrides = set_options([*FINE_TUNING, f"local.train={file}[:{rows}]", "local.test=[]"])
        words = [str(CONFIGS / f"{task}.yaml"), "--data", str(data), "--model", str(pretrained), *overrides]
        command = [sys.executable, "-m", "ernie.cli", "finetune", *words, "--seed", str(seed), "--output", str(run)]
        subprocess.run([*command, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    trial = json.loads((run / "scores.json").read_text(encoding="utf-8"))["trials"][0]
    return float(trial["scores"]["dev"][metric])


if __name__ == "__main__":
    main()
