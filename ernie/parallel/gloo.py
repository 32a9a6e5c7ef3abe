"""Fleet on CPUs: patches for what Paddle 3.3.1 lacks there, and nothing else.

Nearly all communication of fleet ends in a method of ProcessGroupGloo.  Implementing the methods that this class lacks
or gets wrong lets fleet's own pipeline, sharding and tensor-parallel code run unchanged.  The rest are some operators
without a CPU kernel, and checks that the device is a GPU.  On a GPU `install` does nothing.

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
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import Tensor
from paddle.autograd import PyLayer
from paddle.base import core
from paddle.distributed import collective

from ernie.parallel.ports import host, listen
from ernie.parallel.secret import LENGTH, is_secret, run_secret
from ernie.parallel.store import disable_libuv_store, join_store, serve_store

Group: TypeAlias = Any  # a core.ProcessGroupGloo
_SUM, _MAX, _AVG = core.ReduceOp.SUM, core.ReduceOp.MAX, core.ReduceOp.AVG
_KEY = "ernie/gloo"  # the prefix of our keys in the store that all processes share
Waiting: TypeAlias = Callable[[str], contextlib.AbstractContextManager[None]]
_TO_ENTER = 10.0  # seconds in which a connection has to show the secret of the run
_timeout = 300.0
_ports: Sequence[int] = ()
_waiting: Waiting
_mailbox: Mailbox | None = None
_stock: dict[str, Callable[..., Any]] = {}  # the original Paddle functions that are replaced


def install(
    timeout: float = 300.0, waiting: Waiting = lambda _: contextlib.nullcontext(), ports: Sequence[int] = ()
) -> bool:
    """Apply all patches, before `fleet.init`; return whether they are needed on this machine.

    A message that does not arrive within `timeout` seconds is an error.  Collectives and other calls that wait for
    other processes run inside the context `waiting(name)`.  Messages and stores use the `ports` (see `listen`).
    """
    global _timeout, _waiting, _ports
    if paddle.get_device() != "cpu":
        return False
    _timeout, _waiting, _ports = timeout, waiting, ports
    disable_libuv_store()
    if not _stock:
        _install_groups()
        _install_operators()
        _install_devices()
    return True


class _Done:
    """The handle of a communication that is complete when the call returns."""

    def wait(self, *_: object) -> bool:
        return True

    synchronize = is_completed = is_sync = wait


# ---- messages from one process to another --------------------------------------------------------------------------


class Mailbox:
    """Buffered, ordered point-to-point messages between processes.

    Gloo's own messages block until the receiver is ready, and a running count per group matches them.  A pipeline of
    three stages, or two processes that both send first, would deadlock.  Here a thread for each sender buffers incoming
    messages: any order that works on a GPU works.
    """

    def __init__(self) -> None:
        self._boxes: dict[tuple[int, int], queue.SimpleQueue[tuple[dict[str, Any], bytes] | None]] = {}
        self._sockets: dict[int, socket.socket] = {}
        self._gone: set[int] = set()
        self._speakers: set[int] = set()  # ranks that have connected
        self._lock = threading.Lock()
        self._store: Any = core.create_or_get_global_tcp_store()
        self._secret = run_secret(self._store, dist.get_rank())
        self._server = listen(host(), _ports)
        self._store.set(f"{_KEY}/{dist.get_rank()}", _address(self._server))
        threading.Thread(target=self._accept, daemon=True, name="mailbox").start()

    def send(self, tensor: Tensor, group: int, to: int) -> None:
        """Send a tensor to the process `to` without waiting for it to be read."""
        if to not in self._sockets:
            address, port = bytes(self._store.get(f"{_KEY}/{to}")).decode().rsplit(":", 1)
            self._sockets[to] = socket.create_connection((address, int(port)), timeout=_timeout)
            self._sockets[to].sendall(self._secret.encode() + struct.pack("!q", dist.get_rank()))
        values = np.ascontiguousarray(_detached(tensor).numpy())
        header = json.dumps({"group": group, "dtype": values.dtype.str, "shape": tensor.shape}).encode()
        try:
            self._sockets[to].sendall(struct.pack("!qq", len(header), values.nbytes) + header)
            self._sockets[to].sendall(values.reshape(-1).view(np.uint8).data)
        except OSError as error:
            raise ConnectionError(f"rank {dist.get_rank()}: cannot send to rank {to}, which has gone") from error

    def receive(self, tensor: Tensor, group: int, sender: int) -> None:
        """Wait for the next message of a sender and copy it into `tensor`.

        Raises TimeoutError if none arrives, ConnectionError if the sender is gone, ValueError if the size differs.
        """
        me = dist.get_rank()
        try:
            message = self._box(group, sender).get(timeout=_timeout)
        except queue.Empty:
            raise TimeoutError(f"rank {me}: nothing came from rank {sender} in {_timeout:g} s") from None
        if message is None:
            raise ConnectionError(f"rank {me}: rank {sender} has gone")
        header, content = message
        values = np.frombuffer(content, np.dtype(header["dtype"]))
        if values.size != math.prod(tensor.shape):
            raise ValueError(f"rank {me}: rank {sender} sent {header['shape']}, expected {tensor.shape}")
        _detached(tensor).set_value(values.reshape(tensor.shape))

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # it has gone again, or strangers hold all file descriptors
                time.sleep(0.1)
                continue
            threading.Thread(target=self._read, args=(connection,), daemon=True, name="mailbox").start()

    def _read(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_TO_ENTER)
            shown = _read_exactly(connection, LENGTH)
            (sender,) = struct.unpack("!q", _read_exactly(connection, 8))
            with self._lock:
                enters = is_secret(shown, self._secret) and sender not in self._speakers
                if enters:
                    self._speakers.add(sender)
            if enters:  # otherwise it is not one of our processes: any program of this machine can connect
                connection.settimeout(None)
                self._read_from(sender, connection)

    def _read_from(self, sender: int, connection: socket.socket) -> None:
        try:
            while True:
                sizes = struct.unpack("!qq", _read_exactly(connection, 16))
                header = json.loads(_read_exactly(connection, sizes[0]))
                self._box(header["group"], sender).put((header, _read_exactly(connection, sizes[1])))
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


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray(size)
    view, received = memoryview(content), 0
    while received < size:
        count = connection.recv_into(view[received:])
        if not count:
            raise ConnectionError("the other side has gone")
        received += count
    return bytes(content)


def _address(server: socket.socket) -> str:
    return f"{host()}:{server.getsockname()[1]}"


# ---- groups of processes -------------------------------------------------------------------------------------------

_deferred: dict[int, list[Callable[[], object]]] = {}  # by group: receives postponed to the end of a batch of messages
_stores: list[Any] = []  # kept alive


def _create(store: Any, rank: int, size: int, group: int = 0) -> Group:
    """Create a process group with a store of its own.

    Paddle's groups all write their ranks' addresses under the same keys of one store, and so read those of an older
    group.  With four or more processes most runs hang or fail to connect.
    """
    global _mailbox
    _mailbox = _mailbox or Mailbox()  # every process listens before the first message
    key = f"{_KEY}/group/{group}"
    if rank == 0:
        address, opened = serve_store(_ports)
        store.set(key, address.encode())
    else:
        opened = join_store(bytes(store.get(key)).decode())
    _stores.append(opened)
    return _stock["create"](opened, rank, size, group)


def _all_reduce(group: Group, tensor: Tensor, op: Any = _SUM, sync_op: bool = True) -> object:
    """All-reduce that also supports means, which Gloo lacks, and fp16 sums, which Gloo returns as infinity."""
    half = tensor.dtype == paddle.float16
    if op != _AVG and not half:
        _stock["all_reduce"](group, tensor, op, True).wait()
        return _Done()
    total = _detached(tensor).astype("float32") if half else _detached(tensor)
    _stock["all_reduce"](group, total, _SUM if op == _AVG else op, True).wait()
    _assign(tensor, total / group.size() if op == _AVG else total)
    return _Done()


def _reduce(group: Group, tensor: Tensor, to: int, op: Any = _SUM, sync_op: bool = True) -> object:
    half = tensor.dtype == paddle.float16
    if op != _AVG and not half:
        _stock["reduce"](group, tensor, to, op, True).wait()
        return _Done()
    total = _detached(tensor).astype("float32") if half else _detached(tensor).clone()
    _stock["reduce"](group, total, to, _SUM if op == _AVG else op, True).wait()
    if group.rank() == to:
        _assign(tensor, total / group.size() if op == _AVG else total)
    return _Done()


def _reduce_scatter_tensor(group: Group, out: Tensor, tensor: Tensor, op: Any = _SUM, sync_op: bool = True) -> object:
    total = _detached(tensor).clone()
    _all_reduce(group, total, op)
    _assign(out, _part(total, group.size(), group.rank()))
    return _Done()


def _reduce_scatter(
    group: Group, out: Tensor, tensors: Sequence[Tensor], op: Any = _SUM, sync_op: bool = True
) -> object:
    return _reduce_scatter_tensor(group, out, paddle.concat([_detached(t).reshape([-1]) for t in tensors]), op)


def _all_gather(group: Group, out: Sequence[Tensor], tensor: Tensor, sync_op: bool = True) -> object:
    _stock["all_gather"](group, out, tensor, True).wait()
    return _Done()


def _broadcast(group: Group, tensor: Tensor, source: int, sync_op: bool = True) -> object:
    _stock["broadcast"](group, tensor, source, True).wait()
    return _Done()


def _all_gather_into_tensor(group: Group, out: Tensor, tensor: Tensor, sync_op: bool = True) -> object:
    _stock["all_gather_into_tensor"](group, out, _detached(tensor), True).wait()
    return _Done()


def _all_gather_partial(
    group: Group, out: Tensor, tensor: Tensor, parts: int, part: int, sync_op: bool = True
) -> object:
    whole = paddle.empty([math.prod(out.shape)], out.dtype)
    _all_gather_into_tensor(group, whole, _part(tensor, parts, part).clone())
    _assign(out, whole)
    return _Done()


def _all_to_all(group: Group, out: Sequence[Tensor], tensors: Sequence[Tensor], sync_op: bool = True) -> object:
    me = group.rank()
    for peer in range(group.size()):
        if peer != me:
            _send(group, tensors[peer], peer)
    for peer in range(group.size()):
        if peer == me:
            _assign(out[me], _detached(tensors[me]))
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
    parts = paddle.split(_detached(tensor), list(in_sizes) or size, axis=0)
    sizes = list(out_sizes) or [out.shape[0] // size] * size
    received = [paddle.empty([rows, *out.shape[1:]], out.dtype) for rows in sizes]
    _all_to_all(group, received, parts)
    _assign(out, paddle.concat(received, axis=0))
    return _Done()


def _all_to_all_tensor(group: Group, out: Tensor, tensor: Tensor, sync_op: bool = True) -> object:
    return _all_to_all_single(group, out, tensor)


def _send(group: Group, tensor: Tensor, to: int, sync_op: bool = True) -> object:
    assert _mailbox is not None
    _mailbox.send(tensor, *_group_id_and_rank(group, to))
    return _Done()


def _recv(group: Group, tensor: Tensor, sender: int, sync_op: bool = True) -> object:
    if id(group) in _deferred:
        _deferred[id(group)].append(lambda: _receive_now(group, tensor, sender))
    else:
        _receive_now(group, tensor, sender)
    return _Done()


def _receive_now(group: Group, tensor: Tensor, sender: int) -> None:
    assert _mailbox is not None
    _mailbox.receive(tensor, *_group_id_and_rank(group, sender))


def _send_partial(group: Group, tensor: Tensor, to: int, parts: int, part: int, sync_op: bool = True) -> object:
    return _send(group, _part(tensor, parts, part), to)


def _recv_partial(group: Group, tensor: Tensor, sender: int, parts: int, part: int, sync_op: bool = True) -> object:
    def receive() -> None:
        received = _part(tensor, parts, part).clone()
        _receive_now(group, received, sender)
        whole = _detached(tensor).reshape([-1]).clone()
        whole[part * received.shape[0] : (part + 1) * received.shape[0]] = received
        _assign(tensor, whole)

    if id(group) in _deferred:
        _deferred[id(group)].append(receive)
    else:
        receive()
    return _Done()


def _start_coalescing(group: Group) -> None:
    """Start a batch of messages, in which receives are postponed until everything has been sent."""
    _deferred[id(group)] = []


def _end_coalescing(group: Group, tasks: object = None) -> None:
    for receive in _deferred.pop(id(group)):
        receive()


def _group_id_and_rank(group: Group, rank: int) -> tuple[int, int]:
    """Return a group's id, and the global rank of one of its ranks."""
    for known in collective._get_group_map().values():
        if known.process_group is group:
            return known.id, known.ranks[rank]
    raise ValueError("a message in a group unknown to Paddle")


def _detached(tensor: Tensor) -> Tensor:
    return tensor if tensor.stop_gradient else tensor.detach()


def _assign(to: Tensor, values: Tensor) -> None:
    with paddle.no_grad():
        paddle.assign(values.reshape(to.shape).astype(to.dtype), to)


def _part(tensor: Tensor, parts: int, part: int) -> Tensor:
    flat = _detached(tensor).reshape([-1])
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
        wrapped = _marked_waiting(name, body)
        setattr(kind, name, wrapped)
        setattr(kind, f"{name}_on_calc_stream", wrapped)  # CPUs have a single stream
    kind.allreduce = kind.all_reduce
    for name, body in {"all_gather": _all_gather, "broadcast": _broadcast}.items():
        setattr(kind, name, _marked_waiting(name, _stock[name]))
        setattr(kind, f"{name}_on_calc_stream", _marked_waiting(name, body))


def _marked_waiting(name: str, body: Callable[..., object]) -> Callable[..., object]:
    def call(group: Group, *args: Any, **kwargs: Any) -> object:
        with _waiting(name):
            return body(group, *args, **kwargs)

    return call


# ---- operators without a CPU kernel --------------------------------------------------------------------------------


class Operators:
    """Paddle's operators, with implementations of the tensor-parallel ones that have no CPU kernel."""

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


def _group_of_ring(ring: int) -> Group:
    return collective._get_group_map()[ring].process_group


class _Concat(PyLayer):
    """Concatenation of all ranks' columns."""

    @staticmethod
    def forward(ctx, x, rank, ranks, ring):  # type: ignore[no-untyped-def]
        ctx.rank, ctx.ranks = rank, ranks
        out = paddle.empty([ranks, *x.shape], x.dtype)
        _all_gather_into_tensor(_group_of_ring(ring), out, x)
        return paddle.concat(list(paddle.unbind(out, 0)), axis=-1)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return _columns(grad, ctx.rank, ctx.ranks).clone()


class _CrossEntropy(PyLayer):
    """Softmax cross entropy over classes split across ranks (Shoeybi et al., 2019, arXiv 1909.08053, section 3)."""

    @staticmethod
    def forward(ctx, logits, label, ignored, ring, rank):  # type: ignore[no-untyped-def]
        group, width = _group_of_ring(ring), logits.shape[-1]
        x = logits.detach().astype("float32")
        highest = x.max(-1, keepdim=True)
        _all_reduce(group, highest, _MAX)
        x = x - highest
        exponentials = x.exp()
        total = exponentials.sum(-1, keepdim=True)
        _all_reduce(group, total)
        local = label.astype("int64") - rank * width
        is_local = (local >= 0) & (local < width)
        local = paddle.where(is_local, local, paddle.zeros_like(local))
        is_local = is_local.astype(x.dtype)
        label_logits = paddle.take_along_axis(x, local, -1) * is_local
        _all_reduce(group, label_logits)
        counts = (label != ignored).astype(x.dtype)
        softmax = exponentials / total
        ctx.save_for_backward(softmax, local, is_local, counts)
        return softmax.astype(logits.dtype), ((total.log() - label_logits) * counts).astype(logits.dtype)

    @staticmethod
    def backward(ctx, _, grad):  # type: ignore[no-untyped-def]
        softmax, local, is_local, counts = ctx.saved_tensor()
        target = paddle.nn.functional.one_hot(local.squeeze(-1), softmax.shape[-1]) * is_local
        return ((softmax - target) * (grad.astype(softmax.dtype) * counts)).astype(grad.dtype), None


def _install_operators() -> None:
    from paddle.distributed.fleet.layers.mpu import mp_ops

    mp_ops._C_ops = Operators(mp_ops._C_ops)
    paddle._legacy_C_ops.c_identity = Operators.c_identity  # where mp_layers looks it up


# ---- checks of the device ------------------------------------------------------------------------------------------


def _broadcast_input_data(hcg: Any, *inputs: Any, **kwargs: Any) -> tuple[Any, Any]:
    """As fleet's own, which needs the index of a GPU."""
    from paddle.distributed.fleet.utils import hybrid_parallel_util as fleet_util

    place = paddle.CPUPlace()
    sent = fleet_util._broadcast_nested_data(hcg, "cpu", place, inputs) if inputs else inputs
    return sent, fleet_util._broadcast_nested_data(hcg, "cpu", place, kwargs) if kwargs else kwargs


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
    """Wrap a class of group sharding so that its constructor accepts the CPU."""

    def make(*args: Any, **kwargs: Any) -> Any:
        kwargs["device"] = "cpu"
        with _replaced((paddle, "get_device", lambda: "cpu:0"), (core, "is_compiled_with_cuda", lambda: True)):
            return kind(*args, **kwargs)

    return make


def _group_sharded_parallel(*args: Any, **kwargs: Any) -> Any:
    from paddle.distributed.sharding import group_sharded as fleet_sharding

    kinds = ("GroupShardedOptimizerStage2", "GroupShardedStage2", "GroupShardedStage3")
    devices = (paddle.device, "get_all_custom_device_type", lambda: ["cpu"])
    with _replaced(devices, *((fleet_sharding, name, _on_cpu(getattr(fleet_sharding, name))) for name in kinds)):
        return _stock["group_sharded_parallel"](*args, **kwargs)


def _install_devices() -> None:
    from paddle.distributed.fleet.meta_parallel import tensor_parallel
    from paddle.distributed.fleet.meta_parallel.sharding import group_sharded_storage
    from paddle.distributed.fleet.utils import hybrid_parallel_util, tensor_fusion_helper
    from paddle.distributed.sharding import group_sharded

    dist.parallel._start_kv_server = lambda *_: None  # unused, and writes an http.log into the current folder
    library: Any = core
    library.nccl_version = lambda: 22000  # checked before a mean reduction
    dist.ParallelEnv._device_id = 0
    hybrid_parallel_util.broadcast_input_data = tensor_parallel.broadcast_input_data = _broadcast_input_data
    tensor_fusion_helper.alignment.setdefault("unknown", 256)  # the name of the CPU there
    _stock["group_sharded_parallel"] = group_sharded.group_sharded_parallel
    group_sharded.group_sharded_parallel = dist.sharding.group_sharded_parallel = _group_sharded_parallel
    storage: Any = group_sharded_storage.ParamStorage
    add = storage.add_rank_params
    storage.add_rank_params = lambda to, parameters, align, convert_gpu=True: add(to, parameters, align, False)
    paddle.Tensor.cuda = lambda tensor, *_, **__: tensor
