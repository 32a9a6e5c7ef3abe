"""What a run was made with, written beside what it made."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("ernie-continual", "paddlepaddle", "paddlepaddle-gpu", "numpy", "tokenizers", "sentencepiece")


def origin() -> dict[str, Any]:
    """The command line, the library's commit, the versions of what it stands on, and the machine, as plain data."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"command": sys.argv, "commit": _commit(), "versions": versions, "machine": platform.platform()}


def _commit() -> str | None:
    """The commit of the library's own checkout, None for an installed one."""
    home = Path(__file__).resolve().parent.parent.parent
    if not (home / ".git").exists():
        return None
    try:
        asked = subprocess.run(["git", "-C", str(home), "rev-parse", "HEAD"], capture_output=True, text=True)
    except OSError:
        return None
    return asked.stdout.strip() or None
