"""What a pretrained encoder is worth: the scores of the fine-tuning runs that began with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ernie.config import read
from ernie.errors import UserError
from ernie.report.words import plural
from ernie.saved import read_json

_CONFIG, _SCORES = "config.yaml", "scores.json"


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


def downstream_rows(runs: Sequence[Downstream]) -> list[list[str]]:
    """The table of all of them, its head first."""
    seeds = sorted({len(found["values"]) for run in runs for split in run.scores.values() for found in split.values()})
    counts = " or ".join(map(str, seeds[:-1])) + " or " * (len(seeds) > 1) + plural(seeds[-1], "seed")
    return [["task", "split", "measure", f"median of {counts}"], *(row for run in runs for row in run.rows())]


def _told(found: dict[str, Any]) -> str:
    if len(found["values"]) == 1:
        return f"{found['median']:.3f}"
    return f"{found['median']:.3f} ({found['lowest']:.3f} to {found['highest']:.3f})"
