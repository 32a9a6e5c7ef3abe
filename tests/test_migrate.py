"""`ernie migrate` renames keys in files, and changes nothing else."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ernie.cli import main
from ernie.config import read
from ernie.migration import GROUP
from tasks.base import pretrain_tasks
from tasks.downstream.base import finetune_tasks

FINETUNE = """\
# How to find spam.
task: {kind: classify, text: "body"}   # the column
data:
    train: a.tsv
    dev:   b.tsv

train:
  patience: 3   # evaluations
  'rate': {peak: 2e-5, "warmup": 10}
  micro_tokens: 512
"""
PRETRAIN = """\
corpus: c
schedule: {tasks: [knowledge_masking], steps_per_task: 3}
objectives:
  knowledge_masking: {share: 0.3}
  phrases: {task: knowledge_masking, head_of: knowledge_masking, mask: 1.0, random: 0}
data: &data {share: 0.5}
train:
  patience: 4
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("spam.yaml").write_text(FINETUNE, encoding="utf-8")
    Path("run.yaml").write_text(PRETRAIN, encoding="utf-8")
    return tmp_path


def write(text: str, name: str = "one.yaml") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def test_keys_are_renamed_and_comments_order_and_layout_stay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "spam.yaml", "run.yaml"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "spam.yaml:8: train.patience -> train.early_stopping_patience",
        "spam.yaml:9: train.rate -> train.lr",
        "spam.yaml:10: train.micro_tokens -> train.micro_batch_tokens",
        "run.yaml:3: objectives -> tasks",
        "run.yaml:4: objectives.knowledge_masking.share -> tasks.knowledge_masking.mask_rate",
        "run.yaml:5: objectives.phrases.mask -> tasks.phrases.mask_replace_prob",
        "run.yaml:5: objectives.phrases.random -> tasks.phrases.random_replace_prob",
        "run.yaml:6: data.share -> data.fraction",
        "run.yaml:8: train.patience -> train.max_bad_steps",
    ]
    changed = {"patience": "early_stopping_patience", "'rate'": "'lr'", "micro_tokens": "micro_batch_tokens"}
    pattern = re.compile("|".join(changed))
    assert Path("spam.yaml").read_text() == pattern.sub(lambda match: changed[match[0]], FINETUNE)


def test_a_second_migration_changes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["migrate", "spam.yaml"])
    once = (folder / "spam.yaml").stat().st_mtime_ns
    capsys.readouterr()
    assert main(["migrate", "spam.yaml"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "no key has a former name\n")
    assert (folder / "spam.yaml").stat().st_mtime_ns == once


def test_check_writes_nothing_and_fails_if_something_would_change(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", "--check", "spam.yaml"]) == 1
    assert "spam.yaml:9: train.rate -> train.lr" in capsys.readouterr().out
    assert Path("spam.yaml").read_text() == FINETUNE
    main(["migrate", "spam.yaml"])
    assert main(["migrate", "--check", "spam.yaml"]) == 0


def test_a_part_is_understood_from_the_file_that_includes_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = write("train: {rate: {peak: 1}, clip: 1}\n", "base.yaml")
    part = write("train: {patience: 3}\n", "part.yaml")
    write(f"include: [{base}, {part}]\ntask: {{kind: classify}}\ntrain: {{rate: {{warmup: 1}}}}\n")
    assert main(["migrate", part]) == 2
    assert (
        "part.yaml: may be a part of a configuration for finetune or pretrain, whose keys were renamed differently; "
        "name a file that includes it, too"
    ) in capsys.readouterr().err
    assert main(["migrate", "one.yaml"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "one.yaml:3: train.rate -> train.lr\n"
    assert "base.yaml is included and has former names, too" in shown.err
    assert main(["migrate", "one.yaml", base, part]) == 0
    assert Path(base).read_text() == "train: {lr: {peak: 1}, clip: 1}\n"
    assert Path(part).read_text() == "train: {early_stopping_patience: 3}\n"


def test_a_part_that_means_the_same_to_every_command_is_renamed_alone(folder: Path) -> None:
    base = write("train: {rate: {peak: 1}}\n")
    assert main(["migrate", base]) == 0
    assert Path(base).read_text() == "train: {lr: {peak: 1}}\n"


def test_a_part_that_two_commands_name_differently_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = write("train: {patience: 3}\n", "part.yaml")
    write(f"include: {part}\n{FINETUNE.replace('patience', 'epochs')}", "spam.yaml")
    write(f"include: {part}\n{PRETRAIN}", "run.yaml")
    assert main(["migrate", "spam.yaml", "run.yaml", part]) == 2
    assert "part.yaml:1: train.patience: is called train." in capsys.readouterr().err
    assert Path("spam.yaml").read_text().count("rate") == 1  # nothing was written


def test_a_folder_stands_for_the_files_in_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "."]) == 0
    assert {line.partition(":")[0] for line in capsys.readouterr().out.splitlines()} == {"spam.yaml", "run.yaml"}
    (folder / "empty").mkdir()
    assert main(["migrate", "empty"]) == 2
    assert "empty: there is no YAML file in this folder" in capsys.readouterr().err


def test_keys_that_a_stranger_to_the_configuration_has_stay(folder: Path) -> None:
    values = "data: {train: a.tsv, rename: {rate: share}, values: {patience: {mixed: lanes}}}\n"
    assert main(["migrate", write(f"task: {{kind: classify, labels: [rate, share]}}\n{values}")]) == 0
    assert Path("one.yaml").read_text().endswith(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: {kind: classify}\ntrain: {rate: {peak: 1}, lr: {peak: 2}}", "2: train.rate: its new name train.lr sta"),
        ("task: {kind: classify}\ntrain: {&a rate: {peak: 1}}", ":2: train.rate: is written as &a rate; rename it to"),
        (
            "task: {kind: classify}\ntrain: &t {patience: 1}\npublished: {a: {dev: *t}}",
            "an alias (*) repeats keys where their former names are right; write them out there",
        ),
        ("task: {kind: classify\n", ":1: is not valid YAML"),
        ("include: nowhere.yaml\n", "include: there is no file nowhere.yaml"),
        ("task: {kind: classify}\nplugins: [no_such_module]", "the module 'no_such_module' cannot be imported"),
    ],
)
def test_what_cannot_be_renamed_is_refused_and_nothing_is_written(
    folder: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", "spam.yaml", write(text)]) == 2
    assert message in capsys.readouterr().err
    assert Path("one.yaml").read_text() == text
    assert Path("spam.yaml").read_text() == FINETUNE


def test_anchors_flow_style_and_windows_line_ends_survive(folder: Path) -> None:
    text = 'task: {kind: classify}\r\ntrain: {rate: &r {peak: 1}, "micro_tokens": 9} # ü\r\npublished: {a: {}}\r\n'
    (folder / "one.yaml").write_bytes(text.encode())
    assert main(["migrate", "one.yaml"]) == 0
    expected = text.replace("rate:", "lr:").replace('"micro_tokens"', '"micro_batch_tokens"')
    assert (folder / "one.yaml").read_bytes() == expected.encode()


def test_a_link_and_the_rights_of_a_file_are_kept(folder: Path) -> None:
    (folder / "link.yaml").symlink_to("spam.yaml")
    (folder / "spam.yaml").chmod(0o640)
    assert main(["migrate", "link.yaml"]) == 0
    assert (folder / "link.yaml").is_symlink()
    assert (folder / "spam.yaml").stat().st_mode & 0o777 == 0o640
    assert read("spam.yaml").get("train")["lr"] == {"peak": 2e-5, "warmup": 10}


@pytest.mark.parametrize("name", ["missing.yaml", "/dev/null"])
def test_what_is_no_file_is_named(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", name]) == 2
    assert f"{name}: " in capsys.readouterr().err


def former_names(kind: Any) -> Iterator[tuple[str, str]]:
    """Each field, of a dataclass and of those in it, that has a former name, and that name."""
    for part in typing.get_args(kind):
        yield from former_names(part)
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        for one in fields(kind):
            yield from ((one.name, former) for former in one.metadata.get("formerly", ()))
            yield from former_names(hints[one.name])


def test_the_documentation_lists_every_renamed_key() -> None:
    kinds = [point.load() for point in metadata.entry_points(group=GROUP)]
    kinds += [tasks[name] for tasks in (pretrain_tasks, finetune_tasks) for name in tasks]
    declared = {names for kind in kinds for names in former_names(kind)}
    page = (Path(__file__).parents[1] / "docs" / "howto" / "migrating.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_.]+)` \| `([a-z_.]+)` \|", page, re.M)
    assert {(new.rpartition(".")[2], old.rpartition(".")[2]) for new, old in rows} == declared
    assert len(declared) > 20


def test_no_shipped_configuration_has_a_former_name(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[1]
    folders = {file.parent for part in ("configs", "benchmarks") for file in (root / part).rglob("*.yaml")}
    assert len(folders) > 5
    assert main(["migrate", "--check", *map(str, sorted(folders))]) == 0
