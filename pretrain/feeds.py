"""The data streams of a run: one per task, from the corpus of its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ernie.data.shards import Corpus, Split, Subset
from ernie.data.stream import SHUFFLE_BUFFER_TOKENS, Feed, Source, Stream
from ernie.errors import UserError, about
from ernie.sha256 import file_sha256
from pretrain.config import PretrainConfig
from tasks.base import ClassifierTask, PretrainTask

if TYPE_CHECKING:
    from ernie.parallel.mesh import Mesh

_LISTED = 5  # classes in an error message, at most


def sources(config: PretrainConfig, corpus: Corpus, *, held_out: bool) -> list[Source]:
    """Return what each scheduled task trains on, or is measured on.  Raises UserError if one cannot be trained."""
    corpus.check_cache(config.data.shuffle_shards)
    split = corpus.held_out if held_out else training_split(config, corpus)
    found = []
    for name in config.schedule.task_names:
        task = config.tasks[name].measured if held_out else config.tasks[name]
        with about(f"tasks.{name}"):
            task.check(corpus.tokenizer)
            _check_classes(task, config.tasks.get(task.head_of), task.head_of)
        items = task.items(split, held_out=held_out)
        if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")) or isinstance(items, Mapping | str):
            raise UserError(
                f"task '{name}': its `items` gives a {type(items).__name__}; expected a sequence, such as a list"
            )
        seed = config.seed + (1 << 32) * held_out  # not the samples of training, even if the splits share text
        mixed = (
            SHUFFLE_BUFFER_TOKENS if held_out else config.data.shuffle_buffer_tokens
        )  # the same measurement whatever `data.shuffle_buffer_tokens` is
        tokens, shards = config.data.micro_batch_tokens, config.data.shuffle_shards
        fitted = task if held_out else task.fitted(items, corpus.tokenizer)
        found.append(Source(name, fitted, items, corpus.tokenizer, seed, tokens, mixed, shards))
    return found


def _check_classes(task: PretrainTask, owner: PretrainTask | None, name: str) -> None:
    """Raise UserError for a task that shares the head of another one with different classes."""
    if not isinstance(task, ClassifierTask) or not isinstance(owner, ClassifierTask):
        return
    ours, theirs = list(task.class_names()), list(owner.class_names())
    if ours != theirs:
        raise UserError(
            f"head_of: {name} has {_listed(theirs)}, this one {_listed(ours)}; tasks that share a head have the same "
            "classes in the same order"
        )


def _listed(classes: list[str]) -> str:
    return f"{len(classes)} classes ({', '.join(classes[:_LISTED])}{', ...' if len(classes) > _LISTED else ''})"


def label_files(config: PretrainConfig) -> dict[str, str]:
    """Return the data files of scheduled tasks, each with its checksum.

    Raises UserError for one that cannot be read.
    """
    paths = [path for name in config.schedule.task_names for path in config.tasks[name].files]
    try:
        return {str(path): file_sha256(path) for path in paths}
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read: {error.strerror}") from None


def training_split(config: PretrainConfig, corpus: Corpus) -> Split | Subset:
    """Return the documents that a run trains on."""
    return corpus.train if config.data.fraction == 1 else Subset(corpus.train, config.data.fraction)


def open_streams(config: PretrainConfig, corpus: Corpus, mesh: Mesh | None = None) -> tuple[Feed, dict[str, Stream]]:
    """Return the feed that makes training batches, and the streams by task, at their beginning.

    With several data shards, a process of `mesh` makes those of its own micro-batches.
    """
    feed, data_shards = Feed(sources(config, corpus, held_out=False), config.data.workers), config.data.data_shards
    own = range(data_shards) if mesh is None or data_shards == 1 else mesh.shard(range(data_shards))
    return feed, {name: feed.stream(name, data_shards, own) for name in config.schedule.task_names}
