"""Which keys each kind of mask shows to each query."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.definitions import visible
from support.kernels.judging import quick

from ernie.data.batch import Layout
from ernie.kernels.mask import Mask

LENGTHS = [1, 6, 3]
LAYOUT = Layout.of_lengths(LENGTHS)
EVERY = "xxxxxx xxxxxx xxxxxx xxxxxx xxxxxx xxxxxx"


def drawing(mask: Mask, sequence: int = 1) -> list[str]:
    """A row of text for each query of a sequence, with an x for each visible key."""
    span = np.s_[LAYOUT.offsets[sequence] : LAYOUT.offsets[sequence + 1]]
    return ["".join(".x"[key] for key in row) for row in visible(LAYOUT, mask=mask)[span, span].astype(int)]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (Mask.causal(LAYOUT), "x..... xx.... xxx... xxxx.. xxxxx. xxxxxx"),
        (Mask.window(LAYOUT, before=1, after=2), "xxx... xxxx.. .xxxx. ..xxxx ...xxx ....xx"),
        (Mask.window(LAYOUT, before=0, after=0), "x..... .x.... ..x... ...x.. ....x. .....x"),
        (Mask.chunk(LAYOUT, 4), "xxxx.. xxxx.. xxxx.. xxxx.. ....xx ....xx"),
        (Mask.chunk(LAYOUT, 2, before=1), "xx.... xx.... xxxx.. xxxx.. ..xxxx ..xxxx"),
        (Mask.prefix(LAYOUT, np.array([1, 3, 0])), "xxx... xxx... xxx... xxxx.. xxxxx. xxxxxx"),
        (Mask.prefix(LAYOUT, np.array([0, 0, 0])), "x..... xx.... xxx... xxxx.. xxxxx. xxxxxx"),
        (Mask.until(LAYOUT.positions + 2), "xx.... xxx... xxxx.. xxxxx. xxxxxx xxxxxx"),
        (Mask.window(LAYOUT, 1 << 31, 1 << 31), EVERY),
        (Mask.until(LAYOUT.positions + (1 << 31) - 2), EVERY),
        (Mask.until(LAYOUT.positions), "...... x..... xx.... xxx... xxxx.. xxxxx."),
    ],
)
def test_a_mask_shows_these_keys(mask: Mask, expected: str) -> None:
    assert drawing(mask) == expected.split()


@quick
@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(0, 30), st.integers(0, 30))
def test_no_mask_shows_a_key_of_another_sequence(lengths: list[int], before: int, after: int) -> None:
    layout = Layout.of_lengths(lengths)
    for mask in (
        Mask.window(layout, before, after),
        Mask.chunk(layout, before + 1, after),
        Mask.until(layout.positions + before),
    ):
        assert not (visible(layout, mask=mask) & ~visible(layout)).any()
