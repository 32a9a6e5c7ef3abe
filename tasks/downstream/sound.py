"""The base class of speech tasks: sounds in a column, and the statistics of their features."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import SEEK_END, BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ernie.audio.features import FeatureConfig, Statistics, features
from ernie.audio.files import local_path, require_file
from ernie.audio.wave import Selection, Wave, as_wave, read_wave
from ernie.data import seeded_rng
from ernie.data.labeled.read import raise_faults
from ernie.data.labeled.row import Fault, Row, is_empty
from ernie.errors import UserError
from ernie.text.blank import is_blank
from tasks.downstream.base import FinetuneTask
from tasks.downstream.hooks import (
    CompletesSaved,
    DerivesFromRows,
    EncoderConditions,
    FilesInRows,
    OwnBatches,
    ReadsSounds,
    SplitRemarks,
)

if TYPE_CHECKING:
    from ernie.parallel.layout import ParallelConfig

_SAMPLE = 1000  # sounds, chosen at random, for the statistics of features: those of a hundred hours would take minutes
_HASHED = 4096  # bytes at each of three places of a file, to detect whether it has changed
_CHANNELS = {"mix": "mix", "left": "1", "right": "2"}
_TO_THE_END = -1  # as the end of a segment in Kaldi
# Names, in small letters, of columns that say where in a sound a part begins, and where it ends.
_BEGINNINGS = ("start", "begin", "start_time", "begin_time", "start_seconds", "begin_seconds", "onset", "tmin", "xmin")
_ENDS = ("end", "stop", "end_time", "stop_time", "end_seconds", "stop_seconds", "tmax", "xmax")
_DIGITS = 6  # of the feature statistics, which would otherwise depend on the order of the rows


@dataclass(frozen=True, kw_only=True)
class SoundTask(
    FinetuneTask, DerivesFromRows, SplitRemarks, FilesInRows, EncoderConditions, ReadsSounds, OwnBatches, CompletesSaved
):
    """A kind whose rows have a sound in the column `audio`.

    A cell holds the name of a file, or a file's bytes as the `datasets` library keeps them, {bytes: ..., path: ...}. It
    may also hold samples with their rate, {array: [...], sampling_rate: 16000}; a path beside samples is ignored.

    `offset`, `duration` and `end` are columns with seconds: a row that has them is about that part of its sound only.
    `channel` says what is read of several channels: `mix`, their mean, `left`, `right`, a number counted from 1, or the
    column that says so.  `features` configures the features of a sound; `mean` and `deviation` are their statistics, by
    default computed on the training sounds, or on a subset if there are many.
    """

    audio: str = "audio"
    offset: str = "offset"
    duration: str = "duration"
    end: str = ""
    channel: str | int = "mix"
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
            raise UserError("mean and deviation: give both, or neither for those of the training rows")

    @classmethod
    def completed(cls, saved: Mapping[str, Any]) -> dict[str, Any]:
        features = saved.get("features", {})
        if not isinstance(features, Mapping):  # reported when the task is built
            return dict(saved)
        return {**saved, "features": {"normalize_seconds": 0.0, "remove_dc_offset": False, **features}}

    def check_layout(self, layout: ParallelConfig) -> None:
        if layout.pipeline > 1 or layout.sequence:
            raise UserError(
                "the speech front end and the vocoder are outside the encoder, which pipeline and sequence cannot "
                "split; spread speech by data, sharding and tensor"
            )

    def adapted_to(self, rows: Sequence[Row]) -> FinetuneTask:
        if not self.features.needs_statistics or self.mean:
            return self
        unnormalized, statistics = replace(self.features, normalize="none"), None
        faults: list[Fault] = []
        chosen = np.sort(seeded_rng.generator(0, "statistics").permutation(len(rows))[:_SAMPLE])
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
        selection = self._selection(row)
        if isinstance(cell, Mapping) and isinstance(held := cell.get("bytes"), bytes):
            return read_wave(BytesIO(held), self.features.sample_rate, cell.get("path") or column, selection)
        file = self.named_file(row)
        if file is None:
            return as_wave(cell, self.features.sample_rate, column, selection)
        require_file(file, pipes=False)
        return read_wave(file, self.features.sample_rate, selection=selection)

    def _selection(self, row: Row) -> Selection:
        """Return what is read of a row's sound.  Raises UserError for cells that do not say so."""
        offset, duration, end = (self._seconds(row, field) for field in ("offset", "duration", "end"))
        if duration is not None and duration <= 0:
            raise UserError(
                f"column '{self.duration}': expected more than 0 seconds, found {duration:g}; an empty cell is all up "
                "to the end"
            )
        if end is not None and end != _TO_THE_END:
            duration = end - (offset or 0.0)
            if duration <= 0:
                raise UserError(f"column '{self.end}': the end, {end:g} s, is not after the offset, {offset or 0:g} s")
        is_part = offset is not None or end is not None
        return Selection(offset or 0.0, duration, self.channel_of(row), more_expected=is_part)

    def _seconds(self, row: Row, field: str) -> float | None:
        """Return the seconds in the column that a field names; None if the row has none."""
        column = getattr(self, field)
        cell: Any = row.get(column)
        if not column or is_empty(cell):
            return None
        seconds = _as_number(cell)
        if seconds is None:
            raise UserError(
                f"column '{column}': expected seconds, found {cell!r:.60}; if it says something else, name another "
                f"column, or none, in task.{field}"
            )
        if field == "duration" or 0 <= seconds < math.inf or (field == "end" and seconds == _TO_THE_END):
            return seconds
        otherwise = ", or -1 for the end" if field == "end" else ""
        raise UserError(f"column '{column}': expected seconds from 0 on{otherwise}, found {seconds:g}")

    def channel_of(self, row: Row) -> str:
        """Return the channel that is read of a row's sound: `mix`, or a number.

        Raises UserError if that is no channel.
        """
        channel = str(self.channel).strip()
        if channel in row and channel not in _CHANNELS and not channel.isdecimal():
            cell = row[channel]
            whole = _as_number(cell)
            given = str(int(whole)) if whole is not None and whole.is_integer() else row.text(channel)
            return self._channel(given.strip().lower(), f"column '{channel}'")
        if not channel.isdecimal() and channel.lower() not in _CHANNELS:
            raise UserError(
                f"channel: '{channel}' is neither mix, left, right nor a number, and the rows have no such column"
            )
        return self._channel(channel.lower(), "channel")

    def _channel(self, given: str, where: str) -> str:
        channel = _CHANNELS.get(given, given)
        if channel != "mix" and not (channel.isdecimal() and int(channel)):
            raise UserError(f"{where}: expected mix, left, right, or a number from 1 on, found {given!r:.60}")
        return channel

    def remarks_on(self, rows: Sequence[Row]) -> list[str]:
        remarks = super().remarks_on(rows)
        found = next(((unread, row.place) for row in rows if (unread := self._unread_part(row))), None)
        if found is None:
            return remarks
        (begin, *ends), place = found
        if ends:
            columns, settings = f"columns {begin} and {ends[0]}", f"task.offset={begin} and task.end={ends[0]}"
        else:
            columns, settings = f"column {begin}", f"task.offset={begin}"
        return [
            *remarks,
            f"the {columns}, first at {place}, may say at which second a part of the sound "
            f"begins{' and ends' * len(ends)}; {settings} reads it so",
        ]

    def _unread_part(self, row: Row) -> list[str]:
        """Return the columns of a row that seem to say where in a sound a part begins, and ends, and are not read."""
        read = {self.offset, self.duration, self.end}
        begin = next((name for name in row if name.lower() in _BEGINNINGS and name not in read), None)
        if begin is None or _as_number(row[begin]) is None or self.end in row:
            return []
        ends = (name for name in row if name.lower() in _ENDS or (name, begin.lower()) == ("offset", "onset"))
        end = next((name for name in ends if _as_number(row[name]) is not None), None)
        return [begin, end] if end is not None else [begin] if self.duration in row else []

    def named_file(self, row: Row) -> Path | None:
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
        # In most data sets names are relative to the file that has them.
        return local_path(cell, Path(row.place.file).parent if row.place.file else "")

    def file_fingerprint(self, row: Row) -> bytes:
        try:
            path = self.named_file(row)
            if path is None or not path.is_file():  # opening a pipe would wait for it
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

    def samples(self, row: Row) -> np.ndarray:
        """Return the samples (s,) of the sound of a row; raises as `wave` does."""
        return self.wave(row).samples


def _as_number(cell: Any) -> float | None:
    """Return the number in a cell, which may be spelled as text; None if there is none."""
    try:
        return None if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError):
        return None
