"""Write the report of a run: its figures, ledger and HTML page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ernie.atomic import disk_guard, inner_folder, make_folder, put_text
from ernie.config import dump
from ernie.formatting import percent
from ernie.report import page
from ernie.report.chapter import Chapter, write_chapters
from ernie.report.html_table import facts, table
from ernie.report.panels import style
from pretrain.report.downstream import FOLDER, Downstream, downstream_rows
from pretrain.report.evidence import Evidence
from pretrain.report.ledger_figure import color_scale, draw_ledger, ledger_table
from pretrain.report.step_figures import draw_losses, draw_metrics, draw_optimization, draw_schedule, draw_speed
from pretrain.report.summary import TASKS_NOTE, sentences, state, task_rows, verdict

PAGE, LEDGER = "report.html", "ledger.json"


def write_report(evidence: Evidence, output: Path | None = None, downstream: Sequence[Downstream] = ()) -> Path:
    """Write `report/*.png` and `report/ledger.json` into the run's folder, and the HTML page that shows all of it.

    With `output`, the path of a page, only that page is written.  Returns the page's path.
    """
    report = inner_folder(evidence.folder, FOLDER) if output is None else None
    if report is not None:
        put_text(report / LEDGER, json.dumps(evidence.ledger.as_dict(), indent=2) + "\n")
    output = output or evidence.folder / PAGE
    make_folder(output.parent)
    with style():
        sections = write_chapters(chapters(evidence), report)
    with disk_guard(output, "the report was not written"):
        put_text(output, _page(evidence, sections, downstream))
    return output


def _page(evidence: Evidence, sections: list[str], downstream: Sequence[Downstream]) -> str:
    history, schedule = evidence.history, evidence.schedule
    parts = [
        page.paragraph(verdict(history, evidence.ledger, schedule)),
        page.paragraph(sentences(history)),
        table("Tasks", task_rows(history, schedule)),
        page.paragraph(TASKS_NOTE, "note"),
        *_downstream_section(downstream),
        *sections,
        origin_section(evidence.origin),
        page.folded("The configuration, with every default", dump(evidence.config)),
    ]
    about = f"Pretraining run, {state(history, schedule)}"
    return page.page(evidence.folder.resolve().name, about, parts)


def _downstream_section(downstream: Sequence[Downstream]) -> list[str]:
    title, note = "After fine-tuning", "The scores of fine-tuning runs that started from this encoder."
    return [page.section(title, note, table(title, downstream_rows(downstream)))] if downstream else []


def chapters(evidence: Evidence) -> Iterator[Chapter]:
    """Yield the figures for which the run has data so far."""
    history, schedule = evidence.history, evidence.schedule
    if evidence.ledger.stages:
        scale = percent(color_scale(evidence.ledger))
        note = (
            "Each task's held-out metric after each stage, with its 95% interval. The stronger the orange, the further "
            f"the task stands below its own best so far; the strongest stands for {scale}. Forgotten is (best − last) "
            "/ best; a star marks where the last is below the best in 97.5 % of the draws of held-out documents."
        )
        figure, table = draw_ledger(evidence.ledger, schedule), ledger_table(evidence.ledger, schedule)
        yield Chapter("ledger", "Forgetting ledger", note, figure, table)
    if history.losses:
        note = (
            "A panel begins with the stage in which its task arrives. The line is a moving average, the pale band the "
            "losses that it averages; the number is the mean at the end, as in the table of tasks."
        )
        yield Chapter("losses", "Loss in training", note, draw_losses(history, schedule))
    if history.measurements:
        note = (
            "Measured on documents that are never trained on, with 95% intervals. The dashed line is the score "
            "of the best constant answer: a task whose interval lies above it has learned something."
        )
        yield Chapter("metrics", "Held-out metrics", note, draw_metrics(history, schedule))
    note = (
        "Stages from left to right, as wide as they have steps. In each cell the task's steps in that stage; the "
        "stronger its blue, the larger its part of the stage."
    )
    yield Chapter("schedule", "Schedule", note, draw_schedule(schedule, history.done))
    if history.done:
        note = "The learning rate of each step, and the norm of the whole gradient before clipping."
        clip = evidence.config.train.clip
        yield Chapter("optimization", "Optimization", note, draw_optimization(history, schedule, clip))
        note = (
            "Tokens of each step by its duration; the part of it that waited for data; and the padding that the same "
            "batches would have without packing. Beside each panel stands the figure for the whole run."
        )
        yield Chapter("speed", "Speed", note, draw_speed(history, schedule))


def origin_section(origin: dict[str, Any]) -> str:
    """Return the section about `origin`, as `ernie.train.origin` recorded it at the start of the run.

    Resumes that changed the configuration are named, with the keys that changed.
    """
    resumed = origin.get("resumed", [])
    rows = {
        "command": _command(origin),
        **({"resumed": "once" if len(resumed) == 1 else f"{len(resumed)} times"} if resumed else {}),
        **{
            f"resumed with another {', '.join(start['changed'])}": _command(start)
            for start in resumed
            if start["changed"]
        },
        "commit": origin["commit"] or "an installed library, not a checkout",
        **origin["versions"],
        "machine": origin["machine"],
    }
    return page.section("Origin", "The command, the code and the machine that made this run.", facts(rows))


def _command(record: dict[str, Any]) -> str:
    command = [str(word) for word in record["command"]]
    return shlex.join([*(Path(program).name for program in command[:1]), *command[1:]])
