"""Command-line arguments shared by several commands."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ernie.errors import check_count

C = TypeVar("C")


def add_config(parser: argparse.ArgumentParser, help: str, *, optional: bool = False, part: str = "") -> None:
    """Add CONFIG, a Path, as the first positional argument; None if it is optional and omitted.

    `part` is the folder of the shipped configurations that it may also name.
    """
    parser.add_argument("config", nargs="?" if optional else None, type=Path, metavar="CONFIG", help=help)
    parser.set_defaults(part=part)


def place_of_key(arguments: argparse.Namespace, message: str) -> str:
    """Return file and line of the key of the CONFIG that a message begins with, "" if it begins with none."""
    config = getattr(arguments, "config", None)
    if config is None or (config.exists() and not config.is_file()):  # a pipe can be read once
        return ""
    from ernie.config import ConfigError, place_of, read

    try:
        return place_of(read(config, getattr(arguments, "set", ()), part=arguments.part), message)
    except ConfigError:  # the file is no longer what was read before
        return ""


def add_set(parser: argparse.ArgumentParser, help: str) -> None:
    """Add --set KEY=VALUE, repeatable: a list of overrides for `ernie.config.read`."""
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=f"{help} (repeatable)")


def add_decoding(parser: argparse.ArgumentParser) -> None:
    """Add --set for the keys of a finished run that say how answers are found, and which columns are read."""
    help_text = (
        "change how answers are found or which columns are read: task.beam=8, task.threshold=0.4, task.text=body"
    )
    add_set(parser, help_text)


def add_plugin(parser: argparse.ArgumentParser, help: str = "a module that the run asks for, if you trust it") -> None:
    """Add --plugin MODULE, repeatable: modules that `ernie.cli` imports before the command runs."""
    parser.add_argument("--plugin", action="append", default=[], metavar="MODULE", help=f"{help} (repeatable)")


def add_output(parser: argparse.ArgumentParser, help: str | None = None, addresses: bool = False) -> None:
    """Add --output DIR, a Path: required if `help` is given, otherwise a run's folder, which is also a config key.

    With `addresses` it may also be the text of an address.
    """
    parser.add_argument(
        "--output",
        type=_output_place if addresses else output_path,
        required=help is not None,
        metavar="DIR",
        help=help or "the run's folder (also the key `output`)",
    )


def output_path(text: str) -> Path:
    """Return the path that --output names; an error if it is empty, as from a shell variable that is not set."""
    if not text:  # Path("") is the current folder
        raise argparse.ArgumentTypeError("is empty; expected a path")
    if "://" in text:
        raise argparse.ArgumentTypeError(f"{text}: is an address; give a folder, and copy it there when it is done")
    try:
        str(Path(text).absolute()).encode()
    except UnicodeEncodeError:  # cards and reports, which are UTF-8, name the folder when all the work is done
        raise argparse.ArgumentTypeError(f"{text}: is not UTF-8, or lies in a folder that is not; rename it") from None
    return Path(text)


def _output_place(text: str) -> Path | str:
    return text if "://" in text else output_path(text)


def add_overwrite(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --overwrite, for commands that otherwise refuse to replace an existing output."""
    parser.add_argument("--overwrite", action="store_true", help=f"replace an existing {what} in --output")


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Add --seed N; None leaves it to the configuration."""
    parser.add_argument("--seed", type=int, metavar="N", help="overrides the key `seed`")


def add_processes(parser: argparse.ArgumentParser) -> None:
    """Add --processes and --max-restarts, for commands that run on several processes."""
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="number of processes, see `parallel`")
    parser.add_argument(
        "--max-restarts",
        type=int,
        default=0,
        metavar="N",
        help="restarts from the last checkpoint after a failure (default: 0)",
    )


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add --jobs, for commands that train several models."""
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="how many trials to train at once, each with its share of the cores: for small models and many cores",
    )


def checked_jobs(arguments: argparse.Namespace) -> int:
    """Return the number of --jobs.  Raises UserError if it is below 1."""
    check_count("--jobs", arguments.jobs, 1)
    return int(arguments.jobs)


def add_precision(parser: argparse.ArgumentParser) -> None:
    """Add --precision, for commands that run a model; None if it is not given."""
    parser.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16", "fp16", "int8"),
        help="type of matrix products (default: fp32 for a run with `precision: fp32`, else bf16 where supported)",
    )


def add_quiet(parser: argparse.ArgumentParser, help: str = "show no progress") -> None:
    """Add --quiet."""
    parser.add_argument("--quiet", action="store_true", help=help)


def overridden(config: C, arguments: argparse.Namespace, *names: str) -> C:
    """Return the configuration with those of the keys `names` that were given on the command line replaced.

    Unlike --set, this does not parse values as YAML: a folder may be called 2024.
    """
    given: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    return replace(config, **{name: value for name, value in given.items() if value is not None})  # type: ignore[type-var]
