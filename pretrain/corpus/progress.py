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
        self._last = time.monotonic()

    def __enter__(self) -> ConsoleProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, done: int, total: int, counts: Counts) -> None:
        if self._is_terminal:
            self._show_bar(done, total, counts)
        elif time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            of = f" of {total / 1e6:.0f}" if total else ""
            print(f"data build: {done / 1e6:.0f}{of} MB read, {_kept(counts)}", file=sys.stderr, flush=True)

    def _show_bar(self, done: int, total: int, counts: Counts) -> None:
        if self._bar is None:
            self._bar = tqdm(total=total or None, unit="B", unit_scale=True, desc="data build", file=sys.stderr)
        self._bar.set_postfix_str(_kept(counts), refresh=False)
        self._bar.update((done if total else counts.bytes) - self._bar.n)


def _kept(counts: Counts) -> str:
    return f"{counts.total('documents'):,} documents kept, {sum(counts.dropped.values()):,} dropped"
