"""Write the report of a run: its figures, ledger and HTML page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ernie.atomic import disk_guard, inner_folder, make_folder, put_text
from ernie.config import dump
from ernie.report import page
from ernie.report.chapter import write_chapters
from ernie.report.origin import origin_section
from ernie.report.panels import style
from ernie.report.table import table
from pretrain.report.chapters import chapters
from pretrain.report.downstream import FOLDER, Downstream, downstream_rows
from pretrain.report.evidence import Evidence
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
