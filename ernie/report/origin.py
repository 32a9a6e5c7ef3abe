"""The provenance of a run, as a section of its page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ernie.report import page
from ernie.report.table import facts


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
