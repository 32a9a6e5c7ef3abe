"""Files of text for tests, and the documents read from them."""

from __future__ import annotations

import json
from pathlib import Path

from ernie.data.raw import RawDocument, ReadOptions
from ernie.data.read import read_documents


def read_all(*paths: Path | str, options: ReadOptions | None = None) -> list[RawDocument]:
    """The documents of these paths, all of which can be read."""
    documents = list(read_documents(paths, options))
    assert all(isinstance(document, RawDocument) for document in documents), documents
    return documents


def put(path: Path, content: str | bytes) -> Path:
    """Write a file, and the folders it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def put_json(path: Path, *rows: object) -> Path:
    """Write JSON lines."""
    return put(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
