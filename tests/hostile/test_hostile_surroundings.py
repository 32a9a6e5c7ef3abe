"""Surroundings in which a command cannot do what it does elsewhere: limits, full disks, closed streams, no home."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.hostile.case import Around, Case, Make, Trier, in_every_command

QUICK = "--quiet --set train.epochs=1"
TRAIN, CONVERT, PREDICT = (
    f"finetune task.yaml --output o {QUICK}",
    "convert encoder o --to hf",
    "predict done --split test",
)
TO_ONNX, TO_PADDLE = "export done --to onnx --output o", "export done --to paddle --output o"
CAN_MOUNT = sys.platform == "linux" and os.geteuid() == 0  # a small disk


def nothing(work: Path) -> None:
    """Leave the folder as it is."""


def mode(name: str, bits: int) -> Make:
    """Set the permissions of a file or folder; the folder is created if it is not there."""

    def make(work: Path) -> None:
        if not (work / name).exists():
            (work / name).mkdir()
        (work / name).chmod(bits)

    return make


def around(id: str, words: str, says: str, make: Make = nothing, status: int = 2, **more: object) -> Case:
    """A command on the finished run, in surroundings given by the fields of Around."""
    commands = more.pop("commands", ())
    return Case(id, make, words, says, status, "run", commands=commands, around=Around(**more))  # type: ignore[arg-type]


FULL, LIMITED = (
    "the disk is full; nothing was",
    r"the limit on the size of files is reached; nothing was .* \(`ulimit -f`\)",
)
CASES = [
    around("train-file-limit", TRAIN, r"o: the model takes files of .* MB.*ulimit -f", file_bytes=10_000),
    around("convert-file-limit", CONVERT, f"o: {LIMITED}", file_bytes=8192, commands=(TO_ONNX, TO_PADDLE)),
    around("predict-file-limit", PREDICT, r"error: .*limit on the size of files is reached", file_bytes=200),
    around("few-open-files", PREDICT, "Too many open files|too many files are open", open_files=6, commands=(TRAIN,)),
    around("ascii-output", PREDICT, '"label": "praise"', status=0, encoding="ascii"),
    around("ascii-error", "check 任务.yaml", r"\\u4efb\\u52a1\.yaml: there is no such file", encoding="ascii"),
    around("no-input", "predict done --input -", "standard input is closed", closed=(0,)),
    around("no-output", PREDICT, "standard output is closed", closed=(1,)),
    around("no-error", "evaluate done", '"accuracy"', status=0, closed=(2,)),
    around("no-streams", "evaluate done", "^$", closed=(0, 1, 2)),
    around(
        "read-only-train", f"finetune task.yaml --output ro/o {QUICK}", "ro/o: cannot be created", mode("ro", 0o555)
    ),
    around("read-only-run", "evaluate done", '"accuracy"', mode("done", 0o555), status=0),
    around("unreadable-data", TRAIN, "train.tsv: cannot be read: Permission denied", mode("train.tsv", 0)),
    around("unreadable-weights", PREDICT, "may not be read", mode("done/model/model.safetensors", 0)),
    around("unreadable-run", "evaluate done", "done/task.json: Permission denied", mode("done", 0)),
    around(
        "output-is-not-utf-8",
        f"finetune task.yaml {QUICK} --output b\udcff",
        r"--output: b\\xff: is not UTF-8",
        commands=(
            "export done --to onnx --output b\udcff",
            "report done --output b\udcff",
            "pretrain task.yaml --output b\udcff",
        ),
    ),
    around("no-home", PREDICT, '"label"', status=0, environment={"HOME": "/dev/null", "ERNIE_KERNELS": "reference"}),
]
SMALL_DISK = [
    around("train-full-disk", f"finetune task.yaml --output disk/o {QUICK}", "the disk has .* left", disk_bytes=8192),
    around(
        "convert-full-disk",
        "convert encoder disk/o --to hf",
        f"disk/o: {FULL}",
        disk_bytes=8192,
        commands=("export done --to paddle --output disk/o", "export done --to onnx --output disk/o"),
    ),
]


@pytest.mark.parametrize("case", in_every_command(CASES), ids=str)
def test_poor_surroundings_end_in_a_sentence_or_do_not_matter(case: Case, trier: Trier) -> None:
    trier.check(case)


@pytest.mark.skipif(not CAN_MOUNT, reason="only root can mount a small disk")
@pytest.mark.parametrize("case", in_every_command(SMALL_DISK), ids=str)
def test_a_full_disk_ends_in_a_sentence(case: Case, trier: Trier) -> None:
    trier.check(case)
