"""One checkpoint from a format to another, with a certificate, or not at all."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ernie.errors import UserError
from ernie.model.published.certificate import TOLERANCE, Certificate, Check
from ernie.model.published.folder import Kind
from ernie.model.published.frameworks import framework, states_there
from ernie.model.published.load import Reading, read
from ernie.model.published.probe import POOLER, Probe, states_of
from ernie.model.published.write import Target, write
from ernie.model.weights import arrays

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel

CERTIFICATE_FILE = "certificate.json"


def convert(
    source: Path, target: Path, to: Target, model_class: type[ErnieModel], tolerance: float = TOLERANCE
) -> Certificate:
    """Read `source`, write it to `target` as the format `to`, and compare; without a pass, nothing is written.

    The folder appears complete or not at all.  Raises UserError when `source` cannot be read, or when there is
    something at `target`.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target}: is there already; give a new folder")
    reading = read(source, model_class)
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    try:
        notes = write(reading.model, partial, to)
        certificate = certify(source, reading, partial, to, model_class, tolerance, notes)
        text = json.dumps(certificate.record(), indent=2)
        (partial / CERTIFICATE_FILE).write_text(text + "\n", encoding="utf-8")
        if certificate.passed:
            partial.replace(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return certificate


def certify(
    source: Path,
    reading: Reading,
    written: Path,
    to: Target,
    model_class: type[ErnieModel],
    tolerance: float,
    notes: list[str],
) -> Certificate:
    """Compare the model with its source and with what was written, each in its own framework where that is there."""
    model = reading.model
    probe = Probe.of(model.config)
    ours = states_of(model, probe)
    again = read(written, model_class)
    checks = [Check.of("the written folder, read again by this library", ours, states_of(again.model, probe))]
    sides: list[tuple[str, Path, Kind]] = [("the source", source, reading.kind), ("the written folder", written, to)]
    for side, folder, kind in sides:
        name = framework(kind)
        if name is not None:
            theirs = states_there(folder, kind, probe, head=model.masked_head is not None)
            # Without weights of its own in the source, the framework draws a pooler, and so did we.
            skip = frozenset() if reading.pooler or folder == written else frozenset((POOLER,))
            checks.append(Check.of(f"{side}, run by {name}", ours, theirs, skip))
    return Certificate(
        source=str(source),
        source_format=reading.kind,
        target_format=to,
        tolerance=tolerance,
        weights_identical=_identical(model, again.model),
        checks=tuple(checks),
        independent=len(checks) > 1,
        notes=(*reading.notes, *notes),
    )


def _identical(one: ErnieModel, other: ErnieModel) -> bool:
    if (one.masked_head is None) != (other.masked_head is None):
        return False
    pairs = [(arrays(one), arrays(other))]
    if one.masked_head is not None and other.masked_head is not None:
        pairs.append((arrays(one.masked_head), arrays(other.masked_head)))
    return all(a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a) for a, b in pairs)
