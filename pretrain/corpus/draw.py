"""A random sample of documents from text of any size, in one pass and bounded memory.

Every document gets a random number, and those with the smallest ones are kept until they have the size that is asked
for (bottom-k sampling; Cohen and Kaplan, 2007, "Summarizing data using bottom-k sketches").
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Literal

from ernie.data import seeded_rng
from ernie.data.raw import Dropped, RawDocument, ReadOptions
from ernie.data.read import Input, read_input
from pretrain.corpus.sample import cut_to

_KEYS = 2**63


class Draw:
    """Draws about `size` bytes of documents, by their places ("reservoir") or by their texts ("hash").

    A drawing by texts takes equal texts for one, and depends neither on their order nor on the files that they are in.
    Afterwards `documents` and `bytes` say how much was read.
    """

    def __init__(self, size: int, by: Literal["reservoir", "hash"], seed: int):
        self.documents = 0
        self.bytes = 0
        self._size, self._by, self._seed = size, by, seed
        self._rng = seeded_rng.generator("draw", seed)

    def of(
        self,
        inputs: Sequence[Input],
        options: ReadOptions,
        on_dropped: Callable[[Dropped], None] = lambda dropped: None,
        on_read: Callable[[], None] = lambda: None,
    ) -> Iterator[RawDocument]:
        """Yield the documents that are drawn, in the order of their random numbers; the last one may be cut.

        All of the text is read before the first.  `on_dropped` is called with what cannot be used, `on_read` after
        each document.
        """
        kept: list[tuple[int, int, RawDocument]] = []  # a heap: the largest number, negative, is on top
        keys: set[int] = set()
        total = 0
        for source in inputs:
            for document in read_input(source, options):
                if isinstance(document, Dropped):
                    on_dropped(document)
                    continue
                self.documents += 1
                self.bytes += _size(document)
                on_read()
                key = self._key(document)
                if key in keys or (kept and total >= self._size and key > -kept[0][0]):
                    continue
                keys.add(key)
                heappush(kept, (-key, self.documents, document))
                total += _size(document)
                # The last one is kept if those before it are too small a sample.
                while total - _size(kept[0][2]) >= self._size:
                    left_out = heappop(kept)
                    keys.remove(-left_out[0])
                    total -= _size(left_out[2])
        remaining = self._size
        for _, _, document in sorted(kept, reverse=True, key=lambda entry: entry[0]):
            cut, used = cut_to(remaining, document)
            remaining -= used
            yield cut

    def _key(self, document: RawDocument) -> int:
        if self._by == "reservoir":
            return int(self._rng.integers(_KEYS))
        content = f"{self._seed}\n{document.title}\n{document.text}".encode()
        return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") % _KEYS


def _size(document: RawDocument) -> int:
    return len(document.title.encode()) + len(document.text.encode())
