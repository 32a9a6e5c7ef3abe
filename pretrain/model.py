"""The encoder with one head per task."""

from __future__ import annotations

from dataclasses import replace

import paddle
from paddle import Tensor, nn

from ernie.data.batch import Packed
from ernie.errors import UserError, about
from ernie.kernels.mask import Mask
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.heads import MaskedTokenHead
from ernie.model.initialization import initialize
from ernie.model.losses import Loss, checked
from ernie.model.weights import arrays, set_weights
from ernie.text.tokenizer import Tokenizer
from pretrain.config import PretrainConfig
from tasks.base import PretrainTask


class MultiTaskModel(nn.Layer):
    """An encoder and one head per task; tasks with `head_of` share the head and task id of another."""

    def __init__(self, ernie: ErnieModel, tasks: dict[str, PretrainTask]):
        super().__init__()
        self.ernie = ernie
        self.tasks = tasks
        owners = [name for name, task in tasks.items() if not task.head_of]
        self.task_ids = {name: owners.index(task.head_of or name) for name, task in tasks.items()}
        self.heads = nn.LayerDict({name: _head(name, tasks[name], ernie) for name in owners})
        initialize(self.heads, ernie.config.initializer_range)

    def loss(self, name: str, batch: Packed, *, of_all: bool = False) -> Loss:
        """Return the loss of one batch of the task `name`.

        With `of_all` the encoder computes the vectors of all tokens, not only of those that the task reads.
        """
        task, task_id = self.tasks[name], self.task_embedding(name)

        def embed(given: Packed) -> Tensor:
            return self.ernie.embedding(given.ids, given.segments, given.layout.positions, task_id)

        with about(f"task '{name}'"):  # its samples may have segments that the encoder lacks
            seen, added = task.prepare(self.head(name), batch, embed)
            hidden_TD = self.ernie.encode_packed(seen, task_id, None if of_all else task.reads(seen))
        loss = self.head_loss(name, hidden_TD, seen)
        return loss if added is None else replace(loss, total=loss.total + added)

    def head(self, name: str) -> nn.Layer:
        """Return the head of a task, which may be that of another one."""
        return self.heads[self.tasks[name].head_of or name]

    def task_embedding(self, name: str) -> int:
        """Return the id of a task, which selects its task embedding."""
        return self.task_ids[name]

    def encoder_input(self, _: str, batch: Packed) -> tuple[Packed, Mask | None]:
        """Return what the encoder sees of a batch: all of it, without a mask inside sequences."""
        return batch, None

    def head_loss(self, name: str, hidden_TD: Tensor, batch: Packed) -> Loss:
        """Return the loss of one batch of the task `name`, given the encoder's hidden states.

        Raises UserError if it is no Loss, or not the sum over all labels of the batch, by whose number it will be
        divided.
        """
        loss = self.tasks[name].loss(self.head(name), hidden_TD, batch)
        with about(f"task '{name}'"):
            return checked(loss, batch)

    def adopt_masked_head(self) -> None:
        """Make the head of the first masked-token task the encoder's own masked-token head.

        If the encoder came with such a head, training continues from its weights.
        """
        loaded, self.ernie.masked_head = self.ernie.masked_head, None
        for name, head in self.heads.items():
            if isinstance(head, MaskedTokenHead):
                if loaded is not None:
                    set_weights(head, arrays(loaded), "the model to start from")
                head.task_id = self.task_ids[name]
                self.ernie.masked_head = head
                return


def _head(name: str, task: PretrainTask, ernie: ErnieModel) -> nn.Layer:
    head = task.head(ernie)
    if not isinstance(head, nn.Layer):
        raise UserError(f"task '{name}': its `head` gives a {type(head).__name__}; expected a layer of paddle.nn")
    return head


def build_model(config: PretrainConfig, tokenizer: Tokenizer) -> MultiTaskModel:
    """Build the model of a run with its initial weights: random, from the run's seed, or those of `model.start_from`.

    Raises UserError if the model has too few tokens, positions or task ids for the run.
    """
    paddle.seed(config.seed)
    if config.model.start_from is not None:
        ernie = ErnieModel.from_pretrained(config.model.start_from)
        config.model.check(ernie.config)
        if ernie.tokenizer is not None and ernie.tokenizer.fingerprint != tokenizer.fingerprint:
            raise UserError(
                f"model.start_from: the model in {config.model.start_from} has another vocabulary than the corpus; "
                "build the corpus with the model's tokenizer"
            )
    else:
        ernie = ErnieModel(config.model.shape(tokenizer.vocab_size))
    ernie.tokenizer = tokenizer
    _check_fit(ernie.config, config, tokenizer)
    return MultiTaskModel(ernie, config.tasks)


def _check_fit(shape: EncoderConfig, config: PretrainConfig, tokenizer: Tokenizer) -> None:
    if shape.vocab_size < tokenizer.vocab_size:
        raise UserError(
            f"the corpus's vocabulary has {tokenizer.vocab_size} tokens, the model only {shape.vocab_size}: they do "
            "not belong together. Build the corpus with the model's tokenizer."
        )
    longest = max(task.length for task in config.tasks.values())
    if shape.max_positions < longest:
        raise UserError(
            f"samples of {longest} tokens (max_len) need as many positions, the model has {shape.max_positions}"
        )
    owners = sum(not task.head_of for task in config.tasks.values())
    if 0 < shape.task_vocab_size < owners:
        raise UserError(
            f"{owners} tasks need as many task ids, the model has {shape.task_vocab_size} (model.task_vocab_size)"
        )
