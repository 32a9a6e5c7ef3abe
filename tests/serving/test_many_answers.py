"""However many requests end together, the event loop has time for others."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

from support.served import predictor, service_of

from serving.service import Asked, Expired

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
