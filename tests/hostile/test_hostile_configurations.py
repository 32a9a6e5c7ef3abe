"""Configurations that ask for too much, name other files, or hold what controls a terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.hostile.case import Case, Make, Trier, edited, in_every_command, link, text, together

LAUGHS = "a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
SECRET = "password: hunter2\n"
PRETRAIN = "corpus: corpus\nschedule: {steps_per_task: 8, tasks: [knowledge_masking]}\nmodel: {preset: tiny}\n"
CHECK, CHECK_PRETRAIN = "check task.yaml", "plan run.yaml --devices 2"
EVERY = (CHECK, "finetune task.yaml --output out", "pretrain task.yaml --output out", "plan task.yaml --devices 2")


def written(id: str, content: str, says: str, **more: object) -> Case:
    """A fine-tuning configuration that no command accepts."""
    return Case(f"yaml-{id}", text("task.yaml", content), CHECK, says, commands=EVERY, **more)  # type: ignore[arg-type]


def asked(id: str, override: str, says: str) -> Case:
    """A key of a configuration that is otherwise right, for fine-tuning or, with `pretrain.`, for pretraining."""
    if override.startswith("pretrain."):
        words = f"{CHECK_PRETRAIN} --set {override.removeprefix('pretrain.')}"
        return Case(f"much-{id}", text("run.yaml", PRETRAIN), words, says)
    return Case(f"much-{id}", text("unused", ""), f"{CHECK} --set {override}", says, base="run")


def fifo(name: str) -> Make:
    """Make a named pipe that nobody writes to."""

    def make(work: Path) -> None:
        os.mkfifo(work / name)

    return make


CASES = [
    written("laughs", LAUGHS, r"task\.yaml: has more than 100,000 values, aliases written out"),
    written("many-values", f"a: [{'0,' * 200_000}0]", r"task\.yaml: has more than 100,000 values$"),
    written("deep-lists", f"a: {'[' * 150}{']' * 150}", r"task\.yaml: is nested too deeply"),
    written("deeper-lists", f"a: {'[' * 5000}", r"task\.yaml: is nested too deeply"),
    written("long", f"# {'x' * (5 << 20)}\n", r"task\.yaml: has more than 4 MiB"),
    written("loop", "a: &a [*a]", r"task\.yaml:.* is nested too deeply"),
    written("anchors", "a: &a {b: *a}", r"task\.yaml:.* is nested too deeply"),
    written("escapes", '"\\e[31mred": 1\n', r"\\x1b\[31mred: unknown key|\\x1b\[31mred: this key|task.*required"),
    written("include-passwd", "include: /etc/passwd\n", r"task\.yaml:1: include: /etc/passwd is no YAML file"),
    Case(
        "yaml-include-secret",
        together(text("task.yaml", "include: secret\n"), text("secret", SECRET)),
        CHECK,
        r"task\.yaml:1: include: secret is no YAML file: its name does not",
        commands=EVERY,
    ),
    Case("yaml-device", link("task.yaml", "/dev/zero"), CHECK, r"task\.yaml: is a device or a pipe", commands=EVERY),
    Case("yaml-pipe", fifo("task.yaml"), CHECK, r"task\.yaml: is a device or a pipe", commands=EVERY),
    Case("yaml-folder", text("task.yaml/x", ""), CHECK, r"task\.yaml: is a folder, expected a YAML file"),
    Case("yaml-a-word", text("task.yaml", "hunter2"), CHECK, r"^(?!.*hunter2).*expected a mapping.*found a single"),
    Case("yaml-of-a-run-is-a-device", link("done/config.yaml", "/dev/zero"), "evaluate done", "finished", base="run"),
    asked("layers", "pretrain.model.layers=1000000000", r"1,000,000,000 of width 128, .* are \d+ TB of weights"),
    asked("width", "pretrain.model.hidden_size=1000000000", r"of width 1,000,000,000, with .* TB of weights"),
    asked("micro-batches", "pretrain.train.micro_batches=1000000000", "micro_batches: expected at most 100,000, found"),
    asked("lanes", "pretrain.data.data_shards=1000000000", "data_shards: expected at most 100,000"),
    asked("workers", "pretrain.data.workers=1000000000", "workers: expected at most 10,000"),
    asked("epochs", "train.epochs=1000000000", "epochs: expected at most 1,000,000, found 1,000,000,000"),
    asked("evaluations", "train.evaluations=1000000000", "evaluations: expected at most 1,000,000"),
    asked("seeds", "seeds=1000000000", "seeds: 1,000,000,000 for each of 1 point of the grid are 1,000,000,000 fine"),
    Case(
        "much-grid",
        edited(
            "task.yaml",
            "model: encoder",
            f"model: encoder\ngrid: {{peak: {[i / 1e6 for i in range(1, 999)]}, batch: {list(range(1, 999))}, "
            f"epochs: {list(range(1, 999))}}}",
        ),
        CHECK,
        "seeds: 1 for each of 994,011,992 points of the grid are 994,011,992 fine-tunings; expected at most",
        base="run",
    ),
    Case("name-escapes", text("x", ""), "check '\x1b]0;own\x07.yaml'", r"\\x1b\]0;own\\x07\.yaml: there is no such"),
    Case("name-bidi", text("x", ""), "check 'a\u202elmay.yaml'", r"a\\u202elmay\.yaml: there is no such file"),
    Case(
        "column-escapes",
        text("train.tsv", "te\x1b[2Jxt\tlabel\n" + "a\tblame\nb\tpraise\n" * 9),
        f"{CHECK} --set task.text=body",
        r"te\\x1b\[2Jxt",
        base="run",
    ),
    Case("label-escapes", text("dev.tsv", "text\tlabel\na\tx\x1b[2J\n"), CHECK, r"dev\.tsv:2: .*\\x1b\[2J", base="run"),
]


@pytest.mark.parametrize("case", in_every_command(CASES), ids=str)
def test_a_configuration_that_asks_for_too_much_ends_in_a_sentence(case: Case, trier: Trier) -> None:
    trier.check(case)
