"""Several replicas of a server, each a process on a port of its own, and the process that looks after them.

It imports no Paddle.  Replicas are new processes rather than forks: threads of OpenMP do not survive a fork.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from ernie.errors import UserError
from ernie.runtime import SIGHUP, cores, threads
from serving.config import ServeConfig
from serving.lifecycle import SAME_SIGNAL
from serving.logs import write_logs
from serving.replica import BEAT, VARIABLE
from serving.terminal import Terminal

_log = logging.getLogger("ernie.serving")
_STEADY = 60.0  # seconds after which a replica that ends is started again without delay
_DELAYS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # seconds before a replica is started again that ended soon


def supervise(config: ServeConfig, reread: Callable[[], ServeConfig], words: Sequence[str]) -> int:
    """Run the command in `words` once for each replica, until a signal ends them; return the exit status.

    A replica that dies is started again.  SIGHUP replaces one after another.  Raises UserError if the first start of
    any fails.
    """
    lines = write_logs(config.log, replica="all")
    try:
        return asyncio.run(_Supervisor(config, reread, words).run())
    finally:
        lines.stop()


class _Process:
    """A replica: its process, and the socket on which it says that it is ready, and still goes on."""

    def __init__(self, process: asyncio.subprocess.Process, ours: socket.socket):
        loop = asyncio.get_running_loop()
        self.process, self._ours = process, ours
        self.started = loop.time()
        self._heard = 0.0  # when it said last that it goes on, 0 before the first time
        self._ready: asyncio.Future[bool] = loop.create_future()
        self._listening = asyncio.ensure_future(self._listen())

    @classmethod
    async def start(cls, words: Sequence[str], index: int, count: int) -> _Process:
        """Start a replica in a session of its own: signals of the terminal reach it by its supervisor only."""
        ours, theirs = socket.socketpair()
        environment = {**os.environ, VARIABLE: f"{index} {theirs.fileno()}"}
        if threads() == cores():  # nobody has chosen their number: replicas share the cores
            for name in ("MKL_NUM_THREADS", "FLAGS_paddle_num_threads"):
                environment[name] = str(max(1, cores() // count))
        command = [sys.executable, "-m", "ernie.cli", *words]
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL,
        )
        theirs.close()
        ours.setblocking(False)
        return cls(process, ours)

    async def is_ready(self) -> bool:
        """Wait until the replica is ready, and return True, or has ended."""
        return await asyncio.shield(self._ready)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        while await loop.sock_recv(self._ours, 64):
            self._heard = loop.time()
            if not self._ready.done():
                self._ready.set_result(True)
        if not self._ready.done():
            self._ready.set_result(False)

    def is_unresponsive(self, seconds: float) -> bool:
        """Whether it was ready, and has said nothing for so long."""
        return self._heard > 0 and asyncio.get_running_loop().time() - self._heard > seconds

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for its end, and return its status."""
        status = await self.process.wait()
        await asyncio.wait([self._listening])
        self._ours.close()
        return status


class _Supervisor:
    def __init__(self, config: ServeConfig, reread: Callable[[], ServeConfig], words: Sequence[str]):
        self._config, self._reread, self._words = config, reread, words
        self._replicas: list[_Process | None] = [None] * config.replicas
        self._replacing: set[int] = set()  # the numbers of those that a rolling restart has ended
        self._rolling: asyncio.Task[None] | None = None
        self._is_ending, self._ending_at = False, 0.0
        self._terminal = Terminal()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) != signal.SIG_IGN:  # as SIGINT is for a shell's background jobs
                loop.add_signal_handler(number, self._end, number)
        if SIGHUP is not None:
            loop.add_signal_handler(SIGHUP, self._hang_up)
        firsts = [await self._start(index) for index in range(self._config.replicas)]
        ready = await asyncio.gather(*(first.is_ready() for first in firsts))
        if not all(ready) and not self._is_ending:
            self._end(signal.SIGINT)
            statuses = await asyncio.gather(*(first.ended() for first in firsts))
            failed = next(status for status, started in zip(statuses, ready, strict=True) if not started)
            return failed if failed > 0 else 1  # it has said why
        if not self._is_ending:
            last = self._config.port + self._config.replicas - 1
            _log.info("%d replicas are ready, on the ports %d to %d", len(firsts), self._config.port, last)
        watching = asyncio.ensure_future(self._watch())
        await asyncio.gather(*(self._keep(index) for index in range(self._config.replicas)))
        watching.cancel()
        return 0

    async def _start(self, index: int) -> _Process:
        self._replicas[index] = replica = await _Process.start(self._words, index, self._config.replicas)
        if self._is_ending:
            replica.send(signal.SIGTERM)
        return replica

    async def _keep(self, index: int) -> None:
        """Start a replica again whenever it has died, until the end."""
        tries = 0
        while True:
            replica = self._replicas[index]
            assert replica is not None
            status = await replica.ended()
            if self._is_ending:
                return
            if index in self._replacing:
                self._replacing.discard(index)
            else:
                tries = 0 if asyncio.get_running_loop().time() - replica.started > _STEADY else tries + 1
                delay = _DELAYS[min(tries, len(_DELAYS)) - 1] if tries else 0.0
                _log.error("replica %d has ended with status %d; it is started again in %.1f s", index, status, delay)
                await asyncio.sleep(delay)
                if self._is_ending:
                    return
            await self._start(index)

    async def _watch(self) -> None:
        """Kill replicas that do not go on: `_keep` starts them again."""
        loop, seconds = asyncio.get_running_loop(), self._config.unresponsive_seconds
        while True:
            before = loop.time()
            await asyncio.sleep(BEAT)
            if loop.time() - before > 2 * BEAT:  # this process was stopped: what they said is not read yet
                continue
            for index, replica in enumerate(self._replicas):
                if replica is not None and replica.is_unresponsive(seconds):
                    _log.error("replica %d does not answer or compute for %.3g s; it is killed", index, seconds)
                    replica.send(signal.SIGKILL)

    def _end(self, number: int) -> None:
        """End all replicas; at the second signal at once."""
        now = asyncio.get_running_loop().time()
        if not self._is_ending:
            _log.info("leaving: every replica answers what waits")
            self._is_ending, self._ending_at = True, now
        elif now - self._ending_at < SAME_SIGNAL:
            return
        for replica in self._replicas:
            if replica is not None:
                replica.send(number)

    def _hang_up(self) -> None:
        if self._terminal.is_gone:
            self._terminal.leave()
            self._end(signal.SIGTERM)
        if self._is_ending or (self._rolling is not None and not self._rolling.done()):
            return
        self._rolling = asyncio.ensure_future(self._roll())

    async def _roll(self) -> None:
        """Replace one replica after another, and let balancers notice each; stop if a new one is not ready."""
        try:
            self._reread()
        except UserError as error:
            _log.error("no replica is replaced: %s", error)
            return
        for index, old in enumerate(list(self._replicas)):
            if old is None or self._is_ending:
                return
            self._replacing.add(index)
            old.send(signal.SIGTERM)
            while (new := self._replicas[index]) is old or new is None:
                await asyncio.sleep(0.05)
                if self._is_ending:
                    return
            if not await new.is_ready():
                _log.error("replica %d does not start again; the others are not replaced", index)
                return
            _log.info("replica %d is replaced", index)
            await asyncio.sleep(self._config.grace_seconds)
