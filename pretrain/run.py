"""A run: its training, and all that it writes while it trains."""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import paddle

from ernie.atomic import check_room, disk_guard, partial_folder, put
from ernie.data.batch import Packed
from ernie.data.shards import Corpus
from ernie.data.stream import merged_states
from ernie.errors import NotFinite, Remark, TrainingFailed
from ernie.formatting import plural
from ernie.metrics import Score
from ernie.model.save import snapshot
from ernie.model.weights import arrays, save_arrays
from ernie.parallel.collectives import all_gather, all_reduce, on_rank0
from ernie.parallel.layout import REPLICAS
from ernie.parallel.mesh import Mesh
from ernie.text.tokenizer import Tokenizer
from ernie.train.averages import holding
from ernie.train.checkpoint import (
    Background,
    Checkpoints,
    TrainerState,
    write_state,
)
from ernie.train.log import Log
from ernie.train.run_folder import CHECKPOINTS, MODEL
from ernie.train.trainer import StepReport, TrainingStopped
from pretrain.config import PretrainConfig
from pretrain.model import MultiTaskModel
from pretrain.planner.score import Meter
from pretrain.probe import Probe
from pretrain.schedule import Slot
from pretrain.training import HEADS, Training

T = TypeVar("T")


class Run(Training):
    """A pretraining run that writes its folder: its log, its measurements, its checkpoints and its model.

    `save` writes everything that a checkpoint holds.  `full_model` is the full model, on rank 0 only.
    """

    def __init__(
        self,
        config: PretrainConfig,
        folder: Path,
        corpus: Corpus,
        log: Log,
        *,
        checkpoint: Path | None = None,
        mesh: Mesh | None = None,
    ):
        super().__init__(config, corpus, checkpoint=checkpoint, mesh=mesh)
        self.folder = folder
        self.full_model: MultiTaskModel | None = self.model if self.mesh.is_first else None
        if self.mesh.splits_model:
            on_rank0(self.mesh, "building the full model", partial(self._build_full, corpus.tokenizer, checkpoint))
        self._probe: Probe | None = None
        on_rank0(self.mesh, "making held-out batches", partial(self._hold_out, corpus))
        self.checkpoints = Checkpoints(folder / CHECKPOINTS, config.save.keep_last, config.save.keep_best)
        self._saving = Background()
        self._measured: tuple[int, float | None] | None = None  # step and overall score of the last measurement
        self.log = log
        self._meter = Meter()
        if self.step < len(self.schedule):
            on_rank0(self.mesh, "opening the run", self._check_room)

    def log_step(
        self,
        step: int,
        slot: Slot,
        batches: Sequence[tuple[str, Packed | None]],
        report: StepReport,
        *,
        waited: float,
        took: float,
    ) -> None:
        """Log a completed step.  A collective call if other processes made some of the batches."""
        self._meter.step(took)
        own = [batch for _, batch in batches if batch is not None]
        names = list(dict.fromkeys(slot.draws))
        totals: list[float] = [sum(batch.layout.tokens for batch in own), sum(batch.padding for batch in own)]
        totals += [self.streams[name].checksum for name in names]
        if len(own) < len(batches):
            totals = all_reduce(self.mesh, totals, REPLICAS)
        tokens, padding = int(totals[0]), totals[1] / len(batches)
        samples = {name: sample_hash(int(checksum)) for name, checksum in zip(names, totals[2:], strict=True)}
        self.log.record(
            "step",
            step,
            stage=slot.stage,
            loss=report.losses,
            rate=self.lr(step),
            gradient_norm=report.gradient_norm if math.isfinite(report.gradient_norm) else None,
            skipped=self.skipped,
            tokens=tokens,
            padding=round(padding, 4),
            seconds=round(took, 5),
            waited=round(waited, 5),
            samples=samples,
        )
        losses = " ".join(f"{name} {value:.3f}" for name, value in report.losses.items())
        shown = {
            "stage": f"{slot.stage + 1}/{len(self.schedule.table)}",
            "loss": losses,
            "tokens/s": f"{tokens / took:,.0f}",
            "padding": f"{padding:.0%}",
            "waiting": f"{waited / took:.1%}",
        }
        if self.skipped:
            shown["skipped"] = str(self.skipped)
        self.log.progress(step, **shown)

    def probe(self, stage: int, *, ends_stage: bool) -> None:
        """Measure every task that has had a step so far on held-out documents, and log the scores."""
        self._gather()
        with holding(self.full_model, self.trainer.averages()):
            on_rank0(self.mesh, "measuring", self._finite(lambda: self._measure(stage, ends_stage)))

    def _measure(self, stage: int, ends_stage: bool) -> None:
        assert self._probe is not None and self.full_model is not None
        arrived = list(dict.fromkeys(task for table in self.schedule.table[: stage + 1] for task in table))
        headlines: list[Score] = []
        for name in arrived:
            scores = self._probe.measure(self.full_model, name)
            headline = next(iter(scores.values()))
            headlines.append(headline)
            self.log.record(
                "probe",
                self.step - 1,
                stage=stage,
                ends_stage=ends_stage,
                task=name,
                scores={metric: found.as_dict(draws=ends_stage) for metric, found in scores.items()},
            )
            self.log.say(
                f"step {self.step}  held-out {name}: {headline.name} {headline.value:.3f} "
                f"({headline.low:.3f} to {headline.high:.3f}; majority {headline.majority:.3f})"
            )
        self._measured = self.step, overall(headlines)

    def save(self, wait: bool = True) -> None:
        """Write a checkpoint of the current state, with a score if this very state was measured.

        From a GPU the state is copied, and the copy is written while training goes on, unless the caller wants to
        `wait`.  A failure is then raised by the next `save` or `check_saved`.
        """
        score = self._measured[1] if self._measured and self._measured[0] == self.step else None
        on_rank0(self.mesh, "saving", self._saving.wait)  # before the copy, which would be a second one in memory
        self._gather()
        trainer, streams = self.trainer.state(), self._stream_states()

        def begin() -> None:
            write = self._snapshot(trainer, streams)
            act = self._finite(partial(self.checkpoints.save, self.step, write, score))
            if wait or paddle.get_device() == "cpu":  # whose cores training needs
                act()
            else:
                self._saving.start(act)

        on_rank0(self.mesh, "saving", begin)

    def check_saved(self) -> None:
        """Raise what has kept a checkpoint from being written in the meantime."""
        self._saving.check()

    def _stream_states(self) -> dict[str, Any]:
        """Return the state of every task's stream.  A collective call if other processes make some of their data
        shards.
        """
        own = {name: stream.state() for name, stream in self.streams.items()}
        if self.config.data.data_shards == 1:
            return own
        states = all_gather(self.mesh, own)
        return {name: merged_states([state[name] for state in states]) for name in own}

    def _build_full(self, tokenizer: Tokenizer, checkpoint: Path | None) -> None:
        self.full_model = self._build(tokenizer, checkpoint)

    def _hold_out(self, corpus: Corpus) -> None:
        self._probe = Probe(self.config, corpus)

    def _check_room(self) -> None:
        """Raise UserError if a checkpoint, its weights and their two moments, has no room: training would be lost."""
        assert self.full_model is not None
        size = sum(4 * weight.size for weight in self.full_model.parameters())
        check_room(self.folder, 3 * size, 2 * size, "a checkpoint")

    def _gather(self) -> None:
        """Collect the weights of all processes in `full_model`; every process has to call this."""
        self._meter.pause()
        self.trainer.gather_weights(self.full_model)

    def finish(self) -> Path:
        """Write the encoder to `model/` in the run's folder, for `ErnieModel.from_pretrained`.

        With `train.ema` it is that of the averages.
        """
        self._gather()
        self._check_skipped()
        with holding(self.full_model, self.trainer.averages()):
            return on_rank0(self.mesh, "saving", self._finite(self._finish))

    def check_finite(self) -> None:
        """Raise TrainingStopped if the last steps of the run were not finite."""
        bad = self.trainer.bad_steps
        if bad:
            steps = "step" if bad == 1 else f"{bad} steps"
            raise TrainingStopped(f"the loss or gradient of the last {steps} was not finite. {self._kept()}")

    def _check_skipped(self) -> None:
        """Raise TrainingStopped if most steps of the run were skipped."""
        if 2 * self.failed > self.step:
            raise TrainingStopped(
                f"{self.failed:,} of {plural(self.step, 'step')} were skipped, because their loss or gradient was not "
                "finite: no model was written."
            )

    def _finite(self, act: Callable[[], T]) -> Callable[[], T]:
        """Have an action raise TrainingFailed when weights or outputs are not finite."""
        step = self.step

        def guarded() -> T:
            try:
                return act()
            except NotFinite as error:
                raise TrainingFailed(
                    f"after step {step:,}: {error}. {self._kept()} A lower peak rate (train.lr.peak) or a "
                    "longer warm-up usually helps."
                ) from None

        return guarded

    def _kept(self) -> str:
        """Say what remains of a run that failed."""
        latest = self.checkpoints.latest()
        return "There is no checkpoint yet." if latest is None else f"The last checkpoint before it is {latest}."

    def _finish(self) -> Path:
        assert self.full_model is not None
        final = self.folder / MODEL
        unfinished = partial_folder(final)
        with disk_guard(final, "the model was not written; the checkpoints are untouched"):
            try:
                self.full_model.ernie.save_pretrained(unfinished)
                put(unfinished, final)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
        return final

    def score(self) -> None:
        """Log the measured step times beside the planner's prediction; every process has to call this."""
        score = self._meter.score(self.config, self.model.ernie.config, self.mesh)
        if score is not None:
            self.log.record("layout", self.step - 1, layout=self.mesh.layout.described(), **score.as_dict())
            self.log.say(str(score))

    def close(self) -> None:
        """Stop the workers, and end the checkpoint that is being written."""
        super().close()
        try:
            self._saving.wait()
        except Exception as error:  # of a run that ends for another reason
            warnings.warn(f"a checkpoint was not written: {error}", Remark, 2)

    def _snapshot(self, trainer: TrainerState, streams: dict[str, Any]) -> Callable[[Path], None]:
        """Copy the state of the run; return a function that writes it to the folder of a checkpoint."""
        assert self.full_model is not None
        write_model, heads = snapshot(self.full_model.ernie), arrays(self.full_model.heads)
        numbers = {"step": self.step, "skipped": self.skipped, "failed": self.failed}
        progress = {**numbers, "streams": streams, "task_ids": self.model.task_ids}

        def write(folder: Path) -> None:
            write_model(folder / MODEL)
            save_arrays(heads, folder / HEADS)
            write_state(folder, trainer, progress)

        return write


def sample_hash(checksum: int) -> str:
    """Return how a step's record names all samples of a task up to it, given their `Stream.checksum`."""
    return f"{checksum % 2**32:08x}"


def overall(headlines: Sequence[Score]) -> float | None:
    """Return the score by which the best checkpoint is chosen: the sum of normalized_score over a run's tasks.

    A task that has not arrived counts as 0, so that neither the first stages, which measure the fewest tasks, look
    best, nor checkpoints from before the schedule was extended.  None if a score is not finite.
    """
    total = sum(score.normalized_score for score in headlines)
    return total if math.isfinite(total) else None
