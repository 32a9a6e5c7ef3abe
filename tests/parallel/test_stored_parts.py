"""A process reads no more of a stored optimizer than the parts that it keeps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import nn

from ernie.errors import UserError
from ernie.model import weights
from ernie.model.weights import StoredArray, StoredArrays, save_arrays
from ernie.parallel.mesh import Mesh
from ernie.parallel.sharded_state import ShardedState
from ernie.parallel.tensor_shard import flat_part, local_part
from ernie.train.adam_config import AdamConfig
from ernie.train.optimizer import Optimizer

WHOLE = np.arange(35, dtype=np.float32).reshape(7, 5)


class OneOfTwo(ShardedState):
    """The state of the process that updates every second parameter."""

    def owns(self, parameter: Any) -> bool:
        return [id(other) for other in self.parameters.values()].index(id(parameter)) % 2 == 0


@pytest.fixture
def stored(tmp_path: Path) -> StoredArray:
    save_arrays({"whole": WHOLE, "one": np.array(1.5, np.float32)}, tmp_path / "file.safetensors")
    return StoredArrays(tmp_path / "file.safetensors")["whole"]


def test_parts_of_a_stored_array_are_those_of_the_array(stored: StoredArray) -> None:
    for axis, size in ((0, 7), (1, 5)):
        part: Any = SimpleNamespace(shape=[*WHOLE.shape], split_axis=axis)
        part.shape[axis] = 1
        for rank in range(size):
            np.testing.assert_array_equal(local_part(stored, part, rank), WHOLE.take([rank], axis))


@pytest.mark.parametrize("slices", [1, 2, 3, 4, 9])
def test_slices_of_values_in_a_row_are_padded_with_zeros(slices: int, stored: StoredArray) -> None:
    size = -(-WHOLE.size // slices)
    padded = np.zeros(size * slices, np.float32)
    padded[: WHOLE.size] = WHOLE.reshape(-1)
    for values in (stored, WHOLE):
        parts = [flat_part(values, start, start + size) for start in range(0, padded.size, size)]
        np.testing.assert_array_equal(np.concatenate(parts), padded)


def test_a_process_reads_the_moments_of_the_parameters_that_it_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    whole = Optimizer(ShardedState(layers, Mesh()), AdamConfig())
    layers(paddle.ones([3, 4])).sum().backward()
    whole.step(0.1)
    state = whole.state()
    save_arrays(state, tmp_path / "optimizer.safetensors")
    read = []

    class Recorded(StoredArray):
        def __getitem__(self, index: Any) -> np.ndarray:
            read.append(self._name)
            return super().__getitem__(index)

    monkeypatch.setattr(weights, "StoredArray", Recorded)
    own = Optimizer(OneOfTwo(layers, Mesh()), AdamConfig())
    own.set_state(StoredArrays(tmp_path / "optimizer.safetensors"))
    names = [name for number, name in enumerate(own.parameters) if number % 2 == 0]
    assert sorted(read) == sorted(f"{name}/{kind}" for name in names for kind in ("moment1", "moment2", "steps"))
    for name in names:
        for number, moment in enumerate(own._moments[name, ""], 1):
            np.testing.assert_array_equal(moment.numpy(), state[f"{name}/moment{number}"])


def test_arrays_that_are_not_there_or_damaged_are_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="file: there is no such file"):
        StoredArrays(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"not arrays")
    with pytest.raises(UserError, match="file: is damaged"):
        StoredArrays(tmp_path / "file")


def test_an_array_without_axes_is_read_whole(stored: StoredArray, tmp_path: Path) -> None:
    assert StoredArrays(tmp_path / "file.safetensors")["one"][...] == np.float32(1.5)
