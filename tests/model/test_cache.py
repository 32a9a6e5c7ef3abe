"""Key-value caches: any use of them equals that of plain lists of arrays, whatever else was made of the same caches."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels.attention import attention
from ernie.kernels.choose import runs_in_cpp
from ernie.model import pages
from ernie.model.cache import KeyValueCache
from ernie.model.pages import PAGE, Block

LAYERS, D, HEADS = 2, 6, 2

# A model of a cache: of each sequence an array (T, 2 L, D).
Model = list[np.ndarray]
Cached = tuple[KeyValueCache, Model]


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 2 * LAYERS, D)).astype("float32")


def pairs(array: np.ndarray) -> tuple[tuple[paddle.Tensor, paddle.Tensor], ...]:
    planes = [paddle.to_tensor(np.ascontiguousarray(array[:, n])) for n in range(2 * LAYERS)]
    return tuple(zip(planes[::2], planes[1::2], strict=True))


def check(cached: Cached) -> None:
    cache, model = cached
    assert cache.layout.lengths.tolist() == [len(each) for each in model]
    wanted = np.concatenate(model)
    if not len(wanted):
        return
    for layer, (keys, values) in enumerate(cache.layers):
        assert (keys.numpy() == wanted[:, 2 * layer]).all()
        assert (values.numpy() == wanted[:, 2 * layer + 1]).all()


def extended(cached: Cached, lengths: list[int], seed: int) -> Cached:
    cache, model = cached
    more, new = Layout.of_lengths(lengths), rows(sum(lengths), seed)
    parts = np.split(new, more.offsets[1:-1])
    return cache.extended(more, pairs(new)), [np.concatenate(both) for both in zip(model, parts, strict=True)]


def attended(cached: Cached, lengths: list[int], chunk: int, before: int, seed: int) -> Cached:
    """Extend by chunks, check what they attend to, and keep the last `before` tokens."""
    cache, model = cached
    _, both = extended(cached, lengths, seed)
    more, new = Layout.of_lengths(lengths), pairs(rows(sum(lengths), seed))
    windows = cache.windows(more, chunk, before)
    spans = [
        (n, max(0, len(own) + first - before), len(own) + min(first + chunk, length))
        for n, (own, length) in enumerate(zip(model, lengths, strict=True))
        for first in range(0, max(length, 1), chunk)
    ]
    seen = [both[n][begin:end] for n, begin, end in spans]
    assert windows.layout.lengths.tolist() == [len(each) for each in seen]
    q_TD = paddle.to_tensor(rows(more.tokens, seed + 1)[:, 0].copy())
    for layer, pair in enumerate(new):
        windows.append(pair)
        keys, values = pairs(np.concatenate(seen))[layer]
        wanted = attention(q_TD, keys, values, windows.queries, HEADS, keys=windows.layout)
        assert (windows.attend(q_TD, HEADS).numpy() == wanted.numpy()).all()
    return windows.cache(), [each[max(0, len(each) - before) :] for each in both]


def one_more(data: st.DataObject, known: list[Cached]) -> Cached:
    """Make another cache of those known, old ones included."""
    seed = data.draw(st.integers(0, 999))
    cache, model = data.draw(st.sampled_from(known))
    use = data.draw(st.sampled_from(["extend", "extend", "attend", "select", "join", "last", "restore"]))
    if use in ("extend", "attend"):
        counts = st.one_of(st.integers(0, 2), st.integers(0, 2 * PAGE + 1))
        lengths = data.draw(st.lists(counts, min_size=len(model), max_size=len(model)))
        if use == "extend" or not sum(lengths):
            return extended((cache, model), lengths, seed)
        return attended((cache, model), lengths, data.draw(st.integers(1, 20)), data.draw(st.integers(0, 40)), seed)
    if use == "select":
        chosen = data.draw(st.lists(st.integers(0, len(model) - 1), min_size=1, max_size=4))
        return cache.select(chosen), [model[n] for n in chosen]
    if use == "join":
        other, others = data.draw(st.sampled_from(known))
        return KeyValueCache.joined([cache, other]), [*model, *others]
    if use == "last":
        count = data.draw(st.integers(0, 2 * PAGE))
        return cache.last(count), [each[max(0, len(each) - count) :] for each in model]
    return KeyValueCache.from_arrays(cache.arrays()), model


@pytest.mark.parametrize("in_pages", [True, False])
@settings(max_examples=60)
@given(st.data())
def test_any_sequence_of_uses_equals_lists_of_arrays(in_pages: bool, data: st.DataObject) -> None:
    known: list[Cached] = [(KeyValueCache.empty(n), [rows(0, 0)] * n) for n in (1, 2)]
    with paddle.set_grad_enabled(not in_pages):
        for _ in range(data.draw(st.integers(1, 14))):
            known.append(one_more(data, known))
            if len(known[-1][1]) > 8:  # joined with itself again and again
                known.pop()
        for cached in known:  # what was made of a cache has not changed it
            check(cached)


@settings(max_examples=10)
@given(st.integers(0, 999), st.integers(1, 2 * PAGE))
def test_threads_extend_one_cache_in_many_ways(seed: int, length: int) -> None:
    with paddle.no_grad():
        begun = extended((KeyValueCache.empty(2), [rows(0, 0)] * 2), [length, 3], seed)
        shared = begun[0].select([0, 1]), begun[1]

    def grown(thread: int) -> list[Cached]:
        with paddle.no_grad():  # which each thread has for itself
            found = [shared]
            for step in range(20):
                found.append(extended(found[-1], [1, step % 3], 1000 * thread + step))
            return found

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(grown, range(8)):
            for cached in found:
                check(cached)


needs_pages = pytest.mark.skipif(
    not runs_in_cpp(paddle.zeros([1])), reason="caches lie in pages only where the C++ kernels are"
)


@needs_pages
def test_one_continuation_of_a_cache_copies_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    copy = pages.copy_runs
    monkeypatch.setattr(
        pages, "copy_runs", lambda to, of, sizes: (copied.append(int(sizes.sum())), copy(to, of, sizes))
    )
    token = 2 * LAYERS * D * 4
    with paddle.no_grad():
        cache, model = extended((KeyValueCache.empty(1), [rows(0, 0)]), [100], 0)
        first = extended((cache, model), [1], 1)
        assert copied == [100 * token, token]  # into pages, once; then one row
        second = extended(first, [1], 2)
        assert copied[2:] == [token]
        other = extended(first, [1], 3)  # behind a copy of the last piece, which has one row
        assert copied[3:] == [2 * token]
        joined = KeyValueCache.joined([second[0], other[0], second[0].last(50)]).select([2, 0, 1])
        assert copied[4:] == []
        check((joined, [second[1][0][-50:], second[1][0], other[1][0]]))


@needs_pages
def test_streams_take_the_memory_that_their_window_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: weakref.WeakSet[Counted] = weakref.WeakSet()

    class Counted(Block):
        __slots__ = ("__weakref__",)

        def __init__(self, *arguments: int):
            super().__init__(*arguments)
            alive.add(self)

    monkeypatch.setattr(pages, "Block", Counted)
    with paddle.no_grad():
        cache, window = KeyValueCache.empty(3), 40
        for step in range(200):
            cache, _ = extended((cache, [rows(0, 0)] * 3), [1, 1, 1], step)
            cache = cache.last(window)
            assert sum(block.rows for block in alive) <= 3 * (min(step + 1, window) + 2 * (PAGE - 1))
        before = len(alive)
        cache = cache.select([1])
        gc.collect()
        assert 0 < len(alive) < before
        del cache
        gc.collect()
        assert not alive


@needs_pages
def test_caches_of_other_models_and_damaged_ones_are_refused() -> None:
    with paddle.no_grad():
        cache = KeyValueCache(Layout.of_lengths([3]), pairs(rows(3, 0))).select([0])
        one, wide = Layout.of_lengths([1]), paddle.zeros([1, D + 1])
        with pytest.raises(UserError, match=r"expected float32 \(T, 6\), as in the cache"):
            cache.extended(one, ((wide, wide),) * LAYERS)
        with pytest.raises(UserError, match=r"expected float32 \(T, 6\), as in the cache"):
            cache.attend(0, wide, one, 1)
        with pytest.raises(UserError, match="a cache has 2 layers"):
            cache.attend(2, paddle.zeros([1, D]), one, 1)
        with pytest.raises(UserError, match="a cache has 3 keys: expected 4, as in its layout"):
            KeyValueCache(Layout.of_lengths([4]), pairs(rows(3, 0))).select([0])


def test_gradients_reach_cached_keys() -> None:
    keys = paddle.to_tensor(rows(3, 0)[:, 0].copy(), stop_gradient=False)
    cache = KeyValueCache(Layout.of_lengths([1, 2]), ((keys, keys),)).select([1, 1])
    cache.attend(0, paddle.ones([2, D]), Layout.of_lengths([1, 1]), HEADS).sum().backward()
    assert (np.abs(keys.grad.numpy()).sum(1) > 0).tolist() == [False, True, True]
