"""Folders of runs that were never trained, with records of any length and shape for tests of reports."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import yaml

from ernie.config import dump
from ernie.metrics import Score
from ernie.train.log import Log
from pretrain.config import load
from pretrain.history import Measurement
from pretrain.schedule import Schedule

SEVEN = (
    "knowledge_masking",
    "capitalization",
    "token_document",
    "sentence_reordering",
    "sentence_distance",
    "discourse_relation",
    "ir_relevance",
)


def score(value: float, *, spread: float = 0.01, majority: float = 0.3, name: str = "accuracy") -> Score:
    draws = np.random.default_rng(round(abs(1e6 * value))).normal(value, spread / 1.96, 200)
    return Score(name, value, value - spread, value + spread, majority, count=500, draws=draws.tolist())


def measured(task: str, stage: int, value: float, *, ends_stage: bool = True, **more: float | str) -> Measurement:
    return Measurement(10 * stage, stage, ends_stage, task, score(value, **more))  # type: ignore[arg-type]


def made_up_run(
    folder: Path,
    tasks: Sequence[str] = SEVEN[:3],
    *,
    steps_per_task: int = 40,
    method: str = "continual",
    done: int | None = None,
    probe_every: int = 0,
    skipped: Collection[int] = (),
    forgets: float = 0.0,
) -> Path:
    """Write a run of `tasks` that has done `done` steps (None: all), logged like `pretrain` logs."""
    folder.mkdir(parents=True)
    named = {name: {"task": "knowledge_masking"} for name in tasks if name not in SEVEN}
    schedule_keys = {"steps_per_task": steps_per_task, "tasks": list(tasks), "method": method}
    (folder / "config.yaml").write_text(
        yaml.safe_dump({"corpus": "corpus", "schedule": schedule_keys, "tasks": named}), encoding="utf-8"
    )
    config = load(folder / "config.yaml")
    (folder / "config.yaml").write_text(dump(config), encoding="utf-8")
    origin = {"corpus": "c0ffee", "command": ["ernie", "pretrain"], "commit": "1234abcd", "machine": "Linux"}
    (folder / "origin.json").write_text(json.dumps({**origin, "versions": {"python": "3.12.3"}}), encoding="utf-8")
    schedule = Schedule(config.schedule)
    log = Log(folder, len(schedule), quiet=True)
    _write(log, schedule, len(schedule) if done is None else done, probe_every, skipped, forgets)
    log.close()
    return folder


def _write(log: Log, schedule: Schedule, done: int, probe_every: int, skipped: Collection[int], forgets: float) -> None:
    rng = np.random.default_rng(0)
    last: dict[str, int] = {}
    for step in range(done):
        slot = schedule[step]
        task = slot.draws[0]
        last[task] = step
        bad = step in skipped
        log.record(
            "step",
            step,
            stage=slot.stage,
            loss={task: math.nan if bad else 2.0 + float(rng.normal(0, 0.2)) - step / len(schedule)},
            rate=1e-4 * (1 - step / len(schedule)),
            gradient_norm=None if bad else float(rng.uniform(0.5, 3)),
            skipped=sum(1 for other in skipped if other <= step),
            tokens=4000,
            padding=0.125,
            seconds=0.5,
            waited=0.005,
            samples={task: "00000000"},
        )
        if schedule.ends_stage(step) or (probe_every and (step + 1) % probe_every == 0):
            for name, at in last.items():
                lost = forgets * (step - at) / len(schedule)
                scores = {"accuracy": score(0.8 * (1 - lost)).as_dict(draws=True)}
                log.record(
                    "probe", step, stage=slot.stage, ends_stage=schedule.ends_stage(step), task=name, scores=scores
                )
