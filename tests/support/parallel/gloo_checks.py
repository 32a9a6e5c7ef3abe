"""Run by each rank: checks what ernie.parallel.gloo adds.  gloo_checks.py stock|installed all|messages|groups

Prints, for `all`, {name of a check: "right", "wrong", or the exception}, otherwise "right".  With Paddle as it is
(`stock`), messages and groups may hang.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.base import core

from ernie.parallel import gloo, store

CHECKS: dict[str, Callable[[Any, int], object]] = {}
SUM, AVG = core.ReduceOp.SUM, core.ReduceOp.AVG


def check(body: Callable[[Any, int], object]) -> Callable[[Any, int], object]:
    CHECKS[body.__name__] = body
    return body


def random_of_rank(rank: int, shape: tuple[int, ...] = (4, 6), dtype: str = "float32") -> paddle.Tensor:
    values = np.random.default_rng(rank).standard_normal(shape).astype(np.float32)
    return paddle.to_tensor(values).astype(dtype)


def both(shape: tuple[int, ...] = (4, 6), dtype: str = "float32") -> list[np.ndarray]:
    return [random_of_rank(rank, shape, dtype).astype("float32").numpy() for rank in range(2)]


def same(found: paddle.Tensor, wanted: np.ndarray, tolerance: float = 1e-6) -> bool:
    return bool(np.allclose(found.astype("float32").numpy(), wanted, rtol=tolerance, atol=tolerance))


@check
def all_reduce_of_fp16(group: Any, rank: int) -> object:
    x = random_of_rank(rank, dtype="float16")
    group.all_reduce(x, SUM, True).wait()
    return same(x, sum(both(dtype="float16")), 2e-3)


@check
def all_reduce_mean(group: Any, rank: int) -> object:
    x = random_of_rank(rank)
    group.all_reduce(x, AVG, True).wait()
    return same(x, sum(both()) / 2)


@check
def all_reduce_on_calc_stream(group: Any, rank: int) -> object:
    x = random_of_rank(rank)
    group.all_reduce_on_calc_stream(x, SUM)
    return same(x, sum(both()))


@check
def reduce_of_fp16(group: Any, rank: int) -> object:
    x = random_of_rank(rank, dtype="float16")
    group.reduce(x, 1, SUM, True).wait()
    return rank == 0 or same(x, sum(both(dtype="float16")), 2e-3)


@check
def reduce_scatter(group: Any, rank: int) -> object:
    out = paddle.empty([2, 6])
    group.reduce_scatter(out, list(random_of_rank(rank).split(2)), SUM, True).wait()
    return same(out, sum(both())[2 * rank : 2 * rank + 2])


@check
def reduce_scatter_tensor(group: Any, rank: int) -> object:
    out = paddle.empty([2, 6])
    group.reduce_scatter_tensor(out, random_of_rank(rank), SUM, True).wait()
    return same(out, sum(both())[2 * rank : 2 * rank + 2])


@check
def all_gather_into_tensor_that_requires_gradients(group: Any, rank: int) -> object:
    x, out = random_of_rank(rank), paddle.empty([8, 6])
    x.stop_gradient = False
    group.all_gather_into_tensor_on_calc_stream(out, x)
    return same(out, np.concatenate(both()))


@check
def all_gather_on_calc_stream(group: Any, rank: int) -> object:
    out = [paddle.empty([4, 6]) for _ in range(2)]
    group.all_gather_on_calc_stream(out, random_of_rank(rank))
    return all(map(same, out, both()))


@check
def all_gather_partial(group: Any, rank: int) -> object:
    out = paddle.empty([4, 6])
    group.all_gather_partial(out, random_of_rank(rank), 2, rank).wait()
    halves = [x.reshape(2, -1)[i] for i, x in enumerate(both())]
    return same(out, np.concatenate(halves).reshape(4, 6))


@check
def broadcast_on_calc_stream(group: Any, rank: int) -> object:
    x = random_of_rank(rank)
    group.broadcast_on_calc_stream(x, 1)
    return same(x, both()[1])


@check
def all_to_all(group: Any, rank: int) -> object:
    out = [paddle.empty([2, 6]) for _ in range(2)]
    group.all_to_all(out, list(random_of_rank(rank).split(2)), True).wait()
    return all(same(x, sent[2 * rank : 2 * rank + 2]) for x, sent in zip(out, both(), strict=True))


@check
def all_to_all_single(group: Any, rank: int) -> object:
    # Rank 0 keeps one row and sends three; rank 1 sends two and keeps two.
    sizes = [1, 3] if rank == 0 else [2, 2]
    received = [1, 2] if rank == 0 else [3, 2]
    out = paddle.empty([sum(received), 6])
    group.all_to_all_single(out, random_of_rank(rank), received, sizes, True).wait()
    a, b = both()
    return same(out, np.concatenate([a[:1], b[:2]] if rank == 0 else [a[1:], b[2:]]))


@check
def all_to_all_tensor(group: Any, rank: int) -> object:
    out = paddle.empty([4, 6])
    group.all_to_all_tensor(out, random_of_rank(rank), True).wait()
    return same(out, np.concatenate([x[2 * rank : 2 * rank + 2] for x in both()]))


@check
def send_and_recv_on_calc_stream(group: Any, rank: int) -> object:
    x = random_of_rank(rank)
    if rank == 0:
        group.send_on_calc_stream(x, 1)
        return True
    group.recv_on_calc_stream(x, 0)
    return same(x, both()[0])


@check
def send_and_recv_partial(group: Any, rank: int) -> object:
    x = random_of_rank(rank)
    if rank == 0:
        group.send_partial(x, 1, 2, 1, True).wait()
        return True
    group.recv_partial(x, 0, 2, 1, True).wait()
    wanted = both()[1].reshape(2, -1)
    wanted[1] = both()[0].reshape(2, -1)[1]
    return same(x, wanted.reshape(4, 6))


@check
def c_identity(group: Any, rank: int) -> object:
    from paddle.distributed.fleet.layers.mpu import mp_ops

    return same(mp_ops._C_ops.c_identity(random_of_rank(rank), 0, True, True), both()[rank])


@check
def c_identity_legacy(group: Any, rank: int) -> object:
    return same(
        paddle._legacy_C_ops.c_identity(random_of_rank(rank), "use_calc_stream", True, "ring_id", 0), both()[rank]
    )


@check
def c_split(group: Any, rank: int) -> object:
    from paddle.distributed.fleet.layers.mpu import mp_ops

    return same(mp_ops._C_ops.c_split(random_of_rank(0), rank, 2, 0, True), both()[0][:, 3 * rank : 3 * rank + 3])


@check
def c_concat(group: Any, rank: int) -> object:
    from paddle.distributed.fleet.layers.mpu import mp_ops

    x = random_of_rank(rank)
    x.stop_gradient = False
    out = mp_ops._C_ops.c_concat(x, rank, 2, 0, True, True)
    upstream = random_of_rank(5, (4, 12))
    (out * upstream).sum().backward()
    return same(out, np.concatenate(both(), axis=1)) and same(x.grad, upstream.numpy()[:, 6 * rank : 6 * rank + 6])


@check
def c_softmax_with_cross_entropy(group: Any, rank: int) -> object:
    from paddle.distributed.fleet.layers.mpu import mp_ops

    x, label = random_of_rank(rank, (3, 4)), paddle.to_tensor([[1], [6], [-100]])
    x.stop_gradient = False
    _, loss = mp_ops._C_ops.c_softmax_with_cross_entropy(x, label, -100, 0, rank, 2)
    (loss.squeeze(-1) * paddle.to_tensor([1.0, 2.0, 3.0])).sum().backward()
    logits = np.concatenate(both((3, 4)), axis=1).astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    wanted = np.array([-np.log(shares[0, 1]), -np.log(shares[1, 6]), 0.0])
    gradient = (shares - np.eye(8)[[1, 6, 0]]) * np.array([[1.0], [2.0], [0.0]])
    return same(loss.squeeze(-1), wanted, 1e-5) and same(x.grad, gradient[:, 4 * rank : 4 * rank + 4], 1e-5)


@check
def broadcast_input_data(group: Any, rank: int) -> object:
    from paddle.distributed.fleet.meta_parallel import tensor_parallel

    topology = SimpleNamespace(
        get_model_parallel_group=lambda: default_group(),
        get_model_parallel_group_src_rank=lambda: 0,
        get_model_parallel_rank=lambda: rank,
    )
    positional, keyword = random_of_rank(rank), random_of_rank(rank, (2, 3))
    tensor_parallel.broadcast_input_data(topology, positional, x=keyword)  # in place
    return same(positional, both()[0]) and same(keyword, both((2, 3))[0])


@check
def group_sharded_parallel(group: Any, rank: int) -> object:
    for level in ("os_g", "p_g_os"):
        paddle.seed(1)
        layer = paddle.nn.Linear(6, 600)
        optimizer = paddle.optimizer.AdamW(0.1, parameters=layer.parameters())
        layer, optimizer, _ = dist.sharding.group_sharded_parallel(layer, optimizer, level, segment_size=64)
        layer(random_of_rank(rank)).sum().backward()
        optimizer.step()
    return True


def default_group() -> Any:
    return dist.collective._get_default_group()


def run() -> dict[str, str]:
    found = {}
    group, rank = default_group().process_group, dist.get_rank()
    for name, body in CHECKS.items():
        try:
            found[name] = "right" if body(group, rank) else "wrong"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}"
    return found


def connect_strangers(address: tuple[str, int]) -> None:
    """Connect to a rank without a message, and with an invalid one, and wait until the rank closes the connection."""
    for content in (b"", b"GET / HTTP/1.0\r\nHost: a machine like any other\r\n\r\n"):
        with socket.create_connection(address, timeout=60) as stranger, contextlib.suppress(ConnectionError):
            stranger.sendall(content) if content else stranger.shutdown(socket.SHUT_WR)
            assert not stranger.recv(1)


def messages() -> str:
    """Each rank sends in two groups before it receives in reverse order; meanwhile, strangers connect.

    With Paddle as it is there is one group.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = [default_group()]
    if gloo._mailbox is not None:  # Paddle's own groups may mix up their addresses
        groups.append(dist.new_group(list(range(size))))
    thread_errors: list[Any] = []
    threading.excepthook = thread_errors.append
    if gloo._mailbox is not None:
        connect_strangers(gloo._mailbox._server.getsockname())
    following, preceding = (rank + 1) % size, (rank - 1) % size
    for number, group in enumerate(groups):
        group.process_group.send(random_of_rank(rank) + number, following, True)
    for number, group in reversed(list(enumerate(groups))):
        found = paddle.empty([4, 6])
        group.process_group.recv(found, preceding, True)
        assert same(found, (random_of_rank(preceding) + number).numpy())
    assert not thread_errors, thread_errors
    groups[0].process_group.barrier().wait()  # rank 0 serves the store in which the others look up one another
    return "right"


def groups() -> str:
    """Create different groups one after the other and sum the ranks of each."""
    for members in ([0, 1], [2, 3], [0, 2], [1, 3], [0, 1, 2, 3]):
        group = dist.new_group(members)
        if dist.get_rank() in members:
            x = paddle.to_tensor([float(dist.get_rank())])
            group.process_group.all_reduce(x, SUM, True).wait()
            assert x.item() == sum(members)
    return "right"


if __name__ == "__main__":
    if sys.argv[1] == "installed":
        gloo.install()
        store.global_store()
    dist.init_parallel_env()
    print(json.dumps({"all": run, "messages": messages, "groups": groups}[sys.argv[2]]()))
