"""Launch a command on several processes of this machine, with Paddle's launcher.

Each process runs the same command and logs to `rank-N.log` in a folder.  The output of the first one becomes that of
the command: its standard error while it runs, its standard output at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ernie.errors import PortTaken, UserError
from ernie.formatting import plural
from ernie.parallel.machines import TEAM, Roster, Team, Wish
from ernie.parallel.secret import VARIABLE as SECRET
from ernie.parallel.secret import new_secret
from ernie.runtime import SIGHUP, ending_signals, leave_terminal, threads

LOGS_FOLDER = "processes"  # in the folder of a run
_LOGS = "ERNIE_RANK_LOGS"  # the environment variable with the folder of the processes' logs
_ENDED = (0, 1, 2, 128 + signal.SIGINT)  # exit statuses of a command that ended by itself
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit statuses of a command that was asked to end
_PORTS = 5  # as many are tried at most
_KILLED = 137  # exit status after SIGKILL
_WORKER = Path(__file__).with_name("worker.py")
_RESULTS = "results"  # the file with the first process's standard output
_LAUNCHER = "launcher"  # the log folder of Paddle's launcher, which dumps the environment there
_PREFIX = "ernie: "  # of the lines that say why a process ended


def ranks() -> int:
    """Return the number of processes that Paddle's launcher has started; 1 if this one was started without it."""
    return int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))


def is_launched() -> bool:
    """Return whether this process is one of those that a command has started with `launch`."""
    return _LOGS in os.environ


def count(asked: int) -> int:
    """Return the number of processes of a command with `--processes asked`.  Raises UserError if it is below 1."""
    if asked < 1:
        raise UserError(f"--processes: expected at least 1, found {asked}")
    return max(ranks(), asked)


def check_restarts(restarts: int, processes: int) -> None:
    """Raise UserError if `--max-restarts` is negative, or given for a single process."""
    if restarts < 0:
        raise UserError(f"--max-restarts: expected at least 0, found {restarts}")
    if restarts and processes == 1 and not is_launched():
        raise UserError(
            "--max-restarts: is for several processes; a run on one process resumes from its last checkpoint when the "
            "command is run again"
        )


def launch(words: Sequence[str], processes: int, folder: Path, restarts: int = 0, *, module: str = "ernie.cli") -> int:
    """Run `ernie` with these arguments in several processes, with logs in a run's folder; return the exit status.

    After a failure that may be the machine's (a process died, hung or raised an error) all processes are restarted, at
    most `restarts` times.  On SIGTERM, Ctrl-C or SIGHUP they are asked to end, and waited for; on a second signal they
    are killed.  They also end whenever this process does.  `module` is the module to run.  Raises UserError if there
    are GPUs, but fewer than processes.
    """
    with _logs(folder / LOGS_FOLDER, processes) as files:
        return _until_done([module, *words], files, restarts)


def launch_together(words: Sequence[str], processes: int, folder: Path, restarts: int, roster: Roster) -> int:
    """As `launch`, for this machine's part of a run on several; return the exit status.

    The machines train until the run ends.  When one is lost or wants to leave, the others go on from the last
    checkpoint without it, and when one comes, with it.  A failure that may be a machine's counts as a restart.
    """
    failures = 0
    with roster, _logs(folder / LOGS_FOLDER / roster.host, processes) as files:
        while (team := roster.meet()).status is None:
            _say(f"training on {plural(len(team.names), 'machine')}: {', '.join(team.addresses)}")
            status, asked = _run(["ernie.cli", *words], files, _Part(team, roster))
            if len(asked) > 1:
                return _KILLED
            if asked:
                return 128 + asked[0] if status in _STOPPED else 1
            if status in _ENDED and status not in _STOPPED:
                roster.end(team, status)
                return status
            if status not in _STOPPED:  # otherwise a machine has come, or wants to leave
                failures += 1
                if failures > restarts:
                    return 1
                _say(f"starting again from the last checkpoint (restart {failures} of {restarts})")
    _say("the run has ended on the other machines")
    return team.status


@contextmanager
def _logs(logs: Path, processes: int) -> Iterator[list[Path]]:
    """Make the empty logs of as many processes; at the end, print what the first one has sent to standard output.

    Raises UserError if there are GPUs, but fewer than processes.
    """
    gpus = _gpus()
    if 0 < gpus < processes:
        raise UserError(f"--processes {processes}: there are {gpus} GPUs to use, and each process needs one of its own")
    logs.mkdir(parents=True, exist_ok=True)
    files = [logs / f"rank-{rank}.log" for rank in range(processes)]
    for file in files:
        file.write_bytes(b"")
    results = logs / _RESULTS
    results.write_bytes(b"")
    try:
        yield files
        print(results.read_text(encoding="utf-8"), end="")
    finally:
        results.unlink()
        shutil.rmtree(logs / _LAUNCHER, ignore_errors=True)


@dataclass(frozen=True)
class _Part:
    """A machine's part of a run on several: the team, and the roster that says whether it still holds together."""

    team: Team
    roster: Roster

    def variable(self) -> dict[str, str]:
        """Return the environment variable from which the processes learn of their place in the team."""
        index = self.team.names.index(self.roster.name)
        return {TEAM: json.dumps({"addresses": self.team.addresses, "port": self.team.port, "index": index})}


def _until_done(words: Sequence[str], files: Sequence[Path], restarts: int) -> int:
    """Return the exit status of the last attempt, 1 if it is not one of the command's own."""
    for attempt in range(restarts + 1):
        status, asked = _run_on_free_port(words, files)
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


def _run_on_free_port(words: Sequence[str], files: Sequence[Path]) -> tuple[int, list[int]]:
    """As `_run`, and again if another program took the port of the processes just before they did."""
    status, asked = _run(words, files)
    for _ in range(_PORTS - 1):
        if asked or status != PortTaken.status:
            break
        _say("starting the processes again, with another port")
        status, asked = _run(words, files)
    return status, asked


def _run(words: Sequence[str], files: Sequence[Path], part: _Part | None = None) -> tuple[int, list[int]]:
    """Run one attempt, one process per log file; return its exit status and the signals that asked it to end."""
    before = [file.stat().st_size for file in files]
    logs = files[0].parent.resolve()
    command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", str(len(files))]
    shutil.rmtree(logs / _LAUNCHER, ignore_errors=True)  # left by an earlier attempt, or by a killed command
    (logs / _LAUNCHER).mkdir(mode=0o700)
    launcher = subprocess.Popen(
        [*command, "--log_dir", str(logs / _LAUNCHER), "--log_level", "ERROR", str(_WORKER), *words],
        env={**environment(len(files)), _LOGS: str(logs), **(part.variable() if part else {SECRET: new_secret()})},
        stdin=subprocess.PIPE,  # inherited by the processes: closing it asks them to end
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # so that Ctrl-C reaches the processes only through this one
    )
    with launcher, files[0].open(encoding="utf-8", errors="replace") as first, _forwarded_signals(launcher) as asked:
        first.seek(before[0])
        while launcher.poll() is None:
            _show(first.read())
            if part is not None and (wish := part.roster.look(part.team)) is not Wish.GO_ON:
                _let_go(launcher, wish)
            time.sleep(0.1)
        _show(first.read())
        assert launcher.stderr is not None
        messages = launcher.stderr.read().decode(errors="replace")
    status = launcher.returncode
    if status and not (asked and (len(asked) > 1 or status in _STOPPED)):
        texts = [_read_from(file, offset) for file, offset in zip(files, before, strict=True)]
        if texts[0] and not texts[0].endswith("\n"):  # it died within a line
            _show("\n")
        _explain(texts, messages)
        _say(f"what each process said is in {files[0].parent}")
    return status, asked


def _let_go(launcher: subprocess.Popen[bytes], wish: Wish) -> None:
    """Ask the processes to save and end, because a machine has come, or kill them, because one is lost."""
    if launcher.stdin is not None and not launcher.stdin.closed:
        _say("a machine has come: saving" if wish is Wish.END else "a machine is lost")
        launcher.stdin.close()
    if wish is Wish.KILL:
        launcher.kill()


@contextmanager
def _forwarded_signals(launcher: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Inside, a first signal asks the launcher's processes to end, and a second one kills them; yields their list.

    The launcher itself is not signalled: 30 seconds later it would kill processes that still finish a step or save.
    """
    asked: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        leave_terminal()
        if number == SIGHUP and asked:  # sent twice, by the shell and by the kernel
            return
        asked.append(signal.SIGTERM if number == SIGHUP else number)
        if len(asked) > 1:
            launcher.kill()
        elif launcher.stdin is not None:
            launcher.stdin.close()

    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread may handle signals
        return
    before = {number: signal.signal(number, forward) for number in ending_signals()}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _gpus() -> int:
    """Return the number of GPUs that Paddle may use; 0 for its CPU wheel."""
    import paddle

    return int(paddle.device.cuda.device_count()) if paddle.is_compiled_with_cuda() else 0


def _read_from(file: Path, offset: int) -> str:
    return file.read_bytes()[offset:].decode(errors="replace")


def _explain(texts: Sequence[str], launcher: str) -> None:
    """Show why the processes ended, unless the first one has reported it itself."""
    reasons = [[line for line in text.splitlines() if line.startswith(_PREFIX)] for text in texts]
    if not reasons[0]:
        others = [line for lines in reasons[1:] for line in lines]
        silent = f"the processes ended without a message.\n{launcher}{texts[0]}"
        _say(others[0].removeprefix(_PREFIX) if others else silent)


def environment(processes: int) -> dict[str, str]:
    """Return the environment of processes that run at once, which gives each of them equally many threads.

    Paddle's launcher takes the variable CUDA_VISIBLE_DEVICES for GPUs, even an empty one and without any.
    """
    kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES" or _gpus()}
    own = str(max(1, threads() // processes))
    return kept | {"MKL_NUM_THREADS": own, "FLAGS_paddle_num_threads": own, "OMP_NUM_THREADS": own}


def _say(text: str) -> None:
    print(f"{_PREFIX}{text}", file=sys.stderr, flush=True)


def _show(text: str) -> None:
    if text:
        print(text, end="", file=sys.stderr, flush=True)
