"""Docstrings and comments read well: no sentence is longer than a reader holds in mind."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.helpers import ROOT

PACKAGES = ("ernie", "tasks", "pretrain", "inference", "finetune", "serving", "examples")
MOST_WORDS = 30
NODES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Where a sentence, or a part of one that stands by itself, ends; and where a paragraph or an entry of a list does.
ENDS = re.compile(r"(?<=[.!?:;])\s+")
PARAGRAPHS = re.compile(r"\n[ \t]*\n|\n(?=[-*|] )|\n(?=\w+:\s)|\n(?=\S.*\S {3})")
CODE = re.compile(r"^ .*$", re.MULTILINE)  # lines further to the right


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, NODES) and (text := ast.get_docstring(node, clean=False)):
            body = node.body[0].col_offset
            yield getattr(node, "lineno", 1), re.sub(rf"^ {{{body}}}", "", text, flags=re.MULTILINE)


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments with the line where each begins; those on lines of their own that follow one another are one."""
    begin, parts, last = 0, list[str](), -1
    lines = iter(source.splitlines(keepends=True))
    for token in tokenize.generate_tokens(lambda: next(lines, "")):
        if token.type != tokenize.COMMENT:
            continue
        line, alone = token.start[0], token.line.lstrip().startswith("#")
        if not (alone and line == last + 1):
            yield begin, " ".join(parts)
            begin, parts = line, []
        parts.append(token.string.lstrip("# "))
        last = line if alone else -1
    yield begin, " ".join(parts)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, code as one word and without what is in parentheses."""
    text = re.sub(r"``[^`]*``|`[^`]*`", "code", text)
    for paragraph in PARAGRAPHS.split(text):
        if not paragraph.startswith(("|", "Legend:")):  # tables, and lists of names
            yield from ENDS.split(" ".join(re.sub(r"\([^()]*\)", "", CODE.sub("", paragraph)).split()))


def test_a_long_sentence_is_found_in_a_docstring_and_in_a_comment() -> None:
    long = " ".join(["word"] * (MOST_WORDS + 1))
    source = f'"""Short.  {long}."""\n# Short; {long[:70]}\n# {long[70:]}\nx = 1  # short\n'
    found = [text for part in (docstrings(source), comments(source)) for _, text in part]
    assert sum(len(sentence.split()) > MOST_WORDS for text in found for sentence in sentences(text)) == 2


@pytest.mark.parametrize("package", PACKAGES)
def test_no_sentence_of_a_docstring_or_comment_is_too_long(package: str) -> None:
    long = [
        f"{path.relative_to(ROOT)}:{line}: {len(sentence.split())} words: {sentence}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for part in (docstrings, comments)
        for line, text in part(Path(path).read_text(encoding="utf-8"))
        for sentence in sentences(text)
        if len(sentence.split()) > MOST_WORDS
    ]
    assert long == []
