"""What a run starts from: an encoder and, if it goes on from another run, that run's head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from reprlib import repr as shortened

import numpy as np
import paddle
from paddle import nn

from ernie.config import differences, to_dict
from ernie.data import seeded_rng
from ernie.errors import UserError
from ernie.model.ernie import ErnieModel
from finetune.config import FinetuneConfig, check_layers
from tasks.downstream.base import (
    FinetuneTask,
    check_max_len,
)
from tasks.downstream.changes import keeping_head_of
from tasks.downstream.hooks import EncoderConditions, OwnPositions
from tasks.downstream.saved import find_model, head_file, kind_of, member_folders, read_task


def read_encoder(path: str | Path, seed: int = 0) -> ErnieModel:
    """Load an encoder; weights that its checkpoint lacks, such as a pooler's, are initialized from the seed."""
    paddle.seed(seeded_rng.key(seed, "encoder") % 2**31)
    return ErnieModel.from_pretrained(path)


def load_encoder(config: FinetuneConfig, seed: int = 0) -> ErnieModel:
    """Load the encoder that a configuration names; weights that its checkpoint lacks are initialized from the seed.

    Raises UserError when there is none, or when the task cannot be trained with it.
    """
    if not config.model:
        raise UserError("model: which encoder? Give --model, or the key `model`")
    ernie = read_encoder(config.model, seed)
    if config.layers is not None:
        keep_layers(ernie, config.layers, config.model)
    if ernie.tokenizer is None:
        raise UserError(f"{config.model}: has no tokenizer; put its vocabulary into its folder 'tokenizer'")
    task = config.task
    if isinstance(task, OwnPositions):
        task.check_positions(ernie.config.max_positions, config.model)
    else:
        check_max_len(task, ernie.config.max_positions, config.model)
    if isinstance(task, EncoderConditions):
        task.check_tokenizer(ernie.tokenizer)
    task_ids = ernie.config.task_vocab_size
    if config.train.task_id >= max(1, task_ids):
        many = f"a number below {task_ids}, which is how many task embeddings {config.model} has"
        raise UserError(
            f"train.task_id: expected {many if task_ids else f'0, as {config.model} has no task embeddings'}, "
            f"found {config.train.task_id}"
        )
    if isinstance(task, EncoderConditions):
        task.check_encoder(ernie, config.train.task_id, config.model)
    return ernie


def keep_layers(ernie: ErnieModel, kept: int | Sequence[int], encoder: str) -> None:
    """Drop the layers of an encoder that are not `kept`: see FinetuneConfig.  Raises UserError if it lacks them."""
    there = ernie.config.layers
    if isinstance(kept, int):
        if not 1 <= kept <= there:
            raise UserError(f"layers: expected a number from 1 to {there}, as many as {encoder} has, found {kept}")
        chosen = np.linspace(1, there, kept).round().astype(int).tolist()
    else:
        chosen = list(kept)
        if chosen != sorted(set(chosen)) or not chosen:
            raise UserError(f"layers: expected numbers of layers that rise, found {chosen}")
        check_layers(chosen, there, "layers", encoder)
    ernie.encoder.layers = nn.LayerList([ernie.encoder.layers[number - 1] for number in chosen])
    ernie.config = replace(ernie.config, layers=len(chosen))


def kept_head(config: FinetuneConfig) -> Path | None:
    """Return the weights of the head that a run keeps; None if its head is new.

    Raises UserError if `model` is no run of the same kind.
    """
    if config.head == "new":
        return None
    folder = find_model(Path(config.model))
    if folder is None:
        raise UserError(f"head: keep continues with the head of a finished run, and model: {config.model} is none")
    if members := member_folders(folder):
        raise UserError(
            f"head: keep continues with one head, and model: {config.model} is an ensemble of {len(members)}; name the "
            f"folder of one of them, such as {members[0]}"
        )
    before, task_id = read_task(folder)
    if type(before) is not type(config.task):
        raise UserError(
            f"head: keep continues with the head of a run of the same kind, {config.task.variant_name}, and "
            f"model: {config.model} is of the kind {before.variant_name}"
        )
    if task_id != config.train.task_id:
        raise UserError(
            f"train.task_id: is {config.train.task_id}, and the head of {config.model} has learned with {task_id}; "
            f"give --set train.task_id={task_id}"
        )
    return head_file(folder)


def starting_task(config: FinetuneConfig) -> FinetuneTask:
    """Return the task; if the head is kept, with the values that the head was trained with.

    Raises UserError if the configuration has others.
    """
    head = kept_head(config)
    if head is None:
        return config.task
    before, _ = read_task(head.parent)
    return keeping_head_of(config.task, before, f"the head of {config.model}")


def remark_on_head(config: FinetuneConfig) -> str:
    """Return a remark on settings that come with a kept head, or on a run whose head is not kept; "" if neither."""
    if config.head == "keep":
        kept = differences(to_dict(config.task), to_dict(starting_task(config)))
        taken = [f"{key} {shortened(value)}" for key, (_, value) in kept.items()]
        return f"of the head of {config.model} are task: {', '.join(taken)}" if taken else ""
    folder = find_model(Path(config.model))
    if folder is None or kind_of(folder) != config.task.variant_name:
        return ""
    return f"{config.model} is a run of the same kind, and a new head replaces its own; head: keep continues with it"
