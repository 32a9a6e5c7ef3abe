"""Run logging: a progress bar for people, `metrics.jsonl` for programs, trackers for those who have one."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from ernie.atomic import check_within, disk_guard, put_text
from ernie.errors import UserError
from ernie.formatting import duration
from ernie.train.trackers import TrackedRun, TrackerSender, numbers_of, open_trackers

METRICS_FILE = "metrics.jsonl"
_BAR = "{percentage:3.0f}% |{bar:8}| {n_fmt}/{total_fmt}  left {remaining}{postfix}"
_MOST_STEPS = 2**31  # of a run
_LINE_EVERY = 15.0  # seconds between progress lines where there is no terminal


class Log:
    """Writes a run's records and shows its progress.

    A record is one line of JSON with a `kind` ("step", "probe", ...) and a `step`.  `resume_at` drops the records of
    that step and later, which a resumed run writes again.  Without a folder, as in all but the first process of a run,
    nothing is written or shown.  The trackers of `tracked` get the numbers, too.  `kept` and `dropped` count the steps
    whose records were there.
    """

    def __init__(
        self,
        folder: Path | None,
        steps: int,
        *,
        resume_at: int = 0,
        quiet: bool = False,
        tracked: TrackedRun | None = None,
    ):
        self._file: TextIO | None = None
        self.kept = self.dropped = 0
        if folder is not None:
            check_within(folder, folder / METRICS_FILE)
            self.kept, self.dropped = _truncate(folder / METRICS_FILE, resume_at)
            self._file = (folder / METRICS_FILE).open("a", encoding="utf-8")
        self._quiet = quiet = quiet or folder is None
        self._steps, self._done = steps, resume_at
        self._first = resume_at
        self._started = self._last_shown = time.monotonic()
        terminal = sys.stderr.isatty() and not quiet
        self._bar = tqdm(total=steps, initial=resume_at, bar_format=_BAR, dynamic_ncols=True) if terminal else None
        self._trackers: list[TrackerSender] = []
        if folder is not None and tracked is not None:
            self._trackers = open_trackers(tracked, folder, resume_at, self.say)

    def record(self, kind: str, step: int, **values: Any) -> None:
        """Write one record and flush it, so that other programs can read it at once."""
        if self._file is None:
            return
        with disk_guard(Path(self._file.name), "the last records are not in it"):
            self._file.write(json.dumps(_plain({"kind": kind, "step": step, **values})) + "\n")
            self._file.flush()
        if self._trackers and (numbers := numbers_of({kind: values})):
            for tracker in self._trackers:
                tracker.add(numbers, step)

    def progress(self, step: int, **shown: str) -> None:
        """Show that `step` is done, with a few numbers."""
        self._done = step + 1
        figures = "  ".join(f"{name} {value}" for name, value in shown.items())
        if self._bar is not None:
            self._bar.set_postfix_str(figures, refresh=False)
            self._bar.update(step + 1 - self._bar.n)
            return
        now = time.monotonic()
        if not self._quiet and (now - self._last_shown > _LINE_EVERY or step + 1 == self._steps):
            self._last_shown = now
            pace = (now - self._started) / max(1, step + 1 - self._first)
            left = duration(pace * (self._steps - step - 1))
            self.say(f"step {step + 1}/{self._steps}  {figures}  left {left}")

    def say(self, sentence: str) -> None:
        """Print a line on standard error, above the progress bar."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.write(sentence, file=sys.stderr)
        else:
            print(sentence, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Close the files and the bar, and send what trackers lack."""
        if self._file is not None:
            self._file.close()
        if self._bar is not None:
            self._bar.close()
        for tracker in self._trackers:
            tracker.close(finished=self._done >= self._steps)


def read_records(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """Read the records of a run, in order.  A last line truncated by a kill is left out."""
    file = folder / METRICS_FILE
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(f"{folder}: there is no {METRICS_FILE} in it; is it the folder of a run?") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not UTF-8 text (byte {error.start}); the file is damaged") from None
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # a number of more than 4,300 digits raises a plain ValueError
            if number < len(lines):
                raise UserError(
                    f"{file}:{number}: is not JSON; the file is damaged. Delete the line: the run's state is in its "
                    "checkpoints"
                ) from None
            continue
        if not isinstance(record, dict) or type(record.get("kind")) is not str or not _is_step(record.get("step")):
            raise UserError(f"{file}:{number}: is not a record of a run; the file is damaged")
        records.append(record)
    return [record for record in records if kind in (None, record["kind"])]


def _is_step(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST_STEPS


def _truncate(path: Path, step: int) -> tuple[int, int]:
    """Drop the records of `step` and later; return how many steps had records before it, and from it on."""
    if not path.exists():
        return 0, 0
    records = read_records(path.parent)
    kept = [record for record in records if record["step"] < step]
    put_text(path, "".join(json.dumps(record) + "\n" for record in kept))
    steps = {record["step"] for record in records if record["kind"] == "step"}
    before = sum(number < step for number in steps)
    return before, len(steps) - before


def _plain(value: Any) -> Any:
    """Replace non-finite numbers, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
