"""The base class of speech tasks: sounds in a column, and the statistics of their features."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import SEEK_END, BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ernie.audio.features import FeatureConfig, Statistics, features
from ernie.audio.wave import Wave, as_wave, read_wave
from ernie.data import order
from ernie.data.labeled.read import raise_faults
from ernie.data.labeled.row import Fault, Row
from ernie.errors import UserError
from ernie.text.blank import is_blank
from tasks.downstream.base import FinetuneTask

if TYPE_CHECKING:
    from ernie.parallel.layout import ParallelConfig

_SAMPLE = 1000  # sounds, chosen at random, for the statistics of features: those of a hundred hours would take minutes
_HASHED = 4096  # bytes at each of three places of a file, to detect whether it has changed
_DIGITS = 6  # of the feature statistics, which would otherwise depend on the order of the rows


@dataclass(frozen=True, kw_only=True)
class SoundTask(FinetuneTask):
    """A kind whose rows have a sound in the column `audio`.

    Its cells hold the name of a file, a file's bytes as the `datasets` library keeps them, {bytes: ..., path: ...}, or
    samples with their rate, {array: [...], sampling_rate: 16000}; a path beside samples is ignored.  `features`
    configures the features of a sound; `mean` and `deviation` are their statistics, by default computed on the training
    sounds, or on a subset if there are many.
    """

    audio: str = "audio"
    features: FeatureConfig = field(default_factory=FeatureConfig)
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()

    head_fields: ClassVar[tuple[str, ...]] = ("features", "mean", "deviation")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("mean", "deviation"):
            count = len(getattr(self, name))
            if count not in (0, self.features.features):
                raise UserError(f"{name}: expected {self.features.features} numbers, one a feature, found {count}")
        if len(self.mean) != len(self.deviation):
            raise UserError("mean and deviation: give both, or neither, and they are those of the rows to learn from")

    def check_layout(self, layout: ParallelConfig) -> None:
        if layout.pipeline > 1 or layout.sequence:
            raise UserError(
                "the speech front end and the vocoder are outside the encoder, which pipeline and sequence cannot "
                "split; spread speech by data, sharding and tensor"
            )

    def adapted_to(self, rows: Sequence[Row]) -> FinetuneTask:
        if self.features.normalize != "global" or self.mean:
            return self
        unnormalized, statistics = replace(self.features, normalize="none"), None
        faults: list[Fault] = []
        chosen = np.sort(order.generator(0, "statistics").permutation(len(rows))[:_SAMPLE])
        for row in map(rows.__getitem__, chosen.tolist()):
            try:
                own = Statistics.of(features(unnormalized, self.wave(row).samples))
            except UserError as error:
                faults.append(Fault(row.place, str(error)))  # if others can be read, reported by its example
                continue
            statistics = own if statistics is None else statistics.merge(own)
        if statistics is None or not statistics.count:
            raise_faults(faults)
            raise UserError(
                f"column '{self.audio}': no sound is as long as one window, {self.features.window:g} s; choose others, "
                "or a shorter features.window"
            )
        mean, deviation = (tuple(round(float(x), _DIGITS) for x in own) for own in statistics.mean_and_deviation())
        return replace(self, mean=mean, deviation=deviation)

    @property
    def statistics(self) -> Statistics | None:
        """The statistics of the training sounds that features are normalized by, if given."""
        return Statistics.from_mean(np.array(self.mean), np.array(self.deviation)) if self.mean else None

    def wave(self, row: Row) -> Wave:
        """Return the sound of a row.  Raises UserError if it cannot be read."""
        cell, column = row.cell(self.audio), f"column '{self.audio}'"
        if isinstance(cell, Mapping) and isinstance(held := cell.get("bytes"), bytes):
            return read_wave(BytesIO(held), self.features.rate, cell.get("path") or column)
        file = self._file(row)
        return as_wave(cell, self.features.rate, column) if file is None else read_wave(file, self.features.rate)

    def file_fingerprint(self, row: Row) -> bytes:
        try:
            path = self._file(row)
            if path is None:
                return b""
            with path.open("rb") as file:
                size = file.seek(0, SEEK_END)
                # Reading hundreds of hours would take too long: another recording differs at one of three places.
                parts = []
                for place in (0, size // 2, max(0, size - _HASHED)):
                    file.seek(place)
                    parts.append(file.read(_HASHED))
        except (OSError, ValueError):  # ValueError: an invalid file name, or none at all
            return b""  # reported with its place when the row's example is made
        return str(size).encode() + hashlib.sha256(b"".join(parts)).digest()

    def _file(self, row: Row) -> Path | None:
        """Return the file that a row names; None if its cell has the sound itself, or neither."""
        cell = row.cell(self.audio)
        if isinstance(cell, Mapping):
            held = isinstance(cell.get("bytes"), bytes) or cell.get("array") is not None
            if held or not isinstance(cell.get("path"), (str, os.PathLike)):
                return None
            cell = cell["path"]
        elif not isinstance(cell, os.PathLike):
            cell = row.text(self.audio)
            if is_blank(cell):
                raise UserError(f"column '{self.audio}': the name of the sound file is empty")
        path = Path(cell)
        # In most data sets names are relative to the file that has them.
        beside = Path(row.place.file).parent / path if row.place.file else path
        return beside if os.path.exists(beside) else path  # noqa: PTH110 - never raises

    def samples(self, row: Row) -> np.ndarray:
        """Return the samples (s,) of the sound of a row; raises as `wave` does."""
        return self.wave(row).samples
