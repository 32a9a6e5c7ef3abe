"""What the watch learns where a process waits for others, on any device: collectives, and the losses of a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import Tensor, nn
from paddle.distributed import ParallelEnv
from paddle.distributed.fleet.meta_parallel.pp_utils.p2p_communication import P2pHelper

from ernie.data.batch import Packed, pack
from ernie.data.document import Sample
from ernie.model.losses import Loss, cross_entropy
from ernie.parallel import collectives
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.mesh import Mesh
from ernie.parallel.pipeline import mark_messages
from ernie.parallel.watch import Unwatched
from ernie.train.adam_config import AdamConfig
from ernie.train.trainer import Trainer


class Recorder(Unwatched):
    """A watch that notes what this process waited for, and in which order."""

    def __init__(self) -> None:
        self.waited: list[str] = []
        self.inside = ""

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        self.waited.append(what)
        self.inside = what
        yield
        self.inside = ""


def test_collectives_of_numbers_and_objects_are_marked_until_their_results_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Recorder()
    mesh = Mesh(watch=watch)
    mesh.everyone, mesh.groups = object(), {"data": object()}
    places: list[str] = []

    def communicate(*_: Any, **__: Any) -> None:
        places.append(watch.inside)

    def read(tensor: Tensor, numpy: Any = Tensor.numpy) -> np.ndarray:
        places.append(f"{watch.inside}, read")
        return numpy(tensor)

    for name in ("all_reduce_tensor", "all_gather_object", "broadcast_object_list"):
        monkeypatch.setattr(collectives, name, communicate)
    monkeypatch.setattr(Tensor, "numpy", read)
    assert collectives.all_reduce(mesh, [1.0, 2.0], ["data"]) == [1.0, 2.0]
    collectives.all_gather(mesh, "value")
    assert collectives.on_rank0(mesh, "computing", lambda: 5) == 5
    assert places == ["all_reduce", "all_reduce, read", "all_gather", "broadcast"]


def test_losses_are_read_while_the_watch_knows_that_the_process_waits() -> None:
    model = nn.Linear(4, 2)
    watch = Recorder()
    trainer = Trainer(model, AdamConfig(), clip=1.0, max_bad_steps=3, seed=0, mesh=Mesh(watch=watch))

    def loss(_: str, batch: Packed) -> Loss:
        return cross_entropy(model(paddle.ones([1, 4])), batch.labels["label"].values)

    batch = pack([Sample(np.arange(3), np.zeros(3, np.int64), {"label": 1})])
    trainer.step(0, [("task", batch)] * 2, loss, 0.1)
    assert watch.waited == ["the losses"]


def test_fleets_messages_between_stages_are_marked() -> None:
    watch = Recorder()
    helper = P2pHelper(use_cache=False)
    mark_messages(helper, watch.waiting)
    assert helper.recv_forward(True) is None  # the first stage and the last one have nobody to talk to
    helper.send_forward(paddle.ones([2]), True)
    helper.send_backward(paddle.ones([2]), True)
    helper.recv_backward(True)
    assert watch.waited == ["recv_forward", "send_forward", "send_backward", "recv_backward"]


def test_nccl_gives_up_soon_after_the_watch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDLE_PG_TIMEOUT", raising=False)
    Mesh.connect(ParallelConfig(timeout=40.0))
    assert ParallelEnv().pg_timeout == 80_000
    monkeypatch.setenv("PADDLE_PG_TIMEOUT", "7")  # of the user
    Mesh.connect(ParallelConfig(timeout=40.0))
    assert ParallelEnv().pg_timeout == 7
