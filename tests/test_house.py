"""The architecture: which package may import which, read from the source, and which modules need no Paddle."""

from __future__ import annotations

import ast
import configparser
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.helpers import ROOT, python

PACKAGES = ("ernie", "tasks", "inference", "pretrain", "finetune", "serving")
# Which packages a package may import, besides itself.
ALLOWED = {
    "ernie": (),
    "tasks": ("ernie",),
    "inference": ("ernie", "tasks"),
    "pretrain": ("ernie", "tasks"),
    "finetune": ("ernie", "tasks", "inference"),
    "serving": ("ernie", "tasks", "inference"),
}
# Programs among the tests that are no tests.
PROGRAMS = ("check_wheel.py", "former/make.py")
# The layers inside ernie, from the lowest up; the command line and the package's __init__ are on top.
LAYERS = (
    (
        "errors",
        "outcome",
        "registry",
        "yaml_tree",
        "renames",
        "config",
        "migration",
        "metrics",
        "runtime",
        "arguments",
        "atomic",
        "json_file",
        "builtin_configs",
        "protobuf",
        "terminal",
        "formatting",
        "sha256",
    ),
    ("report",),
    ("text", "audio"),
    ("data",),
    ("kernels",),
    ("model",),
    ("decode",),
    ("parallel",),
    ("train",),
    ("replay",),
    ("doctor",),
    ("commands",),
    ("cli", ""),
)
# What data workers import, and what reads configurations.
WITHOUT_PADDLE = (
    "ernie.cli",
    "ernie.config",
    "ernie.registry",
    "ernie.metrics",
    "ernie.formatting",
    "ernie.sha256",
    "ernie.report",
    "ernie.text",
    "ernie.audio",
    "ernie.data",
    "tasks",
)
MORE_WITHOUT_PADDLE = (
    "ernie.model.pretrained",
    "ernie.parallel.layout",
    "ernie.train.adam_config",
    "ernie.train.lr_schedule",
    "ernie.train.checkpoint",
    "ernie.train.log",
    "ernie.train.run_folder",
    "pretrain.config",
    "pretrain.schedule",
    "serving.arguments",
    "serving.config",
)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))}


def imports(node: ast.AST) -> Iterator[str]:
    """The modules that a syntax tree imports, also inside functions and for types only."""
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative imports hide the plan: write the package's name"
            for alias in child.names:
                name = f"{child.module}.{alias.name}"
                yield name if name in SOURCES else child.module or ""


@cache
def all_imports() -> dict[str, list[str]]:
    """What each module imports of ours."""
    return {
        module: sorted({name for name in imports(ast.parse(path.read_text(encoding="utf-8"))) if name in SOURCES})
        for module, path in SOURCES.items()
    }


def layer(module: str) -> int:
    part = [*module.split("."), ""][1]
    return next(level for level, parts in enumerate(LAYERS) if part in parts)


def test_every_module_of_ernie_belongs_to_a_layer() -> None:
    assert len(SOURCES) > 60
    for module in SOURCES:
        if module.split(".")[0] == "ernie":
            assert any(part in [*module.split("."), ""][1:2] for parts in LAYERS for part in parts), module


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_allowed_packages(package: str) -> None:
    allowed = (package, *ALLOWED[package])
    wrong = [
        f"{module} imports {name}"
        for module, names in all_imports().items()
        for name in names
        if module.split(".")[0] == package and name.split(".")[0] not in allowed
    ]
    assert not wrong


def test_no_layer_of_ernie_imports_a_higher_one() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, names in all_imports().items()
        for name in names
        # `from ernie import runtime` does not count as an import of the package's __init__, which any import runs.
        if module.startswith("ernie.") and name.startswith("ernie.") and layer(name) > layer(module)
    ]
    assert not wrong


def test_nothing_imports_the_command_line() -> None:
    assert [module for module, names in all_imports().items() if "ernie.cli" in names] == []


def test_there_are_no_circular_imports_not_even_for_types() -> None:
    # An __init__ that imports the package's modules makes no cycle unless they import it back.
    try:
        TopologicalSorter(all_imports()).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_data_and_configuration_modules_do_not_import_paddle() -> None:
    modules = [
        module
        for module in SOURCES
        if module in MORE_WITHOUT_PADDLE or any(f"{module}.".startswith(f"{name}.") for name in WITHOUT_PADDLE)
    ]
    assert len(modules) > 30
    done = python("-c", f"import sys; import {', '.join(modules)}; sys.exit('paddle' in sys.modules)")
    assert done.returncode == 0, done.stderr or "paddle was imported"


def test_fine_tuning_does_not_import_plotting_and_metric_libraries() -> None:
    unwanted = "{'matplotlib', 'scipy', 'sklearn'} & set(sys.modules)"
    done = python("-c", f"import sys, finetune.train.run; sys.exit({unwanted} or 0)")
    assert done.returncode == 0, done.stderr


def test_the_wheel_contains_every_package() -> None:
    listed = configparser.ConfigParser()
    listed.read(ROOT / "setup.cfg", encoding="utf-8")
    packages = {module_name(path) for path in SOURCES.values() if path.name == "__init__.py"}
    assert set(listed["options"]["packages"].split()) == packages


def test_what_tests_share_is_in_the_support_package_and_imports_no_test() -> None:
    tests = ROOT / "tests"
    others = [
        name
        for path in tests.rglob("*.py")
        if not path.name.startswith("test_") and path.name != "conftest.py"
        if not (name := path.relative_to(tests).as_posix()).startswith("support/") and name not in PROGRAMS
    ]
    assert others == []
    importing = [
        f"{path.relative_to(tests)} imports {name}"
        for path in tests.rglob("*.py")
        for name in imports(ast.parse(path.read_text(encoding="utf-8")))
        if name.split(".")[0].startswith("test_")
    ]
    assert importing == []


def test_the_modules_of_tests_have_different_names() -> None:
    # pytest imports each by its name alone.
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []


def test_tests_import_no_private_name() -> None:
    private = [
        f"{path.relative_to(ROOT)} imports {alias.name} of {node.module}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]
    assert private == []


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page that can be broken, numbered: those of no block of code, table or figure."""
    is_code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        is_code ^= line.lstrip().startswith("```")
        if not is_code and not line.startswith(("|", "![")):
            yield number, line


def test_lines_of_prose_have_at_most_120_characters() -> None:
    pages = (ROOT / "docs").rglob("*.md")
    long = [f"{page.relative_to(ROOT)}:{number}" for page in pages for number, line in prose(page) if len(line) > 120]
    assert long == []
