"""Files of states from strangers: never larger in memory than on disk."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays, scalar_dtypes, unicode_string_dtypes

from ernie.decode.stream import load_state, save_state
from ernie.errors import UserError


@dataclass(frozen=True)
class Kept:
    """A state that is its arrays."""

    values: Mapping[str, np.ndarray]

    streams = 1

    def select(self, streams: object) -> Kept:
        return self

    def concat(self, others: object) -> Kept:
        return self

    def arrays(self) -> dict[str, np.ndarray]:
        return dict(self.values)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Kept:
        return cls(arrays)


@given(arrays(scalar_dtypes() | unicode_string_dtypes(min_len=1), array_shapes(min_dims=0, min_side=0)))
def test_states_of_every_type_and_shape_are_read_as_written(
    tmp_path_factory: pytest.TempPathFactory, values: np.ndarray
) -> None:
    path = tmp_path_factory.getbasetemp() / "state.npz"
    save_state(Kept({"a/b": values, "c": np.asfortranarray(np.arange(6.0).reshape(2, 3))}), path)
    found = load_state(Kept, path).values
    assert found["a/b"].dtype == values.dtype and found["a/b"].shape == values.shape
    assert found["a/b"].tobytes() == values.tobytes()
    np.testing.assert_array_equal(found["c"], [[0, 1, 2], [3, 4, 5]])


def header(shape: str, dtype: str = "<f4") -> bytes:
    """An .npy file that says to have this shape, and four bytes of values."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(4)


def zeros(work: Path) -> None:
    np.savez_compressed(work, values=np.zeros(1 << 22, np.int8))


def claims(shape: str, dtype: str = "<f4") -> Callable[[Path], None]:
    def make(work: Path) -> None:
        with zipfile.ZipFile(work, "w") as archive:
            archive.writestr("values.npy", header(shape, dtype))

    return make


def overlapping(work: Path) -> None:
    """Many names for the same megabyte."""
    content = io.BytesIO()
    np.save(content, np.zeros(1 << 20, np.int8))
    with zipfile.ZipFile(work, "w") as archive:
        archive.writestr("values.npy", content.getvalue())
        archive.filelist += [archive.filelist[0]] * 100


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (zeros, "its arrays are compressed"),
        (claims("(1099511627776,)"), "is larger than its part of the file"),
        (claims("(1099511627776,)", "<U0"), "is larger than its part of the file"),
        (claims("(0, 1099511627776)", "|O"), "Object arrays cannot be loaded"),
        (claims("(-1,)"), ""),
        (overlapping, "its arrays are larger than the file"),
    ],
)
def test_a_file_that_asks_for_more_than_it_holds_is_refused(
    make: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    make(tmp_path / "state.npz")
    with pytest.raises(UserError, match=f"holds no state of the kind Kept .*{message}"):
        load_state(Kept, tmp_path / "state.npz")
