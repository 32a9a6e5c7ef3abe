"""Real, human-written text that every Python installation has: its documentation and that of its packages.

    python examples/docstrings.py FOLDER [PACKAGE ...]

writes a text file for each package, with a blank line between the documentation of two objects.  The packages are only
parsed, not imported: none of their code runs.
"""

from __future__ import annotations

import ast
import pydoc_data.topics
import re
import sys
import sysconfig
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

_MARKUP = re.compile(r":[\w:]+:`~?([^`<]+)(?:<[^`]*>)?`|``([^`]*)``|`([^`<]+)(?:<[^`]*>)?`_?|\*\*([^*]+)\*\*")
_HEADING = re.compile(r"^[-=~^\"'#*+]{3,}$")
_NOT_PROSE = re.compile(r"^\s*(?:>>>|\.\.\.|\.\. |:\w|@|[-*+] ?$|[|+]|[\w.]+\(|\w+\s*[:=]\s|\d+$)")
_SKIPPED_FOLDERS = ("tests", "test", "idlelib", "lib2to3", "_vendor", "site-packages", "__pycache__", "turtledemo")
_OURS = ("ernie", "tasks", "pretrain", "inference", "finetune")
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Entry:
    """The documentation of one object: its package, its dotted name, a summary sentence, and more paragraphs."""

    package: str
    name: str
    summary: str
    paragraphs: list[str]


def main() -> None:
    """Write the text files."""
    folder, packages = Path(sys.argv[1]), sys.argv[2:]
    texts = defaultdict(list)
    for entry in entries(packages):
        texts[entry.package].append("\n".join([entry.summary, *entry.paragraphs]) + "\n")
    folder.mkdir(parents=True, exist_ok=True)
    for package, found in texts.items():
        (folder / f"{package}.txt").write_text("\n".join(found), encoding="utf-8")
        print(f"{folder / package}.txt: {len(found):,} texts")


def entries(packages: Collection[str] = ()) -> Iterator[Entry]:
    """Yield the documentation of some packages (by default of all), each text once.

    Each has a summary and at least 120 more characters of prose.
    """
    seen: set[str] = set()
    for package, name, text in _sources(packages):
        paragraphs = clean(text)
        if len(paragraphs) < 2 or len(" ".join(paragraphs[1:])) < 120:
            continue
        content = " ".join(paragraphs)
        if content not in seen:
            seen.add(content)
            yield Entry(package, name, paragraphs[0], paragraphs[1:])


def clean(text: str) -> list[str]:
    """Return the paragraphs of prose in a docstring: no examples, signatures, tables or markup."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", text.expandtabs()):
        lines = [line.strip() for line in block.splitlines()]
        if any(_HEADING.match(line) for line in lines) or any(_NOT_PROSE.match(line) for line in lines):
            continue
        paragraph = _MARKUP.sub(lambda match: next(filter(None, match.groups()), ""), " ".join(lines))
        paragraph = re.sub(r"\s+", " ", paragraph).strip().removesuffix("::")
        letters = sum(character.isalpha() or character == " " for character in paragraph)
        if len(paragraph.split()) >= 4 and letters > 0.85 * len(paragraph):
            paragraphs.append(paragraph)
    return paragraphs


def _sources(packages: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield package, dotted name and text of every docstring and help topic, in a fixed order."""
    if not packages or "python" in packages:
        for name, topic in sorted(pydoc_data.topics.topics.items()):
            yield "python", f"the {name} topic", topic
    files = [found for found in _files() if not packages or found[0] in packages]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as parsers:
        for found in parsers.map(_docstrings, *zip(*files, strict=True), chunksize=50):
            yield from found


def _files() -> Iterator[tuple[str, Path, str]]:
    """Yield package, file and module name of every Python file worth reading."""
    folders = {"python": Path(sysconfig.get_path("stdlib"))}
    for folder in sorted(Path(sysconfig.get_path("purelib")).iterdir()):
        if (folder / "__init__.py").is_file() and folder.name not in _OURS:
            folders[folder.name] = folder
    for package, folder in folders.items():
        for file in sorted(folder.rglob("*.py")):
            path = file.relative_to(folder)
            if not any(part in _SKIPPED_FOLDERS for part in path.parts):
                yield package, file, ".".join((package, *path.with_suffix("").parts)).removesuffix(".__init__")


def _docstrings(package: str, file: Path, module: str) -> list[tuple[str, str, str]]:
    """Return package, dotted name and text of a file's docstrings."""
    warnings.simplefilter("ignore")  # about the syntax of the parsed files
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return []  # a template, or a test of the parser: no useful text
    found = []
    stack: list[tuple[str, ast.AST]] = [(module, tree)]
    while stack:
        name, node = stack.pop()
        if isinstance(node, (ast.Module, *_DEFINITIONS)):
            text = ast.get_docstring(node)
            if text:
                found.append((package, name, text))
        stack += [
            (f"{name}.{part.name}", part) for part in ast.iter_child_nodes(node) if isinstance(part, _DEFINITIONS)
        ]
    return found


if __name__ == "__main__":
    main()
