"""The forgetting ledger as an HTML table, colored like its figure."""

from __future__ import annotations

from ernie.formatting import percent, plural
from ernie.metrics import Score
from ernie.report.table import Cell, heat_table
from pretrain.ledger import Ledger
from pretrain.report.heat import color_scale
from pretrain.schedule import Schedule


def ledger_table(ledger: Ledger, schedule: Schedule) -> str:
    """A row for each finished stage, a column for each task, and a last row with what each has forgotten so far."""
    scale = color_scale(ledger)
    columns = [_column(ledger, task, scale) for task in ledger.tasks]
    names = [Cell("after"), *(_stage(schedule, stage) for stage in ledger.stages), Cell("forgotten")]
    return heat_table("Forgetting ledger", list(zip(names, *columns, strict=True)))


def _column(ledger: Ledger, task: str, scale: float) -> list[Cell]:
    scores = ledger.column(task)
    metric = next((score.name for score in scores if score is not None), "")
    cells = [
        _score(score, None if short is None else short / scale)
        for score, short in zip(scores, ledger.shortfalls(task), strict=True)
    ]
    forgotten = ledger.forgetting(task)
    text = "" if forgotten is None else percent(forgotten) + (" *" if ledger.has_forgotten(task) else "")
    return [Cell(task, metric), *cells, Cell(text)]


def _score(score: Score | None, shade: float | None) -> Cell:
    return Cell("") if score is None else Cell(f"{score.value:.3f}", f"[{score.low:.3f}, {score.high:.3f}]", shade)


def _stage(schedule: Schedule, stage: int) -> Cell:
    """The heading of a row; without the steps for a stage that a changed schedule no longer has."""
    known = stage < len(schedule.table)
    return Cell(f"stage {stage + 1}", plural(int(schedule.stage_ends[stage]), "step") if known else "")
