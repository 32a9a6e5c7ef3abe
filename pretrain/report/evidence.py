"""The data that a report is made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pretrain import folder as run_folder
from pretrain.config import PretrainConfig
from pretrain.history import History, read_history, reading_records
from pretrain.ledger import Ledger, make_ledger
from pretrain.schedule import Schedule


@dataclass(frozen=True)
class Evidence:
    """The state of a run as read from its folder, finished or not."""

    folder: Path
    config: PretrainConfig
    origin: dict[str, Any]
    schedule: Schedule
    history: History
    ledger: Ledger


def read_evidence(folder: Path) -> Evidence:
    """Read a run; needs neither its corpus nor Paddle, nor code that the run asks for.

    Raises UserError when the folder is not a run, or is damaged.
    """
    config = run_folder.read_config(folder, code=False)
    schedule = Schedule(config.schedule, config.train.micro_batches)
    history = read_history(folder)
    with reading_records(folder):
        ledger = make_ledger(history.measurements, schedule.tasks)
    return Evidence(folder, config, run_folder.read_origin(folder), schedule, history, ledger)
