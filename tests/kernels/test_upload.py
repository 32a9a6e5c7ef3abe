"""Arrays that are sent to a GPU ahead of a step, played by a CPU."""

from __future__ import annotations

import numpy as np
import pytest
from support.fake_gpu import fake_gpu

from ernie.kernels.upload import Uploads, on_device

IDS, GRID, WEIGHTS = np.arange(7), np.arange(12).reshape(3, 4), np.linspace(0, 1, 5, dtype=np.float32)
SENT = {"ids": IDS, "the beginning of ids": IDS[:4], "a matrix": GRID, "rows of it": GRID[:2], "weights": WEIGHTS}
NOT_SENT = {
    "the end of ids": IDS[3:],
    "every second id": IDS[::2],
    "columns": GRID[:, :2],
    "another type": IDS.view(np.int32),
    "equal elements elsewhere": IDS.copy(),
    "more than was sent": np.arange(9),
}
ALL = [IDS, IDS[:4], GRID, WEIGHTS, NOT_SENT["more than was sent"][:5], np.zeros(0, np.int64)]


@pytest.mark.parametrize("name", SENT)
def test_an_array_that_was_sent_ahead_is_not_copied_again(name: str) -> None:
    with fake_gpu() as device, Uploads().ahead(ALL):
        assert len(device.uploads) == 2  # one for each type
        found = on_device(SENT[name])
        assert len(device.uploads) == 2
    np.testing.assert_array_equal(found.numpy(), SENT[name])


@pytest.mark.parametrize("name", NOT_SENT)
def test_other_arrays_have_copies_of_their_own(name: str) -> None:
    with fake_gpu() as device, Uploads().ahead(ALL):
        found = on_device(NOT_SENT[name])
        assert len(device.uploads) == 3
    np.testing.assert_array_equal(found.numpy(), NOT_SENT[name])


def test_equal_elements_are_filled_by_the_device() -> None:
    with fake_gpu() as device, Uploads().ahead([IDS]):
        for array in (np.full((2, 3), 5), np.ones(4, np.float32), np.zeros(3, bool)):
            found = on_device(array)
            np.testing.assert_array_equal(found.numpy(), array)
            assert found.numpy().dtype == array.dtype
        assert len(device.uploads) == 1


def test_after_a_step_arrays_are_copied_as_they_are_then() -> None:
    ids = np.arange(3)
    with fake_gpu():
        with Uploads().ahead([ids]):
            pass
        ids[0] = 9
        assert on_device(ids).tolist() == [9, 1, 2]


def test_on_a_cpu_nothing_is_sent_ahead() -> None:
    with Uploads().ahead([IDS]):
        found = on_device(IDS)
    assert found.tolist() == IDS.tolist()
