"""The records of experiments: a small JSON file for each arm and seed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ernie.atomic import put_text
from ernie.doctor.machine import find

# Keys of dev scores: of the recipe of evidence.py, and of the one before it.
TUNED, EARLIER = "fine-tuned with dropout", "downstream"


def cached_record(file: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Read the record in a file; if there is no file, make the record and write it first."""
    if not file.exists():
        record = make()
        file.parent.mkdir(parents=True, exist_ok=True)
        put_text(file, json.dumps(record, indent=1) + "\n")
        print(f"{file.stem} is done", file=sys.stderr, flush=True)
    return read_record(file)


def read_record(file: Path) -> dict[str, Any]:
    """Read the record in a file."""
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return record


def this_machine() -> dict[str, Any]:
    """What a record says of the machine that it was made on."""
    machine = find()
    return {name: getattr(machine, name) for name in ("processor", "instructions", "cores", "threads")}


def record_files(records: Path, arm: str) -> list[Path]:
    """The files of an arm's records, in the order of seeds."""
    return sorted(records.glob(f"{arm}-[0-9].json"))


def read_records_of(records: Path, arm: str, having: str = "") -> list[dict[str, Any]]:
    """Read the records of an arm, in the order of seeds; if `having` is given, only those with this key."""
    of_arm = [read_record(file) for file in record_files(records, arm)]
    return [record for record in of_arm if not having or having in record]


def slug(label: str) -> str:
    """A label as a file name."""
    return label.replace(", ", "-").replace(" ", "-")


class MissingRecord(LookupError):
    """There is no record of an arm."""


@dataclass(frozen=True)
class Records:
    """A folder of records; `read` collects the files that were read from it and from its subfolders."""

    folder: Path
    read: set[Path] = field(default_factory=set)

    def __truediv__(self, name: str) -> Records:
        return Records(self.folder / name, self.read)

    def file(self, name: str) -> Path:
        """The path of a file that the caller reads."""
        self.read.add(self.folder / name)
        return self.folder / name

    def by_seed(self, arm: str) -> dict[int, dict[str, Any]]:
        """The records of an arm by seed.  Raises MissingRecord if there is none."""
        files = record_files(self.folder, arm)
        if not files:
            raise MissingRecord(f"{self.folder}: there is no record of '{arm}', expected {arm}-SEED.json")
        self.read.update(files)
        return {int(file.stem.rpartition("-")[2]): read_record(file) for file in files}

    def of(self, arm: str) -> list[dict[str, Any]]:
        """The records of an arm, in the order of seeds."""
        return list(self.by_seed(arm).values())

    def arms(self, labels: Mapping[str, str]) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
        """Yield name, label and records of each arm that has some."""
        for arm, label in labels.items():
            if record_files(self.folder, arm):
                yield arm, label, self.of(arm)
