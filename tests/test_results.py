"""The tables of the README and of benchmarks/ are those that the records give."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support import forked
from support.helpers import ROOT


@pytest.fixture
def benchmarks(tmp_path: Path) -> Path:
    """The pages, the records and what makes the former from the latter."""
    folder = tmp_path / "benchmarks"
    shutil.copytree(ROOT / "benchmarks", folder, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
    shutil.copy(ROOT / "README.md", tmp_path)
    return folder


def check(benchmarks: Path, *words: str) -> tuple[int, str]:
    """The status and the output of the check."""
    command = [*forked.python(), str(benchmarks / "tables.py"), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_pages_have_the_figures_of_the_records(benchmarks: Path) -> None:
    assert check(benchmarks, "--check") == (0, "")


def test_a_page_that_differs_from_its_record_is_found_and_mended(benchmarks: Path) -> None:
    page = benchmarks / "results" / "translation.md"
    before = page.read_text(encoding="utf-8")
    page.write_text(before.replace("| 38.0 |", "| 39.0 |"), encoding="utf-8")
    assert page.read_text(encoding="utf-8") != before
    status, output = check(benchmarks, "--check")
    assert status == 2
    assert output == f"{page}: differs from the records, run benchmarks/tables.py\n"
    assert check(benchmarks) == (0, f"{page}: is written\n")
    assert page.read_text(encoding="utf-8") == before


def test_an_outcome_turns_with_its_record(benchmarks: Path) -> None:
    for record in (benchmarks / "records" / "recognition" / "all-epochs-20").glob("chunks-*.json"):
        text = record.read_text(encoding="utf-8")
        assert '"test": 0.0' in text
        record.write_text(text.replace('"test": 0.0', '"test": 0.3', 1), encoding="utf-8")
    check(benchmarks)
    (line,) = [
        line
        for line in (benchmarks / "RESULTS.md").read_text(encoding="utf-8").splitlines()
        if "<!-- outcome: digits -->" in line
    ]
    assert "| missed<!-- end -->" in line


def test_a_record_that_no_page_uses_is_named(benchmarks: Path) -> None:
    file = benchmarks / "records" / "plateau" / "steps-3000" / "unheard-of-0.json"
    file.write_text("{}", encoding="utf-8")
    assert check(benchmarks, "--check") == (2, f"{file}: no page uses this record\n")


def test_a_mark_that_names_no_table_is_refused(benchmarks: Path) -> None:
    page = benchmarks / "LOG.md"
    page.write_text("<!-- table: of-contents -->\n<!-- end of table -->\n", encoding="utf-8")
    status, output = check(benchmarks, "--check")
    assert status == 1
    assert f"{page}: found a mark of 'of-contents', expected one of plateau, comparing" in output


@pytest.mark.parametrize(
    "text",
    ["<!-- outcome:\nscaling -->2 % off: met<!-- end -->\n", "<!-- table: masking -->\n| a |\n", "met<!-- end -->\n"],
)
def test_a_mark_that_is_broken_is_refused_instead_of_left_alone(benchmarks: Path, text: str) -> None:
    page = benchmarks / "LOG.md"
    page.write_text(text, encoding="utf-8")
    status, output = check(benchmarks)
    assert status == 1
    assert f"{page}: found '<!-- " in output
