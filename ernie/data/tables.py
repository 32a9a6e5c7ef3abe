"""Rows of Parquet files and of data sets that the `datasets` library saved, as both know them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ernie.errors import UserError

_ROWS = 64  # of a Parquet file, decoded at a time


def parquet_rows(
    path: Path,
    choose: Callable[[list[str]], Sequence[str]] = list,
    progress: Callable[[float], None] = lambda share: None,
) -> Iterator[dict[str, Any] | str]:
    """The rows of a file, in batches, so that memory stays bounded; for one that is not UTF-8 text, what is wrong.

    `choose` picks columns by their names; `progress` is told the share of the rows that were read so far.  Raises
    UserError when the file is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            columns = list(choose(file.schema_arrow.names))
            read = 0
            for batch in file.iter_batches(batch_size=_ROWS, columns=columns):
                read += batch.num_rows
                progress(read / file.metadata.num_rows)
                yield from _decoded(batch)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path}: cannot be read as a Parquet file: {error}") from None


def saved_rows(rows: Any) -> Iterator[dict[str, Any] | str]:
    """The rows of a `datasets.Dataset`, in batches; for one that is not UTF-8 text, what is wrong."""
    for first in range(0, len(rows), _ROWS):
        chosen = range(first, min(first + _ROWS, len(rows)))
        try:
            columns = rows[chosen.start : chosen.stop]
        except UnicodeDecodeError:
            yield from (_decoded_saved(rows, i) for i in chosen)
            continue
        yield from (dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True))


def _decoded_saved(rows: Any, i: int) -> dict[str, Any] | str:
    try:
        return rows[i]
    except UnicodeDecodeError:
        return _decoded_row(rows.with_format("arrow")[i])


def _decoded(batch: Any) -> list[dict[str, Any] | str]:
    try:
        return batch.to_pylist()
    except UnicodeDecodeError:  # Arrow takes any bytes for a string
        return [_decoded_row(batch.slice(i, 1)) for i in range(batch.num_rows)]


def _decoded_row(row: Any) -> dict[str, Any] | str:
    cells = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            cells[name] = column[0].as_py()
        except UnicodeDecodeError as error:
            return f"column '{name}': byte {error.start + 1} is not UTF-8 text"
    return cells


def load_saved(folder: Path) -> Any:
    """The Dataset or DatasetDict that `save_to_disk` wrote.  Raises UserError when it cannot be read."""
    import datasets

    try:
        return datasets.load_from_disk(str(folder))
    except Exception as error:  # the library raises whatever its parts raise
        raise UserError(f"{folder}: cannot be read as a saved data set: {error}") from error
