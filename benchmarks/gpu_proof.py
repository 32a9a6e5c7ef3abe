"""Is the library right on this GPU, and how fast?  About ten minutes, and one report at the end.

  make gpu-proof
  python benchmarks/gpu_proof.py [--output runs/gpu-proof] [--only CHECK ...]

Each check is a process of its own with a time limit, so that none takes the others with it.  The report is written anew
after each.  On a CPU the same checks run and say what they cannot show.  Exit status: 0, or 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_checks import CHECKS

from ernie.atomic import put_text
from ernie.formatting import duration
from ernie.report.chapter import Chapter, write_chapters
from ernie.report.html_table import facts, text_table
from ernie.report.page import folded, page, paragraph, section
from ernie.report.panels import BLUE, VERMILION, count_axis, panels, style

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Result:
    """What became of a check: `state` is right, wrong or not shown, `found` what the check wrote."""

    name: str
    state: str
    seconds: float
    found: dict[str, Any]


def main() -> int:
    """Run the checks one after the other and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/gpu-proof"))
    parser.add_argument("--only", nargs="+", choices=list(CHECKS), metavar="CHECK", help=", ".join(CHECKS))
    arguments = parser.parse_args()
    names = [name for name in CHECKS if not arguments.only or name in arguments.only]
    folder = (arguments.output / time.strftime("%Y%m%d-%H%M%S")).resolve()
    folder.mkdir(parents=True)
    report, results = folder / "report.html", []
    started = time.monotonic()
    for number, name in enumerate(names, 1):
        print(f"{number}/{len(names)}  {CHECKS[name].title:<22}", end="", flush=True)
        results.append(run(name, folder))
        print(f"{results[-1].state:<10}{results[-1].seconds:4.0f} s", flush=True)
        for sentence in results[-1].found["wrong"][:3]:
            print(f"     {sentence}")
        put_text(report, html(results, names))
    wrong = [result for result in results if result.state == "wrong"]
    print(f"\n{tally(results)} after {duration(time.monotonic() - started)}. Open {report} in a browser.")
    return 1 if wrong else 0


def run(name: str, folder: Path) -> Result:
    """Run a check in a session of its own, which ends with it or at its limit."""
    check, started = CHECKS[name], time.monotonic()
    with (folder / f"{name}.log").open("w", encoding="utf-8") as log:
        command = [sys.executable, str(HERE / "gpu_checks.py"), name, str(folder)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")]),
        }
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            status: int | None = process.wait(check.limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            kill_session(process)
    written = folder / f"{name}.json"
    found: dict[str, Any] = {"facts": {}, "table": [], "wrong": [], "missing": [], "curves": {}, "text": ""}
    if status == 0 and written.is_file():
        found = json.loads(written.read_text(encoding="utf-8"))
    elif status is None:
        found["wrong"] = [f"stopped after its limit of {check.limit} s"]
    else:
        found["wrong"] = [f"ended with status {status}" if status >= 0 else f"ended by {signal.Signals(-status).name}"]
    if status != 0:
        found["text"] = (folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-20_000:]
    shown = found["table"] or found["facts"]
    state = "wrong" if found["wrong"] else "right" if shown else "not shown"
    return Result(name, state, time.monotonic() - started, found)


def kill_session(process: subprocess.Popen[Any]) -> None:
    """End whatever a check has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tally(results: list[Result]) -> str:
    """How many checks are in each state, in words."""
    counts = {state: sum(result.state == state for result in results) for state in ("right", "wrong", "not shown")}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


def html(results: list[Result], names: list[str]) -> str:
    """The report on the checks so far."""
    left = len(names) - len(results)
    state = tally(results) + (f"; {left} to come" if left else "")
    rows = [["check", "", "seconds", "wrong, or not shown"]]
    for result in results:
        said = " ".join(
            f"{sentence[:1].upper()}{sentence[1:]}."
            for sentence in [*result.found["wrong"][:3], *result.found["missing"]]
        )
        rows.append([CHECKS[result.name].title, result.state, f"{result.seconds:.0f}", said])
    return page("Proof on a GPU", state, [text_table("the checks", rows, 1), *(part(result) for result in results)])


def part(result: Result) -> str:
    """The section of a check."""
    check, found = CHECKS[result.name], result.found
    pieces = [paragraph(f"Wrong: {sentence}.") for sentence in found["wrong"]]
    pieces += [paragraph(f"Not shown here: {sentence}.") for sentence in found["missing"]]
    if found["facts"]:
        pieces.append(facts(found["facts"]))
    if found["table"]:
        pieces.append(text_table(check.title, found["table"], 1))
    if found["text"]:
        pieces.append(folded("what it printed", found["text"]))
    drawn = curves(found["curves"]) if found["curves"] else []
    return "\n".join([section(check.title, check.shows, *pieces), *drawn])


def curves(losses: dict[str, list[float]]) -> list[str]:
    """The losses of each run over the steps, above those of the first."""
    (base, wanted), *others = losses.items()
    with style():
        figure, axes = panels([name for name, _ in others] or [base], 1.8)
        for place, (_, values) in zip(axes, others or [(base, wanted)], strict=True):
            place.plot(wanted, color=VERMILION, linewidth=2.5, alpha=0.5)
            place.plot(values, color=BLUE, linewidth=1.2)
            count_axis(place, 0, len(values) - 1, "steps")
        note = f"Blue: the loss of each step. Vermilion, below it: {base}."
        return write_chapters([Chapter("curves", "Losses", note, figure)], None)


if __name__ == "__main__":
    sys.exit(main())
