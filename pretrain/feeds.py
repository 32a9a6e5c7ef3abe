"""The streams of a run: one for each objective, from the corpus of its configuration."""

from __future__ import annotations

from ernie.data.shards import Corpus, Share, Split, file_sha256
from ernie.data.stream import MIXED, Feed, Source, Stream
from ernie.errors import UserError, about
from pretrain.config import PretrainConfig


def sources(config: PretrainConfig, corpus: Corpus, *, held_out: bool) -> list[Source]:
    """What each scheduled objective learns from (or is measured on).  Raises UserError when one cannot be learnt."""
    split = corpus.held_out if held_out else learnt(config, corpus)
    found = []
    for name in config.schedule.task_names:
        task = config.objectives[name].measured if held_out else config.objectives[name]
        with about(f"objectives.{name}"):
            task.check(corpus.tokenizer)
        items = task.items(split, held_out=held_out)
        seed = config.seed + (1 << 32) * held_out  # other samples than in training, also where the splits share text
        mixed = MIXED if held_out else config.data.mixed  # measured by the same samples, however they are learnt from
        found.append(Source(name, task, items, corpus.tokenizer, seed, config.data.batch_tokens, mixed))
    return found


def label_files(config: PretrainConfig) -> dict[str, str]:
    """The files that scheduled objectives bring along, with a checksum of each.

    Raises UserError for one that cannot be read.
    """
    paths = [path for name in config.schedule.task_names for path in config.objectives[name].files]
    try:
        return {str(path): file_sha256(path) for path in paths}
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read: {error.strerror}") from None


def learnt(config: PretrainConfig, corpus: Corpus) -> Split | Share:
    """The documents that a run learns from."""
    return corpus.train if config.data.share == 1 else Share(corpus.train, config.data.share)


def open_streams(config: PretrainConfig, corpus: Corpus) -> tuple[Feed, dict[str, Stream]]:
    """The training streams by objective, at their beginning, and the feed that makes their batches."""
    feed = Feed(sources(config, corpus, held_out=False), config.data.workers)
    return feed, {name: feed.stream(name) for name in config.schedule.task_names}
