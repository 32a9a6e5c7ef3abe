"""A run whose corpus was moved after it: the corpus is known by its content, wherever it lies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ernie.cli import main


def test_a_run_is_verified_with_its_corpus_at_another_place(
    config: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, moved = tmp_path / "run", tmp_path / "elsewhere"
    shutil.copytree(corpus, tmp_path / "corpus")
    changes = (f"corpus={tmp_path / 'corpus'}", "schedule.tasks=[capitalization]", "schedule.steps_per_task=2")
    settings = [word for change in changes for word in ("--set", change)]
    assert main(["pretrain", str(config), "--output", str(run), "--quiet", *settings]) == 0
    (tmp_path / "corpus").rename(moved)
    capsys.readouterr()

    assert main(["verify", str(run), "--quiet"]) == 2
    printed = capsys.readouterr().err
    assert f"{tmp_path / 'corpus'}: the corpus of the run in {run} is not there" in printed
    assert "--corpus DIR" in printed

    assert main(["verify", str(run), "--quiet", "--corpus", str(moved)]) == 0
    assert "verified: 2 steps" in capsys.readouterr().out
    for given, problem in (([], "is not there"), (["--corpus", str(moved)], "measured by perplexity")):
        assert main(["scaling", str(run), *given]) == 2
        assert problem in capsys.readouterr().err

    other = moved / "corpus.json"
    other.write_text(other.read_text(encoding="utf-8").replace('"documents"', '"Documents"'), encoding="utf-8")
    assert main(["verify", str(run), "--quiet", "--corpus", str(moved)]) == 2
    assert "Traceback" not in capsys.readouterr().err
