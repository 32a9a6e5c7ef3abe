"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest

from ernie import arguments
from ernie.cli import GROUP
from ernie.errors import UserError, about


def actions() -> dict[str, dict[str, Any]]:
    """Flag -> command -> what argparse does with it, for all commands of the library."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for point in metadata.entry_points(group=GROUP):
        parser = argparse.ArgumentParser()
        import_module(point.value).add_arguments(parser)
        for action in parser._actions:
            found[action.dest][point.name] = (type(action).__name__, getattr(action.type, "__name__", None))
    return found


@pytest.mark.parametrize("flag", ["config", "set", "seed", "quiet", "overwrite", "output"])
def test_a_flag_means_the_same_in_every_command(flag: str) -> None:
    kinds = set(actions()[flag].values())
    assert len(kinds) == 1, actions()[flag]


def test_an_option_that_takes_several_values_may_be_given_several_times() -> None:
    for point in metadata.entry_points(group=GROUP):
        parser = argparse.ArgumentParser()
        import_module(point.value).add_arguments(parser)
        for action in parser._actions:
            if action.option_strings and action.nargs in ("+", "*"):
                assert type(action).__name__ == "_ExtendAction", f"ernie {point.name} {action.option_strings}"


@dataclass(frozen=True)
class Settings:
    output: Path | None = None
    seed: int = 7


def test_what_the_command_line_leaves_out_stays_as_the_configuration_says() -> None:
    parser = argparse.ArgumentParser()
    arguments.add_output(parser)
    arguments.add_seed(parser)
    given = parser.parse_args(["--output", "2024"])
    assert arguments.overridden(Settings(), given, "output", "seed") == Settings(Path("2024"), 7)
    given = parser.parse_args(["--seed", "0"])
    assert arguments.overridden(Settings(Path("a")), given, "output", "seed") == Settings(Path("a"), 0)


def test_an_output_with_a_help_of_its_own_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    arguments.add_output(parser, "folder to write to")
    with pytest.raises(SystemExit):
        parser.parse_args([])
    assert "--output" in capsys.readouterr().err


def test_about_names_the_place_of_an_error_and_leaves_others_alone() -> None:
    with pytest.raises(UserError, match=r"^a\.txt: no words$"), about("a.txt"):
        raise UserError("no words")
    with pytest.raises(KeyError), about("a.txt"):
        raise KeyError("ours")
