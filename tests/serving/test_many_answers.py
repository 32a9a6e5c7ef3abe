"""However many requests end together, the event loop has time for others."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from typing import Any

from starlette.types import Receive, Scope, Send
from support.served import predictor, service_of

from serving.service import Asked, Expired
from serving.turns import InTurns

TOGETHER = 200


def test_requests_that_expire_together_are_answered_in_many_turns_of_the_event_loop() -> None:
    async def most_in_a_turn() -> int:
        service, go_on = service_of({"words": predictor("classify")}), threading.Event()
        service.start(asyncio.get_running_loop())
        try:
            threading.Thread(target=service.engine.call, args=(go_on.wait,)).start()
            model, patience = service.model("words"), Asked(timeout=0.5)
            asks = [
                asyncio.ensure_future(service.ask(model, "predict", ["a"], asked=patience)) for _ in range(TOGETHER)
            ]
            await asyncio.sleep(0.6)
            assert service.waiting == TOGETHER
            go_on.set()
            ended = [0]
            while ended[-1] < TOGETHER:
                await asyncio.sleep(0)
                ended.append(sum(ask.done() for ask in asks))
            assert all(isinstance(ask.exception(), Expired) for ask in asks)
            return max(after - before for before, after in pairwise(ended))
        finally:
            go_on.set()
            service.stop()

    assert asyncio.run(most_in_a_turn()) < TOGETHER / 5


def test_calls_that_come_together_begin_in_order_and_in_many_turns_of_the_event_loop() -> None:
    async def begun_by_turn() -> list[list[int]]:
        turns: list[list[int]] = [[]]

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            turns[-1].append(scope["number"])

        async def nothing(*_: object) -> Any:
            return {}

        few = InTurns(app, 10)
        calls = [asyncio.ensure_future(few({"type": "http", "number": n}, nothing, nothing)) for n in range(TOGETHER)]
        calls[50].cancel()
        while not all(call.done() for call in calls):
            turns.append([])
            await asyncio.sleep(0)
        return turns

    turns = asyncio.run(begun_by_turn())
    assert [number for turn in turns for number in turn] == [n for n in range(TOGETHER) if n != 50]
    assert max(map(len, turns)) <= 20
