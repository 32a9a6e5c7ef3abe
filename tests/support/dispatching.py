"""Lanes and jobs whose costs are known exactly, for a simulated server."""

from __future__ import annotations

from collections.abc import Iterable

from serving.cost import CostModel
from serving.dispatcher import Job, Lane
from serving.simulation import Item

FIXED, PER_TOKEN = 0.008, 0.00006  # seconds: a BERT-base in bf16 on a few cores


def lane(name: str = "model", fixed: float = FIXED, per_token: float = PER_TOKEN) -> Lane:
    """A lane whose cost is known exactly."""
    return Lane(name, CostModel([(tokens, fixed + per_token * tokens) for tokens in (8, 64, 512, 4096)]))


def job(work: Lane, tokens: Iterable[int], arrived: float, timeout: float, **settings: object) -> Job:
    """A job of items with so many tokens."""
    return Job(work, [Item(n) for n in tokens], arrived, arrived + timeout, **settings)  # type: ignore[arg-type]
