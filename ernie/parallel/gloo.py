"""Fleet on CPUs: what Paddle 3.3.1 lacks there, and nothing else.

Nearly all that fleet says to other processes ends in a method of ProcessGroupGloo, so bodies for what that class has
none for, or wrong ones, let fleet's own pipeline, sharding and tensor-parallel code run as it is.  The rest are some
operators without a CPU kernel and checks that the device is a GPU.  On a GPU `install` does nothing.

tests/parallel/test_gloo.py has a test for each function here that fails once Paddle no longer needs it.
"""

from __future__ import annotations

import contextlib
import json
import math
import queue
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import Tensor
from paddle.autograd import PyLayer
from paddle.base import core
from paddle.distributed import collective

from ernie.parallel.watch import host

Group: TypeAlias = Any  # a core.ProcessGroupGloo
_SUM, _MAX, _AVG = core.ReduceOp.SUM, core.ReduceOp.MAX, core.ReduceOp.AVG
_KEY = "ernie/gloo"  # in the store that all processes share
Waiting: TypeAlias = Callable[[str], contextlib.AbstractContextManager[None]]
_timeout = 300.0
_waiting: Waiting
_post: Post | None = None
_stock: dict[str, Callable[..., Any]] = {}  # Paddle's own functions, of those that are replaced


def install(timeout: float = 300.0, waiting: Waiting = lambda _: contextlib.nullcontext()) -> bool:
    """Put everything in its place, before `fleet.init`; whether this is a machine where it is needed.

    A message that does not come within `timeout` seconds is an error.  What waits for other processes does so inside
    `waiting(name)`.
    """
    global _timeout, _waiting
    if paddle.get_device() != "cpu":
        return False
    _timeout, _waiting = timeout, waiting
    use_lasting_store()
    if not _stock:
        _install_groups()
        _install_operators()
        _install_devices()
    return True


def use_lasting_store() -> None:
    """Have Paddle's stores served without libuv, before the first one is made.

    With it, which is Paddle's default, a process that has one and is about to leave is aborted (SIGABRT, without a
    word) when another leaves at that moment: its thread goes on when what it uses is gone.  A run that is done would
    fail.
    """
    paddle.set_flags({"FLAGS_tcp_store_using_libuv": False})


class _Done:
    """A communication that is over when the call returns."""

    def wait(self, *_: object) -> bool:
        return True

    synchronize = is_completed = is_sync = wait


# ---- messages from one process to another --------------------------------------------------------------------------


class Post:
    """Messages between processes, in order, kept until they are asked for.

    Gloo's own wait until the other side is there, and are told apart by how many there were before in the group: a
    pipeline of three stages, or two processes that send first, stand still.  Here a thread for each process that
    sends reads what comes, so that any order that works on a GPU works.
    """

    def __init__(self) -> None:
        self._boxes: dict[tuple[int, int], queue.SimpleQueue[tuple[dict[str, Any], bytes] | None]] = {}
        self._sockets: dict[int, socket.socket] = {}
        self._gone: set[int] = set()
        self._lock = threading.Lock()
        self._store: Any = core.create_or_get_global_tcp_store()
        self._door = socket.create_server((host(), 0), backlog=64)
        self._store.set(f"{_KEY}/{dist.get_rank()}", _address(self._door))
        threading.Thread(target=self._open, daemon=True, name="post").start()

    def send(self, tensor: Tensor, group: int, to: int) -> None:
        """Send a tensor to the process `to` without waiting for it to be read."""
        if to not in self._sockets:
            place, port = bytes(self._store.get(f"{_KEY}/{to}")).decode().rsplit(":", 1)
            self._sockets[to] = socket.create_connection((place, int(port)), timeout=_timeout)
            self._sockets[to].sendall(struct.pack("!q", dist.get_rank()))
        values = np.ascontiguousarray(_plain(tensor).numpy())
        header = json.dumps({"group": group, "dtype": values.dtype.str, "shape": tensor.shape}).encode()
        try:
            self._sockets[to].sendall(struct.pack("!qq", len(header), values.nbytes) + header)
            self._sockets[to].sendall(values.reshape(-1).view(np.uint8).data)
        except OSError as error:
            raise ConnectionError(f"rank {dist.get_rank()}: cannot send to rank {to}, which has gone") from error

    def receive(self, tensor: Tensor, group: int, sender: int) -> None:
        """Wait for the next tensor of a sender and put it into this one.

        Raises TimeoutError when none comes, ConnectionError when the sender is gone, ValueError for another size.
        """
        me = dist.get_rank()
        try:
            found = self._box(group, sender).get(timeout=_timeout)
        except queue.Empty:
            raise TimeoutError(f"rank {me}: nothing came from rank {sender} in {_timeout:g} s") from None
        if found is None:
            raise ConnectionError(f"rank {me}: rank {sender} has gone")
        header, content = found
        values = np.frombuffer(content, np.dtype(header["dtype"]))
        if values.size != math.prod(tensor.shape):
            raise ValueError(f"rank {me}: rank {sender} sent {header['shape']}, expected {tensor.shape}")
        _plain(tensor).set_value(values.reshape(tensor.shape))

    def _open(self) -> None:
        while True:
            connection, _ = self._door.accept()
            threading.Thread(target=self._read, args=(connection,), daemon=True, name="post").start()

    def _read(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            (sender,) = struct.unpack("!q", _exactly(connection, 8))
            if 0 <= sender < dist.get_world_size():  # not a stranger
                self._read_from(sender, connection)

    def _read_from(self, sender: int, connection: socket.socket) -> None:
        try:
            while True:
                sizes = struct.unpack("!qq", _exactly(connection, 16))
                header = json.loads(_exactly(connection, sizes[0]))
                self._box(header["group"], sender).put((header, _exactly(connection, sizes[1])))
        except OSError:
            with self._lock:
                self._gone.add(sender)
                for (_, other), box in self._boxes.items():
                    if other == sender:
                        box.put(None)

    def _box(self, group: int, sender: int) -> queue.SimpleQueue[tuple[dict[str, Any], bytes] | None]:
        with self._lock:
            if (group, sender) not in self._boxes:
                self._boxes[group, sender] = queue.SimpleQueue()
                if sender in self._gone:
                    self._boxes[group, sender].put(None)
            return self._boxes[group, sender]


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray(size)
    view, got = memoryview(content), 0
    while got < size:
        count = connection.recv_into(view[got:])
        if not count:
            raise ConnectionError("the other side has gone")
        got += count
    return bytes(content)


def _address(server: socket.socket) -> str:
    return f"{host()}:{server.getsockname()[1]}"


# ---- groups of processes -------------------------------------------------------------------------------------------

_late: dict[int, list[Callable[[], object]]] = {}  # by group: what is received at the end of a batch of messages
_stores: list[Any] = []  # kept alive


def _create(store: Any, rank: int, size: int, group: int = 0) -> Group:
    """A group with a store of its own.

    Paddle's groups all write the addresses of their ranks under the same keys of one store, and read those of an
    older group: with four processes and more most runs stand still or cannot connect.
    """
    global _post
    _post = _post or Post()  # every process listens before the first message
    key = f"{_KEY}/group/{group}"
    if rank == 0:
        with socket.create_server((host(), 0)) as probe:
            address = _address(probe)
        store.set(key, address.encode())  # first, for whoever opens a store waits in it for all others
    else:
        store.wait(key)
        address = bytes(store.get(key)).decode()
    to, port = address.rsplit(":", 1)
    _stores.append(core.TCPStore(to, int(port), rank == 0, size))
    return _stock["create"](_stores[-1], rank, size, group)


def _all_reduce(group: Group, tensor: Tensor, op: Any = _SUM, sync_op: bool = True) -> object:
    """With means, which Gloo has not, and sums of fp16, which Gloo has as infinity."""
    half = tensor.dtype == paddle.float16
    if op != _AVG and not half:
        _stock["all_reduce"](group, tensor, op, True).wait()
        return _Done()
    total = _plain(tensor).astype("float32") if half else _plain(tensor)
    _stock["all_reduce"](group, total, _SUM if op == _AVG else op, True).wait()
    _put(tensor, total / group.size() if op == _AVG else total)
    return _Done()


def _reduce(group: Group, tensor: Tensor, to: int, op: Any = _SUM, sync_op: bool = True) -> object:
    half = tensor.dtype == paddle.float16
    if op != _AVG and not half:
        _stock["reduce"](group, tensor, to, op, True).wait()
        return _Done()
    total = _plain(tensor).astype("float32") if half else _plain(tensor).clone()
    _stock["reduce"](group, total, to, _SUM if op == _AVG else op, True).wait()
    if group.rank() == to:
        _put(tensor, total / group.size() if op == _AVG else total)
    return _Done()


def _reduce_scatter_tensor(group: Group, out: Tensor, tensor: Tensor, op: Any = _SUM, sync_op: bool = True) -> object:
    total = _plain(tensor).clone()
    _all_reduce(group, total, op)
    _put(out, _part(total, group.size(), group.rank()))
    return _Done()


def _reduce_scatter(
    group: Group, out: Tensor, tensors: Sequence[Tensor], op: Any = _SUM, sync_op: bool = True
) -> object:
    return _reduce_scatter_tensor(group, out, paddle.concat([_plain(t).reshape([-1]) for t in tensors]), op)


def _all_gather(group: Group, out: Sequence[Tensor], tensor: Tensor, sync_op: bool = True) -> object:
    _stock["all_gather"](group, out, tensor, True).wait()
    return _Done()


def _broadcast(group: Group, tensor: Tensor, source: int, sync_op: bool = True) -> object:
    _stock["broadcast"](group, tensor, source, True).wait()
    return _Done()


def _all_gather_into_tensor(group: Group, out: Tensor, tensor: Tensor, sync_op: bool = True) -> object:
    _stock["all_gather_into_tensor"](group, out, _plain(tensor), True).wait()
    return _Done()


def _all_gather_partial(
    group: Group, out: Tensor, tensor: Tensor, parts: int, part: int, sync_op: bool = True
) -> object:
    whole = paddle.empty([math.prod(out.shape)], out.dtype)
    _all_gather_into_tensor(group, whole, _part(tensor, parts, part).clone())
    _put(out, whole)
    return _Done()


def _all_to_all(group: Group, out: Sequence[Tensor], tensors: Sequence[Tensor], sync_op: bool = True) -> object:
    me = group.rank()
    for peer in range(group.size()):
        if peer != me:
            _send(group, tensors[peer], peer)
    for peer in range(group.size()):
        if peer == me:
            _put(out[me], _plain(tensors[me]))
        else:
            _receive_now(group, out[peer], peer)
    return _Done()


def _all_to_all_single(
    group: Group,
    out: Tensor,
    tensor: Tensor,
    out_sizes: Sequence[int] = (),
    in_sizes: Sequence[int] = (),
    sync_op: bool = True,
) -> object:
    size = group.size()
    parts = paddle.split(_plain(tensor), list(in_sizes) or size, axis=0)
    sizes = list(out_sizes) or [out.shape[0] // size] * size
    received = [paddle.empty([rows, *out.shape[1:]], out.dtype) for rows in sizes]
    _all_to_all(group, received, parts)
    _put(out, paddle.concat(received, axis=0))
    return _Done()


def _all_to_all_tensor(group: Group, out: Tensor, tensor: Tensor, sync_op: bool = True) -> object:
    return _all_to_all_single(group, out, tensor)


def _send(group: Group, tensor: Tensor, to: int, sync_op: bool = True) -> object:
    assert _post is not None
    _post.send(tensor, *_place(group, to))
    return _Done()


def _recv(group: Group, tensor: Tensor, sender: int, sync_op: bool = True) -> object:
    if id(group) in _late:
        _late[id(group)].append(lambda: _receive_now(group, tensor, sender))
    else:
        _receive_now(group, tensor, sender)
    return _Done()


def _receive_now(group: Group, tensor: Tensor, sender: int) -> None:
    assert _post is not None
    _post.receive(tensor, *_place(group, sender))


def _send_partial(group: Group, tensor: Tensor, to: int, parts: int, part: int, sync_op: bool = True) -> object:
    return _send(group, _part(tensor, parts, part), to)


def _recv_partial(group: Group, tensor: Tensor, sender: int, parts: int, part: int, sync_op: bool = True) -> object:
    def receive() -> None:
        received = _part(tensor, parts, part).clone()
        _receive_now(group, received, sender)
        whole = _plain(tensor).reshape([-1]).clone()
        whole[part * received.shape[0] : (part + 1) * received.shape[0]] = received
        _put(tensor, whole)

    if id(group) in _late:
        _late[id(group)].append(receive)
    else:
        receive()
    return _Done()


def _start_coalescing(group: Group) -> None:
    """Messages of a batch are exchanged as if at once: what is received waits for what is sent."""
    _late[id(group)] = []


def _end_coalescing(group: Group, tasks: object = None) -> None:
    for receive in _late.pop(id(group)):
        receive()


def _place(group: Group, rank: int) -> tuple[int, int]:
    """A group's number, and a rank of it among all processes."""
    for known in collective._get_group_map().values():
        if known.process_group is group:
            return known.id, known.ranks[rank]
    raise ValueError("a message in a group that Paddle does not know")


def _plain(tensor: Tensor) -> Tensor:
    return tensor if tensor.stop_gradient else tensor.detach()


def _put(to: Tensor, values: Tensor) -> None:
    with paddle.no_grad():
        paddle.assign(values.reshape(to.shape).astype(to.dtype), to)


def _part(tensor: Tensor, parts: int, part: int) -> Tensor:
    flat = _plain(tensor).reshape([-1])
    size = flat.shape[0] // parts
    return flat[part * size : (part + 1) * size]


GROUP_METHODS: dict[str, Callable[..., object]] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "all_gather_partial": _all_gather_partial,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
    "all_to_all_tensor": _all_to_all_tensor,
    "send": _send,
    "recv": _recv,
    "send_partial": _send_partial,
    "recv_partial": _recv_partial,
}


def _install_groups() -> None:
    kind: Any = core.ProcessGroupGloo
    for name in ("create", "all_reduce", "reduce", "all_gather_into_tensor", "all_gather", "broadcast"):
        _stock[name] = getattr(kind, name)
    kind.create = staticmethod(_create)
    kind._start_coalescing, kind._end_coalescing = _start_coalescing, _end_coalescing
    for name, body in GROUP_METHODS.items():
        watched = _watched(name, body)
        setattr(kind, name, watched)
        setattr(kind, f"{name}_on_calc_stream", watched)  # there is one stream
    kind.allreduce = kind.all_reduce
    for name, body in {"all_gather": _all_gather, "broadcast": _broadcast}.items():
        setattr(kind, name, _watched(name, _stock[name]))
        setattr(kind, f"{name}_on_calc_stream", _watched(name, body))


def _watched(name: str, body: Callable[..., object]) -> Callable[..., object]:
    def call(group: Group, *given: Any, **named: Any) -> object:
        with _waiting(name):
            return body(group, *given, **named)

    return call


# ---- operators without a CPU kernel --------------------------------------------------------------------------------


class Operators:
    """Paddle's operators, with those of tensor parallelism that have no CPU kernel."""

    def __init__(self, stock: Any) -> None:
        self._stock = stock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)

    @staticmethod
    def c_identity(x: Tensor, *_: object) -> Tensor:
        return paddle.assign(x)

    @staticmethod
    def c_split(x: Tensor, rank: int, ranks: int, *_: object) -> Tensor:
        return _columns(x, rank, ranks).clone()

    @staticmethod
    def c_concat(x: Tensor, rank: int, ranks: int, ring: int, *_: object) -> Tensor:
        return _Concat.apply(x, rank, ranks, ring)

    @staticmethod
    def c_softmax_with_cross_entropy(
        logits: Tensor, label: Tensor, ignored: int, ring: int, rank: int, ranks: int
    ) -> tuple[Tensor, Tensor]:
        return _CrossEntropy.apply(logits, label, ignored, ring, rank)


def _columns(x: Tensor, rank: int, ranks: int) -> Tensor:
    width = x.shape[-1] // ranks
    return x[..., rank * width : (rank + 1) * width]


def _of_ring(ring: int) -> Group:
    return collective._get_group_map()[ring].process_group


class _Concat(PyLayer):
    """The columns of all ranks, side by side."""

    @staticmethod
    def forward(ctx, x, rank, ranks, ring):  # type: ignore[no-untyped-def]
        ctx.rank, ctx.ranks = rank, ranks
        out = paddle.empty([ranks, *x.shape], x.dtype)
        _all_gather_into_tensor(_of_ring(ring), out, x)
        return paddle.concat(list(paddle.unbind(out, 0)), axis=-1)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return _columns(grad, ctx.rank, ctx.ranks).clone()


class _CrossEntropy(PyLayer):
    """Softmax and cross entropy over classes that are spread over ranks (Shoeybi et al., 2019, arXiv 1909.08053, 3)."""

    @staticmethod
    def forward(ctx, logits, label, ignored, ring, rank):  # type: ignore[no-untyped-def]
        group, width = _of_ring(ring), logits.shape[-1]
        x = logits.detach().astype("float32")
        highest = x.max(-1, keepdim=True)
        _all_reduce(group, highest, _MAX)
        x = x - highest
        powers = x.exp()
        total = powers.sum(-1, keepdim=True)
        _all_reduce(group, total)
        own = label.astype("int64") - rank * width
        here = (own >= 0) & (own < width)
        own = paddle.where(here, own, paddle.zeros_like(own))
        here = here.astype(x.dtype)
        right = paddle.take_along_axis(x, own, -1) * here
        _all_reduce(group, right)
        counts = (label != ignored).astype(x.dtype)
        softmax = powers / total
        ctx.save_for_backward(softmax, own, here, counts)
        return softmax.astype(logits.dtype), ((total.log() - right) * counts).astype(logits.dtype)

    @staticmethod
    def backward(ctx, _, grad):  # type: ignore[no-untyped-def]
        softmax, own, here, counts = ctx.saved_tensor()
        right = paddle.nn.functional.one_hot(own.squeeze(-1), softmax.shape[-1]) * here
        return ((softmax - right) * (grad.astype(softmax.dtype) * counts)).astype(grad.dtype), None


def _install_operators() -> None:
    from paddle.distributed.fleet.layers.mpu import mp_ops

    mp_ops._C_ops = Operators(mp_ops._C_ops)
    paddle._legacy_C_ops.c_identity = Operators.c_identity  # as mp_layers calls it


# ---- checks of the device ------------------------------------------------------------------------------------------


def _broadcast_input_data(hcg: Any, *inputs: Any, **named: Any) -> tuple[Any, Any]:
    """Fleet's own, which asks for the number of a GPU."""
    from paddle.distributed.fleet.utils import hybrid_parallel_util as fleets

    place = paddle.CPUPlace()
    sent = fleets._broadcast_nested_data(hcg, "cpu", place, inputs) if inputs else inputs
    return sent, fleets._broadcast_nested_data(hcg, "cpu", place, named) if named else named


@contextlib.contextmanager
def _replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)


def _on_cpu(kind: Callable[..., Any]) -> Callable[..., Any]:
    """A class of group sharding, whose constructor accepts the CPU."""

    def make(*given: Any, **named: Any) -> Any:
        named["device"] = "cpu"
        with _replaced((paddle, "get_device", lambda: "cpu:0"), (core, "is_compiled_with_cuda", lambda: True)):
            return kind(*given, **named)

    return make


def _group_sharded_parallel(*given: Any, **named: Any) -> Any:
    from paddle.distributed.sharding import group_sharded as fleets

    kinds = ("GroupShardedOptimizerStage2", "GroupShardedStage2", "GroupShardedStage3")
    devices = (paddle.device, "get_all_custom_device_type", lambda: ["cpu"])
    with _replaced(devices, *((fleets, name, _on_cpu(getattr(fleets, name))) for name in kinds)):
        return _stock["group_sharded_parallel"](*given, **named)


def _install_devices() -> None:
    from paddle.distributed.fleet.meta_parallel import tensor_parallel
    from paddle.distributed.fleet.meta_parallel.sharding import group_sharded_storage
    from paddle.distributed.fleet.utils import hybrid_parallel_util, tensor_fusion_helper
    from paddle.distributed.sharding import group_sharded

    dist.parallel._start_kv_server = lambda *_: None  # which nobody asks anything; it leaves an http.log where it is
    library: Any = core
    library.nccl_version = lambda: 22000  # asked before a mean is reduced
    dist.ParallelEnv._device_id = 0
    hybrid_parallel_util.broadcast_input_data = tensor_parallel.broadcast_input_data = _broadcast_input_data
    tensor_fusion_helper.alignment.setdefault("unknown", 256)  # what the CPU is called there
    _stock["group_sharded_parallel"] = group_sharded.group_sharded_parallel
    group_sharded.group_sharded_parallel = dist.sharding.group_sharded_parallel = _group_sharded_parallel
    storage: Any = group_sharded_storage.ParamStorage
    add = storage.add_rank_params
    storage.add_rank_params = lambda to, parameters, align, convert_gpu=True: add(to, parameters, align, False)
    paddle.Tensor.cuda = lambda tensor, *_, **__: tensor
