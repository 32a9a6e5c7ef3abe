"""Certified conversion of a checkpoint from one format to another."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ernie.atomic import check_absent, partial_folder, put
from ernie.errors import UserError
from ernie.model.published.certificate import TOLERANCE, Certificate, Check
from ernie.model.published.fold import fold_task
from ernie.model.published.folder import Kind
from ernie.model.published.frameworks import framework, framework_states
from ernie.model.published.load import LoadedCheckpoint, read, without_pooler
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
    """Convert `source` to the format `to` and compare the outputs; write `target` only if the comparison passes.

    With `task` the model is written as a BERT for that one of its tasks, see `fold_task`.  The folder appears complete
    or not at all.  Raises UserError when `source` cannot be read or holds NaN or infinity, or when `target` exists.
    """
    check_absent(target)
    loaded = read(source, model_class)
    check_finite(loaded.model, source)
    partial = partial_folder(target)
    try:
        certificate = _write_certified(loaded, source, partial, to, tolerance, task)
        text = json.dumps(certificate.record(), indent=2)
        (partial / CERTIFICATE_FILE).write_text(text + "\n", encoding="utf-8")
        if certificate.passed:
            put(partial, target, lambda: check_absent(target))
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return certificate


def _write_certified(
    loaded: LoadedCheckpoint, source: Path, folder: Path, to: Target, tolerance: float, task: int | None
) -> Certificate:
    """Write the checkpoint read from `source` to `folder`, and compare the two."""
    probe = Probe.of(loaded.model.config, padding_id(loaded.model))
    if task is not None:
        probe = replace(probe, tasks=task * probe.mask)
    model = loaded.model if task is None else fold_task(loaded.model, task)
    task_notes = _task_notes(loaded.model, to, task)
    comparison = _Comparison(
        states_of(model, probe), probe, model.masked_head is not None, [*loaded.notes, *task_notes]
    )
    comparison.notes += write(model, folder, to, pooler=loaded.pooler)
    written = read(folder, type(model)).model
    # Each reader initializes a pooler that is not there at random: they differ.
    no_pooler = frozenset[str]() if loaded.pooler else frozenset((POOLER,))
    skip = no_pooler | (frozenset((FILLED,)) if task_notes else frozenset[str]())
    comparison.add("the written folder, read again by this library", states_of(written, probe), skip)
    if task is not None:
        comparison.add(f"the source as it is, for task {task}", states_of(loaded.model, probe), skip)
    comparison.run("the source", source, loaded.kind, no_pooler)
    comparison.run("the written folder", folder, to, no_pooler)
    return Certificate(
        source=str(source),
        source_format=loaded.kind,
        target_format=to,
        tolerance=tolerance,
        weights_identical=_identical(model, written, loaded.pooler),
        checks=tuple(comparison.checks),
        independent=comparison.independent,
        notes=tuple(comparison.notes),
    )


def check_finite(model: ErnieModel, source: Path) -> None:
    """Raise UserError that names a weight with NaN or infinity."""
    head = {} if model.masked_head is None else arrays(model.masked_head)
    for name, values in (*arrays(model).items(), *((HEAD + name, values) for name, values in head.items())):
        if not np.isfinite(values).all():
            raise UserError(f"{source}: {name} holds NaN or infinity; a model that computes no numbers is not written")


def _task_notes(model: ErnieModel, to: Target, task: int | None) -> list[str]:
    """Return a note if the masked-token head is written for another task than the one it was trained with."""
    head, tasks = model.masked_head, model.config.task_vocab_size
    if head is None or not tasks or (to == "ernie" and task is None):
        return []
    # The other formats cannot store the head's task: their frameworks default to task 0.
    written = task or 0
    if head.task_id == written:
        return []
    return [
        f"its masked-token head was trained with task {head.task_id} and is written for task {written}, with which it "
        f"predicts other tokens. --task {head.task_id} writes the model for task {head.task_id}"
    ]


@dataclass
class _Comparison:
    """A model's outputs for a probe, compared with those of other implementations."""

    ours: States
    probe: Probe
    head: bool
    notes: list[str]
    checks: list[Check] = field(default_factory=list)
    independent: bool = False

    def add(self, against: str, theirs: States, skip: frozenset[str] = frozenset()) -> None:
        self.checks.append(Check.of(against, self.ours, theirs, skip))

    def run(self, side: str, folder: Path, kind: Kind, skip: frozenset[str] = frozenset()) -> None:
        """Compare with a folder's own framework, if it is installed and can run the model."""
        name = framework(kind)
        if name is None:
            return
        try:
            theirs = framework_states(folder, kind, self.probe, self.head)
        except Exception as error:  # third-party code: the certificate is then weaker, and says so
            self.notes.append(f"{name} cannot run {side}, which was not compared ({type(error).__name__}: {error})")
            return
        self.add(f"{side}, run by {name}", theirs, skip)
        self.independent = True


def _identical(one: ErnieModel, other: ErnieModel, pooler: bool) -> bool:
    if (one.masked_head is None) != (other.masked_head is None) or not _same_sentences(one, other):
        return False
    pairs = [(arrays(one), arrays(other))]
    if not pooler:
        pairs = [(without_pooler(a), without_pooler(b)) for a, b in pairs]
    if one.masked_head is not None and other.masked_head is not None:
        pairs.append((arrays(one.masked_head), arrays(other.masked_head)))
    return all(a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a) for a, b in pairs)


def _same_sentences(one: ErnieModel, other: ErnieModel) -> bool:
    """Whether two models give sentences the same vectors, if their encoders do."""
    config = one.sentence_config
    if config is None or config.unsupported:
        return other.sentence_config is None
    return config.equals(other.sentence_config)
