"""Several machines that train together, as many as there are, found through the folder of the run, which they share.

Every machine runs the same command and has a file of its own in the folder, which it rewrites all the time.  When
enough of them wait, the first by name writes down the team: who trains, in which order.  When a machine is lost, the
others wait again, and form another team from those that are there.  So there is none that all depend on.

A machine is there while its file changes, by the clock of whoever looks: clocks of machines are never compared.  Those
that wait also try whom they can reach: a machine may see the folder, and be cut off from the others.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any

from ernie.atomic import inner_folder, put_text
from ernie.errors import UserError
from ernie.parallel.ports import listen

FOLDER = "machines"  # beside the logs of the processes
TEAM = "ERNIE_TEAM"  # the environment variable with the team, for the processes of a machine
_TEAM_FILE = "team.json"
_BEAT = 1.0  # seconds between two changes of a machine's file
_STALLED = 4.0  # seconds between two looks at the folder that are no one's fault
_TO_SETTLE = 15.0  # seconds without a newcomer until a team is formed that could be larger
_TO_COME = 600.0  # seconds to wait for enough machines
_LOOK = 0.25  # seconds
_TO_ANSWER = 2.0  # seconds for a connection to another machine
_INTERFACE_ADDRESS = 0x8915  # SIOCGIFADDR, see netdevice(7)


@dataclass(frozen=True)
class Machine:
    """What a machine says of itself: its address, a free port and one on which it listens, whether it trains, in which
    team, which others it reaches, and a count."""

    address: str
    port: int
    door: int
    training: bool = False
    team: int = 0
    beat: int = 0
    reaches: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Team:
    """The machines that train together, in the order of their ranks, the number of their attempt, and how it ended.

    The first one serves the store in which the processes find one another, on `port`.
    """

    number: int
    names: list[str]
    addresses: list[str]
    port: int
    status: int | None = None


class Wish(Enum):
    """What is to happen to the processes of a machine: they go on, save and end, or are killed."""

    GO_ON = 0
    END = 1
    KILL = 2


def members(text: str) -> tuple[int, int]:
    """Return the least and the most machines of `--machines`: N, or LEAST:MOST.  Raises UserError otherwise."""
    found = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    least, most = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= least <= most:
        raise UserError(f"--machines: expected a number such as 4, or the least and the most such as 2:4, found {text}")
    return least, most


class Roster:
    """The machines of a run, as one of them sees them.

    Between `least` and `most` of them train, a number that `fits` the layout.  One whose file has not changed for
    `limit` seconds is gone.  This one listens at its `address`, on one of the `ports` (see `listen`).
    """

    def __init__(
        self,
        folder: Path,
        address: str,
        limit: float,
        machines: tuple[int, int],
        fits: Callable[[int], bool],
        ports: Sequence[int] = (),
    ) -> None:
        self.host = socket.gethostname()
        self.name = f"{self.host}-{os.getpid()}"
        self._folder = inner_folder(inner_folder(folder, "processes"), FOLDER)
        self._file = self._folder / f"{self.name}.json"
        self._limit, self._fits = limit, fits
        self._least, self._most = machines
        self._settle, self._pause = min(limit, _TO_SETTLE), min(_BEAT, limit / 8)
        team = self._team()
        self._number = team.number if team else 0  # of the last team that concerned this machine
        self._ports = ports
        self._listener = listen(address or own_address(), ports)
        self._listener.setblocking(False)
        address, door = self._listener.getsockname()
        self._own = Machine(address, self._free_port(), door)
        self._seen: dict[str, tuple[int, float]] = {}  # each one's count, and when it has changed
        self._looked = time.monotonic()
        self._lost = self._larger = 0.0  # since when others of the team are gone, and others wait
        self._others: Mapping[str, Machine] = {}
        self._saying = threading.Lock()
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True, name="machines") for run in (self._beat, self._reach)
        ]

    def __enter__(self) -> Roster:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()
        self._file.unlink(missing_ok=True)

    def meet(self) -> Team:
        """Wait for a team with this machine in it, or for the end of the run, which its `status` tells.

        Raises UserError if too few machines come that reach one another.
        """
        self._say(training=False, reaches={}, port=self._free_port())
        began = changed = time.monotonic()
        before: frozenset[str] = frozenset()
        while True:
            team, now = self._team(), time.monotonic()
            if team is not None and team.number > self._number and team.status is not None:
                return team
            if team is not None and team.number > self._number and self.name in team.names:
                self._number, self._lost, self._larger = team.number, 0.0, 0.0
                self._say(training=True, team=team.number)
                return team
            there = self._there()
            if frozenset(there) != before:
                before, changed = frozenset(there), now
            group = connected(there)
            settled = len(group) >= self._most or now - changed > self._settle
            if settled and group and min(group) == self.name and (count := self._count(len(group))):
                number = 1 + max([self._number, *([team.number] if team else []), *(m.team for m in there.values())])
                first, *_ = chosen = sorted(group)[:count]
                addresses = [there[name].address for name in chosen]
                self._write(Team(number, chosen, addresses, there[first].port))
            elif now - began > _TO_COME and not any(machine.training for machine in there.values()):
                raise UserError(
                    f"--machines: {self._least} are needed, and {len(group)} came in {_TO_COME:g} s; each has to see "
                    f"the folder {self._folder}, and to reach the others"
                )
            time.sleep(_LOOK)

    def look(self, team: Team) -> Wish:
        """Return what is to happen to this machine's processes while the team trains."""
        now = time.monotonic()
        if now - self._looked < self._pause:
            return Wish.GO_ON
        there, known = self._there(), self._team()
        training = {name for name, machine in there.items() if machine.training and machine.team == team.number}
        # Two machines that do not see each other for a moment may both write down a team; the last one holds.
        lost = not training.issuperset(team.names) or (known is not None and known.names != team.names)
        self._lost = (self._lost or now) if lost else 0.0
        if self._lost and now - self._lost > self._limit:
            return Wish.KILL
        waiting = [name for name, machine in there.items() if all(machine.reaches.get(other) for other in team.names)]
        larger = team.names[0] == self.name and self._count(len({*waiting, *team.names})) > len(team.names)
        self._larger = (self._larger or now) if larger else 0.0
        return Wish.END if self._larger and now - self._larger > self._settle else Wish.GO_ON

    def end(self, team: Team, status: int) -> None:
        """Tell all machines that the run has ended; those that were not first wait until it was told."""
        if team.names[0] == self.name:
            self._write(Team(**{**asdict(team), "status": status}))
        end = time.monotonic() + self._limit
        while time.monotonic() < end and (known := self._team()) is not None and known.status is None:
            time.sleep(_LOOK)

    def _free_port(self) -> int:
        with listen("", self._ports) as probe:
            return int(probe.getsockname()[1])

    def _count(self, there: int) -> int:
        """Return the largest number of machines that can train together when so many are there; 0 if none can."""
        counts = range(min(there, self._most), self._least - 1, -1)
        return next((count for count in counts if self._fits(count)), 0)

    def _there(self) -> dict[str, Machine]:
        """Return the machines that are there, this one included, by name."""
        now = time.monotonic()
        if (stalled := now - self._looked) > _STALLED:  # the disk did not answer: perhaps the others could not write
            self._seen = {name: (beat, since + stalled) for name, (beat, since) in self._seen.items()}
        self._looked = now
        there = {self.name: self._own}
        with suppress(OSError):
            files = [file for file in self._folder.glob("*.json") if file.name not in (_TEAM_FILE, self._file.name)]
            for file in files:
                found = _read(file)
                with suppress(TypeError):
                    machine = Machine(**found) if found else None
                    if machine is None:
                        continue
                    beat, since = self._seen.get(file.stem, (machine.beat, -math.inf))
                    if machine.beat != beat:
                        since = now
                    self._seen[file.stem] = machine.beat, since
                    if now - since <= self._limit:
                        there[file.stem] = machine
        self._others = there
        return there

    def _say(self, **changes: Any) -> None:
        with self._saying:
            self._own = Machine(**{**asdict(self._own), **changes})

    def _reach(self) -> None:
        """While this machine waits, try which others can be reached."""
        while not self._closed.wait(self._pause):
            if not self._own.training:
                others = {name: machine for name, machine in self._others.items() if name != self.name}
                reaches = {name: _answers(machine) for name, machine in others.items()}
                self._say(reaches={} if self._own.training else reaches)

    def _beat(self) -> None:
        beat = 0
        while not self._closed.is_set():
            beat += 1
            with suppress(BlockingIOError):
                while True:
                    self._listener.accept()[0].close()
            with suppress(OSError):  # the disk may be away for a moment
                put_text(self._file, json.dumps({**asdict(self._own), "beat": beat}))
            self._closed.wait(self._pause)

    def _team(self) -> Team | None:
        found = _read(self._folder / _TEAM_FILE)
        try:
            return Team(**found) if found else None
        except TypeError:  # of another version
            return None

    def _write(self, team: Team) -> None:
        with suppress(OSError):  # and again, when the disk is there
            put_text(self._folder / _TEAM_FILE, json.dumps(asdict(team)))


def _read(file: Path) -> dict[str, Any]:
    """Return what a file says; nothing if it is just being replaced, or the disk does not answer."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _answers(machine: Machine) -> bool:
    with suppress(OSError), socket.create_connection((machine.address, machine.door), timeout=_TO_ANSWER):
        return True
    return False


def connected(there: Mapping[str, Machine]) -> list[str]:
    """Return the largest group of machines that one of them reaches and is reached by, and that one.

    It is empty while machines train, or have not yet tried all others.  Of equal groups it is the first by name.
    """
    if any(machine.training or there.keys() - machine.reaches.keys() - {name} for name, machine in there.items()):
        return []
    groups = [
        [other for other in there if other == name or (there[name].reaches[other] and there[other].reaches[name])]
        for name in sorted(there)
    ]
    return max(groups, key=len)


def own_address() -> str:
    """Return the address at which other machines reach this one: that of its way out, or of its first interface."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])
    addresses = interfaces()
    return next((address for address in addresses.values() if not address.startswith("127.")), "127.0.0.1")


def interfaces() -> dict[str, str]:
    """Return the address of each network interface that has one, by name."""
    import fcntl  # Windows has none

    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                answer = fcntl.ioctl(any_socket, _INTERFACE_ADDRESS, struct.pack("256s", name.encode()[:15]))
                found[name] = socket.inet_ntoa(answer[20:24])
    return found
