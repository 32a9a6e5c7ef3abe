"""Several processes on this machine, started by Paddle's launcher.

Each of them runs the same command; what they say goes to `rank-N.log` in a folder.  The first one speaks for
the command: on standard error as it goes on, on standard output at the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from ernie.errors import UserError
from ernie.runtime import HANG_UP, ending_signals, leave_terminal, threads

LOGS_FOLDER = "processes"  # in the folder of a run
_LOGS = "ERNIE_RANK_LOGS"  # the environment variable that tells the processes where their logs go
_ENDED = (0, 1, 2, 128 + signal.SIGINT)  # exit statuses with which a command has come to its own end
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # and those when it was asked to
_KILLED = 137  # that of a command which SIGKILL has ended
_WORKER = Path(__file__).with_name("worker.py")
_RESULTS = "results"  # the file that the first process's standard output goes to
_LAUNCHER = "launcher"  # the folder of Paddle's launcher, which writes down the environment
_SAYS = "ernie: "  # how the lines begin that tell why a process ended


def ranks() -> int:
    """Among how many processes Paddle's launcher has started this one; 1 where it was started by itself."""
    return int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))


def count(asked: int) -> int:
    """On how many processes a command runs that was given `--processes`.  Raises UserError for less than one."""
    if asked < 1:
        raise UserError(f"--processes: expected at least 1, found {asked}")
    return max(ranks(), asked)


def check_restarts(restarts: int, processes: int) -> None:
    """Raise UserError where a command cannot be started again so often."""
    if restarts < 0:
        raise UserError(f"--max-restarts: expected at least 0, found {restarts}")
    if restarts and processes == 1:
        raise UserError(
            "--max-restarts: is for several processes; one that has failed goes on from its last checkpoint when its "
            "command is given again"
        )


def launch(words: Sequence[str], processes: int, folder: Path, restarts: int = 0, *, module: str = "ernie.cli") -> int:
    """Run `ernie` with these words in so many processes, with logs in a run's folder; returns the exit status.

    After a failure that may be one of the machine's (a process that died, stood still or raised an error) all are
    started again, at most `restarts` times.  At SIGTERM, Ctrl-C or the end of the terminal they are asked to end, and
    that is waited for; at a second one they are killed.  They also end when this process does, however it does.
    `module` may be another than the command's.
    """
    logs = folder / LOGS_FOLDER
    logs.mkdir(parents=True, exist_ok=True)
    files = [logs / f"rank-{rank}.log" for rank in range(processes)]
    for file in files:
        file.write_bytes(b"")
    results = logs / _RESULTS
    results.write_bytes(b"")
    try:
        status = _until_done([module, *words], files, restarts)
        if status < 128:
            print(results.read_text(encoding="utf-8"), end="")
    finally:
        results.unlink()
        shutil.rmtree(logs / _LAUNCHER, ignore_errors=True)
    return status


def _until_done(words: Sequence[str], files: Sequence[Path], restarts: int) -> int:
    """The exit status of the last attempt, 1 for what is none of a command's own."""
    for attempt in range(restarts + 1):
        status, asked = _run(words, files)
        if len(asked) > 1:
            _say("a second signal: the processes were killed; what they had not saved is lost")
            return _KILLED
        if asked and status in _STOPPED:
            return 128 + asked[0]
        if asked and status:
            _say("the processes failed after they were asked to end; what they had not saved is lost")
        if asked or status in _ENDED or attempt == restarts:
            break
        _say(f"starting again from the last checkpoint (restart {attempt + 1} of {restarts})")
    return status if status in _ENDED else 1


def _run(words: Sequence[str], files: Sequence[Path]) -> tuple[int, list[int]]:
    """The exit status of one attempt by a process for each file, and the signals that asked them to end."""
    before = [file.stat().st_size for file in files]
    logs = files[0].parent.resolve()
    command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", str(len(files))]
    shutil.rmtree(logs / _LAUNCHER, ignore_errors=True)  # of an attempt before, or a command that was killed
    (logs / _LAUNCHER).mkdir(mode=0o700)
    launcher = subprocess.Popen(
        [*command, "--log_dir", str(logs / _LAUNCHER), "--log_level", "ERROR", str(_WORKER), *words],
        env={**os.environ, **_environment(len(files)), _LOGS: str(logs)},
        stdin=subprocess.PIPE,  # the processes have it, too: its end asks them to end
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C at the terminal comes from here, once
    )
    with launcher, files[0].open(encoding="utf-8", errors="replace") as first, _passed_on(launcher) as asked:
        first.seek(before[0])
        while launcher.poll() is None:
            _show(first.read())
            time.sleep(0.1)
        _show(first.read())
        assert launcher.stderr is not None
        said = launcher.stderr.read().decode(errors="replace")
    status = launcher.returncode
    if status and not (asked and (len(asked) > 1 or status in _STOPPED)):
        _explain([_from(file, place) for file, place in zip(files, before, strict=True)], said)
        _say(f"what each process said is in {files[0].parent}")
    return status, asked


@contextmanager
def _passed_on(launcher: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Inside, the first signal asks the launcher's processes to end, the second one kills them; both are listed.

    The launcher itself is not asked: 30 seconds after that it would kill what still finishes a step or saves.
    """
    asked: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        leave_terminal()
        if number == HANG_UP and asked:  # the shell passes it on, and the kernel sends it again
            return
        asked.append(signal.SIGTERM if number == HANG_UP else number)
        if len(asked) > 1:
            launcher.kill()
        elif launcher.stdin is not None:
            launcher.stdin.close()

    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread may handle signals
        return
    before = {number: signal.signal(number, pass_on) for number in ending_signals()}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _from(file: Path, place: int) -> str:
    return file.read_bytes()[place:].decode(errors="replace")


def _explain(texts: Sequence[str], launcher: str) -> None:
    """Show why the processes ended, where the first of them has not said it itself."""
    reasons = [[line for line in text.splitlines() if line.startswith(_SAYS)] for text in texts]
    if not reasons[0]:
        others = [line for found in reasons[1:] for line in found]
        _say(others[0].removeprefix(_SAYS) if others else f"the processes ended without a word.\n{launcher}{texts[0]}")


def _environment(processes: int) -> dict[str, str]:
    """A share of this machine's threads for each process."""
    share = str(max(1, threads() // processes))
    return {"MKL_NUM_THREADS": share, "FLAGS_paddle_num_threads": share, "OMP_NUM_THREADS": share}


def _say(text: str) -> None:
    print(f"{_SAYS}{text}", file=sys.stderr, flush=True)


def _show(text: str) -> None:
    if text:
        print(text, end="", file=sys.stderr, flush=True)
