"""The settings of adversarial training.  Imports no Paddle: configurations use it."""

from __future__ import annotations

from dataclasses import dataclass

from ernie.config import check_least
from ernie.errors import UserError


@dataclass(frozen=True)
class AdversarialConfig:
    """Adversarial training: how far the table of word embeddings is moved (Euclidean norm), and in how many moves.

    `epsilon` 0 turns it off.  One move is FGM.  With more, PGD, each is of `move` at most, and the last place counts.
    """

    epsilon: float = 0.0
    moves: int = 1
    move: float = 0.3

    def __post_init__(self) -> None:
        check_least(self, epsilon=0, moves=1, move=0)
        if self.moves > 1 and not self.move:
            raise UserError("move: expected more than 0, as several moves of nothing change nothing")
