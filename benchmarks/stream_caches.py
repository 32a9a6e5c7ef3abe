"""What does a decoding step of many streams cost, with caches that are copied and with caches that append in place?

  git worktree add BEFORE b33631e
  python benchmarks/stream_caches.py --before BEFORE [--rounds 7]

64 translation streams have 200 target tokens each and sources of 30.  `cache` is what a step of a token takes to append
its keys and values in all layers, `step` a whole step: embedding, decoder layers, vocabulary; `attention` and `product`
are what these kernels take of it.  `join` makes one cache
of the streams' own, `split` makes them of one.  Bytes are those that the cache writes.  BEFORE is a checkout in which
each step copied the caches of all streams; its process and that of this checkout take turns.  Weights are random, for
speed does not depend on them.

Set before the first run: the cache's part takes a quarter of the time and writes a tenth of the bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from record_files import Records, cached_record

HERE = Path(__file__).resolve().parent
STREAMS, HISTORY, SOURCE, VOCABULARY = 64, 200, 30, 8000
STEPS = 16  # of a round, in which each stream fills a page, after one that is not timed
SHAPES = {"3-layers-of-256": (3, 256), "6-layers-of-512": (6, 512)}
TARGETS = ["stream-caches", "stream-caches-step"]


def main() -> None:
    """Compare the two checkouts, or be the process of one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=Path, default=HERE / "records" / "stream-caches")
    parser.add_argument("--side", choices=SHAPES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        serve(*SHAPES[arguments.side])
    elif arguments.before is None:
        parser.error("--before: expected a checkout of the commit before")
    else:
        compare(arguments.before.resolve(), arguments.rounds, arguments.records)


def compare(before: Path, rounds: int, records: Path) -> None:
    """Measure what has no record yet, and print the table and the outcomes."""
    # Here, for they import this checkout, and the process of the other one must not.
    from outcomes import report
    from page_tables import stream_caches

    for shape in SHAPES:
        cached_record(records / f"{shape}-0.json", partial(compared, shape, before, rounds))
    report(Records(records), stream_caches, targets=TARGETS)


def compared(shape: str, before: Path, rounds: int) -> dict[str, Any]:
    """The medians of rounds of both checkouts, which take turns."""
    found: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    with ExitStack() as stack:
        turns = {
            "before": stack.enter_context(process(shape, before)),
            "after": stack.enter_context(process(shape, HERE.parent)),
        }
        for turn in range(rounds + 1):
            for side, measure in turns.items():
                measured = measure()
                if turn:  # the first one warms up
                    found[side].append(measured)
    return {
        side: {name: statistics.median(each[name] for each in own) for name in own[0]} for side, own in found.items()
    }


@contextmanager
def process(shape: str, checkout: Path) -> Iterator[Callable[[], dict[str, float]]]:
    """A process of a checkout, which measures a round whenever it is called."""
    command = [sys.executable, str(Path(__file__).resolve()), "--side", shape]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(checkout), str(HERE)])}
    with subprocess.Popen(
        command, env=environment, cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        lines, requests = child.stdout, child.stdin

        def measure() -> dict[str, float]:
            print(file=requests, flush=True)
            found: dict[str, float] = json.loads(lines.readline())
            return found

        yield measure
        requests.close()


def serve(layers: int, width: int) -> None:
    """Measure a round for each line of the standard input."""
    import numpy as np
    import paddle

    import ernie
    from ernie.data.batch import Layout
    from ernie.model.cache import KeyValueCache
    from ernie.model.config import EncoderConfig
    from ernie.model.decoder import Source
    from ernie.model.ernie import ErnieModel
    from ernie.model.translation import TranslationHead

    assert Path(ernie.__file__).resolve().parent.parent == Path.cwd().resolve(), ernie.__file__
    rng = np.random.default_rng(0)
    paddle.seed(0)
    config = replace(
        EncoderConfig.preset("tiny"),
        hidden_size=width,
        layers=layers,
        heads=width // 64,
        intermediate_size=4 * width,
        vocab_size=VOCABULARY,
    )
    head = TranslationHead(ErnieModel(config))
    head.eval()

    def pairs(tokens: int) -> tuple[tuple[paddle.Tensor, paddle.Tensor], ...]:
        def drawn() -> paddle.Tensor:
            return paddle.to_tensor(rng.normal(size=(tokens, width)).astype("float32"))

        return tuple((drawn(), drawn()) for _ in range(layers))

    one, ids = Layout.of_lengths([1] * STREAMS), rng.integers(5, VOCABULARY, STREAMS)
    source = Source(KeyValueCache(Layout.of_lengths([SOURCE] * STREAMS), pairs(SOURCE * STREAMS)), one)
    history, new = pairs(HISTORY * STREAMS), pairs(STREAMS)
    written, kernels = written_bytes(), kernel_seconds()
    for _ in sys.stdin:
        with paddle.no_grad():
            # One step puts the history in its place.  It belongs to what came before, as the history does.
            begun = KeyValueCache(Layout.of_lengths([HISTORY] * STREAMS), history).extended(one, new)
            found: dict[str, float] = {}
            cache, before, start = begun, sum(written), time.perf_counter()
            for _ in range(STEPS):
                cache = cache.extended(one, new)
            found["cache"] = (time.perf_counter() - start) / STEPS
            found["cache bytes"] = (sum(written) - before) / STEPS
            cache = KeyValueCache(begun.layout, begun.layers).extended(one, new)
            kernels.clear()
            start = time.perf_counter()
            for _ in range(STEPS):
                x_ND, cache = head.forward_cached(ids, one, source, cache)
                head.scores(x_ND)
            found["step"] = (time.perf_counter() - start) / STEPS
            for part in ("attention", "product"):
                found[part] = sum(seconds for name, seconds in kernels if name.startswith(part)) / STEPS
            before, start = sum(written), time.perf_counter()
            own = [cache.select([n]) for n in range(STREAMS)]
            found["split"] = time.perf_counter() - start
            found["split bytes"] = sum(written) - before
            before, start = sum(written), time.perf_counter()
            KeyValueCache.joined(own)
            found["join"] = time.perf_counter() - start
            found["join bytes"] = sum(written) - before
        print(json.dumps(found), flush=True)


def written_bytes() -> list[int]:
    """Return a list to which each copy of a cache appends the bytes that it writes."""
    import paddle

    written: list[int] = []

    def counted(operator: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            made = operator(*arguments)
            written.append(4 * int(made.shape[0]) * int(made.shape[1]))
            return made

        return call

    paddle.gather, paddle.concat = counted(paddle.gather), counted(paddle.concat)
    try:
        from ernie.model import pages
    except ImportError:  # before there were pages
        return written
    copy = pages.copy_runs

    def copy_runs(to: Any, of: Any, sizes: Any) -> None:
        written.append(int(sizes.sum()))
        copy(to, of, sizes)

    pages.copy_runs = copy_runs
    return written


def kernel_seconds() -> list[tuple[str, float]]:
    """Return a list to which each call of a kernel appends its name and the seconds that it takes."""
    from ernie.kernels.cpu.library import Library

    calls: list[tuple[str, float]] = []
    call = Library.call

    def timed(library: Library, name: str, *arguments: Any) -> None:
        start = time.perf_counter()
        call(library, name, *arguments)
        calls.append((name, time.perf_counter() - start))

    setattr(Library, "call", timed)  # noqa: B010 - mypy takes the method's own self for an argument
    return calls


if __name__ == "__main__":
    main()
