"""Rows of Parquet files and of data sets that the `datasets` library saved, as both know them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ernie.errors import UserError

_ROWS = 64  # of a Parquet file, decoded at a time


def parquet_rows(path: Path, choose: Callable[[list[str]], Sequence[str]] = list) -> Iterator[dict[str, Any]]:
    """The rows of a file, in batches, so that memory stays bounded; `choose` picks columns by their names.

    Raises UserError when the file is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            columns = list(choose(file.schema_arrow.names))
            for batch in file.iter_batches(batch_size=_ROWS, columns=columns):
                yield from batch.to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path}: cannot be read as a Parquet file: {error}") from None


def load_saved(folder: Path) -> Any:
    """The Dataset or DatasetDict that `save_to_disk` wrote.  Raises UserError when it cannot be read."""
    import datasets

    try:
        return datasets.load_from_disk(str(folder))
    except Exception as error:  # the library raises whatever its parts raise
        raise UserError(f"{folder}: cannot be read as a saved data set: {error}") from error
