"""`ernie report` on runs of every shape: its figures, page and text."""

from __future__ import annotations

import base64
import itertools
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from support.helpers import python
from support.made_up_run import SEVEN, made_up_run

from ernie.cli import main
from ernie.report.panels import style
from pretrain.report.evidence import read_evidence
from pretrain.report.step_figures import draw_losses
from pretrain.report.summary import sentences, state, task_rows, verdict
from pretrain.report.write import chapters

SHAPES: dict[str, dict[str, Any]] = {
    "one task": {"tasks": SEVEN[:1], "steps_per_task": 30},
    "three tasks, probed often": {"probe_every": 10, "skipped": (3, 50)},
    "seven tasks in sequence": {"tasks": SEVEN, "method": "sequential", "forgets": 1.5},
    "seven tasks at once": {"tasks": SEVEN, "method": "joint"},
    "ten tasks": {"tasks": [*SEVEN, *(f"masking_of_long_phrases_{i}" for i in range(3))], "steps_per_task": 22},
    "odd names": {"tasks": ["<b>bold & brave", "$a_{1}$", SEVEN[0]], "steps_per_task": 8},
    "in its second stage": {"done": 35},
    "without a measurement": {"done": 15},
    "one step": {"done": 1},
    "no step": {"done": 0},
}


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return made_up_run(tmp_path / "run", **request.param)


def texts(figure: Figure) -> list[tuple[str, Any]]:
    """The visible texts of a figure with their bounding boxes in pixels."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    hidden = [label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in invisible_labels(axis)]
    all_texts = [found for found in figure.findobj(Text) if found not in hidden]
    shown = [found for found in all_texts if found.get_visible() and found.get_text().strip()]
    return [(found.get_text(), found.get_window_extent(canvas.get_renderer())) for found in shown]


def test_labels_of_a_figure_neither_overlap_nor_are_cut_off(run: Path) -> None:
    with style():
        for chapter in chapters(read_evidence(run)):
            found = texts(chapter.figure)
            width, height = chapter.figure.bbox.width, chapter.figure.bbox.height
            for text, box in found:
                assert box.x0 >= 0, (chapter.name, text)
                assert box.y0 >= 0, (chapter.name, text)
                assert box.x1 <= width, (chapter.name, text)
                assert box.y1 <= height, (chapter.name, text)
            for (first, a), (second, b) in itertools.combinations(found, 2):
                apart = a.x1 <= b.x0 or b.x1 <= a.x0 or a.y1 <= b.y0 or b.y1 <= a.y0
                assert apart, (chapter.name, first, second)


def invisible_labels(axis: Axis) -> list[Text]:
    """Tick labels that matplotlib creates but does not draw: outside the view interval, or of a hidden axis."""
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [label for position, label in ticks if not axis.axes.axison or not low <= position <= high]


class Page(HTMLParser):
    """Collects what a page loads and checks that its elements are closed."""

    def __init__(self, text: str):
        super().__init__()
        self.sources: list[str] = []
        self.alts: list[str] = []
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.sources += [value or "" for key, value in attrs if key in ("src", "href")]
        self.alts += [value or "" for key, value in attrs if key == "alt"]
        if tag not in ("img", "meta", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    "run", [SHAPES[name] for name in ("odd names", "without a measurement", "no step")], indirect=True
)
def test_the_page_embeds_all_its_figures_and_loads_nothing(run: Path) -> None:
    assert main(["report", str(run)]) == 0
    page = Page((run / "report.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert not page.tags & {"script", "link", "iframe", "b"}
    images = [base64.b64decode(source.removeprefix("data:image/png;base64,"), validate=True) for source in page.sources]
    assert all(image.startswith(b"\x89PNG") for image in images)
    assert (run / "report" / "schedule.png").read_bytes() in images
    assert len(page.alts) == len(images) == len(set(page.alts))


def test_the_page_shows_the_ledger_as_a_table(tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "run", SEVEN[:2], method="sequential", forgets=1.0)
    assert main(["report", str(run)]) == 0
    text = (run / "report.html").read_text(encoding="utf-8")
    ledger = text[text.index("Forgetting ledger</h2>") :]
    cells = re.findall(r"<td[^>]*>(?:([^<]*)<small>([^<]*)</small>|([^<]*))</td>", ledger[: ledger.index("</table>")])
    assert [value or plain for value, _, plain in cells] == ["0.800", "", "0.400", "0.800", "50% *", "0%"]
    assert cells[2][1] == "[0.390, 0.410]"
    assert (run / "report" / "ledger.png").is_file()


def test_the_verdict_names_tasks_at_chance_and_forgotten_tasks(tmp_path: Path) -> None:
    evidence = read_evidence(made_up_run(tmp_path / "run", method="sequential", forgets=1.5))
    assert verdict(evidence.history, evidence.ledger, evidence.schedule) == (
        "Better on held-out documents than the best constant answer: 2 of 3 measured tasks, all but "
        "knowledge_masking. Forgotten since, by more than chance explains: knowledge_masking (100%) and capitalization "
        "(50%)."
    )
    early = read_evidence(made_up_run(tmp_path / "early", done=15))
    assert verdict(early.history, early.ledger, early.schedule) == "No task has been measured yet."


def test_the_verdict_on_a_run_that_learned_nothing_lists_no_exceptions(tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "run", SEVEN[:1])
    metrics = run / "metrics.jsonl"
    metrics.write_text(re.sub(r'"low": [0-9.]+', '"low": 0.0', metrics.read_text(encoding="utf-8")), encoding="utf-8")
    evidence = read_evidence(run)
    assert verdict(evidence.history, evidence.ledger, evidence.schedule) == (
        "Better on held-out documents than the best constant answer: 0 of 1 measured task."
    )


def test_a_panel_starts_at_the_stage_in_which_its_task_arrives(tmp_path: Path) -> None:
    evidence = read_evidence(made_up_run(tmp_path / "run"))
    with style():
        figure = draw_losses(evidence.history, evidence.schedule)
    starts = [evidence.schedule.stage_start(stage) for stage in range(3)]
    assert [axes.get_xlim() for axes in figure.axes] == [(start, 120) for start in starts]


def test_the_ledger_and_the_path_of_the_page_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made_up_run(tmp_path / "run")
    assert main(["report", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("finished: 120 steps in 3 stages")
    assert lines[1].startswith("Better on held-out documents")
    assert lines[3].split() == ["|", "after", "stage", "|", SEVEN[0], "|", SEVEN[1], "|", SEVEN[2], "|"]
    assert lines[-1] == str(run / "report.html")
    assert json.loads((run / "report" / "ledger.json").read_text())["tasks"] == list(SEVEN[:3])


def test_the_page_can_be_written_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made_up_run(tmp_path / "run", SEVEN[:1])
    before = sorted(path.name for path in run.iterdir())
    assert main(["report", str(run), "--output", str(tmp_path / "mine.pdf")]) == 2
    assert "a report is a web page; give a name that ends in .html" in capsys.readouterr().err
    target = tmp_path / "new" / "mine.html"
    assert main(["report", str(run), "--output", str(target)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(target)
    assert target.is_file()
    assert sorted(path.name for path in run.iterdir()) == before  # a finished run may be somebody else's


def test_a_report_can_be_repeated_as_the_run_continues(tmp_path: Path) -> None:
    assert main(["report", str(made_up_run(tmp_path / "run", done=20))]) == 0
    later = made_up_run(tmp_path / "later")
    shutil.copy(later / "metrics.jsonl", tmp_path / "run")
    assert main(["report", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "report" / "ledger.png").is_file()


def test_a_folder_that_is_not_a_run_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "is not the folder of a run" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "nowhere: there is no such folder" in capsys.readouterr().err


def test_a_damaged_run_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made_up_run(tmp_path / "run", done=3)
    (run / "metrics.jsonl").write_text("{\n{\n")
    assert main(["report", str(run)]) == 2
    assert "metrics.jsonl:1: is not JSON; the file is damaged" in capsys.readouterr().err
    (run / "origin.json").unlink()
    (run / "metrics.jsonl").write_text("")
    assert main(["report", str(run)]) == 2
    assert "origin.json: cannot be read" in capsys.readouterr().err


def test_an_unfinished_run_reports_its_progress(tmp_path: Path) -> None:
    evidence = read_evidence(made_up_run(tmp_path / "run", done=35, skipped=(4,)))
    assert state(evidence.history, evidence.schedule) == "at step 35 of 120"
    assert sentences(evidence.history) == (
        "35 steps in 2 stages read 140,000 tokens in 17.5 s of training, at a median of 8,000 tokens/s. 1.0% of that "
        "time went into waiting for data, besides the 0.0 s until the first batch was made; padded batches would have "
        "been 12% padding; 1 step was skipped for a loss or gradient that was not finite."
    )


def test_the_wait_for_the_first_batch_is_separate_from_waits_between_steps(tmp_path: Path) -> None:
    history = read_evidence(made_up_run(tmp_path / "run", done=35)).history
    seconds, waited = history.seconds.copy(), history.waited.copy()
    seconds[0], waited[0] = 4.5, 4.0
    slow = replace(history, seconds=seconds, waited=waited)
    assert slow.waiting == history.waiting == pytest.approx(0.01)
    assert "1.0% of that time went into waiting for data, besides the 4.0 s until" in sentences(slow)


def test_the_task_table_shows_which_tasks_were_not_measured(tmp_path: Path) -> None:
    evidence = read_evidence(made_up_run(tmp_path / "run", done=25))
    head, first, second, third = task_rows(evidence.history, evidence.schedule)
    assert head[:3] == ["task", "metric", "last [95% interval]"]
    assert first[1:6] == ["accuracy", "0.800 [0.790, 0.810]", "0.300", "0.800", "0.800"]
    assert second[2] == "not measured yet"
    assert re.fullmatch(r"\d\.\d{3}", second[-1])
    assert third[1:] == ["–", "not measured yet", "–", "–", "–", "–"]


def test_a_long_run_is_drawn_with_few_points(tmp_path: Path) -> None:
    evidence = read_evidence(made_up_run(tmp_path / "run", SEVEN[:2], steps_per_task=5000))
    with style():
        figure = draw_losses(evidence.history, evidence.schedule)
    for axes in figure.axes:
        assert max(len(line.get_xdata()) for line in axes.lines) <= 400


def fine_tuned(folder: Path, model: Path, *values: float) -> Path:
    """Write the configuration and scores of a fine-tuning run."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"model: {model}\n")
    found = {"median": values[0], "lowest": min(values), "highest": max(values), "values": values}
    (folder / "scores.json").write_text(json.dumps({"scores": {"dev": {"accuracy": found}}}))
    return folder


def test_the_page_shows_fine_tuning_scores(tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "run")
    scores = fine_tuned(tmp_path / "sst2", run, 0.825, 0.8125, 0.84)
    fine_tuned(tmp_path / "suite" / "rte", run / "model", 0.567, 0.55, 0.58)
    assert main(["report", str(run), "--downstream", str(scores), str(tmp_path / "suite")]) == 0
    page = (run / "report.html").read_text()
    assert "median of 3 seeds" in page
    assert "0.825 (0.812 to 0.840)" in page
    assert "0.567 (0.550 to 0.580)" in page
    assert not (run / "README.md").exists()  # a model card needs an encoder, and this run has none


def test_two_runs_of_one_name_stay_in_later_reports(tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "run", SEVEN[:1], done=30)
    scores = [fine_tuned(tmp_path / suite / "sst2", run, value) for suite, value in (("a", 0.825), ("b", 0.775))]
    assert main(["report", str(run), "--downstream", *map(str, scores)]) == 0
    for _ in range(2):
        page = (run / "report.html").read_text()
        assert "0.825" in page
        assert "0.775" in page
        assert main(["report", str(run)]) == 0


def test_fine_tuning_scores_stay_in_later_reports_until_the_run_continues(tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "run", SEVEN[:1], done=30)
    scores = fine_tuned(tmp_path / "sst2", run, 0.825)
    assert main(["report", str(run), "--downstream", str(scores)]) == 0
    shutil.rmtree(scores)
    assert main(["report", str(run)]) == 0
    assert "0.825" in (run / "report.html").read_text()
    other = fine_tuned(tmp_path / "rte", run, 0.567)
    assert main(["report", str(run), "--downstream", str(other)]) == 0
    assert "0.825" not in (run / "report.html").read_text()
    later = made_up_run(tmp_path / "later", SEVEN[:1], done=40)
    (later / "report").mkdir(exist_ok=True)
    shutil.copy(run / "report" / "downstream.json", later / "report")
    assert main(["report", str(later)]) == 0
    assert "0.567" not in (later / "report.html").read_text()


def test_scores_of_another_encoder_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made_up_run(tmp_path / "run")
    other = fine_tuned(tmp_path / "sst2", tmp_path / "other", 0.8)
    assert main(["report", str(run), "--downstream", str(other)]) == 2
    assert f"was fine-tuned from {tmp_path / 'other'}, not from {run}" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["report", str(run), "--downstream", str(tmp_path / "empty")]) == 2
    assert "holds no finished fine-tuning run" in capsys.readouterr().err


def test_a_report_needs_neither_paddle_nor_the_corpus_nor_pyplot(tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "run", done=30)
    heavy = "{'paddle', 'matplotlib.pyplot'} & set(sys.modules)"
    done = python(
        "-c", f"import sys; from ernie.cli import main; main(['report', {str(run)!r}]); sys.exit({heavy} or 0)"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
