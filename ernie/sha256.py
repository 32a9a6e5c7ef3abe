"""SHA-256 checksums of the files of a folder, which show that a disk, a copy or a download has damaged them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from ernie.errors import UserError
from ernie.json_file import check_not_lfs_pointer

_DIGEST = re.compile("[0-9a-f]{64}")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def checksums_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the checksums of files in a folder, by their names relative to it."""
    return {name: file_sha256(folder / name) for name in names}


def check_checksums(folder: Path, listed: Mapping[str, Any], origin: Path, damaged: str) -> None:
    """Compare files with their checksums, as the file `origin` lists them.

    Raises UserError for a list that is empty, names files outside of the folder or holds no checksums.  Raises it also
    for the first file that is missing or differs, with `damaged` at the end of the message.
    """
    if not listed:
        raise UserError(f"{origin}: sha256: is empty, so that nothing could be checked; {damaged}")
    for name, expected in listed.items():
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or not parts.parts or "\\" in name or "\0" in name:
            raise UserError(f"{origin}: sha256: names '{name:.80}', which is no file in {folder}; {damaged}")
        if not isinstance(expected, str) or not _DIGEST.fullmatch(expected):
            raise UserError(f"{origin}: sha256.{name}: is no SHA-256; {damaged}")
        file = folder / name
        if not file.is_file():
            raise UserError(f"{file}: is missing: {damaged}")
        if _digest(file) != expected:
            check_not_lfs_pointer(file)
            raise UserError(f"{file}: does not match its checksum: {damaged}")


def _digest(file: Path) -> str:
    status = file.stat()
    return _known_digest(file.resolve(), status.st_size, status.st_mtime_ns, status.st_ino)


@lru_cache(maxsize=1000)
def _known_digest(file: Path, *_: int) -> str:
    """Compute a checksum once for each state of a file: several loaders check the same model."""
    return file_sha256(file)
