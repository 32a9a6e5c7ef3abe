"""Lists and objects that a table has as text: in the syntax of JSON, of Python, or of NumPy.

A CSV file that pandas wrote of lists has cells such as "['x', 'y']", one of arrays "['x' 'y']" or "[1. 0.]".  Older
ones, of Python 2, have "[u'x', u'y']".
"""

from __future__ import annotations

import json
import re
import warnings
from ast import literal_eval
from contextlib import suppress
from typing import Any

_MOST_NESTED = 10
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_MAKERS = ("array", "tensor", "Index", "deque", "set", "frozenset")  # what is written around a list
# How text begins that spells a list or an object.
OPENING = re.compile(rf"\s*(?:[\[({{]|(?:\w+\.)*(?:{'|'.join(_MAKERS)})\(\s*[\[({{)])")
_CONSTANTS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None, "nan": None}
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<mark>[\[\](){},:=])
    | (?P<string>[uUbB]?(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'))
    | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])
    | (?P<name>[A-Za-z_][\w.]*)
    )""",
    re.VERBOSE | re.DOTALL,
)


class NotLiteral(ValueError):
    """Text that is no list and no object."""


def read_literal(text: str) -> list[Any] | dict[str, Any]:
    """Return the list or the object that a text spells; tuples, sets and arrays are lists.

    Strings have to be quoted.  Items are separated by commas or, as in NumPy's arrays, by white space.  Raises
    NotLiteral for any other text.
    """
    reader = _Reader(text)
    value = reader.value(0)
    if not isinstance(value, (list, dict)) or reader.peek():
        raise NotLiteral(text)
    return value


class _Reader:
    """Reads one value after the other from a text."""

    def __init__(self, text: str):
        self._tokens = self._split(text.strip())
        self._at = 0

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def value(self, depth: int) -> Any:
        token = self._next()
        if token in _CLOSING and depth < _MOST_NESTED:
            return self._items(token, depth + 1)
        if token.endswith(("'", '"')):
            return _string(token.lstrip("uUbB"))
        if token.rpartition(".")[2] in _MAKERS and self.peek() == "(":
            return self._call(depth)
        if token in _CONSTANTS:
            return _CONSTANTS[token]
        if token[0] not in "+-.0123456789":
            raise NotLiteral(token)
        return int(token) if token.lstrip("+-").isdecimal() else float(token)

    def _items(self, opening: str, depth: int) -> Any:
        """Read what stands between brackets; the first is read already."""
        items: list[Any] = []
        named: dict[str, Any] = {}
        while self.peek() != _CLOSING[opening]:
            item = self.value(depth)
            if opening == "{" and self.peek() == ":" and isinstance(item, str):
                self._next()
                named[item] = self.value(depth)
            else:
                items.append(item)
            if self.peek() == ",":
                self._next()
        self._next()
        if named and items:
            raise NotLiteral(opening)
        return named if named or (opening == "{" and not items) else items

    def _call(self, depth: int) -> Any:
        """Read the arguments of array([...], dtype=...), and return the first."""
        self._next()
        value = [] if self.peek() == ")" else self.value(depth)
        while self._next() != ")":  # what follows says only how the array is stored
            pass
        return value

    def _next(self) -> str:
        if not self.peek():
            raise NotLiteral("the end")
        self._at += 1
        return self._tokens[self._at - 1]

    @staticmethod
    def _split(text: str) -> list[str]:
        tokens, at = [], 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise NotLiteral(text)
            tokens.append(found[0].strip())
            at = found.end()
        return tokens


def _string(token: str) -> str:
    """Return the content of a quoted string, whose escapes are those of JSON or of Python."""
    if "\\" not in token:
        return token[1:-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an escape that Python does not know
        for read in (json.loads, literal_eval):
            with suppress(ValueError, SyntaxError):
                return read(token)
    raise NotLiteral(token)
