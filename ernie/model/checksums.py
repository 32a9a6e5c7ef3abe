"""The checksums of a model's files, written with the model and compared when it is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ernie.atomic import put_text
from ernie.json_file import read_json
from ernie.sha256 import check_checksums, checksums_of

CHECKSUMS_FILE = "sha256.json"
_KEYS = {"sha256": (dict,)}
_REMEDY = f"Copy the model's {CHECKSUMS_FILE} again, or delete it to load the model unchecked."


def write_checksums(folder: Path, names: Iterable[str]) -> None:
    """Write the checksums of a model's files, by names relative to its folder, beside those that are listed already."""
    file = folder / CHECKSUMS_FILE
    listed = read_json(file, _KEYS, _REMEDY)["sha256"] if file.is_file() else {}
    put_text(file, json.dumps({"sha256": {**listed, **checksums_of(folder, names)}}, indent=2) + "\n")


def check_model(folder: Path, part: str = "") -> None:
    """Compare the files of a model, or those in its subfolder `part`, with the checksums written with them.

    Models from before there were checksums are not checked.  Raises UserError for a file that is missing or differs.
    """
    file = folder / CHECKSUMS_FILE
    if not file.is_file():
        return
    listed = read_json(file, _KEYS, _REMEDY)["sha256"]
    chosen = {name: digest for name, digest in listed.items() if name.startswith(part)}
    damaged = f"the model is damaged; copy it again. If you changed the file on purpose, delete {file}"
    if chosen or not part:
        check_checksums(folder, chosen, file, damaged)
