"""Cases of hostile and damaged input, one line each, and the program that tries them.

A case says how its input is made, which command line reads it, and what the user must be told:

    Case("yaml-a-device", link("task.yaml", "/dev/zero"), "check task.yaml --model m", "task.yaml: is a device")

The command runs in the folder WORK: a copy of `base`, into which `make` has put its input.  Bases: "" is empty; "run"
has a finished fine-tuning run `done`, its data and `encoder`; "pretrained" has the folder `run` of a pretraining run,
"finished" one with a model, "trained" one of a real training, with its corpus.  Beside WORK lies OUTSIDE with the file
`victim`.  Nothing there may change: a stranger's code that runs leaves a mark there.  Of every case is required:

- the exit status, 2 unless the case says otherwise, and no traceback;
- `says`, a regular expression found in what the command prints;
- an end within seconds, with at most `megabytes` more memory than the imports take;
- no control character and no bidirectional mark on the terminal;
- OUTSIDE as it was.

`commands` are the same input under further command lines, which are marked `slow`.  A test module holds a table CASES
and one function:

    @pytest.mark.parametrize("case", in_every_command(CASES), ids=str)
    def test_damaged_weights_end_in_a_sentence(case: Case, trier: Trier) -> None:
        trier.check(case)
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.helpers import ROOT

Make = Callable[[Path], None]
MARK = "ran"  # the file in OUTSIDE that a stranger's code leaves
# A stranger's code, for a module of which WORK is the parent folder.
CODE = f"from pathlib import Path\n(Path(__file__).resolve().parent.parent / 'outside' / '{MARK}').touch()\n"
_VISIBLE = {"\n", "\t"}
_BIDI = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


@dataclass(frozen=True)
class Around:
    """What surrounds a command: limits of the system (0: none), variables, streams and their encoding."""

    file_bytes: int = 0
    disk_bytes: int = 0  # of a disk mounted at WORK/disk
    open_files: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    encoding: str = "utf-8"
    closed: tuple[int, ...] = ()  # of standard input, output and error


@dataclass(frozen=True)
class Case:
    """One hostile input, the command line that reads it, and what must come of it."""

    id: str
    make: Make
    words: str
    says: str
    status: int = 2
    base: str = ""
    seconds: int = 20
    megabytes: int = 1000
    commands: tuple[str, ...] = ()
    around: Around = Around()

    def __str__(self) -> str:
        return self.id


def in_every_command(cases: Sequence[Case]) -> list[Any]:
    """Return cases as parameters of a test: each, and then each under its further command lines, marked `slow`."""
    further = [replace(case, id=f"{case.id}: {words}", words=words) for case in cases for words in case.commands]
    return [*cases, *(pytest.param(case, marks=pytest.mark.slow) for case in further)]


def together(*makes: Make) -> Make:
    """Do several things to WORK, in order."""

    def make(work: Path) -> None:
        for each in makes:
            each(work)

    return make


def text(name: str, content: str | bytes) -> Make:
    """Write a file."""

    def make(work: Path) -> None:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return make


def link(name: str, target: str) -> Make:
    """Make a symbolic link; a relative target begins at the link."""

    def make(work: Path) -> None:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        if (work / name).is_dir():
            shutil.rmtree(work / name)
        (work / name).unlink(missing_ok=True)
        (work / name).symlink_to(target)

    return make


def edited(name: str, old: str, new: str) -> Make:
    """Replace a part of a text file, which it must have."""

    def make(work: Path) -> None:
        content = (work / name).read_text(encoding="utf-8")
        assert old in content, f"{name} has no {old}"
        (work / name).write_text(content.replace(old, new), encoding="utf-8")

    return make


def json_edited(name: str, **values: Any) -> Make:
    """Set keys of a JSON file; `a__b` is the key b of the object a, and `...` as the value takes the key out."""

    def make(work: Path) -> None:
        content = json.loads((work / name).read_text(encoding="utf-8"))
        for key, value in values.items():
            *parents, last = key.split("__")
            place = content
            for parent in parents:
                place = place[parent]
            if value is ...:
                del place[last]
            else:
                place[last] = value
        (work / name).write_text(json.dumps(content), encoding="utf-8")

    return make


def removed(name: str) -> Make:
    """Delete a file, which must be there."""

    def make(work: Path) -> None:
        (work / name).unlink()

    return make


def flipped(name: str, position: float = 0.5) -> Make:
    """Flip the lowest bit of a byte of a file, at a fraction of its length."""

    def make(work: Path) -> None:
        content = bytearray((work / name).read_bytes())
        content[int(position * (len(content) - 1))] ^= 1
        (work / name).write_bytes(content)

    return make


class Trier:
    """Tries cases in folders under `place`, in forks of one process."""

    def __init__(self, place: Path, bases: Mapping[str, Path]):
        self._place, self._bases = place, bases
        self._process: subprocess.Popen[str] | None = None

    def check(self, case: Case) -> None:
        """Fail unless a case comes out as it says."""
        status, seconds, printed = self.outcome(case)
        told = f"{case.id}: `ernie {case.words}` ended with {status} after {seconds:.1f} s:\n{printed}"
        assert "Traceback" not in printed, told
        assert status == case.status, told
        assert re.search(case.says, printed), f"{told}\nexpected: {case.says}"
        assert not (controls := _controls(printed)), f"{told}\ncontrol characters: {controls}"
        outside = self._folder(case).parent / "outside"
        assert {path.name: path.read_text() for path in outside.iterdir()} == {"victim": "untouched"}, told

    def outcome(self, case: Case) -> tuple[int | str, float, str]:
        """Run a case; return how the command ended, its seconds, and what it printed."""
        work = self._folder(case)
        if case.base:
            shutil.copytree(self._bases[case.base], work)
        work.mkdir(parents=True, exist_ok=True)
        (work.parent / "outside").mkdir()
        (work.parent / "outside" / "victim").write_text("untouched")
        case.make(work)
        out, err = work.parent / "out", work.parent / "err"
        asked = {"folder": str(work), "words": shlex.split(case.words), "out": str(out), "err": str(err)}
        answer = self._ask(
            {**asked, "seconds": case.seconds, "megabytes": case.megabytes, "around": asdict(case.around)}
        )
        printed = b"".join(file.read_bytes() for file in (out, err) if file.exists()).decode(errors="surrogateescape")
        return answer["status"], answer["seconds"], printed

    def base(self, name: str) -> Path:
        """Return the folder that cases of a base start from."""
        return self._bases[name]

    def forget(self, case: Case) -> None:
        """Delete the folder of a case, of which there may be thousands."""
        shutil.rmtree(self._folder(case).parent)

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:  # a fork of another test may still hold the other end open
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()

    def _folder(self, case: Case) -> Path:
        name = re.sub(r"\W+", "-", case.id)
        return self._place / name[:100] / "work"

    def _ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("zygote.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=self._place,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


def _controls(printed: str) -> list[str]:
    """Return the characters that a terminal would act on, or that no terminal can show."""
    odd = {c for c in printed if (unicodedata.category(c) in ("Cc", "Cs") and c not in _VISIBLE) or c in _BIDI}
    return sorted(f"U+{ord(c):04X}" for c in odd)
