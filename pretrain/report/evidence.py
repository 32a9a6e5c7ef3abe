"""All that a report is made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pretrain import folder as run_folder
from pretrain.config import PretrainConfig
from pretrain.history import History, read_history
from pretrain.ledger import Ledger, make_ledger
from pretrain.schedule import Schedule


@dataclass(frozen=True)
class Evidence:
    """A run as it stands in its folder, finished or going on."""

    folder: Path
    config: PretrainConfig
    origin: dict[str, Any]
    schedule: Schedule
    history: History
    ledger: Ledger


def read_evidence(folder: Path) -> Evidence:
    """Read a run, which needs neither its corpus nor Paddle.  Raises UserError when the folder is none or is
    damaged."""
    config = run_folder.read_config(folder)
    schedule = Schedule(config.schedule, config.train.micro_batches)
    history = read_history(folder)
    ledger = make_ledger(history.measurements, schedule.tasks)
    return Evidence(folder, config, run_folder.read_origin(folder), schedule, history, ledger)
