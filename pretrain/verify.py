"""The resume certificate: what a run consumed, compared with what its seed prescribes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tqdm import tqdm

from ernie.data.stream import Stream
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.train.checkpoint import Checkpoints, check
from ernie.train.run_folder import CHECKPOINTS, CONFIG
from pretrain import folder as run_folder
from pretrain.feeds import open_streams
from pretrain.history import read_checked
from pretrain.run import sample_hash
from pretrain.schedule import Schedule
from pretrain.training import read_state

_SHOWN = 10  # differences, at most: one early in a run causes one at every later step
# Keys that order samples.
_OF_SAMPLES = ("data.micro_batch_tokens", "data.max_len", "data.shuffle_buffer_tokens", "data.fraction", "seed")


@dataclass
class Certificate:
    """What was compared, and every difference found."""

    steps: int = 0
    checkpoints: int = 0
    consumed: dict[str, str] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.differences

    def text(self) -> str:
        """Return the certificate as text for people."""
        lines = [f"{name}: {what}" for name, what in self.consumed.items()]
        if self.holds:
            verdict = (
                f"verified: {plural(self.steps, 'step')} and {plural(self.checkpoints, 'checkpoint')} agree with the "
                "seed; no sample was repeated within an epoch, none missed"
            )
            return "\n".join([*lines, verdict])
        shown = self.differences[:_SHOWN]
        more = ", of which these are the first" if len(shown) < len(self.differences) else ""
        return "\n".join(
            [*lines, *shown, *self.notes, f"NOT verified: {plural(len(self.differences), 'difference')}{more}"]
        )


def verify(folder: Path, quiet: bool = False, corpus_folder: Path | None = None) -> Certificate:
    """Recompute the run's order of samples and compare.

    `corpus_folder` is where the corpus lies now, if it was moved since.  Raises UserError if the folder is not a run's,
    or its corpus is damaged: samples are compared by name, not by content.
    """
    config, corpus = run_folder.read(folder, corpus_folder)
    corpus.verify()
    certificate = Certificate()
    saved = _saved_positions(certificate, folder)  # first: a run that goes on meanwhile logs a step, then saves it
    steps = {record["step"]: record for record in read_checked(folder, "step")}
    end = max([0, *(step + 1 for step in steps), *saved])
    schedule = Schedule(config.schedule, config.train.micro_batches)
    if end > len(schedule):
        certificate.differences.append(
            f"step {len(schedule):,}: the schedule in {CONFIG} ends here, but the run has come to step {end:,}"
        )
    feed, streams = open_streams(config, corpus)
    consumed = {name: ConsumedSamples() for name in streams}
    starts = {name: stream.state() for name, stream in streams.items()}
    try:
        for step in tqdm(range(min(end, len(schedule))), unit="step", disable=quiet or None):
            draws = schedule[step].draws
            for name in draws:
                batch = next(streams[name])
                assert batch is not None, "a process by itself makes all data shards"
                consumed[name].add(batch.samples)
            _compare_step(certificate, step, steps.get(step), {name: streams[name] for name in draws})
            if step + 1 in saved:
                # A task added to the schedule after the checkpoint is at its beginning.
                _compare_checkpoint(certificate, step + 1, {**starts, **saved[step + 1]}, streams)
    finally:
        feed.close()
    certificate.steps = end
    for name, samples in consumed.items():
        certificate.consumed[name] = samples.summary(streams[name])
        certificate.differences += [f"{name}: {problem}" for problem in samples.problems(streams[name])]
    resumed = run_folder.read_origin(folder).get("resumed", [])
    if any(key.split(".")[0] == "schedule" for resume in resumed for key in resume["changed"]):
        certificate.notes.append(
            "note: the run was resumed with another schedule; if its finished stages were changed, the steps of those "
            "stages differ from what it says now"
        )
    drawn = sorted({key for resume in resumed for key in resume["changed"] if key in _OF_SAMPLES})
    if drawn:
        certificate.notes.append(
            f"note: the run was resumed with other values of {', '.join(drawn)}: samples are drawn in another order "
            "since, and the steps before differ from what the configuration says now"
        )
    return certificate


class ConsumedSamples:
    """The names of all samples that a task consumed."""

    def __init__(self) -> None:
        self._names: list[np.ndarray] = []

    def add(self, names: np.ndarray) -> None:
        """Add the names (N, 3) of samples that a step consumed."""
        self._names.append(names)

    def problems(self, stream: Stream) -> list[str]:
        """Return what is wrong with them as sentences: samples consumed twice, and samples missed in a whole epoch."""
        if not self._names:
            return []
        names = np.concatenate(self._names)
        problems = []
        for epoch in range(max(stream.epoch, int(names[:, 0].max())) + 1):
            in_epoch = names[names[:, 0] == epoch]
            repeated = len(in_epoch) - len(np.unique(in_epoch, axis=0))
            if repeated:
                problems.append(f"epoch {epoch}: {plural(repeated, 'sample')} consumed twice")
            if epoch < stream.epoch:
                total = sum(1 for _ in stream.source.named_samples(epoch, 0, len(stream.source.items)))
                if len(in_epoch) != total:
                    problems.append(f"epoch {epoch}: {total - len(in_epoch):,} of {plural(total, 'sample')} missed")
        return problems

    def summary(self, stream: Stream) -> str:
        """Return how many samples were consumed, in how many epochs."""
        samples = sum(map(len, self._names))
        return (
            f"{stream.drawn:,} batches, {samples:,} samples, epoch {stream.epoch}, hash {sample_hash(stream.checksum)}"
        )


def _saved_positions(certificate: Certificate, folder: Path) -> dict[int, dict]:
    """Return the stream positions in each checkpoint that matches its checksums; others are differences."""
    checkpoints = Checkpoints(folder / CHECKPOINTS)
    positions = {}
    for step in checkpoints.steps():
        try:
            check(checkpoints.path(step))
            positions[step] = read_state(checkpoints.path(step))["streams"]
        except UserError as error:
            if not checkpoints.path(step).exists():
                continue  # a run that goes on has removed it meanwhile
            certificate.differences.append(f"checkpoint of step {step:,}: {error}")
    certificate.checkpoints = len(positions)
    return positions


def _compare_step(certificate: Certificate, step: int, record: dict | None, streams: dict[str, Stream]) -> None:
    if record is None:
        certificate.differences.append(f"step {step + 1:,}: there is no record of it in metrics.jsonl")
        return
    expected = {name: sample_hash(stream.checksum) for name, stream in streams.items()}
    if record.get("samples") != expected:
        found = record.get("samples")
        certificate.differences.append(f"step {step + 1:,}: the samples' hash is {found}, expected {expected}")


def _compare_checkpoint(
    certificate: Certificate, step: int, saved: dict[str, dict], streams: dict[str, Stream]
) -> None:
    for name, stream in streams.items():
        if saved[name] != stream.state():
            certificate.differences.append(
                f"checkpoint of step {step:,}: {name} is at {saved[name]}, expected {stream.state()}"
            )
