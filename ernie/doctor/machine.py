"""The machine's hardware and installed packages, determined without Paddle."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ernie import runtime
from ernie.kernels import build

DISTRIBUTION = "ernie-continual"
_INSTRUCTIONS = {
    "avx2": "AVX2",
    "fma": "FMA",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "avx512_bf16": "AVX-512 BF16",
    "amx_bf16": "AMX BF16",
    "amx_int8": "AMX INT8",
}


@dataclass(frozen=True)
class Gpu:
    """A GPU as reported by its driver: memory in bytes; what an old driver does not say is empty or 0."""

    name: str
    capability: str = ""
    memory: int = 0
    driver: str = ""


@dataclass(frozen=True)
class Machine:
    """The machine as seen by this process.  Memory is in bytes; `threads_from` is the variable that sets `threads`."""

    processor: str
    vendor: str
    instructions: list[str]
    cores: int
    threads: int
    threads_from: str | None
    memory: int
    memory_free: int
    busy_cores: float
    gpus: list[Gpu]
    compiler: str | None
    cache: str
    versions: dict[str, str | None]


def find() -> Machine:
    """Inspect the machine.  Call it before importing Paddle, which changes OMP_NUM_THREADS."""
    info = _processor()
    flags = set(info.get("flags", "").split())
    return Machine(
        processor=info.get("model name") or platform.processor() or platform.machine(),
        vendor=info.get("vendor_id", ""),
        instructions=[name for flag, name in _INSTRUCTIONS.items() if flag in flags],
        cores=runtime.cores(),
        threads=runtime.threads(),
        threads_from=_threads_from(),
        memory=runtime.total_memory(),
        memory_free=runtime.total_memory("MemAvailable"),
        busy_cores=runtime.busy_cores(),
        gpus=gpus(),
        compiler=_compiler(),
        cache=str(build.cache()),
        versions=versions(),
    )


def gpus() -> list[Gpu]:
    """Return the NVIDIA GPUs as reported by the driver; empty if there is no driver."""
    for asked in ("name,compute_cap,memory.total,driver_version", "name"):  # drivers before 510 have no compute_cap
        output = _output_of(["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader,nounits"])
        if output is not None:
            return [_gpu(line.split(",")) for line in output.splitlines() if line.strip()]
    return []


def _gpu(fields: list[str]) -> Gpu:
    name, capability, memory, driver = [field.strip() for field in fields] + [""] * (4 - len(fields))
    return Gpu(name, capability, int(memory) * 2**20 if memory.isdigit() else 0, driver)


def versions() -> dict[str, str | None]:
    """Return the versions of Python, this library and its requirements; None for what is not installed."""
    own = {"python": platform.python_version(), DISTRIBUTION: version(DISTRIBUTION)}
    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        required = []
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in required if "extra ==" not in line]
    return own | {name: version(name) for name in names}


def version(distribution: str) -> str | None:
    """Return the version of a distribution, or None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _threads_from() -> str | None:
    if runtime.threads() == runtime.cores():
        return None
    requested = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return "OMP_NUM_THREADS" if requested == str(runtime.threads()) else "MKL_NUM_THREADS"


def _compiler() -> str | None:
    try:
        command = build.compiler()
    except build.CannotBuild as error:  # for an invalid CXX
        return str(error)
    if command is None:
        return None
    output = _output_of([*command, "--version"])
    return f"{' '.join(command)}: {output.splitlines()[0] if output else 'cannot be started'}"


def _output_of(command: list[str]) -> str | None:
    """Return what a program prints, or None if it is missing or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> dict[str, str]:
    """Return the entries of the first core in Linux's /proc/cpuinfo; empty elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
