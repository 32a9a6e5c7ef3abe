"""Downstream scores of a pretrained encoder: those of the fine-tuning runs that started from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ernie.atomic import put_text
from ernie.config import read
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.json_file import read_json
from pretrain.report.evidence import Evidence

FOLDER = "report"  # in the run's folder: the data and images of a report
_CONFIG, _SCORES, _FILE = "config.yaml", "scores.json", "downstream.json"


@dataclass(frozen=True)
class Downstream:
    """A fine-tuning run: its name, and by split and metric the scores of its seeds with median, lowest and highest."""

    name: str
    scores: dict[str, dict[str, dict[str, Any]]]

    def rows(self) -> list[list[str]]:
        """A row for each split and metric."""
        return [
            [self.name, split, metric, _formatted(score)]
            for split, metrics in self.scores.items()
            for metric, score in metrics.items()
        ]


def read_downstream(run: Path, folders: Sequence[Path]) -> list[Downstream]:
    """Read the fine-tuning runs in `folders`: each is a run, or contains runs as written by `ernie benchmark`.

    Raises UserError for a folder without a run, and for a run that started from another model than that of `run`.
    """
    runs = []
    for folder in folders:
        paths = [folder] if (folder / _SCORES).is_file() else sorted(f.parent for f in folder.glob(f"*/{_SCORES}"))
        if not paths:
            raise UserError(f"{folder}: holds no finished fine-tuning run; give the --output of 'ernie finetune'")
        for path in paths:
            model = str(read(path / _CONFIG).get("model") or "")
            if not Path(model).resolve().is_relative_to(run.resolve()):
                raise UserError(f"{path}: was fine-tuned from {model or 'another model'}, not from {run}")
            scores = read_json(path / _SCORES, {"scores": (dict,)}, "Fine-tune it again.")["scores"]
            if not all(isinstance(metrics, dict) for metrics in scores.values()):
                raise UserError(f"{path / _SCORES}: scores: expected an object for each split; fine-tune it again")
            if not any(scores.values()):
                raise UserError(f"{path / _SCORES}: holds no scores; fine-tune it again")
            runs.append(_checked([path.name, scores], path / _SCORES))
    return runs


def save_downstream(evidence: Evidence, runs: Sequence[Downstream]) -> None:
    """Write the scores into the run's report folder, for the next report of the same encoder."""
    data = {"step": evidence.history.done, "runs": [[run.name, run.scores] for run in runs]}
    put_text(evidence.folder / FOLDER / _FILE, json.dumps(data, indent=2) + "\n")


def saved_downstream(evidence: Evidence) -> list[Downstream]:
    """The runs of the last report; none when the pretraining run has continued since."""
    path = evidence.folder / FOLDER / _FILE
    if not path.is_file():
        return []
    data = read_json(path, {"step": (int,), "runs": (dict, list)}, "Give --downstream again.")
    runs = data["runs"].items() if isinstance(data["runs"], dict) else data["runs"]  # by name until two could share one
    return [_checked(run, path) for run in runs] if data["step"] == evidence.history.done else []


def _checked(run: Any, file: Path) -> Downstream:
    """Return a run and its scores.  Raises UserError unless each score has its values, median, lowest and highest."""
    name, splits = run if isinstance(run, list | tuple) and len(run) == 2 else (None, None)
    metrics = list(splits.values()) if isinstance(splits, dict) else [None]
    scores = [score for each in metrics for score in (each.values() if isinstance(each, dict) else [None])]
    if not isinstance(name, str) or not isinstance(splits, dict) or not scores or not all(map(_is_score, scores)):
        raise UserError(f"{file}: holds something else than the scores of fine-tuning; it is damaged, make it again")
    return Downstream(name, splits)


def _is_score(score: Any) -> bool:
    values = score.get("values") if isinstance(score, dict) else None
    if not isinstance(values, list) or not values:
        return False
    return all(isinstance(score.get(key), int | float) for key in ("median", "lowest", "highest"))


def downstream_rows(runs: Sequence[Downstream]) -> list[list[str]]:
    """All scores as a table, header first."""
    seeds = sorted({len(score["values"]) for run in runs for split in run.scores.values() for score in split.values()})
    counts = " or ".join(map(str, seeds[:-1])) + " or " * (len(seeds) > 1) + plural(seeds[-1], "seed")
    return [["task", "split", "metric", f"median of {counts}"], *(row for run in runs for row in run.rows())]


def _formatted(score: dict[str, Any]) -> str:
    if len(score["values"]) == 1:
        return f"{score['median']:.3f}"
    return f"{score['median']:.3f} ({score['lowest']:.3f} to {score['highest']:.3f})"
