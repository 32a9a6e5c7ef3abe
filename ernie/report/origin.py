"""What a run was made with, as a section of its page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ernie.report import page
from ernie.report.table import facts


def origin_section(origin: dict[str, Any]) -> str:
    """The section about `origin`, as `ernie.train.origin` wrote it when the run began."""
    command = [str(word) for word in origin["command"]]
    known = {
        "command": shlex.join([*(Path(program).name for program in command[:1]), *command[1:]]),
        "commit": origin["commit"] or "an installed library, not a checkout",
        **origin["versions"],
        "machine": origin["machine"],
    }
    return page.section("Origin", "The command, the code and the machine that made this run.", facts(known))
