"""Command line arguments shared by several commands."""

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
    """Flag -> command -> (action, type) in argparse, for all commands of the library."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for point in metadata.entry_points(group=GROUP):
        parser = argparse.ArgumentParser()
        import_module(point.value).add_arguments(parser)
        for action in parser._actions:
            found[action.dest][point.name] = (type(action).__name__, getattr(action.type, "__name__", None))
    return found


@pytest.mark.parametrize("flag", ["config", "set", "seed", "quiet", "overwrite", "output"])
def test_a_flag_has_the_same_type_in_every_command(flag: str) -> None:
    kinds = actions()[flag]
    if flag == "output":  # a corpus may also be written to an address
        assert kinds.pop("data-build") == ("_StoreAction", "_output_place")
    assert len(set(kinds.values())) == 1, kinds


def test_an_option_with_several_values_can_be_repeated() -> None:
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


def test_omitted_arguments_keep_the_values_of_the_configuration() -> None:
    parser = argparse.ArgumentParser()
    arguments.add_output(parser)
    arguments.add_seed(parser)
    given = parser.parse_args(["--output", "2024"])
    assert arguments.overridden(Settings(), given, "output", "seed") == Settings(Path("2024"), 7)
    given = parser.parse_args(["--seed", "0"])
    assert arguments.overridden(Settings(Path("a")), given, "output", "seed") == Settings(Path("a"), 0)


def test_an_output_with_its_own_help_text_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    arguments.add_output(parser, "folder to write to")
    with pytest.raises(SystemExit):
        parser.parse_args([])
    assert "--output" in capsys.readouterr().err


def test_about_prefixes_user_errors_and_leaves_others_unchanged() -> None:
    with pytest.raises(UserError, match=r"^a\.txt: no words$"), about("a.txt"):
        raise UserError("no words")
    with pytest.raises(KeyError), about("a.txt"):
        raise KeyError("ours")
