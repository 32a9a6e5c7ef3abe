"""Several hosts on one machine: a network namespace each, with an address on a common bridge.

A host has its own name, addresses and ports.  All of them share the file system, as over NFS.  They need no root: the
namespaces belong to a user namespace.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

_UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
_ENTER = ["--user", "--net", "--mount", "--preserve-credentials"]


class Hosts:
    """Hosts with the names host-1, host-2 and so on, and the addresses 10.77.0.1 and so on."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[Any]] = []
        self._holders: list[int] = []  # the processes that keep the hosts' namespaces

    def open(self, count: int, folder: Path) -> None:
        """Make the hosts; `folder` is for a file of their names.  Raises OSError where that is not allowed."""
        self._bridge = self._hold(_UNSHARE)
        self._net(self._bridge, "link add bridge type bridge", "link set bridge up")
        names = "".join(f"{self.address(host)} {self.name(host)}\n" for host in range(1, count + 1))
        file = folder / "hosts"
        file.write_text(f"127.0.0.1 localhost\n{names}", encoding="utf-8")
        for host in range(1, count + 1):
            inside = ["nsenter", f"--target={self._bridge}", *_ENTER, "unshare", "--net", "--uts", "--mount"]
            self._holders.append(self._hold(inside, f"hostname {self.name(host)} && mount --bind {file} /etc/hosts"))
            pid = self._holders[-1]
            self._net(self._bridge, f"link add port{host} type veth peer name eth0 netns {pid}")
            self._net(self._bridge, f"link set port{host} master bridge up")
            self._net(pid, "link set lo up", f"addr add {self.address(host)}/24 dev eth0", "link set eth0 up")

    @staticmethod
    def name(host: int) -> str:
        """The name of a host, which are counted from 1."""
        return f"host-{host}"

    @staticmethod
    def address(host: int) -> str:
        """The address of a host."""
        return f"10.77.0.{host}"

    def start(self, host: int, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command on a host."""
        self._running.append(subprocess.Popen([*self._within(self._holders[host - 1]), *command], **options))
        return self._running[-1]

    def run(self, host: int, command: str) -> None:
        """Run a command of the shell on a host."""
        subprocess.run([*self._within(self._holders[host - 1]), "sh", "-ec", command], check=True)

    def listening(self, host: int) -> list[int]:
        """The TCP ports on which a host listens."""
        command = [*self._within(self._holders[host - 1]), "cat", "/proc/net/tcp", "/proc/net/tcp6"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        fields = [line.split() for line in lines]
        return [int(each[1].rpartition(":")[2], 16) for each in fields if each[3] == "0A"]

    def cut(self, host: int) -> None:
        """Cut a host off from all others: nothing is said to either side."""
        self._net(self._bridge, f"link set port{host} down")

    def mend(self, host: int) -> None:
        """Connect a host again that was cut off."""
        self._net(self._bridge, f"link set port{host} up")

    def kill(self, host: int) -> None:
        """End a host as a power failure does: its processes are gone, and nobody hears of it."""
        self.cut(host)
        own = Path(f"/proc/{self._holders[host - 1]}/ns/net").readlink()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "ns" / "net").readlink() == own and int(process.name) != self._holders[host - 1]:
                    os.kill(int(process.name), signal.SIGKILL)

    def close(self) -> None:
        """End all processes of all hosts."""
        for host in range(1, len(self._holders) + 1):
            self.kill(host)
        for process in self._running:
            process.kill()
            process.wait()

    def _hold(self, command: list[str], preparation: str = "true") -> int:
        """Start a process whose namespaces stay as long as it lives; return its number."""
        words = [*command, "sh", "-c", f"{preparation} && echo ready && exec sleep infinity"]
        holder = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._running.append(holder)
        assert holder.stdout is not None
        if holder.stdout.readline() != b"ready\n":
            raise OSError(holder.communicate()[1].decode().strip())
        return holder.pid

    def _within(self, pid: int) -> list[str]:
        return ["nsenter", f"--target={pid}", f"--wd={Path.cwd()}", "--uts", *_ENTER]

    def _net(self, pid: int, *commands: str) -> None:
        for words in commands:
            done = subprocess.run([*self._within(pid), "ip", *words.split()], capture_output=True, text=True)
            if done.returncode:
                raise OSError(f"ip {words}: {done.stderr.strip()}")


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """So many hosts; the test is skipped with the reason where namespaces are not allowed."""
    for program in ("unshare", "nsenter", "ip"):
        if shutil.which(program) is None:
            pytest.skip(f"hosts are simulated with `{program}`, which is not installed")
    with tempfile.TemporaryDirectory() as folder:
        made = Hosts()
        try:
            try:
                made.open(count, Path(folder))
            except OSError as error:
                pytest.skip(f"network namespaces are not allowed here: {error}")
            yield made
        finally:
            made.close()
