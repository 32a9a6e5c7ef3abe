"""What held-out measurements of a pretraining run read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
import pytest
from paddle import nn

from ernie.data.batch import Packed
from ernie.data.shards import Corpus
from ernie.model.losses import Loss, cross_entropy
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.mesh import Mesh
from pretrain import folder
from pretrain.config import DataConfig, ProbeConfig, load
from pretrain.feeds import open_streams, sources
from pretrain.probe import Probe, first_batches
from tasks.base import PretrainTask


class RecordingModel(nn.Layer):
    """A model stand-in that records the batches it is evaluated on."""

    def __init__(self, tasks: Mapping[str, PretrainTask]) -> None:
        super().__init__()
        self.tasks, self.seen = tasks, list[Packed]()

    def loss(self, name: str, batch: Packed) -> Loss:
        self.seen.append(batch)
        labels = batch.labels["label"].values
        return cross_entropy(paddle.zeros([len(labels), 2]), labels)


def test_all_selected_held_out_tokens_are_masked_unlike_in_training(finished: tuple[Path, Path]) -> None:
    config, corpus = folder.read(finished[1])

    def visible_share(held_out: bool) -> float:
        (source,) = [item for item in sources(config, corpus, held_out=held_out) if item.name == "knowledge_masking"]
        batches = first_batches(source, 8)
        ids = np.concatenate([batch.ids[batch.labels["label"].positions] for batch in batches])
        return float((ids != corpus.tokenizer.mask_id).mean())

    assert visible_share(held_out=True) == 0
    assert 0.1 < visible_share(held_out=False) < 0.3


def test_the_mixing_setting_affects_training_but_not_evaluation(finished: tuple[Path, Path]) -> None:
    config, corpus = folder.read(finished[1])
    config = replace(config, data=replace(config.data, shuffle_buffer_tokens=0))
    (train, *_), (evaluation, *_) = (sources(config, corpus, held_out=held_out) for held_out in (False, True))
    assert (train.shuffle_buffer_tokens, evaluation.shuffle_buffer_tokens) == (0, DataConfig().shuffle_buffer_tokens)
    assert train.seed != evaluation.seed  # different random numbers, even if both splits have the same text


def test_tasks_are_evaluated_on_the_first_samples_of_held_out_documents(finished: tuple[Path, Path]) -> None:
    config, corpus = folder.read(finished[1])
    probe, model = Probe(replace(config, probe=ProbeConfig(batches=2)), corpus), RecordingModel(config.tasks)
    (score, *_) = probe.measure(model, "capitalization").values()  # type: ignore[arg-type]
    assert len(model.seen) == 2
    assert score.count == sum(batch.targets for batch in model.seen)
    for batch in model.seen:
        for ids, (epoch, item, _) in zip(np.split(batch.ids, batch.layout.starts[1:]), batch.samples, strict=True):
            assert epoch == 0
            assert ids[1:-1].astype(np.int64).tobytes() in corpus.held_out[int(item)].ids.astype(np.int64).tobytes()
    probe.measure(model, "capitalization", most=1)  # type: ignore[arg-type]
    assert model.seen[2:] == model.seen[:1]


def test_evaluation_uses_all_batches_if_more_are_requested(finished: tuple[Path, Path]) -> None:
    config, corpus = folder.read(finished[1])
    source = next(item for item in sources(config, corpus, held_out=False) if item.name == "capitalization")
    source = replace(source, shuffle_buffer_tokens=0, micro_batch_tokens=128)
    assert source.items_per_block() < len(source.items)  # there are several blocks
    names = np.concatenate([batch.samples for batch in first_batches(source, 10**6)])
    expected = [name for name, _ in source.named_samples(0, 0, len(source.items))]
    assert sorted(map(tuple, names.tolist())) == sorted(expected)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_makes_the_data_shards_of_its_own_micro_batches(config: Path, rank: int) -> None:
    loaded = load(config, ["data.data_shards=4", "train.micro_batches=4"])
    mesh = Mesh(ParallelConfig(data=2), rank)
    feed, streams = open_streams(loaded, Corpus.open(loaded.corpus), mesh)
    batches = [next(streams["capitalization"]) for _ in range(4)]
    feed.close()
    made = [number for number, batch in enumerate(batches) if batch is not None]
    assert made == mesh.shard(range(4)) == [rank, 2 + rank]
