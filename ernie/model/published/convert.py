"""Certified conversion of a checkpoint from one format to another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ernie.atomic import check_absent, disk_guard, partial_folder, put
from ernie.errors import UserError, about
from ernie.model.published.certificate import TOLERANCE, Certificate, Check
from ernie.model.published.fold import check_task, fold_task
from ernie.model.published.formats import Kind
from ernie.model.published.frameworks import framework, framework_states
from ernie.model.published.load import LoadedCheckpoint, read, without_pooler
from ernie.model.published.names import HEAD
from ernie.model.published.probe import FILLED, LOGITS, POOLER, Probe, States, layer_name, states_of
from ernie.model.published.task_head import TaskHead, head_class, head_notes, read_task_head, same_heads, unwritten
from ernie.model.published.write import Target, padding_id, write
from ernie.model.weights import arrays, check_finite

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel

CERTIFICATE_FILE = "certificate.json"
_USUAL = 0.5  # a threshold that needs no note


def convert(
    source: Path,
    target: Path,
    to: Target,
    model_class: type[ErnieModel],
    tolerance: float = TOLERANCE,
    task: int | None = None,
) -> Certificate:
    """Convert `source` to the format `to` and compare the outputs; write `target` only if the comparison passes.

    With `task` the model is written as a BERT for that one of its tasks, see `fold_task`.  The head of a fine-tuned
    model goes along; for other libraries its encoder is written for the task that it has learned with.  The folder
    appears complete or not at all.  Raises UserError when `source` cannot be read or holds NaN or infinity, or when
    `target` exists.
    """
    check_absent(target)
    loaded = read(source, model_class)
    plan = _plan(source, loaded, to, task)
    check_model_finite(source, loaded.model, plan.head)
    partial = partial_folder(target)
    try:
        with disk_guard(target, "nothing was written"):
            certificate = _write_certified(plan, loaded, source, partial, to, tolerance)
            text = json.dumps(certificate.record(), indent=2)
            (partial / CERTIFICATE_FILE).write_text(text + "\n", encoding="utf-8")
            if certificate.passed:
                put(partial, target, lambda: check_absent(target))
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return certificate


@dataclass(frozen=True)
class _Plan:
    """What is written: the model, for one `task` (None: all), and the head of a fine-tuned model, with notes."""

    model: ErnieModel
    task: int | None
    head: TaskHead | None
    notes: list[str]
    other_task: bool  # whether the masked-token head is written for another task than its own


def _plan(source: Path, loaded: LoadedCheckpoint[ErnieModel], to: Target, task: int | None) -> _Plan:
    """Decide what is written.  A head elsewhere knows no task embeddings: its encoder is folded for its own task."""
    model = loaded.model
    head, notes = read_task_head(source, model.config.max_positions), [*loaded.notes, *head_notes(source)]
    if head is not None and not head.weights:  # of the kind embed, whose model is an encoder
        head = None
    learned = head.data["task_id"] if head is not None and model.config.task_vocab_size else None
    if task is not None:
        check_task(model.config, task)
    if head is not None and task not in (None, learned):
        raise UserError(f"--task {task}: {source} is a fine-tuned model, which has learned with task {learned}")
    if head is not None and (obstacle := _obstacle(head, to, loaded.pooler)):
        head, notes = None, [*notes, obstacle]
    if head is not None and to != "ernie":
        head, task = head.for_other_libraries(), learned
    folded = model if task is None else fold_task(model, task)
    if head is not None and task is not None:
        head = replace(head, data={**head.data, "task_id": 0})
    if head is not None and to != "ernie" and folded.masked_head is not None:
        notes.append("its masked-token head is left out: the format has one head a model, here that of the task")
        folded.masked_head = None
    if head is not None and to != "ernie":
        notes += _decoding_notes(head.data["task"])
    task_notes = [] if folded.masked_head is None else _task_notes(model, to, task)
    return _Plan(folded, task, head, notes + task_notes, bool(task_notes))


def _decoding_notes(task: Mapping[str, Any]) -> Iterator[str]:
    """Yield notes on what a task does with logits that other libraries do not."""
    if task.get("windows"):
        yield "its windows over longer texts are this library's own: other libraries cut such texts"
    if (temperature := task.get("temperature", 1)) != 1:
        yield f"its temperature of {temperature:g} is this library's own: other libraries do not divide logits by it"
    if (threshold := task.get("threshold") or _USUAL) != _USUAL:
        yield f"its threshold of {threshold} is this library's own: other libraries decide without it"


def _obstacle(head: TaskHead, to: Target, pooler: bool) -> str:
    """Return a note on why a head is not written; "" if it is."""
    if not pooler and not (head.format and head.format.per_token):
        return f"its head of the kind {head.kind} is left out: it reads the pooler, which is missing"
    if to != "ernie" and head.format is None:
        return unwritten(head, to)
    if head.misfit:
        return f"its head of the kind {head.kind} is left out: {head.misfit}"
    return ""


def _write_certified(
    plan: _Plan, loaded: LoadedCheckpoint[ErnieModel], source: Path, folder: Path, to: Target, tolerance: float
) -> Certificate:
    """Write what was planned to `folder`, and compare it with the checkpoint read from `source`."""
    model, task, head = plan.model, plan.task, plan.head
    probe = Probe.of(loaded.model.config, padding_id(loaded.model))
    if task is not None:
        probe = replace(probe, tasks=task * probe.mask)
    comparison = _Comparison(_states(model, head, probe), probe, model.masked_head is not None, plan.notes)
    comparison.notes += write(model, folder, to, pooler=loaded.pooler, task_head=head)
    if head is not None and (loaded.kind, to) == ("ernie", "ernie"):
        _copy_other_files(source, folder)
    written, written_head = read(folder, type(model)).model, read_task_head(folder)
    # A pooler that is not there is initialized at random by each reader, so that the two differ.
    no_pooler = frozenset[str]() if loaded.pooler else frozenset((POOLER,))
    skip = no_pooler | (frozenset((FILLED,)) if plan.other_task else frozenset[str]())
    comparison.add("the written folder, read again by this library", _states(written, written_head, probe), skip)
    if task is not None:
        comparison.add(f"the source as it is, for task {task}", _states(loaded.model, head, probe), skip)
    comparison.run("the source", source, loaded.kind, no_pooler)
    comparison.run("the written folder", folder, to, no_pooler)
    return Certificate(
        source=str(source),
        source_format=loaded.kind,
        target_format=to,
        tolerance=tolerance,
        weights_identical=_identical(model, written, loaded.pooler) and same_heads(head, written_head),
        checks=tuple(comparison.checks),
        independent=comparison.independent,
        notes=tuple(comparison.notes),
    )


def _states(model: ErnieModel, head: TaskHead | None, probe: Probe) -> States:
    """Compute the layers' outputs and, for the head of a fine-tuned model that is one linear layer, its logits."""
    states = states_of(model, probe)
    if head is None or head.format is None:
        return states
    last = layer_name(model.config.layers - 1)
    return {**states, LOGITS: head.logits(states[last if head.format.per_token else POOLER])}


def _copy_other_files(source: Path, folder: Path) -> None:
    """Copy the files of a fine-tuned model that its task names."""
    for path in source.iterdir():
        if path.is_file() and not path.is_symlink() and not (folder / path.name).exists():
            shutil.copyfile(path, folder / path.name)


def check_model_finite(source: Path, model: ErnieModel, head: TaskHead | None) -> None:
    """Raise NotFinite that names a weight with NaN or infinity, of the model read from `source` or of its head."""
    masked = {} if model.masked_head is None else arrays(model.masked_head)
    named = arrays(model) | {HEAD + name: values for name, values in masked.items()}
    with about(source):
        check_finite(named | ({} if head is None else {f"head.{name}": v for name, v in head.weights.items()}))


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
            theirs = framework_states(folder, kind, self.probe, self.head, head_class(folder, kind))
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
