"""Start, watch and compare pretraining runs."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import time
from pathlib import Path

from support import forked

from ernie.cli import main
from ernie.train.log import read_records


def pretrain(config: Path, output: Path, *more: str) -> int:
    return main(["pretrain", str(config), "--output", str(output), "--quiet", *more])


def start_process(config: Path, output: Path, *more: str, fresh: bool = False) -> subprocess.Popen[str]:
    """Start a run in a fork, or in an interpreter that reads the number of threads."""
    words = ["pretrain", str(config), "--output", str(output), "--quiet", *more]
    command = [*forked.python(fresh=fresh), "-m", "ernie.cli", *words]
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE)


def await_step(output: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Wait until a run has logged `step`."""
    metrics = output / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.exists() and re.search(rf'"kind": "step", "step": {step},', metrics.read_text(encoding="utf-8")):
            return
        time.sleep(0.01)
    raise AssertionError(f"the run never came to step {step}: {process.communicate()[1]}")


def outcome(output: Path) -> tuple[str, list[str]]:
    """Everything a run must reproduce: its last checkpoint and its records without times and memory."""
    last = sorted((output / "checkpoints").iterdir())[-1]
    digest = hashlib.sha256()
    for file in sorted(last.rglob("*")):
        if file.is_file():
            digest.update(file.relative_to(last).as_posix().encode() + file.read_bytes())
    records = []
    for record in read_records(output):
        if record["kind"] == "layout":
            continue
        for key in ("seconds", "waited"):
            record.pop(key, None)
        records.append(json.dumps(record))
    return digest.hexdigest(), records
