"""The schema of a pretraining run: its YAML has these keys and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

from ernie.config import Value, build, check_least, check_most, check_seed, read
from ernie.data.mirror import CACHE_MB
from ernie.data.stream import SHUFFLE_BUFFER_TOKENS
from ernie.errors import UserError, about, nearest
from ernie.model.config import EncoderConfig
from ernie.model.pretrained import CONFIG_FILE, model_folder
from ernie.model.published import hub
from ernie.model.published.formats import detect_format
from ernie.parallel.layout import ParallelConfig, Sizes
from ernie.registry import import_asked, import_plugins
from ernie.renames import formerly, renamed
from ernie.train.config import UpdateConfig
from pretrain.schedule import ScheduleConfig
from tasks import pretraining  # noqa: F401 - registers the tasks
from tasks.base import DEFAULT_MAX_LEN, PretrainTask, pretrain_tasks

MOST_MICRO_BATCHES = 100_000
SHORTEST_MAX_LEN = 8  # a pair of sentences does not fit into less


@dataclass(frozen=True)
class ModelConfig:
    """The encoder: the name of a preset or the folder of a model to start from, and changes to the preset.

    The vocabulary size is the tokenizer's; `vocab_size` is needed only to make it larger.
    """

    preset: str = "small"
    start_from: Path | None = None
    layers: int | None = None
    hidden_size: int | None = None
    heads: int | None = None
    intermediate_size: int | None = None
    activation: Literal["gelu", "relu"] | None = None
    dropout: float | None = None
    attention_dropout: float | None = None
    max_positions: int | None = None
    task_vocab_size: int | None = None
    vocab_size: int | None = None

    def __post_init__(self) -> None:
        with about("preset"):
            EncoderConfig.preset(self.preset)
        if self.start_from is None:
            self.shape(None)

    def changes(self) -> dict[str, object]:
        """Return the keys of the preset that the configuration changes, with their values."""
        given = {item.name: getattr(self, item.name) for item in fields(self)[2:]}
        return {name: value for name, value in given.items() if value is not None}

    def shape(self, vocab_size: int | None) -> EncoderConfig:
        """Return the shape of the encoder; `vocab_size` is the tokenizer's, or None if there is none yet.

        The shape of a published model depends on its weights too, so the model is loaded, which needs Paddle.  Raises
        UserError if a model to start from cannot be read, or has another shape than the file asks for.
        """
        if self.start_from is None:
            known = {} if vocab_size is None else {"vocab_size": vocab_size}
            return replace(EncoderConfig.preset(self.preset), **{**known, **self.changes()})  # type: ignore[arg-type]
        folder = model_folder(hub.find(self.start_from))
        if detect_format(folder) == "ernie":
            shape = EncoderConfig.read(folder / CONFIG_FILE)
        else:
            from ernie.model.ernie import ErnieModel

            shape = ErnieModel.from_pretrained(folder).config
        self.check(shape)
        return shape

    def check(self, shape: EncoderConfig) -> None:
        """Raise UserError if the file asks for another shape than that of the model to start from."""
        for name, value in self.changes().items():
            if getattr(shape, name) != value:
                raise UserError(
                    f"model.{name}: is {value}, but the model in {self.start_from} has {getattr(shape, name)}; a model "
                    f"to start from brings its own shape: leave model.{name} out"
                )


@dataclass(frozen=True)
class DataConfig:
    """How the corpus becomes batches: the maximum sample length, the tokens of a micro-batch, and worker processes.

    A micro-batch has at most `micro_batch_tokens`.  Batches are mixed from `shuffle_buffer_tokens` of documents at a
    time (at least 16 micro-batches); the documents are reshuffled every epoch.  Training uses only a random `fraction`
    of the training documents; a smaller fraction is a subset of every larger one.  With 0 `workers` a thread makes the
    batches, which is enough whenever a step takes longer than its data.  The micro-batches of a step are dealt from
    `data_shards`, each with documents of its own.  Processes that split a step make only the shards that they need.  No
    batch depends on the number of processes.  With `shuffle_shards` the documents of so many shards of the corpus are
    shuffled together at a time, in place of all.  Of a corpus at an address, at most `cache_mb` MB of shards are kept
    on this machine.
    """

    max_len: int = DEFAULT_MAX_LEN
    micro_batch_tokens: int = field(default=8192, metadata=formerly("batch_tokens"))
    shuffle_buffer_tokens: int = field(default=SHUFFLE_BUFFER_TOKENS, metadata=formerly("mixed"))
    workers: int = 0
    fraction: float = field(default=1.0, metadata=formerly("share"))
    data_shards: int = field(default=1, metadata=formerly("lanes"))
    shuffle_shards: int = 0
    cache_mb: int = CACHE_MB

    def __post_init__(self) -> None:
        check_least(self, max_len=SHORTEST_MAX_LEN, shuffle_buffer_tokens=0, workers=0, data_shards=1)
        check_least(self, shuffle_shards=0, cache_mb=1)
        check_most(self, workers=10_000, data_shards=MOST_MICRO_BATCHES)
        if not 0 < self.fraction <= 1:
            raise UserError(f"fraction: expected more than 0 and at most 1, found {self.fraction:g}")
        if self.fraction < 1 and self.shuffle_shards:
            raise UserError("shuffle_shards: expected 0, since a fraction below 1 takes documents of all shards")
        if self.micro_batch_tokens < self.max_len:
            raise UserError(
                f"micro_batch_tokens: {self.micro_batch_tokens} cannot hold one sample of max_len {self.max_len} tokens"
            )


@dataclass(frozen=True)
class TrainConfig(UpdateConfig):
    """The step: its update (see UpdateConfig) and its micro-batches.

    The gradients of `micro_batches` are accumulated into one step.  With `moments: each_task` every task has its own
    AdamW moments, and none is slowed by the larger gradients of another (Yang et al., 2023, arXiv 2211.15055).  The
    moments then take as many times the memory.
    """

    moments: Literal["shared", "each_task"] = "shared"
    micro_batches: int = 1
    max_bad_steps: int = field(default=20, metadata=formerly("patience"))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, micro_batches=1)
        check_most(self, micro_batches=MOST_MICRO_BATCHES)


@dataclass(frozen=True)
class SaveConfig:
    """Checkpoints: saved every `every` steps and after each stage, and how many of them are kept.

    The best one, among those whose step was also measured, has the highest sum of its tasks' headline metrics
    (`pretrain.run.overall`).
    """

    every: int = 1000
    keep_last: int = 2
    keep_best: bool = False

    def __post_init__(self) -> None:
        check_least(self, every=1, keep_last=1)


@dataclass(frozen=True)
class ProbeConfig:
    """Evaluation on held-out documents: every `every` steps (0: only after each stage), `batches` batches per task."""

    every: int = 0
    batches: int = 16

    def __post_init__(self) -> None:
        check_least(self, every=0, batches=1)


@dataclass(frozen=True)
class PretrainConfig:
    """A pretraining run.

    `corpus` is a folder that `ernie data build` wrote, `output` the folder of the run.  `tasks` sets the fields
    of tasks, and may give one task several names (`task:`).  Scheduled tasks without an entry have their defaults;
    entries that are never scheduled are dropped, unless others share their head.
    """

    corpus: Path
    schedule: ScheduleConfig
    output: Path | None = None
    seed: int = 0
    plugins: list[str] = field(default_factory=list)
    tasks: dict[str, PretrainTask] = field(default_factory=dict, metadata=formerly("objectives"))
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    save: SaveConfig = field(default_factory=SaveConfig)
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    tensorboard: bool = False
    mlflow: bool = False
    wandb: bool = False

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.train.moments == "each_task" and self.schedule.draw == "mix":
            raise UserError(
                "train.moments: each_task needs steps of one task each; the schedule's `draw: mix` has several"
            )
        if self.schedule.draw == "mix" and self.train.micro_batches == 1:
            raise UserError("schedule.draw: mix divides a step's micro-batches among tasks; train.micro_batches is 1")
        if self.data.data_shards > 1 and self.schedule.draw == "mix":
            raise UserError(
                "data.data_shards: several need steps of one task each; with `draw: mix` steps have several"
            )
        if self.train.micro_batches % self.data.data_shards:
            raise UserError(
                f"data.data_shards: the {self.train.micro_batches} train.micro_batches of a step are no multiple of "
                f"{self.data.data_shards}"
            )
        for name, task in self.tasks.items():
            # Names are parts of weights' names, which "/" separates in checkpoints, and attributes of a layer.
            if "/" in name or name == "training":
                raise UserError(f"tasks.{name}: expected another name than 'training', without '/'")
            if task.head_of:
                self._check_head(name, task)
            longest = task.max_len or self.data.max_len
            if longest < SHORTEST_MAX_LEN:
                raise UserError(f"tasks.{name}.max_len: expected at least {SHORTEST_MAX_LEN} tokens, found {longest}")
            if longest > self.data.micro_batch_tokens:
                raise UserError(
                    f"tasks.{name}.max_len: {longest} tokens do not fit into data.micro_batch_tokens "
                    f"{self.data.micro_batch_tokens}"
                )

    def sizes(self, shape: EncoderConfig) -> Sizes:
        """Return what a layout has to divide, for an encoder of this shape."""
        return Sizes.of(shape, self.train.micro_batches, self.data.data_shards, self.prepares)

    @property
    def prepares(self) -> bool:
        """Whether a task computes the encoder's input from weights (`PretrainTask.prepare`)."""
        return any(task.prepares for task in self.tasks.values())

    @property
    def remarks(self) -> list[str]:
        """Notes on what is unusual about a valid run."""
        stages = [sum(stage.values()) for stage in self.schedule.table]
        remark = self.train.lr.remark(min(stages) if self.train.lr.each_stage else sum(stages))
        return [remark] if remark else []

    def _check_head(self, name: str, task: PretrainTask) -> None:
        key, owner = f"tasks.{name}.head_of", self.tasks.get(task.head_of)
        if owner is None:
            raise UserError(f"{key}: no task '{task.head_of}'.{nearest(task.head_of, self.tasks)}")
        if owner.head_of:
            raise UserError(f"{key}: '{task.head_of}' has no head of its own; name the task whose head it is")
        if type(owner) is not type(task):
            raise UserError(
                f"{key}: '{task.head_of}' is the task {owner.variant_name}, this one {task.variant_name}: they cannot "
                "share a head"
            )
        for item in task.head_fields:
            if (own := getattr(task, item)) != (made := getattr(owner, item)):
                raise UserError(
                    f"tasks.{name}.{item}: is {own}, and the head of '{task.head_of}', which it shares, is made with "
                    f"{made}; give both the same"
                )


def load(path: str | Path, overrides: Sequence[str] = ()) -> PretrainConfig:
    """Read the YAML of a user from a path, or by the name of one that comes with the library, such as ernie2-en.

    Its plug-ins are imported.  Raises ConfigError with every mistake in it.
    """
    tree = _read(path, overrides)
    import_plugins(tree.get("plugins"))
    _, renames = renamed(PretrainConfig, tree)  # reported by `build`
    return complete(build(PretrainConfig, tree if renames else _with_scheduled(tree)))


def load_saved(path: Path, code: bool = True) -> PretrainConfig:
    """Read the configuration that a run has saved; its plug-ins are imported only if the user trusts them.

    Without `code` no plug-in is needed: `tasks` then lacks what only plug-ins know.
    """
    tree = _read(path, ())
    if code:
        import_asked(tree.get("plugins"), f"{path}: plugins")
    tree, _ = renamed(PretrainConfig, tree)
    return complete(build(PretrainConfig, _with_scheduled(tree) if code else _without_unknown(tree), saved=True))


def _read(path: str | Path, overrides: Sequence[str]) -> Value:
    tree = read(path, overrides, part="pretrain")
    if tree.get("task") is not None and tree.get("schedule") is None:
        raise UserError(f"{path}: has a `task` and no `schedule`: it is a configuration for `ernie finetune`")
    return tree


def complete(config: PretrainConfig) -> PretrainConfig:
    """Return the configuration with only the tasks that are trained, each with its `max_len` filled in."""
    scheduled = set(config.schedule.task_names)
    heads = {config.tasks[name].head_of for name in scheduled if name in config.tasks}
    tasks = {
        name: task if task.max_len else replace(task, max_len=config.data.max_len)
        for name, task in config.tasks.items()
        if name in scheduled | heads
    }
    return replace(config, tasks=tasks)


def _without_unknown(tree: Value) -> Value:
    """Return the tree without the tasks that are not registered, or share the head of one that is not."""
    tree = _with_scheduled(tree)
    given = tree.data.get("tasks")
    if given is None or not isinstance(given.data, dict):
        return tree
    fields = {name: value.plain() if isinstance(value.data, dict) else {} for name, value in given.data.items()}
    known = {name for name, own in fields.items() if str(own.get("task", name)) in pretrain_tasks}
    kept = {name: value for name, value in given.data.items() if {name, fields[name].get("head_of") or name} <= known}
    return Value({**tree.data, "tasks": Value(kept, given.where)}, tree.where)


def _with_scheduled(tree: Value) -> Value:
    """Return the tree with an entry in `tasks` for every scheduled task, in the schedule's order first."""
    schedule = tree.data.get("schedule")
    if schedule is None or not isinstance(schedule.data, dict):
        return tree
    named: dict[str, Value] = {}
    for key in ("tasks", "stages"):
        entries = schedule.data.get(key)
        for entry in entries.data if entries is not None and isinstance(entries.data, list) else []:
            names = entry.data if isinstance(entry.data, dict) else [entry.data]
            for name in names if not isinstance(entry.data, list) else ():  # reported by `build`
                where = names[name].where if isinstance(names, dict) else entry.where
                named.setdefault(str(name), Value(None, where))
    given = tree.data.get("tasks")
    written = given.data if given is not None and isinstance(given.data, dict) else {}
    tasks: dict[str, Value] = {}
    for name, value in named.items():
        tasks[name] = entry = written.get(name, value)
        # The owner of a shared head may never be scheduled itself: it is inserted here, so that tasks appended to the
        # schedule get later task ids.
        owner = entry.data.get("head_of") if isinstance(entry.data, dict) else None
        if owner is not None and str(owner.data) in written:
            tasks.setdefault(str(owner.data), written[str(owner.data)])
    tasks |= {name: entry for name, entry in written.items() if name not in tasks}
    return Value({**tree.data, "tasks": Value(tasks, given.where if given else schedule.where)}, tree.where)
