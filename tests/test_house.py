"""The house's plan: which package may import which, read from the source, and what needs no Paddle."""

from __future__ import annotations

import ast
import configparser
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from helpers import ROOT, python

PACKAGES = ("ernie", "tasks", "pretrain", "finetune")
# Which packages a package may import, itself aside.
ABOVE = {"ernie": (), "tasks": ("ernie",), "pretrain": ("ernie", "tasks"), "finetune": ("ernie", "tasks")}
# The floors inside ernie, from the ground up; the command line and the package's own face are the roof.
FLOORS = (
    ("errors", "registry", "tree", "config", "metrics", "runtime", "arguments", "atomic", "saved", "shipped"),
    ("report",),
    ("text", "audio"),
    ("data",),
    ("kernels",),
    ("model",),
    ("decode",),
    ("parallel",),
    ("train",),
    ("doctor",),
    ("commands",),
    ("cli", ""),
)
# What data workers and the reading of configurations import.
WITHOUT_PADDLE = (
    "ernie.cli",
    "ernie.config",
    "ernie.registry",
    "ernie.metrics",
    "ernie.report",
    "ernie.text",
    "ernie.audio",
    "ernie.data",
    "tasks",
)
WITHOUT_PADDLE_TOO = (
    "ernie.model.pretrained",
    "ernie.parallel.layout",
    "ernie.train.settings",
    "ernie.train.log",
    "pretrain.config",
    "pretrain.schedule",
)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))}


def imports(node: ast.AST) -> Iterator[str]:
    """The modules that a piece of source imports at run time, also inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in child.orelse:
                yield from imports(other)
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative imports hide the plan: write the package's name"
            for alias in child.names:
                name = f"{child.module}.{alias.name}"
                yield name if name in SOURCES else child.module or ""
        else:
            yield from imports(child)


ARROWS = {
    module: sorted({name for name in imports(ast.parse(path.read_text(encoding="utf-8"))) if name in SOURCES})
    for module, path in SOURCES.items()
}


def floor(module: str) -> int:
    room = [*module.split("."), ""][1]
    return next(level for level, rooms in enumerate(FLOORS) if room in rooms)


def test_every_room_has_a_floor() -> None:
    assert len(SOURCES) > 60
    for module in SOURCES:
        if module.split(".")[0] == "ernie":
            assert any(room in [*module.split("."), ""][1:2] for rooms in FLOORS for room in rooms), module


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_stands_below_it(package: str) -> None:
    allowed = (package, *ABOVE[package])
    wrong = [
        f"{module} imports {name}"
        for module, names in ARROWS.items()
        for name in names
        if module.split(".")[0] == package and name.split(".")[0] not in allowed
    ]
    assert not wrong


def test_inside_ernie_no_floor_imports_one_above_it() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, names in ARROWS.items()
        for name in names
        # `from ernie import runtime` reads the package's own face only in passing: Python does so for any import.
        if module.startswith("ernie.") and name.startswith("ernie.") and floor(name) > floor(module)
    ]
    assert not wrong


def test_nothing_imports_the_command_line() -> None:
    assert [module for module, names in ARROWS.items() if "ernie.cli" in names] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    # A package's __init__ that gathers its own modules is no circle as long as they do not import it back.
    try:
        TopologicalSorter(ARROWS).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_data_side_imports_no_paddle() -> None:
    modules = [
        module
        for module in SOURCES
        if module in WITHOUT_PADDLE_TOO or any(f"{module}.".startswith(f"{name}.") for name in WITHOUT_PADDLE)
    ]
    assert len(modules) > 30
    done = python("-c", f"import sys; import {', '.join(modules)}; sys.exit('paddle' in sys.modules)")
    assert done.returncode == 0, done.stderr or "paddle was imported"


def test_fine_tuning_begins_without_what_draws_and_measures() -> None:
    late = "{'matplotlib', 'scipy', 'sklearn'} & set(sys.modules)"
    done = python("-c", f"import sys, finetune.run; sys.exit({late} or 0)")
    assert done.returncode == 0, done.stderr


def test_the_wheel_brings_every_package() -> None:
    listed = configparser.ConfigParser()
    listed.read(ROOT / "setup.cfg", encoding="utf-8")
    packages = {module_name(path) for path in SOURCES.values() if path.name == "__init__.py"}
    assert set(listed["options"]["packages"].split()) == packages
