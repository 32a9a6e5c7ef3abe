"""Is a run ever lost?  Runs with a fault at a random moment, and what became of them.

  make drills
  python benchmarks/drills.py --output runs/benchmarks/drills [--drills N] [--records DIR] [--seed N]

Each drill starts a run of pretraining or fine-tuning, of one process or four, and at a random moment, from the start of
the program to its end:

- kill: SIGKILL to one of the run's processes.
- stop: SIGTERM to the command.
- freeze: SIGSTOP to one of its processes, for longer than the run waits.
- full disk: the run's folder is on a disk of a random size, too small for the run.
- corrupt file: the run is killed, and a byte of one of its files is changed, the file is cut short, or it is deleted.
- lost link: the processes' network goes down (four processes alone).

Then the same command runs again, with the fault gone.  Set before the first drill: in each, the run ends with the bytes
of one that nothing happened to, or with one sentence that says why not.  Whoever broke a file may be told so; for every
other fault the bytes have to be reached.  A drill is kept as a record, so that an interrupted command resumes.

Disks and networks need root and Linux; without, these drills are left out, and the command says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from outcomes import report
from page_tables import DRILL_FAULTS, drills
from record_files import Records, cached_record

HOME = Path(__file__).parents[1]
MARK = "ERNIE_DRILL"
STEPS, TIMEOUT = 40, 10  # of a run, and the seconds that its processes wait for each other
PATIENCE = 240  # seconds after which a command counts as hanging
PACKAGES = ("numpy", "yaml", "tqdm")


class Kind(NamedTuple):
    """What is run: a command and the number of its processes."""

    command: str
    processes: int


KINDS = [Kind(command, processes) for command in ("pretrain", "finetune") for processes in (1, 4)]


class Ended(NamedTuple):
    """How a command ended: its status (None if it was killed for hanging), and what it said."""

    status: int | None
    said: str

    @property
    def sentences(self) -> list[str]:
        """What it said to explain itself."""
        return [line for line in self.said.splitlines() if line.startswith(("ernie: error: ", "ernie: interrupted"))]


def main() -> None:
    """Make what is missing, run the drills that have no record, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--drills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--records", type=Path, metavar="DIR", help="default: OUTPUT/records")
    arguments = parser.parse_args()
    output, records = arguments.output.resolve(), arguments.records or arguments.output / "records"
    prepare(output)
    faults = [fault for fault in DRILL_FAULTS if fault not in ("full disk", "lost link") or can_unshare()]
    if len(faults) < len(DRILL_FAULTS):
        print(f"without root on Linux there is no drill of {' or '.join(sorted({*DRILL_FAULTS} - {*faults}))}")
    wanted = {
        kind: cached_record(output / "whole" / f"{kind.command}-{kind.processes}.json", partial(whole, output, kind))
        for kind in KINDS
    }
    for number in range(arguments.drills):
        rng = random.Random(f"{arguments.seed} {number}")
        fault = faults[number % len(faults)]
        kind = rng.choice([kind for kind in KINDS if kind.processes > 1 or fault != "lost link"])
        make = partial(drill, output / f"drill-{number}", output, kind, fault, wanted[kind], rng)
        cached_record(records / f"drill-{number:03}.json", make)
    report(Records(records), drills, targets=["drills"])


def prepare(output: Path) -> None:
    """Make a corpus and labeled rows of the documentation of a few packages, once."""
    if (output / "prepared").exists():
        return
    shutil.rmtree(output, ignore_errors=True)
    text, tokenizer = output / "text", output / "tokenizer"
    subprocess.run([sys.executable, str(HOME / "examples/docstrings.py"), str(text), *PACKAGES], check=True)
    ernie("tokenizer", "train", "--input", str(text), "--vocab-size", "1000", "--output", str(tokenizer))
    ernie("data", "build", "--input", str(text), "--tokenizer", str(tokenizer), "--output", str(output / "corpus"))
    rows = [
        json.dumps({"text": line, "label": file.stem})
        for file in sorted(text.glob("*.txt"))
        for line in [line for line in file.read_text(encoding="utf-8").splitlines() if line][:120]
    ]
    random.Random(0).shuffle(rows)
    (output / "rows.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    for processes in (1, 4):
        shared = f"parallel: {{data: {processes}, timeout: {TIMEOUT}}}\n"
        (output / f"pretrain-{processes}.yaml").write_text(
            f"corpus: {output / 'corpus'}\n"
            f"schedule: {{stages: [{{knowledge_masking: {STEPS // 2}}}, {{knowledge_masking: {STEPS // 2}}}]}}\n"
            "model: {preset: tiny}\ndata: {max_len: 64, micro_batch_tokens: 256}\n"
            "train: {lr: {peak: 1e-3, warmup: 0.1}, micro_batches: 4}\nsave: {every: 5}\n" + shared,
            encoding="utf-8",
        )
        (output / f"finetune-{processes}.yaml").write_text(
            "task: {kind: classify, text: text, label: label, max_len: 48}\n"
            f"data: {{train: {output / 'rows.jsonl'}, dev: {output / 'rows.jsonl'}}}\n"
            "train: {epochs: 2, batch: 16}\nsave_minutes: 0.01\n" + shared,
            encoding="utf-8",
        )
    ernie("pretrain", str(output / "pretrain-1.yaml"), "--output", str(output / "encoder"), "--quiet")
    (output / "prepared").touch()


def ernie(*words: str) -> None:
    """Run `ernie`, which has to succeed."""
    subprocess.run([sys.executable, "-m", "ernie.cli", *words], check=True, cwd=HOME)


def command(output: Path, kind: Kind, run: Path) -> list[str]:
    """The command of a run."""
    words = [kind.command, str(output / f"{kind.command}-{kind.processes}.yaml"), "--output", str(run), "--quiet"]
    words += ["--processes", str(kind.processes)] if kind.processes > 1 else []
    words += ["--model", str(output / "encoder")] if kind.command == "finetune" else []
    return [sys.executable, "-m", "ernie.cli", *words]


def whole(output: Path, kind: Kind) -> dict[str, Any]:
    """A run that nothing happens to: how long it takes, its bytes, and the space it needs."""
    run = output / "whole" / f"{kind.command}-{kind.processes}"
    shutil.rmtree(run, ignore_errors=True)
    started = time.monotonic()
    ended = finish(start(command(output, kind, run)))
    if ended.status != 0:
        raise RuntimeError(f"a run that nothing happens to fails: {ended.said[-2000:]}")
    size = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
    return {"seconds": time.monotonic() - started, "bytes": digest(run), "size": size}


def digest(run: Path) -> str:
    """A hash of the model that a run leaves."""
    found = hashlib.sha256()
    for file in sorted((run / "model").rglob("*.safetensors")):
        found.update(file.relative_to(run).as_posix().encode() + file.read_bytes())
    return found.hexdigest()


def start(words: list[str], network: bool = False) -> subprocess.Popen[str]:
    """Start a command in a session of its own; with `network` also in a network of its own, whose link is up."""
    marked = ["sh", "-c", f'export {MARK}=$$ && exec "$@"', "sh", *words]
    if network:
        marked = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *marked]
    return subprocess.Popen(
        marked,
        cwd=HOME,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], patience: float = PATIENCE) -> Ended:
    """Wait for the end of a command, and end what it has left behind."""
    try:
        said = process.communicate(timeout=patience)[1]
        return Ended(process.returncode, said)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return Ended(None, process.communicate()[1])
    finally:
        end_all(process.pid)


def processes_of(first: int) -> list[int]:
    """The processes of a run, the command itself first: they inherit a variable with the number of its session."""
    found, mark = [], f"{MARK}={first}".encode()
    for place in Path("/proc").iterdir():
        with suppress(OSError, ValueError):  # of processes that end meanwhile, or of others' users
            process = int(place.name)
            if process == first or mark in (place / "environ").read_bytes().split(b"\0"):
                state = (place / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    found.append(process)
    return sorted(found, key=lambda process: (process != first, process))


def end_all(first: int) -> None:
    """Kill what is left of a run.  Processes that a dead launcher has left end by themselves, but later."""
    for process in processes_of(first):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def drill(
    place: Path, output: Path, kind: Kind, fault: str, wanted: dict[str, Any], rng: random.Random
) -> dict[str, Any]:
    """Start a run, make the fault, run the same again until it ends, and say what became of it."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    moment = rng.uniform(0, wanted["seconds"])
    found: dict[str, Any] = {**kind._asdict(), "fault": fault, "moment": round(moment, 2)}
    with disk(place, wanted["size"], rng) if fault == "full disk" else nothing() as make_room:
        run = place / "run"
        words = command(output, kind, run)
        process = start(words, network=fault == "lost link")
        if fault != "full disk":
            with suppress(subprocess.TimeoutExpired):
                process.wait(moment)
        found["done"] = process.poll() is not None  # before the fault
        found["what"] = strike(process, fault, rng)
        ended = [finish(process)]
        if fault == "corrupt file":
            found["what"] = corrupt(run, rng)
        make_room()
        while len(ended) < 4 and (len(ended) == 1 or ended[-1].status not in (0, 2)):
            ended.append(finish(start(words)))
        found["ends"] = [
            {"status": each.status, "said": [line.replace(f"{output}/", "drills/") for line in each.sentences]}
            for each in ended
        ]
        same = ended[-1].status == 0 and digest(run) == wanted["bytes"]
    found["outcome"] = judge(fault, ended, same)
    if found["outcome"] not in ("resumed", "told"):
        (place / "said.txt").write_text("\n\n".join(each.said for each in ended), encoding="utf-8")
    else:
        shutil.rmtree(place, ignore_errors=True)
    return found


def judge(fault: str, ended: list[Ended], same: bool) -> str:
    """What became of a run: `resumed`, `told` (by one sentence why not), or what is wrong."""
    if any(each.status is None for each in ended):
        return "a command hangs"
    if any("Traceback" in each.said for each in ended[1:]):
        return "a traceback instead of a sentence"
    if ended[-1].status == 0:
        return "resumed" if same else "other bytes"
    if fault == "corrupt file" and ended[-1].status == 2 and len(ended[-1].sentences) == 1:
        return "told"
    return "not resumed"


def strike(process: subprocess.Popen[str], fault: str, rng: random.Random) -> str:
    """Make the fault, and say what it was."""
    processes = processes_of(process.pid)
    if not processes:
        return "the run had ended"
    victim = rng.choice(processes)
    which = f"process {processes.index(victim)} of {len(processes)}"
    with suppress(ProcessLookupError):
        if fault in ("kill", "corrupt file"):
            os.kill(victim, signal.SIGKILL)
        elif fault == "stop":
            process.send_signal(signal.SIGTERM)
            return "the command"
        elif fault == "freeze":
            os.kill(victim, signal.SIGSTOP)
            with suppress(subprocess.TimeoutExpired):
                process.wait(2.5 * TIMEOUT)
            os.kill(victim, signal.SIGCONT)
        elif fault == "lost link":
            subprocess.run(
                ["nsenter", "--target", str(processes[0]), "--net", "ip", "link", "set", "lo", "down"], check=False
            )
            return "the link of all processes"
    return which


def corrupt(run: Path, rng: random.Random) -> str:
    """Change a byte of a file of a run, cut it short, or delete it; say which."""
    files = sorted(file for file in run.rglob("*") if file.is_file() and file.stat().st_size)
    if not files:
        return "the run had no files"
    file, how = rng.choice(files), rng.choice(["changed", "cut", "deleted"])
    content = bytearray(file.read_bytes())
    place = rng.randrange(len(content))
    if how == "changed":
        content[place] ^= 1 << rng.randrange(8)
        file.write_bytes(content)
    elif how == "cut":
        file.write_bytes(content[:place])
    else:
        file.unlink()
    return f"{file.relative_to(run)}, {how}"


@contextmanager
def nothing() -> Iterator[Any]:
    """No disk of its own, and nothing to make room on."""
    yield lambda: None


@contextmanager
def disk(place: Path, size: int, rng: random.Random) -> Iterator[Any]:
    """A disk that is too small for a run.  Yields a function that makes it large enough."""
    small = max(1 << 16, int(size * rng.uniform(0.05, 0.95)))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={small}", "drill", str(place)], check=True)
    try:
        yield lambda: subprocess.run(["mount", "-o", f"remount,size={20 * size}", str(place)], check=True)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)


def can_unshare() -> bool:
    """Whether disks and networks can be made."""
    if os.geteuid() or not shutil.which("nsenter"):
        return False
    return (
        subprocess.run(
            ["unshare", "--net", "ip", "link", "set", "lo", "up"], check=False, capture_output=True
        ).returncode
        == 0
    )


if __name__ == "__main__":
    main()
