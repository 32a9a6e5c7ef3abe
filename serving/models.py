"""Served models: loaded, measured, and replaced while requests go on."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ernie.errors import UserError
from ernie.kernels.precision import InferencePrecisionChoice
from ernie.model.ernie import ErnieModel
from ernie.outcome import Outcome
from inference.encoder import LoadedEncoder
from inference.face import Face
from inference.operation import Operation, Prepared
from serving.cost import CostModel
from serving.engine import Engine, Work
from serving.examples import Example
from serving.run_files import LatencyCurve, read_curve
from serving.sessions import ServedStream, serve_stream

_log = logging.getLogger("ernie.serving")
_ROUNDS = 5  # measurements of each size
_SIZES = (1, 2, 4, 8, 16)  # of batches that are measured, in sequences of _LENGTH tokens
_LENGTH = 32
_LEAST = 8  # tokens of the smallest batch that is measured
PROBE = Prepared(_LEAST, None)  # what a model's probe computes


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model under a name: its face, a lane of work for each of its operations, and its stream if it has one.

    The lane of the stream's steps is `work["stream"]`.
    """

    name: str
    path: str
    face: Face
    work: Mapping[str, Work]
    probe: Work  # which computes a little, to see whether the model can
    loaded_at: float  # seconds since 1970
    stream: ServedStream | None = None
    examples: Sequence[Example] = ()
    curve: LatencyCurve | None = None

    @property
    def precision(self) -> InferencePrecisionChoice:
        """The precision of its matrix products."""
        return self.face.precision

    @property
    def lanes(self) -> Sequence[Work]:
        """All lanes whose batches count, those of probes do not."""
        return list(self.work.values())

    @property
    def operations(self) -> Mapping[str, Operation]:
        """What it is asked for, by name."""
        return self.face.operations


class Bases:
    """What models with adapters of one base share, for as long as one of them is served: its weights, and lanes."""

    def __init__(self) -> None:
        self._encoders: WeakValueDictionary[tuple[Path, str], ErnieModel] = WeakValueDictionary()
        self.lanes: WeakValueDictionary[Hashable, Work] = WeakValueDictionary()

    @property
    def shared(self) -> list[Path]:
        """The folders of the encoders that models share now."""
        return [folder for folder, _ in self._encoders]

    def encoder(self, path: str, precision: InferencePrecisionChoice) -> ErnieModel:
        """Return the encoder of a folder for models that compute in this precision, loaded if no model has it yet."""
        key = (Path(path).resolve(), precision)
        found = self._encoders.get(key)
        if found is None:
            found = self._encoders[key] = LoadedEncoder.load(path, precision).ernie
        return found


def serve_model(
    name: str,
    path: str,
    face: Face,
    most_tokens: int,
    engine: Engine | None = None,
    examples: Sequence[Example] = (),
    bases: Bases | None = None,
) -> ServedModel:
    """Return a loaded model ready to be served, after measuring how long its batches take.

    `most_tokens` limits its batches; a step of a session counts as one token.  Every operation is warmed up by this,
    too.  If an engine runs, it is measured there, between the batches of other models.  Operations that are computed
    together with those of others have one lane in `bases`.  Raises NotFinite for a model whose outputs are not.
    """
    bases = bases or Bases()
    work: dict[str, Work] = {}
    stream = _stream(name, face, most_tokens, engine)
    if stream is not None:
        work["stream"] = stream.work
    for operation_name, operation in face.operations.items():
        cost = measured_cost(operation, engine)
        label, together = f"{name}/{operation_name}", operation.together
        shared = None if together is None else bases.lanes.get(together)
        if together is not None and shared is None:
            shared = Work(f"{label}, together", cost, most_tokens, compute=operation.compute_together)
            bases.lanes[together] = shared
        work[operation_name] = Work(
            label,
            cost,
            most_tokens,
            compute=operation.compute,
            most_asked=operation.most_tokens,
            shared=shared,
        )
        _log.info(
            "%s/%s: a batch takes %.1f ms and %.3f ms a token",
            *(name, operation_name, 1000 * cost.fixed, 1000 * cost.per_token),
        )
    curve = read_curve(path, face)
    return ServedModel(name, path, face, work, _probe(name, face), time.time(), stream, examples, curve)


def _stream(name: str, face: Face, most_streams: int, engine: Engine | None) -> ServedStream | None:
    """Return the stream of a model, None if it takes none."""
    try:
        streaming = face.streaming
    except UserError:
        return None
    return serve_stream(name, streaming, engine, most_streams)


def _probe(name: str, face: Face) -> Work:
    """Return the lane of a model's probes."""

    def compute(probes: Sequence[Prepared]) -> list[Outcome[Any]]:
        for operation in face.operations.values():
            operation.exercise([PROBE.tokens])
        return [Outcome()] * len(probes)

    return Work(f"{name}/probe", CostModel([(1, 0.001), (100, 0.01)]), compute=compute)


def measured_cost(operation: Operation, engine: Engine | None = None) -> CostModel:
    """Measure batches of a few sizes, and fit their times."""
    length = min(_LENGTH, operation.longest)
    shapes = [[min(_LEAST, length)], *([length] * size for size in _SIZES)]

    def seconds_of(shape: Sequence[int]) -> float:
        measure = partial(_seconds, partial(operation.exercise, shape))
        return engine.call(measure) if engine else measure()

    for shape in shapes[:2]:
        seconds_of(shape)  # the first batches allocate memory
    times: list[tuple[int, float]] = []
    for shape in shapes:
        seconds = [seconds_of(shape) for _ in range(_ROUNDS)]
        times.append((sum(shape), statistics.median(seconds)))
    return CostModel(times)


def _seconds(body: Any) -> float:
    start = time.perf_counter()
    body()
    return time.perf_counter() - start
