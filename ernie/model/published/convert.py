"""One checkpoint from a format to another, with a certificate, or not at all."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ernie.beside import beside, check_absent, put
from ernie.errors import UserError
from ernie.model.published.certificate import TOLERANCE, Certificate, Check
from ernie.model.published.fold import folded
from ernie.model.published.folder import Kind
from ernie.model.published.frameworks import framework, states_there
from ernie.model.published.load import Reading, read
from ernie.model.published.names import HEAD
from ernie.model.published.probe import FILLED, POOLER, Probe, States, states_of
from ernie.model.published.write import Target, padding_id, write
from ernie.model.weights import arrays

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel

CERTIFICATE_FILE = "certificate.json"


def convert(
    source: Path,
    target: Path,
    to: Target,
    model_class: type[ErnieModel],
    tolerance: float = TOLERANCE,
    task: int | None = None,
) -> Certificate:
    """Read `source`, write it to `target` as the format `to`, and compare; without a pass, nothing is written.

    With `task` the model is written as a BERT for that one of its tasks, see `folded`.  The folder appears complete
    or not at all.  Raises UserError when `source` cannot be read or holds what is no number, or when there is something
    at `target`.
    """
    check_absent(target)
    reading = read(source, model_class)
    _check_finite(reading.model, source)
    partial = beside(target)
    try:
        certificate = _write_certified(reading, source, partial, to, tolerance, task)
        text = json.dumps(certificate.record(), indent=2)
        (partial / CERTIFICATE_FILE).write_text(text + "\n", encoding="utf-8")
        if certificate.passed:
            put(partial, target, lambda: check_absent(target))
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return certificate


def _write_certified(
    reading: Reading, source: Path, folder: Path, to: Target, tolerance: float, task: int | None
) -> Certificate:
    """Write what was read from `source` into `folder`, and compare the two."""
    probe = Probe.of(reading.model.config, padding_id(reading.model))
    if task is not None:
        probe = replace(probe, tasks=task * probe.mask)
    model = reading.model if task is None else folded(reading.model, task)
    said = _other_task(reading.model, to, task)
    comparison = _Comparison(states_of(model, probe), probe, model.masked_head is not None, [*reading.notes, *said])
    comparison.notes += write(model, folder, to)
    again = read(folder, type(model)).model
    skip = frozenset((FILLED,)) if said else frozenset[str]()
    comparison.add("the written folder, read again by this library", states_of(again, probe), skip)
    if task is not None:
        comparison.add(f"the source as it is, for task {task}", states_of(reading.model, probe), skip)
    # Where the source has no pooler, its framework draws one, and so did we.
    comparison.run("the source", source, reading.kind, frozenset() if reading.pooler else frozenset((POOLER,)))
    comparison.run("the written folder", folder, to)
    return Certificate(
        source=str(source),
        source_format=reading.kind,
        target_format=to,
        tolerance=tolerance,
        weights_identical=_identical(model, again),
        checks=tuple(comparison.checks),
        independent=comparison.independent,
        notes=tuple(comparison.notes),
    )


def _check_finite(model: ErnieModel, source: Path) -> None:
    head = {} if model.masked_head is None else arrays(model.masked_head)
    for name, values in (*arrays(model).items(), *((HEAD + name, values) for name, values in head.items())):
        if not np.isfinite(values).all():
            raise UserError(f"{source}: {name} holds NaN or infinity; a model that computes no numbers is not written")


def _other_task(model: ErnieModel, to: Target, task: int | None) -> list[str]:
    """A sentence, where the masked-token head is written for another task than the one it learnt with."""
    head, tasks = model.masked_head, model.config.task_vocab_size
    if head is None or not tasks or (to == "ernie" and task is None):
        return []
    # The other formats have no word for the head's task: their frameworks take task 0 where they are not told.
    written = task or 0
    if head.task_id == written:
        return []
    return [
        f"its masked-token head learnt with task {head.task_id} and is written for task {written}, with which it "
        f"predicts other tokens. --task {head.task_id} writes the model for task {head.task_id}"
    ]


@dataclass
class _Comparison:
    """What a model computes from a probe, compared with what others make of it."""

    ours: States
    probe: Probe
    head: bool
    notes: list[str]
    checks: list[Check] = field(default_factory=list)
    independent: bool = False

    def add(self, against: str, theirs: States, skip: frozenset[str] = frozenset()) -> None:
        self.checks.append(Check.of(against, self.ours, theirs, skip))

    def run(self, side: str, folder: Path, kind: Kind, skip: frozenset[str] = frozenset()) -> None:
        """Compare with a folder's own framework, if that is here and can run it."""
        name = framework(kind)
        if name is None:
            return
        try:
            theirs = states_there(folder, kind, self.probe, self.head)
        except Exception as error:  # whatever their code raises: the certificate is then weaker, and says so
            self.notes.append(f"{name} cannot run {side}, which was not compared ({type(error).__name__}: {error})")
            return
        self.add(f"{side}, run by {name}", theirs, skip)
        self.independent = True


def _identical(one: ErnieModel, other: ErnieModel) -> bool:
    if (one.masked_head is None) != (other.masked_head is None):
        return False
    pairs = [(arrays(one), arrays(other))]
    if one.masked_head is not None and other.masked_head is not None:
        pairs.append((arrays(one.masked_head), arrays(other.masked_head)))
    return all(a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a) for a, b in pairs)
