"""Renamed keys: users are told the new name, and what the library has written is read with it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ernie.config import ConfigError, build, build_fields, from_dict, load, read
from ernie.errors import UserError
from ernie.renames import add_renamed_flag, formerly, key_path, renamed


@dataclass(frozen=True)
class Schedule:
    peak_lr: float = 1.0
    warmup: int = field(default=0, metadata=formerly("rise", "warm_up"))


@dataclass(frozen=True)
class Kind:
    @classmethod
    def variant(cls, key: str, given: dict[str, Any]) -> tuple[type[Kind], set[str]]:
        name = given.get("kind", key)
        if name not in ("red", "blue"):
            raise UserError(f"no kind is called '{name}'")
        return {"red": Red, "blue": Blue}[name], {"kind"}


@dataclass(frozen=True)
class Red(Kind):
    fraction: float = field(default=0.5, metadata=formerly("share"))
    variant_name: ClassVar[str] = "red"


@dataclass(frozen=True)
class Blue(Kind):
    share: float = 0.5  # means something else, and keeps its name
    variant_name: ClassVar[str] = "blue"


@dataclass(frozen=True)
class Config:
    lr: Schedule = field(default_factory=Schedule, metadata=formerly("rate"))
    later: Schedule | None = None
    each: dict[str, Schedule] = field(default_factory=dict)
    steps: tuple[Schedule, ...] = ()
    pair: tuple[int, Schedule] = (0, Schedule())
    kinds: dict[str, Kind] = field(default_factory=dict)


def write(folder: Path, text: str, name: str = "run.yaml") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def mistakes(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(Config, path, overrides)
    return caught.value.mistakes


def test_a_former_name_is_refused_with_the_new_one_its_line_and_the_command_that_rewrites_it(tmp_path: Path) -> None:
    path = write(tmp_path, "steps: []\nrate:\n  rise: 3\n")
    assert mistakes(path) == [
        f"{path}:3: rate.rise: was renamed to lr.warmup: `ernie migrate {path}` rewrites it",
        f"{path}:2: rate: was renamed to lr: `ernie migrate {path}` rewrites it",
    ]


def test_what_stands_under_a_former_name_is_checked_too(tmp_path: Path) -> None:
    found = mistakes(write(tmp_path, "rate: {warmup: soon, up: 1}"))
    assert [mistake.partition(": ")[2].partition(":")[0] for mistake in found] == ["rate", "lr.up", "lr.warmup"]


def test_a_former_name_in_an_override_is_refused_with_the_new_one(tmp_path: Path) -> None:
    path = write(tmp_path, "lr: {peak_lr: 1}")
    assert mistakes(path, "rate.warm_up=3") == [
        "--set: rate.warm_up: was renamed to lr.warmup",
        "--set: rate: was renamed to lr, and stands there, too",
    ]
    with pytest.raises(ConfigError, match=r"^--set: task.share: was renamed to fraction$"):
        build_fields(Red, read(None, ["task.share=1"]).data["task"], "task")


def test_saved_trees_are_read_with_former_names() -> None:
    saved = {
        "rate": {"peak_lr": 2.0, "rise": 1},
        "later": {"warm_up": 2},
        "each": {"share": {"rise": 3}},
        "steps": [{"rise": 4}, {}],
        "pair": [0, {"rise": 5}],
        "kinds": {"red": {"share": 0.1}, "blue": {"share": 0.2}, "other": {"kind": "red", "share": 0.3}},
    }
    assert build(Config, from_dict(saved), saved=True) == Config(
        Schedule(2.0, 1),
        Schedule(warmup=2),
        {"share": Schedule(warmup=3)},
        (Schedule(warmup=4), Schedule()),
        (0, Schedule(warmup=5)),
        {"red": Red(0.1), "blue": Blue(0.2), "other": Red(0.3)},
    )


def test_renaming_leaves_alone_what_is_no_former_name() -> None:
    tree = from_dict(
        {"lr": {"peak_lr": "x"}, "rise": 1, "kinds": {"green": {"share": 1}}, "steps": "none", "each": None}
    )
    assert renamed(Config, tree) == (tree, [])


def test_renaming_names_each_key_where_it_stands_and_leads() -> None:
    tree = from_dict({"rate": {"rise": 1}, "steps": [{}, {"rise": 4}]})
    found = {key_path(rename.path): key_path(rename.new) for rename in renamed(Config, tree)[1]}
    assert found == {"rate": "lr", "rate.rise": "lr.warmup", "steps[1].rise": "steps[1].warmup"}


def test_of_a_former_and_a_new_name_the_new_one_counts() -> None:
    tree, found = renamed(Config, from_dict({"lr": {"warmup": 1, "rise": 2}}))
    assert tree.plain() == {"lr": {"warmup": 1}}
    assert [rename.twice for rename in found] == [True]


@pytest.mark.parametrize("words", [["--rate", "8000"], ["--rate=8000"], ["--rate"]])
def test_a_renamed_flag_is_refused_with_the_new_one_and_not_in_the_help(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample-rate", type=int)
    add_renamed_flag(parser, "--rate", "--sample-rate")
    with pytest.raises(UserError, match=r"^--rate: was renamed to --sample-rate$"):
        parser.parse_args(words)
    assert "--rate" not in parser.format_help()
    assert parser.parse_args(["--sample-rate", "8000"]).sample_rate == 8000
