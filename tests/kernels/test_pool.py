"""The memory pool of large tensors: memory in use is never handed out, and freed memory is reused."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import ROOT

from ernie.kernels.cpu.pool import bytes_in_use, empty, empty_like

LARGE = 1 << 18  # elements
# Steps on batches of varying lengths; prints the growth of the process, in units of the memory of one step.
GROWTH = """
import random
from ernie import runtime
import paddle
from ernie.kernels.cpu.pool import empty

def step(rows):
    # the activations of layers, interleaved with small results that live longer
    kept, odds = [], []
    for _ in range(40):
        kept.append(empty([rows, 1024]).fill_(1.0))
        odds.append(paddle.ones([random.randrange(100, 900)]))
    return odds

random.seed(0)
small = [step(1000)]
before = runtime.memory()
for _ in range(60):
    small.append(step(random.randrange(900, 1000)))
    del small[:-20]
print((runtime.memory() - before) / (40 * 1000 * 1024 * 4))
"""


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 1 << 19), st.booleans(), st.integers(0, 5)), max_size=25))
def test_no_two_tensors_share_memory(requests: list[tuple[int, bool, int]]) -> None:
    alive: list[tuple[paddle.Tensor, int]] = []
    for number, (count, is_bytes, keep) in enumerate(requests):
        tensor = empty([count], paddle.uint8 if is_bytes else paddle.float32)
        assert tensor.shape == [count]
        alive.append((tensor.fill_(number % 200), number % 200))
        del alive[: max(0, len(alive) - keep)]
        for other, value in alive:
            assert (other.numpy() == value).all()


def test_freed_memory_is_reused() -> None:
    first = empty([LARGE * 100])  # larger than anything that other tests have freed
    address = first.data_ptr()
    del first
    second = empty([LARGE * 100 - 1000])  # of a slightly shorter batch
    assert second.data_ptr() == address


def test_a_much_smaller_tensor_does_not_reuse_a_large_block() -> None:
    first = empty([LARGE * 8])
    address = first.data_ptr()
    del first
    assert empty([LARGE]).data_ptr() != address


def test_memory_is_kept_until_the_backward_pass() -> None:
    weight = paddle.ones([LARGE])
    weight.stop_gradient = False
    values = empty([LARGE]).fill_(3.0)
    product = weight * values
    del values
    others = [empty([LARGE]).fill_(7.0) for _ in range(5)]
    product.sum().backward()
    assert weight.grad is not None
    assert (weight.grad.numpy() == 3.0).all()
    assert len(others) == 5


def test_a_numpy_view_outlives_its_tensor() -> None:
    array = empty([LARGE]).fill_(2.0).numpy()
    again = empty([LARGE]).fill_(5.0)
    assert (array == 2.0).all()
    assert (again.numpy() == 5.0).all()


def test_memory_in_use_is_counted() -> None:
    gc.collect()
    before = bytes_in_use()
    tensor = empty([LARGE])
    assert 4 * LARGE <= bytes_in_use() - before <= 4 * LARGE * 1.5
    del tensor
    assert bytes_in_use() == before
    small = empty([10])
    assert small.shape == [10]
    assert bytes_in_use() == before


@pytest.mark.parametrize("dtype", [paddle.float32, paddle.bfloat16, paddle.uint8])
def test_tensors_have_the_requested_shape_and_type(dtype: paddle.dtype) -> None:
    for shape in ([3, 5], [700, 300], [2, 300, 700]):
        tensor = empty(shape, dtype)
        assert (tensor.shape, tensor.dtype) == (shape, dtype)
        assert (empty_like(tensor).shape, empty_like(tensor).dtype) == (shape, dtype)
        assert tensor.stop_gradient


def test_batches_of_varying_lengths_do_not_grow_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", GROWTH], cwd=ROOT, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.25


def test_values_are_written_and_read_in_place() -> None:
    values = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)
    tensor = empty([512, 512])
    tensor.set_value(values)
    np.testing.assert_array_equal((tensor + tensor).numpy(), 2 * values)
    np.testing.assert_array_equal(tensor[100:200].numpy(), values[100:200])


def test_concurrent_frees_by_the_garbage_collector_never_share_memory() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        alive: list[paddle.Tensor] = []
        for _ in range(150):
            cycle: list[object] = [empty([rng.randrange(LARGE // 2, 2 * LARGE)]).fill_(number)]
            cycle.append(cycle)  # freed by the garbage collector at an arbitrary time
            alive.append(empty([rng.randrange(LARGE // 2, 2 * LARGE)]).fill_(number))
            del alive[: rng.randrange(3)]
            wrong.extend(number for tensor in alive if not bool((tensor == number).all()))

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*before)
    assert not wrong
