"""Progress of a corpus build: a bar on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from tqdm import tqdm

from pretrain.corpus.report import Counts

_SECONDS_BETWEEN_LINES = 5.0


class ConsoleProgress:
    """Progress on standard error; a context manager that yields the `progress` callback of build_corpus."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._bar: tqdm | None = None
        self._read = (False, 0)  # whether to build the corpus, and how far
        self._last = time.monotonic()

    def __enter__(self) -> ConsoleProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._close()

    def __call__(self, done: int, total: int, counts: Counts | None) -> None:
        before, self._read = self._read, (counts is not None, done)
        if self._read < before or self._read[0] > before[0]:  # the text is read once more
            self._close()
        if self._is_terminal:
            self._show_bar(done, total, counts)
        elif time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            of = f" of {total / 1e6:.0f}" if total else ""
            print(f"data build: {done / 1e6:.0f}{of} MB read{_what(counts)}", file=sys.stderr, flush=True)

    def _show_bar(self, done: int, total: int, counts: Counts | None) -> None:
        if self._bar is None:
            name = "data build" if counts else "data build: to compare"
            self._bar = tqdm(total=total or None, unit="B", unit_scale=True, desc=name, file=sys.stderr)
        if counts:
            self._bar.set_postfix_str(_what(counts).removeprefix(", "), refresh=False)
        self._bar.update((counts.bytes if counts and not total else done) - self._bar.n)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = None


def _what(counts: Counts | None) -> str:
    if counts is None:
        return " to compare documents"
    return f", {counts.total('documents'):,} documents kept, {sum(counts.dropped.values()):,} dropped"
