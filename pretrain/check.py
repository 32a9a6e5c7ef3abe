"""What can be found out about a pretraining run in some seconds: its corpus, what its tasks make of it, one step."""

from __future__ import annotations

import math
import pickle
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ernie.data.batch import Packed
from ernie.data.document import IGNORE, Sample
from ernie.data.shards import Corpus
from ernie.data.stream import Source
from ernie.errors import UserError
from ernie.kernels.precision import computing
from ernie.model.heads import MaskedTokenHead
from ernie.model.inference import evaluating
from ernie.model.losses import Loss
from ernie.report.words import percent, plural
from ernie.train.trainer import Trainer
from pretrain.config import PretrainConfig
from pretrain.feeds import sources
from pretrain.model import MultiTaskModel, build_model
from pretrain.probe import Probe
from pretrain.schedule import Schedule
from tasks.base import ClassifierTask, PretrainTask

_LOOKED = 200  # documents that each task makes samples of
_TOKENS = 1024  # of the batch that is tried
_COMPARED = 5  # items of a task, held out and not
_SHOWN = 40  # tokens of the sample that is shown
_CLASSES = 20  # at most, whose shares are listed
_ONE_SIDED = 0.95  # the share of one class from which on there is little to learn from the others
_SAME = 1e-4  # between two losses that are equal but for rounding
_RARE = 0.5  # the share of documents that give nothing from which on it is worth a note


def check(config: PretrainConfig, corpus: Corpus) -> Iterator[str]:
    """Check corpus, tasks and one step of each; yields a line for each thing found.  Raises UserError for what is
    wrong."""
    schedule = Schedule(config.schedule, config.train.micro_batches)
    yield (
        f"ok: {config.corpus}: {plural(len(corpus.train), 'document')} to learn from, {len(corpus.held_out):,} held "
        f"out, {plural(corpus.tokenizer.vocab_size, 'token')} in the vocabulary"
    )
    yield f"ok: {plural(len(schedule), 'step')} in {plural(len(schedule.table), 'stage')}"
    yield from (f"note: {remark}" for remark in config.remarks)
    model = build_model(config, corpus.tokenizer)
    shape = model.ernie.config
    yield f"ok: an encoder of {shape.layers} layers, width {shape.hidden_size}"
    probe = Probe(config, corpus)
    trainer = Trainer(model, config.train.adam, clip=config.train.clip, patience=2, seed=config.seed)
    held_out = {source.name: source.items for source in sources(config, corpus, held_out=True)}
    for step, source in enumerate(sources(config, corpus, held_out=False)):
        yield f"{source.name}:"
        if _same(source.items, held_out[source.name]):
            yield "  note: its `items` gives the same held out and not, so that it is measured on what it has learnt"
        yield from (f"  {line}" for line in _samples(source, model))
        batch = _small_batch(source, model.objectives[source.name])
        yield f"  {_tried(config, source.name, batch, step, model, trainer)}"
        measured = probe.measure(model, source.name, most=1)
        _check_loss(config, source.name, batch, model)
        yield f"  ok: measured on held-out documents by {', '.join(measured)}"


def _same(items: Sequence[Any], held_out: Sequence[Any]) -> bool:
    """Whether what is held out begins as what is learnt from does, as where a task does not look at `held_out`."""
    first = range(min(len(items), len(held_out), _COMPARED))
    return len(first) > 0 and all(_content(items[i]) == _content(held_out[i]) for i in first)


def _content(item: Any) -> bytes | object:
    """All of an item, to be compared; of what cannot be sent to workers something that nothing else equals."""
    try:
        return pickle.dumps(item)
    except (pickle.PicklingError, TypeError, AttributeError):
        return object()


def _samples(source: Source, model: MultiTaskModel) -> Iterator[str]:
    """What a task makes of some documents, and whether it makes the same of them again."""
    looked = min(_LOOKED, len(source.items))
    source.items_per_block()  # raises where there are too few documents, or none that gives anything
    drawn, again = (list(source.named_samples(0, 0, looked)) for _ in range(2))
    if [_bytes(sample) for _, sample in drawn] != [_bytes(sample) for _, sample in again]:
        raise UserError(
            f"task '{source.name}': made twice of the same documents its samples are not the same, so that no run "
            "could be repeated or gone on with. All randomness has to come from the generator that `samples` is given, "
            "and nothing may be remembered between two calls"
        )
    samples = [sample for _, sample in drawn]
    if not samples:
        yield f"note: none of {plural(looked, 'document')} gives a sample; others do"
        return
    lengths = [len(sample) for sample in samples]
    giving = len({index for (_, index, _), _ in drawn})
    yield (
        f"ok: {plural(looked, 'document')} give {plural(len(samples), 'sample')} of {min(lengths)} to {max(lengths)} "
        f"tokens, {np.mean(lengths):.0f} in the mean, and the same ones when asked again"
    )
    if looked - giving > _RARE * looked:
        yield f"note: {looked - giving:,} of these documents give none"
    task = model.objectives[source.name]
    if isinstance(task, ClassifierTask):
        yield from _classes(samples, task.class_count())
    yield "one of them, as the model sees it, with what it is asked for:"
    tells_tokens = isinstance(model.heads[task.head_of or source.name], MaskedTokenHead)
    usual = next(sample for sample in samples if len(sample) >= np.mean(lengths))
    yield f"  {_shown(usual, source, tells_tokens)}"


def _bytes(sample: Sample) -> list[bytes]:
    """All of a sample, to be compared."""
    labels = [name.encode() + np.asarray(sample.labels[name]).tobytes() for name in sorted(sample.labels)]
    return [sample.ids.tobytes(), sample.segments.tobytes(), *labels]


def _classes(samples: list[Sample], count: int) -> Iterator[str]:
    """How the labels fall on the classes."""
    found: Counter[int] = Counter()
    for sample in samples:
        labels = np.atleast_1d(sample.labels["label"])
        found.update(labels[labels != IGNORE].tolist())
    total = sum(found.values())
    if not total:
        yield "note: not one label in these samples"
        return
    shares = ", ".join(f"{label} {percent(found[label] / total)}" for label in sorted(found)[:_CLASSES])
    yield f"ok: {plural(total, 'label')}: {shares}" + (" and more" if len(found) > _CLASSES else "")
    missing = [str(label) for label in range(count) if label not in found]
    if missing:
        names = ", ".join(missing[:_CLASSES]) + (" and more" if len(missing) > _CLASSES else "")
        yield f"note: of {count} classes these do not occur: {names}"
    label, most = found.most_common(1)[0]
    if most > _ONE_SIDED * total:
        yield f"note: {percent(most / total)} of the labels are {label}; there is little to learn from the others"


def _shown(sample: Sample, source: Source, tells_tokens: bool) -> str:
    """The beginning of a sample, a token's label behind it."""
    words = [source.tokenizer.tokens[i] for i in sample.ids[:_SHOWN]]
    told = []
    for name, label in sample.labels.items():
        values = np.asarray(label)
        if values.shape != sample.ids.shape:
            told.append(f"{name} {values.tolist()}")
            continue
        for place in np.flatnonzero(values[:_SHOWN] != IGNORE):
            wanted = source.tokenizer.tokens[int(values[place])] if tells_tokens else values[place]
            words[place] = f"{words[place]}/{wanted}"
    more = f" ... and {len(sample) - _SHOWN} more" if len(sample) > _SHOWN else ""
    return " ".join(words) + more + (f": {', '.join(told)}" if told else "")


def _small_batch(source: Source, task: PretrainTask) -> Packed:
    """The first small batch of a task that has a label.  Raises UserError when there is none."""
    small = replace(source, budget=max(task.length, min(source.budget, _TOKENS)))
    per_look = min(_LOOKED, len(source.items))
    batches = (
        batch
        for first in range(0, len(source.items), per_look)
        for batch in small.batches(0, first, min(len(source.items), first + per_look))
    )
    batch = next((batch for batch in batches if batch.targets), None)
    if batch is None:
        raise UserError(f"task '{source.name}': there is not one label to learn from in its samples")
    return batch


def _tried(config: PretrainConfig, name: str, batch: Packed, step: int, model: MultiTaskModel, trainer: Trainer) -> str:
    """One step of a task on a small batch."""
    task = model.objectives[name]
    began = time.monotonic()
    with computing(config.train.precision, config.train.amp_level):
        report = trainer.step(step, [(name, batch)], model.loss, config.train.rate.peak)
    loss = report.losses[name]
    if report.skipped:
        raise UserError(
            f"task '{name}': its first step has the loss {loss:g} and a gradient of the norm "
            f"{report.gradient_norm:g}; is the model to start from damaged, or the task's own loss?"
        )
    even = f" ({math.log(task.class_count()):.3f} if all were alike)" if isinstance(task, ClassifierTask) else ""
    return (
        f"ok: one step on {plural(batch.layout.tokens, 'token')}, {plural(batch.targets, 'label')}: loss {loss:.3f}"
        f"{even}, {time.monotonic() - began:.1f} s"
    )


def _check_loss(config: PretrainConfig, name: str, batch: Packed, model: MultiTaskModel) -> None:
    """Raise UserError for a loss that looks at vectors which are zero because `reads` leaves them out, or that is the
    mean over its targets instead of the sum: both would be learnt without a word."""

    def judged(task_reads: bool) -> Loss:
        paddle.seed(config.seed)  # a loss may draw
        if task_reads:
            return model.loss(name, batch)
        return model.judge(name, model.ernie.encode_packed(batch, model.task_embedding(name)), batch)

    with evaluating(model), computing("fp32"):
        found, seeing_all = judged(True), judged(False)
        if not math.isclose(float(found.total), float(seeing_all.total), rel_tol=_SAME):
            raise UserError(
                f"task '{name}': its loss looks at other tokens than its `reads` says, whose vectors are zero; have "
                "`reads` give all that it looks at, or None for all there are"
            )
        mean = float(F.cross_entropy(found.logits, paddle.to_tensor(found.labels)))
    if found.count > 1 and math.isclose(float(found.total), mean, rel_tol=_SAME):
        raise UserError(
            f"task '{name}': the total of its loss is the mean over its targets; expected the sum, which the run "
            'divides by their number (reduction="sum")'
        )
