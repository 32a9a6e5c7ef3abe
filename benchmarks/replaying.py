"""Does `ernie replay` name the fault that was planted in a run?

  python benchmarks/replaying.py CORPUS --output runs/replaying --records benchmarks/records/replaying

CORPUS is a folder written by `ernie data build`.  Of each kind of fault five are planted, by seed: a value of a weight
in a checkpoint that is not finite; a document whose samples have an infinite loss; a flipped bit in the gradient of one
of two data parallel ranks; and an operator or a layer that rounds otherwise.  A fault counts as named if the command
says the very tensor with the index, the document with its sample, the rank with the bit, or the operator.

Set before the first run: 20 of 20.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from re import escape
from typing import Any

import numpy as np
import planted  # noqa: F401 - so that runs that ask for it are read
import yaml
from outcomes import report
from page_tables import replaying as table
from record_files import Records, cached_record
from safetensors.numpy import load_file, save_file

from ernie.sha256 import checksums_of
from pretrain.replay import Replay

HERE = Path(__file__).parent
STEPS, EACH = 6, 5
CONFIG = {
    "plugins": ["planted"],
    "schedule": {"steps_per_task": STEPS // 2, "tasks": ["knowledge_masking", "capitalization"], "method": "joint"},
    "model": {"preset": "tiny", "hidden_size": 32, "intermediate_size": 64, "layers": 3},
    "data": {"max_len": 48, "micro_batch_tokens": 512},
    "train": {"lr": {"peak": 1e-3, "warmup": 1}, "micro_batches": 4},
    "save": {"every": 1, "keep_last": STEPS},
    "probe": {"batches": 1},
}
LEAST = 1e-4  # of the norm of the largest gradient: the biases of keys have none but rounding errors
OPERATORS = ("q", "k", "v", "attention_out", "inner", "outer", "")  # the last is the layer's own kernel


def main() -> None:
    """Plant what has no record yet and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--records", type=Path)
    arguments = parser.parse_args()
    output, records = arguments.output.resolve(), arguments.records or arguments.output / "records"
    output.mkdir(parents=True, exist_ok=True)
    config = output / "run.yaml"
    config.write_text(yaml.safe_dump({"corpus": str(arguments.corpus.resolve()), **CONFIG}), encoding="utf-8")
    clean = output / "clean"
    if not (clean / "model").is_dir():
        pretrain(config, clean)
    for kind, plant in {"weight": weight, "document": document, "gradient": gradient, "kernel": kernel}.items():
        for seed in range(EACH):
            folder = output / f"{kind}-{seed}"
            shutil.rmtree(folder, ignore_errors=True)
            make = partial(tried, plant, config, clean, folder, np.random.default_rng([seed, len(kind)]))
            cached_record(records / f"{kind}-{seed}.json", make)
    report(Records(records), table, targets=["replaying"])


Planted = tuple[str, list[str], Path, list[str], dict[str, Any]]
"""What was planted, patterns of what has to be said, the run, more words of the command, and the fault meanwhile."""


def tried(
    plant: Callable[[Path, Path, Path, np.random.Generator], Planted],
    config: Path,
    clean: Path,
    folder: Path,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Plant a fault and replay the step; return what was planted, what was said, and whether that names it."""
    what, expected, run, words, environment = plant(config, clean, folder, rng)
    began = time.monotonic()
    done = ernie(["replay", str(run), *words, "--plugin", "planted", "--quiet"], environment, (0, 1))
    said = [
        line for line in done.splitlines() if line and not line.startswith(("|", "loss", "gradient norm", "layout"))
    ]
    told = next((line for line in said if all(re.search(part, line) for part in expected)), "")
    return {"planted": what, "named": bool(told), "said": told or said, "seconds": time.monotonic() - began}


def weight(config: Path, clean: Path, folder: Path, rng: np.random.Generator) -> Planted:
    """Make a value of a weight in a checkpoint NaN or infinite."""
    shutil.copytree(clean, folder)
    step = int(rng.integers(1, STEPS))
    checkpoint = folder / "checkpoints" / f"step-{step:08d}"
    file = str(rng.choice(["model/model.safetensors", "heads.safetensors"], p=[0.8, 0.2]))
    arrays = load_file(checkpoint / file)
    name = str(rng.choice(sorted(arrays)))
    at = int(rng.integers(arrays[name].size))
    value = float(rng.choice([np.nan, np.inf, -np.inf]))
    arrays[name].reshape(-1)[at] = value
    save_file(arrays, checkpoint / file)
    manifest = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))
    manifest["sha256"] |= checksums_of(checkpoint, [file])
    (checkpoint / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    full = f"{'ernie' if file.startswith('model') else 'heads'}.{name}"
    index = list(map(int, np.unravel_index(at, arrays[name].shape)))
    expected = [f"first not finite: the weight {full}: 1 of", f"the first at {index}, in the checkpoint of step {step}"]
    return f"{value} in {full} at {index}", list(map(escape, expected)), folder, ["--step", str(step + 1)], {}


def document(config: Path, clean: Path, folder: Path, rng: np.random.Generator) -> Planted:
    """Make the loss of all samples of a document infinite, while the run is trained and while it is replayed."""
    step = int(rng.integers(1, STEPS))
    rebuilt = Replay(clean, step)
    number, (task, batch) = list(enumerate(rebuilt.observe().batches))[int(rng.integers(4))]
    assert batch is not None
    name = batch.samples[int(rng.integers(len(batch.samples)))].tolist()
    place = rebuilt.place(task, name)
    rebuilt.close()
    fault = {"document": name[1]}
    pretrain(config, folder, fault, status=(0, 1))
    expected = [f"sample: {task}: sample ", f" of {place}, epoch {name[0]}"]
    return (
        f"infinite loss of {place}, micro-batch {number + 1}",
        list(map(escape, expected)),
        folder,
        replayed(step + 1),
        fault,
    )


def gradient(config: Path, clean: Path, folder: Path, rng: np.random.Generator) -> Planted:
    """Flip a bit in the gradient of a micro-batch on one of two ranks.

    The value is at least as large as the root mean square of its tensor, and the tensor no mere rounding error.
    """
    step, rank, turn = int(rng.integers(1, STEPS)), int(rng.integers(2)), int(rng.integers(2))
    number, bit = 2 * turn + rank, int(rng.integers(20, 32))
    rebuilt = Replay(clean, step)
    found = [each for each in rebuilt.observe().readings if each.place.kind == "gradient" and each.norm > 0]
    total = max(each.norm for each in found)
    places = [each.place for each in found if each.place.micro == number and each.norm > LEAST * total]
    place = places[int(rng.integers(len(places)))]
    values = rebuilt.observe([place]).kept[place]
    rebuilt.close()
    large = np.flatnonzero(np.abs(values) >= np.sqrt(np.square(values).mean()))
    at = int(rng.choice(large))
    fault = {"step": step + 1, "rank": rank, "turn": turn, "parameter": place.name, "at": at, "bit": bit}
    pretrain(config, folder, fault, words=("--processes", "2"))
    index = list(map(int, np.unravel_index(at, values.shape)))
    expected = [
        escape(f"the gradient of {place.name}, summed over the micro-batches: at {index} "),
        rf"bit {among(bit)} of it is flipped in micro-batch {among(number + 1)}, which rank {among(rank)} computed",
    ]
    what = f"bit {bit} of the gradient of {place.name} at {index}, micro-batch {number + 1}, rank {rank}"
    return what, expected, folder, replayed(step + 1), {}


def kernel(config: Path, clean: Path, folder: Path, rng: np.random.Generator) -> Planted:
    """Have an operator, or the kernel of a layer, round otherwise on one machine; compare it with another one."""
    step = str(int(rng.integers(1, STEPS)) + 1)
    name, operator = f"ernie.encoder.layers.{rng.integers(3)}", str(rng.choice(OPERATORS))
    folder.mkdir()
    words = ["--step", step, "--from-start", "--plugin", "planted", "--quiet", "--output", str(folder / "other.html")]
    ernie(["replay", str(clean), *words], {"layer": name, "operator": operator})
    what = f"the operator {name}.{operator}" if operator else name
    expected = [escape(f"first tensor that differs: the output of {what} in micro-batch 1: ")]
    more = ["--step", step, "--against", str(folder / "other.json"), "--output", str(folder / "page.html")]
    return f"a factor of 1 + 2^-20 in the output of {what}", expected, clean, more, {}


def among(number: int) -> str:
    """A pattern of a number, by itself or as one of those that would explain the same difference."""
    return rf"(\d+ or )*{number}( or \d+)*"


def replayed(step: int) -> list[str]:
    """The words that replay a step, of a run that may have skipped the steps before."""
    return ["--step", str(step), "--from-start"]


def pretrain(
    config: Path,
    run: Path,
    fault: dict[str, Any] | None = None,
    words: Sequence[str] = (),
    status: Sequence[int] = (0,),
) -> None:
    """Train a run in which a fault is planted."""
    ernie(["pretrain", str(config), "--output", str(run), "--quiet", *words], fault or {}, status)


def ernie(words: Sequence[str], fault: dict[str, Any], status: Sequence[int] = (0, 1)) -> str:
    """Run a command with a fault planted, and return what it prints."""
    environment = {**os.environ, "PLANT": json.dumps(fault), "PYTHONPATH": str(HERE)}
    command = [sys.executable, "-m", "ernie.cli", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode not in status:
        raise SystemExit(f"ernie {' '.join(words)}: ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
