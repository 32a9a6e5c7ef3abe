"""The quickstart example, end to end."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_the_quickstart_ends_with_both_scores_and_a_report(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    command = [sys.executable, str(ROOT / "examples" / "quickstart.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    scores = {
        name: float(share) for name, share in re.findall(r"^(untrained|pretrained) +([\d.]+)%", done.stdout, re.M)
    }
    assert scores["pretrained"] > scores["untrained"] > 100 / 8
    report = re.search(r"Open (\S+report\.html)", done.stdout)
    assert report is not None
    assert (tmp_path / report[1]).stat().st_size > 100_000
