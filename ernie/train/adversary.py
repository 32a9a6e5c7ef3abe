"""Adversarial training on word embeddings: a second pass over a step's batches, with the embeddings moved uphill.

FGM (Miyato et al., 2017, arXiv 1605.07725, section 3) moves them once by the normalized gradient of the loss, PGD
(Madry et al., 2018, arXiv 1706.06083, section 2.1) several times by less, within a ball.  As is usual for fine-tuning,
the whole table of embeddings is moved by the gradient of the whole step, and the gradients of both passes are added.
"""

from __future__ import annotations

from collections.abc import Callable

import paddle

from ernie.errors import UserError
from ernie.train.adversarial_config import AdversarialConfig
from ernie.train.optimizer import Optimizer


class Adversary:
    """Adds the gradients of an adversarial pass to those of a step.

    `table` names the parameter of the optimizer that is the word embeddings (V, D).
    """

    def __init__(self, config: AdversarialConfig, table: str, optimizer: Optimizer):
        self._config, self._table, self._optimizer = config, optimizer.parameters[table], optimizer

    @paddle.no_grad()
    def add_gradients(self, passes: Callable[[int], None]) -> None:
        """Add the gradients at the adversarial place to those that the parameters have.

        `passes(k)` computes and reduces the gradients of the step once more, after the k-th move, from 1 on.  Where the
        gradient of the table is not finite, or zero, nothing is added.  Raises UserError if it has none.
        """
        config, table = self._config, self._table
        if table.grad is None:
            raise UserError("train.adversarial: the loss of this kind does not depend on the embeddings of words")
        learning = [parameter for parameter in self._optimizer.parameters.values() if parameter.grad is not None]
        clean = [parameter.grad.clone() for parameter in learning]  # clearing the gradients frees their memory
        before, moved = table.clone(), paddle.zeros_like(table)
        gradient = table.grad
        try:
            for k in range(1, config.moves + 1):
                norm = float(paddle.linalg.norm(gradient))
                if not 0 < norm < float("inf"):
                    self._optimizer.clear()
                    return
                moved += gradient * ((config.epsilon if config.moves == 1 else config.move) / norm)
                if (length := float(paddle.linalg.norm(moved))) > config.epsilon:
                    moved *= config.epsilon / length
                table.set_value(before + moved)
                self._optimizer.clear()
                with paddle.enable_grad():
                    passes(k)
                gradient = table.grad
        finally:
            table.set_value(before)
            for parameter, own in zip(learning, clean, strict=True):
                parameter.grad = own if parameter.grad is None else parameter.grad + own
