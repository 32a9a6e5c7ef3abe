"""The schema of a fine-tuning run: its YAML file has these keys and no others."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import tasks.downstream  # noqa: F401 - registers the task kinds
from ernie.config import Value, build, build_fields, check_least, check_most, check_seed, from_dict, read, to_dict
from ernie.data.labeled.row import RowOptions
from ernie.data.remote import is_address
from ernie.errors import Remark, UserError, about, nearest
from ernie.formatting import plural
from ernie.parallel.layout import ParallelConfig
from ernie.registry import import_asked, import_plugins
from ernie.renames import formerly
from ernie.train.adam_config import AdamConfig
from ernie.train.adapter_config import AdapterConfig
from ernie.train.adversarial_config import AdversarialConfig
from ernie.train.config import UpdateConfig
from ernie.train.lr_schedule import LRScheduleConfig
from finetune.search_space import TuneConfig
from tasks.downstream.base import FinetuneTask, LogitsTask
from tasks.downstream.calibration import Calibrated
from tasks.downstream.hooks import ComparesRows, EncoderConditions, LossOfVectors, PartialTraining, ReadsSounds
from tasks.downstream.saved import completed
from tasks.downstream.transcribe import Transcribe

FROZEN = ("none", "embeddings", "encoder")  # or a number of layers
SPLITS = ("train", "unlabeled", "dev", "test")
# Of a cross-validation: the rows that one model did not see, and those of all its models together.
HELD_OUT, OUT_OF_FOLD = "held_out", "out_of_fold"
_MOST_TRIALS = 100_000
Sources = str | tuple[str, ...]


@dataclass(frozen=True)
class DataConfig(RowOptions):
    """The sources of each split's rows, one or a list (see docs/howto/finetuning/data.md), and how they are read.

    `unlabeled` are training rows without labels, of which only a teacher's predictions are learned (see TeacherConfig).
    `more` maps names to further splits that are scored at the end of the run, such as another domain's.  `per_split`
    holds the row options of splits whose files are read differently; such a block inherits nothing from the shared
    options.
    """

    train: Sources = ()
    unlabeled: Sources = ()
    dev: Sources = ()
    test: Sources = ()
    more: dict[str, Sources] = field(default_factory=dict)
    per_split: dict[str, RowOptions] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        taken = sorted(set(self.more).intersection(SPLITS))
        if taken:
            raise UserError(f"more: '{taken[0]}' has a key of its own")
        names = (*SPLITS, *self.more)
        for name in self.per_split:
            if name not in names:
                raise UserError(f"per_split.{name}: there is no split of that name.{nearest(name, names)}")

    def keeping_empty(self, columns: Sequence[str]) -> DataConfig:
        per_split = {name: options.keeping_empty(columns) for name, options in self.per_split.items()}
        return replace(self, skip=super().keeping_empty(columns).skip, per_split=per_split)

    def options(self, split: str) -> RowOptions:
        """Return the row options for the files of a split."""
        return self.per_split.get(split, self)

    def splits(self) -> dict[str, tuple[str, ...]]:
        """Return the sources of every split that has any."""
        named = {**{name: getattr(self, name) for name in SPLITS}, **self.more}
        listed = {name: (given,) if isinstance(given, str) else tuple(given) for name, given in named.items()}
        return {name: sources for name, sources in listed.items() if sources}

    def sources(self, split: str) -> tuple[str, ...]:
        """Return the sources of a split.  Raises UserError when the data has no split of that name."""
        splits = self.splits()
        if split not in splits:
            raise UserError(f"the run's data has no split '{split}'.{nearest(split, splits)}")
        return splits[split]

    def under(self, folder: Path) -> DataConfig:
        """Return a copy whose files are looked up in a folder."""
        resolved = {
            name: tuple(_resolve(source, folder) for source in sources) for name, sources in self.splits().items()
        }
        return self.with_splits(resolved)

    def with_splits(self, sources: dict[str, tuple[str, ...]]) -> DataConfig:
        """Return a copy with exactly these splits."""
        named: dict[str, Any] = {name: sources.get(name, ()) for name in SPLITS}
        more: dict[str, Sources] = {name: found for name, found in sources.items() if name not in SPLITS}
        kept = {name: options for name, options in self.per_split.items() if name in sources}
        return replace(self, more=more, per_split=kept, **named)


@dataclass(frozen=True)
class TrainConfig(UpdateConfig):
    """The training schedule and the updates (see UpdateConfig) of one fine-tuning.

    With `shortest_first` the first epoch runs from the shortest rows to the longest (SortaGrad: Amodei et al., 2016,
    arXiv 1512.02595, section 3.3); all other epochs are shuffled.  A step takes `batch` rows or, if `batch_tokens` is
    set, as many rows as have that many tokens.  At most `micro_batch_tokens` of them are computed at a time (gradient
    accumulation), which bounds memory.  It changes nothing else, except for which values dropout drops, for the batch
    statistics of recurrent speech layers, and for the rows that `embed` compares with each other.  Each layer's
    learning rate is `layer_decay` times that of the layer above it: the embeddings have the lowest rate, the head the
    full rate.  The dev split is scored `evaluations` times per epoch (0: only at the end of training); training stops
    after `early_stopping_patience` evaluations without a better score (0: never).  `task_id` selects the task
    embedding: any of the pretrained ones will do (ERNIE 2.0, section 3.3).

    `freeze` keeps the lowest parts of the encoder as they are: `embeddings`, or these and so many layers (a number), or
    the whole `encoder` but for its pooler.  `adversarial` adds a
    pass in which the embeddings of words are moved to where the loss is larger.  `r_drop` is the weight of how much two
    passes under different dropout differ (Liang et al., 2021, arXiv 2106.14448).  With `adapt` low-rank updates are
    trained in place of the encoder (see AdapterConfig), beside its pooler and the head.  With `grad_cache` a kind that
    compares the rows of a batch compares all rows of a step, also where they have more than `micro_batch_tokens`.  That
    takes a second forward pass (Gao et al., 2021, arXiv 2101.06983).
    """

    lr: LRScheduleConfig = field(default_factory=lambda: LRScheduleConfig(peak=5e-5), metadata=formerly("rate"))
    adam: AdamConfig = field(default_factory=lambda: AdamConfig(beta2=0.999))
    epochs: int = 3
    shortest_first: bool = False
    batch: int = 32
    batch_tokens: int = 0
    micro_batch_tokens: int = field(default=8192, metadata=formerly("micro_tokens"))
    layer_decay: float = 1.0
    dropout: float | None = None
    evaluations: int = 1
    early_stopping_patience: int = field(default=0, metadata=formerly("patience"))
    task_id: int = 0
    freeze: str | int = "none"
    adversarial: AdversarialConfig = field(default_factory=AdversarialConfig)
    r_drop: float = 0.0
    adapt: AdapterConfig | None = None
    grad_cache: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, epochs=1, batch=1, micro_batch_tokens=8, evaluations=0)
        check_most(self, epochs=1_000_000, evaluations=1_000_000)
        check_least(self, batch_tokens=0, early_stopping_patience=0, task_id=0, r_drop=0)
        if not 0 < self.layer_decay <= 1:
            raise UserError(f"layer_decay: expected a factor above 0 and at most 1, found {self.layer_decay}")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise UserError(f"dropout: expected a probability from 0 to below 1, found {self.dropout}")
        if self.r_drop and self.dropout == 0:
            raise UserError("r_drop: compares passes that differ by dropout, and dropout is 0")
        is_number = isinstance(self.freeze, int) and not isinstance(self.freeze, bool)
        if not (is_number and int(self.freeze) >= 0) and self.freeze not in FROZEN:
            raise UserError(f"freeze: expected {', '.join(FROZEN)}, or a number of layers, found {self.freeze!r}")
        if self.adversarial.epsilon and self.freeze != "none":
            raise UserError(
                "adversarial: moves the embeddings of words, which freeze keeps as they are; drop one of them"
            )
        if self.adapt is not None and self.freeze != "none":
            raise UserError("adapt: keeps all of the encoder as it is but for small updates; leave freeze out")
        if self.adapt is not None and self.adversarial.epsilon:
            raise UserError(
                "adversarial: moves the embeddings of words, which adapt keeps as they are; drop one of them"
            )


@dataclass(frozen=True)
class GridConfig:
    """Peak learning rates, batch sizes (in rows) and epoch counts to combine in a grid (default: those of `train`)."""

    peak: tuple[float, ...] = ()
    batch: tuple[int, ...] = ()
    epochs: tuple[int, ...] = ()


@dataclass(frozen=True)
class SubmissionConfig:
    """The files that a leaderboard expects, {split: file}, and its names for the labels, {label: name}.

    Files are names in the folder that `ernie predict --submission` names.
    """

    files: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for split, name in self.files.items():
            if name in ("", ".", "..") or set(name) & set("/\\\0"):
                raise UserError(f"files.{split}: expected the name of a file without a folder, found '{name}'")


@dataclass(frozen=True)
class HiddenConfig:
    """How the vectors of a student's layers learn from a teacher's: the weight of their squared difference.

    `layers` names a layer of the teacher for each of the student's, counted from 1. By default they are spread evenly,
    the last one included (TinyBERT: Jiao et al., 2020, arXiv 1909.10351, section 3.1).
    """

    weight: float = 1.0
    layers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_above_zero(self.weight)

    def chosen(self, student: int, teacher: int) -> tuple[int, ...]:
        """Return the layer of a teacher for each of a student's, given how many both have.

        Raises UserError if there are not so many.
        """
        if not self.layers and teacher % student:
            raise UserError(
                f"teacher.hidden.layers: the teacher's {plural(teacher, 'layer')} cannot be spread evenly over the "
                f"student's {student}; name one for each of them"
            )
        layers = self.layers or tuple(range(teacher // student, teacher + 1, teacher // student))
        if len(layers) != student:
            raise UserError(
                f"teacher.hidden.layers: expected a layer of the teacher for each of the student's {student}, found "
                f"{len(layers)}"
            )
        check_layers(layers, teacher, "teacher.hidden.layers", "the teacher")
        return layers


@dataclass(frozen=True)
class RelationsConfig:
    """How the relations among tokens in a student's last layer learn from a teacher's: the weight of their divergence.

    Relations are those of queries, of keys and of values to each other, in `heads` relation heads (default: the
    teacher's attention heads).  `layer` is the teacher's, counted from 1 (default: the last).  MiniLMv2: Wang et al.,
    2021, arXiv 2012.15828, section 3.
    """

    weight: float = 1.0
    layer: int | None = None
    heads: int | None = None

    def __post_init__(self) -> None:
        check_above_zero(self.weight)

    def chosen_layer(self, teacher: int) -> int:
        """Return the layer of a teacher that has so many.  Raises UserError if there is no such layer."""
        layer = teacher if self.layer is None else self.layer
        check_layers([layer], teacher, "teacher.relations.layer", "the teacher")
        return layer

    def chosen_heads(self, teacher_heads: int, student: int, teacher: int) -> int:
        """Return the number of relation heads for two widths.  Raises UserError if it does not divide both."""
        heads = teacher_heads if self.heads is None else self.heads
        if heads < 1 or student % heads or teacher % heads:
            common = ", ".join(str(n) for n in range(1, student + 1) if student % n == teacher % n == 0)
            raise UserError(
                f"teacher.relations.heads: expected a divisor of both widths, the student's {student} and the "
                f"teacher's {teacher}, found {heads}; give one of {common}"
            )
        return heads


@dataclass(frozen=True)
class TeacherConfig:
    """A finished run, or a published model of the same kind, from which the model of this run, its student, learns.

    The loss is 1 - `weight` times that of the labels, and `weight` times how much the student's predictions differ from
    those of the teacher `model`.  Of classes that is the divergence of both softened by `temperature`, times its square
    (Hinton et al., 2015, arXiv 1503.02531, section 2).  `hidden` and `relations` add losses that compare layers.  With
    `weight: 0` the teacher may be a bare encoder.
    """

    model: str
    weight: float = 0.9
    temperature: float = 2.0
    hidden: HiddenConfig | None = None
    relations: RelationsConfig | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise UserError(f"weight: expected a number from 0 to 1, found {self.weight:g}")
        if not 0 < self.temperature < math.inf:
            raise UserError(f"temperature: expected more than 0, found {self.temperature:g}")
        if not self.weight and not self.compares_layers:
            raise UserError("weight: is 0, so that nothing is learned from the teacher; give hidden or relations")

    @property
    def compares_layers(self) -> bool:
        """Whether the student learns from layers of the teacher."""
        return self.hidden is not None or self.relations is not None

    @property
    def summary(self) -> str:
        """The settings in words, without the model."""
        parts = [f"weight {self.weight:g}, temperature {self.temperature:g}"] if self.weight else []
        parts += [f"hidden states, weight {self.hidden.weight:g}"] if self.hidden else []
        parts += [f"relations of tokens, weight {self.relations.weight:g}"] if self.relations else []
        return "; ".join(parts)


@dataclass(frozen=True)
class FinetuneConfig:
    """One downstream task: its kind, data, encoder and training settings.

    `model` is the folder of an encoder or of a run, or the name of a published encoder.  Its head is a new one, or with
    `head: keep` that of the run `model`, of the same kind, from which training goes on.  `layers` keeps some of the
    encoder's layers and drops the others: their numbers, from 1, or how many.  With a number they are spread evenly
    from the first to the last (DistilBERT: Sanh et al., 2019, arXiv 1910.01108, section 2).  `teacher` is a model that
    this one learns from.  `local` describes the same
    data as files in a folder and replaces `data` when `--data DIR` names that folder.  With `seeds` above 1 everything
    is repeated with consecutive seeds that start at `seed`.  With `folds` above 1 the rows of train are split into as
    many folds, anew for each seed.  Each fold is trained on the others and scored on itself; rows with the same cell in
    the column `fold_by` are in one fold.  Of all these models the best one is kept, or with `keep: ensemble` those of
    all seeds and folds at the best point of the grid, which answer together.  `calibrate` lists what is fitted for what
    is kept, after training, on dev or, without dev, on the rows that folds hold out: the `temperature` of its
    probabilities, a `threshold`, or both.

    A trial is saved every `save_minutes` (0: never) and when it is stopped; the same command then resumes it.  For
    kinds that learn from sounds so many `workers` of each training process read them, change them and compute their
    features, some steps ahead.  With 0 it does so itself, within the steps.  The result is the same.  `tune` names
    settings that `ernie tune` searches.  `published` holds scores to show beside ours, times 100 as papers print them:
    {model: {split: {metric: score}}}.  `tensorboard`, `mlflow` and `wandb` say which trackers get the numbers of each
    trial.
    """

    task: FinetuneTask
    data: DataConfig = field(default_factory=DataConfig)
    local: DataConfig | None = None
    model: str = ""
    head: Literal["new", "keep"] = "new"
    layers: int | tuple[int, ...] | None = None
    teacher: TeacherConfig | None = None
    train: TrainConfig = field(default_factory=TrainConfig)
    grid: GridConfig = field(default_factory=GridConfig)
    tune: TuneConfig | None = None
    seed: int = 0
    seeds: int = 1
    folds: int = 1
    fold_by: str = ""
    keep: Literal["best", "ensemble"] = "best"
    calibrate: tuple[Literal["temperature", "threshold"], ...] = ()
    save_minutes: float = 10.0
    output: Path | None = None
    submission: SubmissionConfig = field(default_factory=SubmissionConfig)
    published: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    workers: int = 0
    tensorboard: bool = False
    mlflow: bool = False
    wandb: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.task, EncoderConditions):
            with about("parallel"):
                self.task.check_layout(self.parallel)
        if self.train.r_drop and not isinstance(self.task, LogitsTask):
            raise UserError(f"train.r_drop: a model of the kind {self.task.variant_name} has no logits to compare")
        if isinstance(self.task, ComparesRows) and self.task.compares_passes and self.train.dropout == 0:
            raise UserError("task.simcse: compares passes that differ by dropout, and train.dropout is 0")
        if self.train.freeze == "encoder" and self.task.face == "encode":
            raise UserError(
                f"train.freeze: encoder leaves nothing to train: a model of the kind {self.task.variant_name} has no "
                "head beside it; freeze some of its layers"
            )
        degrees = [name for name in ("tensor", "pipeline", "sharding") if getattr(self.parallel, name) > 1]
        if self.train.adversarial.epsilon and degrees:
            raise UserError(
                f"train.adversarial: moves the embeddings of words, which parallel.{degrees[0]} spreads over "
                "processes; parallel.data can be used"
            )
        compares = isinstance(self.task, ComparesRows) and self.task.compares_rows
        if self.train.grad_cache and not (compares and isinstance(self.task, LossOfVectors)):
            raise UserError(
                "train.grad_cache: has no effect on a loss that compares no vectors of different rows; leave it out"
            )
        if self.train.grad_cache and degrees:
            raise UserError(
                f"train.grad_cache: needs all of the model in one process, and parallel.{degrees[0]} spreads it over "
                "several; parallel.data can be used"
            )
        if self.train.adapt is not None:
            self._check_adapted(degrees)
        self._check_taught(degrees)
        if self.save_minutes < 0:
            raise UserError(f"save_minutes: expected at least 0, found {self.save_minutes:g}")
        check_least(self, workers=0)
        check_most(self, workers=10_000)
        if self.workers and not isinstance(self.task, ReadsSounds):
            raise UserError(
                f"workers: a model of the kind {self.task.variant_name} learns from no sounds, which they would read; "
                "leave it out"
            )
        if self.seeds < 1:
            raise UserError(f"seeds: expected at least 1, found {self.seeds}")
        self._check_folds()
        if self.keep == "ensemble" and not isinstance(self.task, LogitsTask):
            why = "has no logits, of which an ensemble is made"
            if self.task.face == "encode":
                why = "makes vectors, and those of different models have no mean: each has directions of its own"
            raise UserError(f"keep: a model of the kind {self.task.variant_name} {why}; use keep: best")
        self._check_calibrated()
        check_seed(self.seed + self.seeds - 1)
        check_seed(self.seed)
        points = math.prod(len(values) or 1 for values in (self.grid.peak, self.grid.batch, self.grid.epochs))
        if (count := points * self.seeds * self.folds) > _MOST_TRIALS:
            folds = f" and of {self.folds:,} folds" if self.folds > 1 else ""
            raise UserError(
                f"seeds: {self.seeds:,} for each of {plural(points, 'point')} of the grid{folds} are {count:,} "
                f"fine-tunings; expected at most {_MOST_TRIALS:,}"
            )
        with about("grid"):
            list(self.trials())
        if self.tune is not None and points > 1:
            raise UserError("tune: searches settings, as grid does; leave one of them out")
        for model, splits in self.published.items():
            for split, name in ((split, name) for split, scores in splits.items() for name in scores):
                if name not in self.task.known_metrics:
                    raise UserError(
                        f"published.{model}.{split}: {self.task.variant_name} has no metric '{name}'."
                        f"{nearest(name, self.task.known_metrics)}"
                    )

    def _check_folds(self) -> None:
        if self.folds < 1:
            raise UserError(f"folds: expected at least 2, or 1 for none, found {self.folds}")
        if self.folds == 1:
            return
        if self.task.answer_fields == ("audio",):
            raise UserError(
                f"folds: a model of the kind {self.task.variant_name} answers in sound, which is not kept for every "
                "row of train; name a dev split in place of folds"
            )
        if isinstance(self.task, ComparesRows) and self.task.compares_passes:
            raise UserError(
                "folds: task.simcse learns from single texts, which are no pairs to be scored on; name a dev split in "
                "place of folds"
            )
        for name in (HELD_OUT, OUT_OF_FOLD):
            if name in self.data.more:
                raise UserError(f"data.more: '{name}' is what rows of a cross-validation are called; choose another")

    def _check_calibrated(self) -> None:
        kind = self.task.variant_name
        if not self.calibrate:
            return
        if len(set(self.calibrate)) < len(self.calibrate):
            raise UserError("calibrate: a name is listed twice; each is fitted once")
        if not isinstance(self.task, Calibrated):
            raise UserError(f"calibrate: a model of the kind {kind} decides among no classes with probabilities")
        if "threshold" in self.calibrate and not self.task.threshold_metrics:
            raise UserError(f"calibrate: a model of the kind {kind} has no threshold; temperature can be fitted")
        if "dev" not in self.data.splits() and self.data.splits() and self.folds == 1:
            raise UserError(
                "calibrate: is fitted on dev, or on the rows that folds hold out, and there are neither; name data.dev "
                "or folds"
            )

    def check_is_no_search(self) -> None:
        """Raise UserError if the configuration is one for `ernie tune`."""
        if self.tune is not None:
            raise UserError(
                "tune: settings are searched by `ernie tune`; leave the block out here, or use the best.yaml of one"
            )

    def check_kept(self) -> None:
        """Raise UserError if an ensemble is asked for, and only one model is trained."""
        if self.keep == "ensemble" and self.seeds * self.folds == 1:
            raise UserError("keep: ensemble has no effect with one seed and no folds; say how many, as in seeds: 5")

    @property
    def needed(self) -> tuple[str, ...]:
        """The splits that the run needs; a cross-validation can do without dev."""
        return ("train",) if self.folds > 1 else ("train", "dev")

    @property
    def fold_numbers(self) -> tuple[int | None, ...]:
        """The number of each fold, or a single None without folds."""
        return tuple(range(1, self.folds + 1)) if self.folds > 1 else (None,)

    def _check_adapted(self, degrees: Sequence[str]) -> None:
        """Raise UserError if the encoder's layers are not trained, or are spread over processes by these degrees."""
        if degrees:
            raise UserError(
                f"train.adapt: needs the encoder's matrices whole, and parallel.{degrees[0]} spreads them over "
                "processes; parallel.data can be used"
            )
        if self.layers is not None:
            raise UserError(
                "train.adapt: is saved as an update of the encoder `model`, of which `layers` keeps only some; drop one"
            )
        if isinstance(self.task, PartialTraining) and self.task.freezes_encoder:
            raise UserError(f"train.adapt: {self.task.variant_name} leaves the encoder as it is with these settings")
        if isinstance(self.task, Transcribe) and self.task.recurrent is not None:
            raise UserError("train.adapt: changes the encoder's layers, which task.recurrent replaces; drop either")

    def _check_taught(self, degrees: Sequence[str]) -> None:
        """Raise UserError for what a student cannot learn, or where these degrees spread its layers over processes."""
        if self.teacher is None:
            if self.data.unlabeled:
                raise UserError(
                    "data.unlabeled: rows without labels are learned only from a teacher; name one by teacher.model"
                )
            return
        if not isinstance(self.task, LogitsTask):
            raise UserError(f"teacher: a model of the kind {self.task.variant_name} has no logits to learn from")
        if self.folds > 1:
            raise UserError(
                "folds: the teacher may have learned the rows that a fold holds out, so that scores on them would be "
                "too good; train without folds"
            )
        key = "hidden" if self.teacher.hidden is not None else "relations"
        if self.teacher.compares_layers and self.train.freeze == "encoder":
            raise UserError(
                f"teacher.{key}: teaches the encoder's layers, which train.freeze keeps as they are; drop one of them"
            )
        if self.teacher.compares_layers and degrees:
            raise UserError(
                f"teacher.{key}: needs the outputs of all layers, and parallel.{degrees[0]} spreads them over "
                "processes; parallel.data can be used"
            )

    def trials(self) -> Iterator[tuple[str, TrainConfig]]:
        """Yield each combination of the grid: a name made of its values, and the training settings."""
        axes = {item.name: getattr(self.grid, item.name) for item in fields(self.grid)}
        axes = {name: values for name, values in axes.items() if values}
        for values in product(*axes.values()):
            point = dict(zip(axes, values, strict=True))
            name = ",".join(f"{key}={value}" for key, value in point.items())
            lr = replace(self.train.lr, peak=point.pop("peak", self.train.lr.peak))
            yield name, replace(self.train, lr=lr, **point)


def check_above_zero(weight: float) -> None:
    """Raise UserError for the weight of a loss that is not above 0."""
    if not 0 < weight < math.inf:
        raise UserError(f"weight: expected more than 0, found {weight:g}")


def check_layers(layers: Sequence[int], there: int, key: str, whose: str) -> None:
    """Raise UserError for the number of a layer, counted from 1, that `whose` encoder of so many layers lacks."""
    for layer in layers:
        if not 1 <= layer <= there:
            raise UserError(f"{key}: expected layers from 1 to {there}, as many as {whose} has, found {layer}")


def load(path: Path, overrides: Sequence[str] = (), data: Path | None = None, *, saved: bool = False) -> FinetuneConfig:
    """Read a YAML file, with `--set` overrides; `data` is the folder in which the files of `local` are looked up.

    `path` may also be the name of a configuration that ships with the library, such as glue/sst2.  One that was `saved`
    by a run may have settings without effect, and its plug-ins are imported only if the user trusts them.

    Raises UserError that lists all mistakes in the file.
    """
    config = _built(read(path, overrides, part="finetune"), str(path), saved)
    return config if data is None else replace(config, data=(config.local or config.data).under(data))


def load_mapping(keys: Mapping[str, Any]) -> FinetuneConfig:
    """Read a configuration from a mapping with the keys of a file.  Raises UserError as `load` does."""
    return _built(from_dict(dict(keys), "the configuration"), "the configuration", saved=False)


def _built(tree: Value, path: str, saved: bool) -> FinetuneConfig:
    """Build the configuration that a file, or a mapping, called `path` says."""
    if tree.get("schedule") is not None and tree.get("task") is None:
        raise UserError(
            f"{path}: has a `schedule` and no `task`: it is a configuration for `ernie pretrain`, which checks it with "
            "--check"
        )
    if saved:
        import_asked(tree.get("plugins"), f"{path}: plugins")
    else:
        import_plugins(tree.get("plugins"))
    if saved and isinstance(task := tree.get("task"), dict):
        tree = Value({**tree.data, "task": from_dict(completed(task), path)}, tree.where)
    config = build(FinetuneConfig, _without_foreign_splits(tree), saved=saved)
    if not saved:
        _check_effects(config)
    if not saved and config.tune is not None:
        _check_search(config, config.tune, tree.data["tune"].data["search"])
    return config


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree of a configuration that has these values, by key, and no others."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        _set(tree, key, value)
    return tree


def build_tuned(config: FinetuneConfig, settings: Mapping[str, Any]) -> FinetuneConfig:
    """Return a configuration with other values, by key, and without a search.

    Raises UserError for keys that there are not, and for values that do not fit.
    """
    tree = to_dict(replace(config, tune=None))
    for key, value in settings.items():
        _set(tree, key, value)
    found = build(FinetuneConfig, from_dict(tree, "tune: search"))
    _check_effects(found)
    return found


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    *blocks, name = key.split(".")
    for block in blocks:
        if not isinstance(tree.get(block), dict):
            tree[block] = {}
        tree = tree[block]
    tree[name] = value


def _check_search(config: FinetuneConfig, tune: TuneConfig, search: Value) -> None:
    """Raise UserError for a search of keys that there are not, or of values that do not fit, which `search` holds."""
    for key, parameter in tune.parameters().items():
        with about(search.data[key].where):
            for value in parameter.probes():
                build_tuned(config, {key: value})


def _without_foreign_splits(tree: Value) -> Value:
    """Return a configuration without splits of an included file if `train` and `dev` are both of the including one.

    Those splits are of other data.  A Remark says so.
    """
    block = tree.data.get("data")
    if block is None or not isinstance(block.data, dict):
        return tree
    homes = {name: value.where.rpartition(":")[0] for name, value in block.data.items()}  # "" for --set
    own = {homes.get("train"), homes.get("dev")}
    foreign = [name for name in ("unlabeled", "test", "more") if homes.get(name) and not own & {None, "", homes[name]}]
    if not foreign:
        return tree
    left_out, file = " and ".join(f"data.{name}" for name in foreign), Path(homes[foreign[0]]).name
    warnings.warn(
        f"{left_out} of {file} is left out, as train and dev are other data; the file that names them can name it, too",
        Remark,
        stacklevel=3,
    )
    kept = {name: value for name, value in block.data.items() if name not in foreign}
    return Value({**tree.data, "data": Value(kept, block.where)}, tree.where)


def decoding_overrides(kind: type[FinetuneTask], overrides: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a finished run's task that `--set` overrides, and their values.

    Raises UserError for keys that are not the task's, and for values of another type.
    """
    tree = read(None, overrides).data
    for key in tree:
        if key != "task":
            raise UserError(f"--set: {key}: in a finished run only keys of the task, such as task.beam, can be changed")
    return build_fields(kind, tree["task"], "task") if tree else {}


def _check_effects(config: FinetuneConfig) -> None:
    """Raise UserError for settings that have no effect."""
    names = [name for name, _ in config.trials()]
    if len(set(names)) < len(names):
        raise UserError("grid: a value is listed twice; each is tried once for every seed")
    if config.grid.batch and config.train.batch_tokens:
        raise UserError("grid: batch: has no effect beside train.batch_tokens, which counts tokens in place of rows")
    if config.train.early_stopping_patience and not config.train.evaluations:
        raise UserError(
            "train.early_stopping_patience: has no effect with train.evaluations 0, which scores only at the end"
        )
    for name in config.calibrate:
        if getattr(config.task, name) != getattr(type(config.task)(), name):
            raise UserError(f"task.{name}: is fitted after training, as calibrate asks; leave one of them out")
    if config.train.adversarial.moves > 1 and not config.train.adversarial.epsilon:
        raise UserError("train.adversarial.moves: has no effect without an epsilon above 0, how far they go; give both")
    if config.fold_by and config.folds == 1:
        raise UserError("fold_by: has no effect without folds; say how many, as in folds: 5")
    if config.train.lr.each_stage:
        raise UserError("train.lr.each_stage: fine-tuning has one stage; leave it out")


def _resolve(source: str, folder: Path) -> str:
    return source if source.startswith("hf:") or is_address(source) else str(folder / source)
