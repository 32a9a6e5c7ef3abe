"""The phases of a server's end, and what is told of them."""

from __future__ import annotations

import asyncio

from serving.lifecycle import Lifecycle, Phase


def test_a_server_leaves_and_then_drains_until_nothing_is_open() -> None:
    async def main() -> tuple[list[Phase], int]:
        lifecycle, seen = Lifecycle(), []
        lifecycle.open = 1
        ending = asyncio.ensure_future(lifecycle.leave(0.2, 60.0))
        await asyncio.sleep(0)
        seen.append(lifecycle.phase)
        while lifecycle.phase is Phase.LEAVING:
            await asyncio.sleep(0.01)
        seen.append(lifecycle.phase)
        await asyncio.sleep(0.1)
        assert not ending.done()
        lifecycle.open = 0
        return seen, await ending

    assert asyncio.run(main()) == ([Phase.LEAVING, Phase.DRAINING], 0)


def test_what_is_open_at_the_end_of_the_drain_is_counted() -> None:
    lifecycle = Lifecycle()
    lifecycle.open = 3
    assert asyncio.run(lifecycle.leave(0.0, 0.05)) == 3


def test_hooks_are_called_when_the_drain_begins_and_waited_for() -> None:
    lifecycle, told = Lifecycle(), []

    async def hand_out(seconds: float) -> None:
        told.append((lifecycle.phase, seconds))
        await asyncio.sleep(0.1)
        told.append("done")

    async def fail(seconds: float) -> None:
        raise RuntimeError("a fault of this hook")

    lifecycle.on_drain(hand_out)
    lifecycle.on_drain(fail)
    assert asyncio.run(lifecycle.leave(0.0, 60.0)) == 0
    assert told == [(Phase.DRAINING, 60.0), "done"]


def test_a_hook_that_takes_too_long_is_cancelled() -> None:
    lifecycle, ended = Lifecycle(), []

    async def wait(seconds: float) -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            ended.append(True)
            raise

    lifecycle.on_drain(wait)
    asyncio.run(lifecycle.leave(0.0, 0.05))
    assert ended == [True]
