"""The runs that a learning curve needs: nested shares of a corpus by widths of the encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ernie.errors import UserError

HEAD = 64  # the width of an attention head


class Rung(NamedTuple):
    """A run: the share of the text, the encoder's width, and the folder."""

    share: float
    width: int
    folder: Path

    def overrides(self) -> Iterator[str]:
        """What its configuration changes of the one that is given."""
        yield f"data.share={self.share}"
        yield f"model.hidden_size={self.width}"
        yield f"model.intermediate_size={4 * self.width}"
        yield f"model.heads={max(1, self.width // HEAD)}"


def ladder(folder: Path, shards: int, widths: Sequence[int]) -> list[Rung]:
    """So many shares, each twice as large as the one before, by widths; the cheapest runs first.

    Raises UserError when these are too few to predict from, or a width has no whole number of heads.
    """
    if shards < 5:
        raise UserError(f"--shards: {shards} leave {shards - 1} to fit a law of 3 numbers to; take at least 5")
    for width in widths:
        if width < 1 or (width > HEAD and width % HEAD):
            raise UserError(f"--widths: {width} is no multiple of {HEAD}, the width of an attention head")
    shares = [2.0**-power for power in reversed(range(shards))]
    return [
        Rung(share, width, folder / f"1-of-{round(1 / share)}-width-{width}")
        for share in shares
        for width in sorted(set(widths))
    ]
