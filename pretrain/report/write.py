"""Write the report of a run: figures, ledger and page."""

from __future__ import annotations

import json
from pathlib import Path

from ernie.config import dump
from ernie.report import page
from ernie.report.chapter import write_chapters
from ernie.report.panels import style
from pretrain.ledger import markdown
from pretrain.report.chapters import chapters
from pretrain.report.evidence import Evidence
from pretrain.report.summary import TASKS_NOTE, sentences, state, task_rows

FOLDER, PAGE, LEDGER = "report", "report.html", "ledger.json"


def write_report(evidence: Evidence, output: Path | None = None) -> Path:
    """Write `report/*.png` and `report/ledger.json` into the run's folder, and the page that holds all of it.

    Returns the page's path: `output`, or `report.html` in the run's folder.
    """
    pictures = evidence.folder / FOLDER
    pictures.mkdir(exist_ok=True)
    (pictures / LEDGER).write_text(json.dumps(evidence.ledger.as_dict(), indent=2) + "\n", encoding="utf-8")
    output = output or evidence.folder / PAGE
    output.parent.mkdir(parents=True, exist_ok=True)
    with style():
        sections = write_chapters(chapters(evidence), pictures)
    output.write_text(_page(evidence, sections), encoding="utf-8")
    return output


def _page(evidence: Evidence, sections: list[str]) -> str:
    history, schedule = evidence.history, evidence.schedule
    origin = evidence.origin
    rows = [
        ["commit", origin["commit"] or "an installed library, not a checkout"],
        *([name, version] for name, version in origin["versions"].items()),
        ["machine", origin["machine"]],
        ["command", " ".join(origin["command"])],
    ]
    parts = [
        page.paragraph(sentences(history, schedule)),
        page.table(task_rows(history, schedule)),
        page.paragraph(TASKS_NOTE, "note"),
        *sections,
        page.section("Where it comes from", "What made this run.", page.table([["what", "which"], *rows])),
        page.folded("The ledger as text", markdown(evidence.ledger.rows())),
        page.folded("The configuration, with every default", dump(evidence.config)),
    ]
    return page.page(evidence.folder.resolve().name, state(history, schedule), parts)
