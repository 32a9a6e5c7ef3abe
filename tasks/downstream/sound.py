"""What the kinds that hear or speak share: sounds in a column, and what of them the model knows."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import SEEK_END, BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ernie.audio.features import FeatureConfig, Statistics, features
from ernie.audio.wave import Wave, as_wave, read_wave
from ernie.data.labelled.read import raise_faults
from ernie.data.labelled.row import Fault, Row
from ernie.errors import UserError
from ernie.text.blank import is_blank
from tasks.downstream.base import FinetuneTask

if TYPE_CHECKING:
    from ernie.parallel.layout import ParallelConfig

_HEARD = 1000  # sounds, at least, that tell the statistics of features: those of a hundred hours would take minutes
_LOOKED_AT = 4096  # bytes at each of three places of a file, to tell whether it is still the same
_DIGITS = 6  # of the statistics of features, which would otherwise depend on the order of the rows


@dataclass(frozen=True, kw_only=True)
class SoundTask(FinetuneTask):
    """A kind whose rows have a sound in the column `audio`.

    A cell of it is the name of a file, a file's bytes as the `datasets` library keeps them, {bytes: ..., path: ...}, or
    samples with their rate, {array: [...], sampling_rate: 16000}; a path beside samples is not looked at.  `features`
    says what the model knows of a sound; `mean` and `deviation` are those of the features of the sounds to learn from,
    of some of them where there are many, unless given.
    """

    audio: str = "audio"
    features: FeatureConfig = field(default_factory=FeatureConfig)
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()

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
                "what hears comes before the encoder and what speaks behind it, which is no stage of a pipeline and no "
                "part of a sequence; spread speech by data, sharding and tensor"
            )

    def learnt_from(self, rows: Sequence[Row]) -> FinetuneTask:
        if self.features.normalize != "global" or self.mean:
            return self
        plain, heard = replace(self.features, normalize="none"), None
        faults: list[Fault] = []
        for row in rows[:: max(1, len(rows) // _HEARD)]:
            try:
                found = Statistics.of(features(plain, self.wave(row).samples))
            except UserError as error:
                faults.append(Fault(row.place, str(error)))  # where others can be read, told by its example
                continue
            heard = found if heard is None else heard.and_of(found)
        if heard is None or not heard.count:
            raise_faults(faults)
            raise UserError(
                f"column '{self.audio}': no sound is as long as one window, {self.features.window:g} s; choose others, "
                "or a shorter features.window"
            )
        mean, deviation = (tuple(round(float(x), _DIGITS) for x in found) for found in heard.mean_and_deviation())
        return replace(self, mean=mean, deviation=deviation)

    @property
    def around(self) -> Statistics | None:
        """The statistics that features are normalized by, where they are those of all sounds to learn from."""
        return Statistics.from_mean(np.array(self.mean), np.array(self.deviation)) if self.mean else None

    def wave(self, row: Row) -> Wave:
        """The sound of a row.  Raises UserError when it cannot be read."""
        cell, column = row.cell(self.audio), f"column '{self.audio}'"
        if isinstance(cell, Mapping) and isinstance(held := cell.get("bytes"), bytes):
            return read_wave(BytesIO(held), self.features.rate, cell.get("path") or column)
        file = self._file(row)
        return as_wave(cell, self.features.rate, column) if file is None else read_wave(file, self.features.rate)

    def named_by(self, row: Row) -> bytes:
        try:
            named = self._file(row)
            if named is None:
                return b""
            with named.open("rb") as file:
                size = file.seek(0, SEEK_END)
                # Hundreds of hours are not read for this: another recording differs at one of three places.
                parts = []
                for place in (0, size // 2, max(0, size - _LOOKED_AT)):
                    file.seek(place)
                    parts.append(file.read(_LOOKED_AT))
        except (OSError, ValueError):  # the latter: a name that no file can have, and no name at all
            return b""  # told with its place when the row's example is made
        return str(size).encode() + hashlib.sha256(b"".join(parts)).digest()

    def _file(self, row: Row) -> Path | None:
        """The file that a row names; None where its cell has the sound itself, or neither."""
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
        place = Path(cell)
        # As in the files of most data sets: a name is beside the file that names it.
        beside = Path(row.place.file).parent / place if row.place.file else place
        return beside if os.path.exists(beside) else place  # noqa: PTH110 - never raises

    def samples(self, row: Row) -> np.ndarray:
        """The samples of the sound of a row (s,); raises as `wave`."""
        return self.wave(row).samples
