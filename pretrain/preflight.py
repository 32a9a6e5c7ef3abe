"""Checks of a pretraining run that take seconds: its corpus, the samples of its tasks, and one step of each."""

from __future__ import annotations

import math
import pickle
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ernie.data.batch import Packed
from ernie.data.document import IGNORE, Sample, content
from ernie.data.shards import Corpus
from ernie.data.stream import Feed, Source
from ernie.errors import UserError
from ernie.formatting import percent, plural
from ernie.kernels.precision import precision
from ernie.model.heads import MaskedTokenHead
from ernie.model.inference import evaluating
from ernie.model.losses import Loss
from ernie.train.trackers import check_trackers
from ernie.train.trainer import Trainer
from pretrain.config import PretrainConfig
from pretrain.corpus.report import MANY_UNKNOWN
from pretrain.feeds import sources
from pretrain.model import MultiTaskModel, build_model
from pretrain.probe import Probe
from pretrain.schedule import Schedule
from tasks.base import ClassifierTask, PretrainTask

_DOCUMENTS = 200  # that each task makes samples of
_TOKENS = 1024  # of the batch for the trial step
_COMPARED = 5  # training and held-out items of a task
_SHOWN = 40  # tokens of the sample that is printed
_CLASSES = 20  # at most, whose frequencies are listed
_ONE_SIDED = 0.95  # the fraction of one class above which there is little to learn from the others
_TOLERANCE = 1e-4  # relative, between two losses that are equal up to rounding
_RARE = 0.5  # the fraction of documents without a sample above which that is worth a note


def check(config: PretrainConfig, corpus: Corpus) -> Iterator[str]:
    """Check the corpus, the tasks and one step of each, yielding a line per finding.  Raises UserError for mistakes."""
    schedule = Schedule(config.schedule, config.train.micro_batches)
    check_trackers(config)
    corpus.verify()
    yield (
        f"ok: {config.corpus}: {plural(len(corpus.train), 'document')} to learn from, {len(corpus.held_out):,} held "
        f"out, {plural(corpus.tokenizer.vocab_size, 'token')} in the vocabulary; its checksums agree"
    )
    yield f"ok: {plural(len(schedule), 'step')} in {plural(len(schedule.table), 'stage')}"
    yield from (f"note: {remark}" for remark in config.remarks)
    model = build_model(config, corpus.tokenizer)
    shape = model.ernie.config
    yield f"ok: an encoder of {shape.layers} layers, width {shape.hidden_size}"
    probe = Probe(config, corpus)
    trainer = Trainer(model, config.train.adam, clip=config.train.clip, max_bad_steps=2, seed=config.seed)
    held_out = {source.name: source.items for source in sources(config, corpus, held_out=True)}
    to_learn = sources(config, corpus, held_out=False)
    with closing(Feed(to_learn, processes=1)) as another_process:
        for step, source in enumerate(to_learn):
            yield f"{source.name}:"
            if _same_items(source.items, held_out[source.name]):
                yield "  note: its `items` gives the same items held out and not: it is measured on its training data"
            yield from (f"  {line}" for line in _check_samples(source, model))
            _check_process(source, another_process)
            batch = _small_batch(source, model.tasks[source.name])
            yield f"  {_try_step(config, source.name, batch, step, model, trainer)}"
            measured = probe.measure(model, source.name, most=1)
            yield from (f"  {line}" for line in _check_loss(config, source.name, batch, model))
            yield f"  ok: measured on held-out documents by {', '.join(measured)}"


def _same_items(items: Sequence[Any], held_out: Sequence[Any]) -> bool:
    """Whether the held-out items start like the training items, as when a task ignores `held_out`."""
    first = range(min(len(items), len(held_out), _COMPARED))
    return len(first) > 0 and all(_content(items[i]) == _content(held_out[i]) for i in first)


def _content(item: Any) -> bytes | object:
    """Serialize an item for comparison; one that cannot be pickled becomes an object that nothing else equals."""
    try:
        return pickle.dumps(item)
    except (pickle.PicklingError, TypeError, AttributeError):
        return object()


def _check_samples(source: Source, model: MultiTaskModel) -> Iterator[str]:
    """Describe the samples of a task from some documents, and check that it makes the same ones again."""
    count = min(_DOCUMENTS, len(source.items))
    source.items_per_block()  # raises if there are too few documents, or none gives a sample
    named, again = (list(source.named_samples(0, 0, count)) for _ in range(2))
    first, second = ([content(one.ids, one.segments, one.labels) for _, one in made] for made in (named, again))
    if first != second:
        raise UserError(
            f"task '{source.name}': its samples differ when they are made twice from the same documents, so no run "
            "could be repeated or resumed. All randomness has to come from the generator that `samples` is given, "
            "and no state may be kept between two calls"
        )
    samples = [sample for _, sample in named]
    if not samples:
        yield f"note: none of {plural(count, 'document')} gives a sample; others do"
        return
    lengths = [len(sample) for sample in samples]
    without = count - len({index for (_, index, _), _ in named})
    given = f"{plural(count, 'document')} {'gives' if count == 1 else 'give'} {plural(len(samples), 'sample')}"
    yield (
        f"ok: {given} of {min(lengths)} to {max(lengths)} tokens, {np.mean(lengths):.0f} on average, and the same ones "
        "when asked again"
    )
    unknown = float(np.mean(np.concatenate([sample.ids for sample in samples]) == source.tokenizer.unk_id))
    if unknown > MANY_UNKNOWN:
        yield f"note: {unknown:.0%} of their tokens are unknown to the tokenizer; was it trained on such text?"
    if without > _RARE * count:
        yield f"note: {without:,} of these documents give none"
    task = model.tasks[source.name]
    if isinstance(task, ClassifierTask):
        if task.class_count() < 2:
            raise UserError(
                f"task '{source.name}': has {plural(task.class_count(), 'class')}; there is nothing to tell apart "
                "with fewer than two"
            )
        yield from _check_classes(samples, task.class_count())
    yield "one of them, as the model sees it, with its labels:"
    predicts_tokens = isinstance(model.head(source.name), MaskedTokenHead)
    typical = next(sample for sample in samples if len(sample) >= np.mean(lengths))
    yield f"  {_formatted(typical, source, predicts_tokens)}"


def _check_process(source: Source, another_process: Feed) -> None:
    """Check that another process makes the same batches of the first block."""
    stream = another_process.stream(source.name)
    for batch in source.batches(0, 0, source.items_per_block()):
        theirs = next(stream)
        if theirs is None or _batch_bytes(theirs) != _batch_bytes(batch):
            raise UserError(
                f"task '{source.name}': its samples differ when another process makes them from the same documents, so "
                "no run could be repeated or resumed. hash() of a text and the order of a set of texts are not the "
                "same in two processes (sort such sets, and use hashlib)"
            )


def _batch_bytes(batch: Packed) -> list[bytes]:
    """Serialize a batch for comparison."""
    return content(batch.ids, batch.segments, {name: labels.values for name, labels in batch.labels.items()})


def _check_classes(samples: list[Sample], count: int) -> Iterator[str]:
    """Describe the distribution of the labels over the classes."""
    found: Counter[int] = Counter()
    for sample in samples:
        labels = np.atleast_1d(sample.labels["label"])
        found.update(labels[labels != IGNORE].tolist())
    total = sum(found.values())
    if not total:
        yield "note: these samples have no label"
        return
    frequencies = ", ".join(f"{label} {percent(found[label] / total)}" for label in sorted(found)[:_CLASSES])
    yield f"ok: {plural(total, 'label')}: {frequencies}" + (" and more" if len(found) > _CLASSES else "")
    missing = [str(label) for label in range(count) if label not in found]
    if missing:
        names = ", ".join(missing[:_CLASSES]) + (" and more" if len(missing) > _CLASSES else "")
        yield f"note: of {count} classes these do not occur: {names}"
    label, most = found.most_common(1)[0]
    if most > _ONE_SIDED * total:
        yield f"note: {percent(most / total)} of the labels are {label}; there is little to learn from the others"


def _formatted(sample: Sample, source: Source, predicts_tokens: bool) -> str:
    """Format the beginning of a sample, each token followed by its label."""
    words = [source.tokenizer.tokens[i] for i in sample.ids[:_SHOWN]]
    sequence_labels = []
    for name, label in sample.labels.items():
        values = np.asarray(label)
        if values.shape != sample.ids.shape:
            sequence_labels.append(f"{name} {values.tolist()}")
            continue
        for i in np.flatnonzero(values[:_SHOWN] != IGNORE):
            target = source.tokenizer.tokens[int(values[i])] if predicts_tokens else values[i]
            words[i] = f"{words[i]}/{target}"
    more = f" ... and {len(sample) - _SHOWN} more" if len(sample) > _SHOWN else ""
    return " ".join(words) + more + (f": {', '.join(sequence_labels)}" if sequence_labels else "")


def _small_batch(source: Source, task: PretrainTask) -> Packed:
    """Return the first small batch of a task that has a label.  Raises UserError if there is none."""
    small = replace(source, micro_batch_tokens=max(task.length, min(source.micro_batch_tokens, _TOKENS)))
    count = min(_DOCUMENTS, len(source.items))
    batches = (
        batch
        for first in range(0, len(source.items), count)
        for batch in small.batches(0, first, min(len(source.items), first + count))
    )
    batch = next((batch for batch in batches if batch.targets), None)
    if batch is None:
        raise UserError(f"task '{source.name}': its samples have no label to learn from")
    return batch


def _try_step(
    config: PretrainConfig, name: str, batch: Packed, step: int, model: MultiTaskModel, trainer: Trainer
) -> str:
    """Train one step of a task on a small batch, and describe it."""
    task = model.tasks[name]
    started = time.monotonic()
    with precision(config.train.precision, config.train.amp_level):
        report = trainer.step(step, [(name, batch)], model.loss, config.train.lr.peak)
    loss = report.losses[name]
    if report.skipped:
        raise UserError(
            f"task '{name}': its first step has the loss {loss:g} and a gradient of the norm "
            f"{report.gradient_norm:g}; is the model to start from damaged, or the task's own loss wrong?"
        )
    uniform = f" ({math.log(task.class_count()):.3f} for a uniform guess)" if isinstance(task, ClassifierTask) else ""
    return (
        f"ok: one step on {plural(batch.layout.tokens, 'token')}, {plural(batch.targets, 'label')}: loss {loss:.3f}"
        f"{uniform}, {time.monotonic() - started:.1f} s"
    )


def _check_loss(config: PretrainConfig, name: str, batch: Packed, model: MultiTaskModel) -> Iterator[str]:
    """Check a loss for mistakes that raise no error in training.

    Raises UserError if it uses vectors that are zero because `reads` leaves them out, or is the mean over its targets
    instead of the sum.  Yields a note if the encoder learns nothing from it.
    """

    def compute(only_read: bool) -> Loss:
        paddle.seed(config.seed)  # a loss may use random numbers
        return model.loss(name, batch, of_all=not only_read)

    with evaluating(model), precision("fp32"):
        loss, loss_of_all = compute(only_read=True), compute(only_read=False)
        if not math.isfinite(float(loss.total)):
            raise UserError(
                f"task '{name}': after one step at train.lr.peak {config.train.lr.peak:g} its loss is not finite; "
                "a lower rate usually helps"
            )
        if not math.isclose(float(loss.total), float(loss_of_all.total), rel_tol=_TOLERANCE):
            raise UserError(
                f"task '{name}': its loss uses tokens that its `reads` leaves out, whose vectors are zero; have "
                "`reads` return all tokens that the loss uses, or None for all there are"
            )
        mean = float(F.cross_entropy(loss.logits, paddle.to_tensor(loss.labels)))
    if loss.count > 1 and mean and math.isclose(float(loss.total), mean, rel_tol=_TOLERANCE):
        raise UserError(
            f"task '{name}': the total of its loss is the mean over its targets; expected the sum, which the run "
            'divides by their number (reduction="sum")'
        )
    with precision("fp32"):
        model.loss(name, batch).total.backward()
    reached = any(weight.grad is not None and bool((weight.grad != 0).any()) for weight in model.ernie.parameters())
    model.clear_gradients()
    if not reached:
        yield "note: no gradient of its loss reaches the encoder: it trains its head only (is there a `detach()`?)"
