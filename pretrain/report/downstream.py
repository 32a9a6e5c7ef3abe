"""What a pretrained encoder is worth: the scores of the fine-tuning runs that began with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ernie.beside import put_text
from ernie.config import read
from ernie.errors import UserError
from ernie.report.words import plural
from ernie.saved import read_json
from pretrain.report.evidence import Evidence

FOLDER = "report"  # of the run's folder: what a report consists of, as data and pictures
_CONFIG, _SCORES, _FILE = "config.yaml", "scores.json", "downstream.json"


@dataclass(frozen=True)
class Downstream:
    """A fine-tuning run: its name, and by split and measure the median, lowest and highest of its seeds."""

    name: str
    scores: dict[str, dict[str, dict[str, Any]]]

    def rows(self) -> list[list[str]]:
        """A row for each split and measure."""
        return [
            [self.name, split, measure, _told(found)]
            for split, measures in self.scores.items()
            for measure, found in measures.items()
        ]


def read_downstream(run: Path, folders: Sequence[Path]) -> list[Downstream]:
    """The fine-tuning runs in `folders`, each of which is one or holds some, as `ernie benchmark` leaves them.

    Raises UserError for a folder without any, and for a run that began with another model than that of `run`.
    """
    found = []
    for folder in folders:
        inside = [folder] if (folder / _SCORES).is_file() else sorted(f.parent for f in folder.glob(f"*/{_SCORES}"))
        if not inside:
            raise UserError(f"{folder}: holds no finished fine-tuning run; give the --output of 'ernie finetune'")
        for place in inside:
            model = str(read(place / _CONFIG).get("model") or "")
            if not Path(model).resolve().is_relative_to(run.resolve()):
                raise UserError(f"{place}: was fine-tuned from {model or 'another model'}, not from {run}")
            scores = read_json(place / _SCORES, {"scores": (dict,)}, "Fine-tune it again.")["scores"]
            if not any(scores.values()):
                raise UserError(f"{place / _SCORES}: holds no scores; fine-tune it again")
            found.append(Downstream(place.name, scores))
    return found


def remember(evidence: Evidence, runs: Sequence[Downstream]) -> None:
    """Write the scores into the run's report, as data, for the next report of the same encoder."""
    found = {"step": evidence.history.done, "runs": {run.name: run.scores for run in runs}}
    put_text(evidence.folder / FOLDER / _FILE, json.dumps(found, indent=2) + "\n")


def remembered(evidence: Evidence) -> list[Downstream]:
    """What the last report had, unless the run has gone on since."""
    path = evidence.folder / FOLDER / _FILE
    if not path.is_file():
        return []
    found = read_json(path, {"step": (int,), "runs": (dict,)}, "Give --downstream again.")
    return [Downstream(*one) for one in found["runs"].items()] if found["step"] == evidence.history.done else []


def downstream_rows(runs: Sequence[Downstream]) -> list[list[str]]:
    """The table of all of them, its head first."""
    seeds = sorted({len(found["values"]) for run in runs for split in run.scores.values() for found in split.values()})
    counts = " or ".join(map(str, seeds[:-1])) + " or " * (len(seeds) > 1) + plural(seeds[-1], "seed")
    return [["task", "split", "measure", f"median of {counts}"], *(row for run in runs for row in run.rows())]


def _told(found: dict[str, Any]) -> str:
    if len(found["values"]) == 1:
        return f"{found['median']:.3f}"
    return f"{found['median']:.3f} ({found['lowest']:.3f} to {found['highest']:.3f})"
