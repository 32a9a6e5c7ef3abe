"""The process mesh: the processes of a run, as ranks along the axes of a layout."""

from __future__ import annotations

import io
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any, TypeVar

from paddle.distributed import fleet, get_group, get_rank, get_world_size
from paddle.distributed.fleet.utils import log_util

from ernie.parallel import gloo
from ernie.parallel.launch import is_launched
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.ports import host
from ernie.parallel.store import TO_BE_SERVED, Unreached, disable_libuv_store, global_store
from ernie.parallel.watch import Unwatched, Watch

T = TypeVar("T")
_TO_START = 120.0  # seconds, at least, that processes of one command have to find one another


class Mesh:
    """The processes of a layout, as one of them sees it: its rank, and its groups along the axes.

    `Mesh()` is a single process.  `groups` holds, for each axis along which this process has others, fleet's group of
    them; `everyone` is the group of all processes, None for a single one.  `topology` is fleet's.  `watch` learns what
    this process is doing, and ends all of them when one fails (`with mesh.watch:`).
    """

    def __init__(
        self,
        layout: ParallelConfig | None = None,
        rank: int = 0,
        topology: Any = None,
        watch: Watch | Unwatched | None = None,
    ) -> None:
        self.layout = layout or ParallelConfig()
        self.rank = rank
        self.coordinates = self.layout.place(rank)  # this process's index along each axis
        self.topology = topology
        self.watch = watch or Unwatched()
        self.everyone = None if topology is None else get_group()
        self.groups = {} if topology is None else _groups(self.layout, topology)

    @classmethod
    def connect(cls, layout: ParallelConfig) -> Mesh:
        """Connect to the other processes, which Paddle's launcher has started; on CPUs over Gloo.

        Raises UserError if their number is not that of the layout, PortTaken if they cannot find one another.
        """
        _limit_nccl(layout.timeout)
        layout = layout.over(get_world_size())
        if layout.processes == 1:
            return cls(layout)
        disable_libuv_store()
        # Those of one command start together; a scheduler may start one long after another.
        patience = max(_TO_START, layout.timeout) if is_launched() else TO_BE_SERVED
        store = global_store(patience)
        try:
            watch = Watch(store, get_rank(), layout.processes, layout.timeout, host(), ports=layout.ports)
        except Exception as error:  # of Paddle's C++ or of the network
            raise Unreached(
                f"rank {get_rank()} has lost the first process while all found one another "
                f"({next(iter(str(error).strip().splitlines()), type(error).__name__)}); run the command again"
            ) from error
        gloo.install(layout.timeout, watch.waiting, layout.ports)
        with quiet_fleet():
            strategy = fleet.DistributedStrategy()
        interleaved = layout.virtual_stages > 1
        strategy.pipeline_configs = {
            "enable_partial_send_recv": False,
            "p2p_cache_shape": interleaved,
            "accumulate_steps": 2 * layout.pipeline,  # the minimum that fleet accepts at the start
        }
        strategy.hybrid_configs = {
            "dp_degree": layout.degree("data"),
            "mp_degree": layout.tensor,
            "pp_degree": layout.pipeline,
            "sharding_degree": layout.sharding,
            "order": ["dp", "pp", "sharding", "sep", "mp"],
        }
        # Micro-batches differ in their number of tokens.
        strategy.hybrid_configs["pp_configs"].enable_dynamic_shape = not interleaved
        with quiet_fleet():
            fleet.init(is_collective=True, strategy=strategy, log_level="ERROR")
        topology = fleet.get_hybrid_communicate_group()
        return cls(layout, int(topology.get_global_rank()), topology, watch)

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which logs and writes files for all processes."""
        return self.rank == 0

    @property
    def splits_model(self) -> bool:
        """Whether each process holds only a part of the model."""
        return self.layout.tensor > 1 or self.layout.pipeline > 1 or self.layout.shards_weights

    def shard(self, items: Sequence[T]) -> list[T]:
        """Return this process's items, which are dealt to the replicas round-robin."""
        replica = self.coordinates["data"] * self.layout.sharding + self.coordinates["sharding"]
        return list(items[replica :: self.layout.replicas])


def _limit_nccl(timeout: float) -> None:
    """Have NCCL give up on others, by default after half an hour, if the watch did not end this process long before."""
    os.environ.setdefault("PADDLE_PG_TIMEOUT", str(int(2000 * timeout)))  # milliseconds


def _groups(layout: ParallelConfig, topology: Any) -> dict[str, Any]:
    """Return fleet's group of this process along each axis that has more than one process."""
    groups = {
        "data": topology.get_data_parallel_group,
        "pipeline": topology.get_pipe_parallel_group,
        "sharding": topology.get_sharding_parallel_group,
        "tensor": topology.get_model_parallel_group,
    }
    return {axis: group() for axis, group in groups.items() if layout.degree(axis) > 1}


@contextmanager
def quiet_fleet() -> Iterator[None]:
    """Suppress fleet's log output and warnings; errors are still raised."""
    warnings.filterwarnings("ignore", category=UserWarning, module=r"paddle\.distributed\.")  # permanently
    log_util.set_log_level("ERROR")
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(disabled)
