"""Files that a run keeps beside its model: its card, its report, and how quality and latency of a translator trade."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from ernie.train.run_folder import MODEL
from inference.face import Face

REPORT, LATENCY = "report.html", "latency.json"
_log = logging.getLogger("ernie.serving")


class LatencyPoint(msgspec.Struct):
    """The quality of translations that stay `wait_k` tokens behind their source, null for whole sentences.

    `lagging` is their AL in tokens.  The model was `trained` for this distance, or was not.
    """

    wait_k: int | None
    trained: bool
    score: float
    lagging: float


class LatencyCurve(msgspec.Struct):
    """The quality of a translator against its latency, the shortest distance first; scores are of the `metric`."""

    metric: str
    points: list[LatencyPoint]


class _Latency(msgspec.Struct):
    lagging: float


class _Point(msgspec.Struct):
    """What is read of a point in latency.json."""

    wait_k: int | None
    trained: bool
    score: float
    token_latency: _Latency


def file_beside(path: str, name: str) -> Path | None:
    """Return a file of a model's folder, or of the run that the folder is in; None without one."""
    folder = Path(path)
    for own in (folder, folder.parent) if folder.name == MODEL else (folder,):
        if (own / name).is_file():
            return own / name
    return None


def read_curve(path: str, face: Face) -> LatencyCurve | None:
    """Return the curve of a run that translates, None if it has none that can be read."""
    file, task = file_beside(path, LATENCY), getattr(face.model, "task", None)
    if file is None or task is None:
        return None
    try:
        points = msgspec.json.decode(file.read_bytes(), type=list[_Point])
    except (msgspec.MsgspecError, OSError) as error:
        _log.warning("%s: cannot be read, so the page shows no curve: %s", file, error)
        return None
    found = [LatencyPoint(own.wait_k, own.trained, own.score, own.token_latency.lagging) for own in points]
    return LatencyCurve(task.scored_by[0], found) if found else None
