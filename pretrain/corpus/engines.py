"""The engines by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ernie.runtime import cores
from pretrain.corpus.engine import LocalEngine
from pretrain.corpus.on_ray import RayEngine

EngineName = Literal["local", "ray"]
ENGINES: tuple[EngineName, ...] = ("local", "ray")


def open_engine(name: EngineName, processes: int | None, output: Path) -> LocalEngine | RayEngine:
    """Return the engine that builds the corpus `output`.

    `processes` are those of this machine, one a core if None, or with Ray the number of tasks at a time.
    """
    return RayEngine(processes) if name == "ray" else LocalEngine(cores() if processes is None else processes, output)
