"""Forged JSON: for each key of a file, what a stranger, another version or a damaged disk may have put there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.hostile.case import Make

VALUES: dict[str, Any] = {
    "missing": ...,
    "null": None,
    "a-number": 5,
    "a-text": "x",
    "a-list": [],
    "an-object": {},
    "not-a-number": float("nan"),
    "infinite": float("inf"),
    "huge": 10**30,
    "nested": {"a": [[{"b": [5]}]]},
}
CONTENTS = {
    "empty": b"",
    "not-utf-8": b'{"step": "\xff\xfe"}',
    "deep": b'{"a":' * 100_000,
    "a-list": b"[]",
    "an-object": b"{}",
    "a-number": b"5",
    "digits": b'{"step": ' + b"9" * 5_000 + b"}",
    "zeros": bytes(1000),
}
_DEEPEST = 5  # keys of keys


def places(content: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every key, and of the last item of every list."""
    items: list[Any] = list(content.items()) if isinstance(content, dict) else []
    if isinstance(content, list) and content:
        items = [(len(content) - 1, content[-1])]
    for key, value in items:
        yield (*path, key)
        if len(path) + 1 < _DEEPEST:
            yield from places(value, (*path, key))


def replaced(content: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """Return content with another value at a path; `...` takes the key out."""
    content, (key, *rest) = content.copy(), path
    if rest:
        content[key] = replaced(content[key], tuple(rest), value)
    elif value is ...:
        del content[key]
    else:
        content[key] = value
    return content


def forged(name: str, line: int, path: tuple[str | int, ...], value: Any) -> Make:
    """Put a value at a path of a file: of its line, counted from 1 or from -1, or of the whole if `line` is 0."""

    def make(work: Path) -> None:
        text = (work / name).read_text(encoding="utf-8")
        lines = text.splitlines()
        if line:
            at = line - (line > 0)
            lines[at] = json.dumps(replaced(json.loads(lines[at]), path, value))
        else:
            lines = [json.dumps(replaced(json.loads(text), path, value))]
        _put(work / name, ("\n".join(lines) + "\n").encode())

    return make


def filled(name: str, content: bytes) -> Make:
    """Replace the whole content of a file."""
    return lambda work: _put(work / name, content)


def _put(file: Path, content: bytes) -> None:
    """Write a file, and its checksum where a list of checksums holds one."""
    file.write_bytes(content)
    for folder in file.parents:
        for listing in ("manifest.json", "sha256.json", "corpus.json"):
            _record(folder / listing, file, content)


def _record(listing: Path, file: Path, content: bytes) -> None:
    if not listing.is_file() or listing == file:
        return
    known = json.loads(listing.read_text(encoding="utf-8"))
    name, digest = file.relative_to(listing.parent).as_posix(), hashlib.sha256(content).hexdigest()
    if name in known.get("sha256", {}):
        known["sha256"][name] = digest
    elif name in known.get("files", {}):
        known["files"][name] = {"bytes": len(content), "sha256": digest}
    else:
        return
    listing.write_text(json.dumps(known), encoding="utf-8")
