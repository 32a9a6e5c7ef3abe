"""Our server with an engine that computes nothing: what a request costs outside the engine.

`serving_nothing.py FOLDER PORT`; requests are parsed, tokenized, dispatched and answered as ever.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import uvicorn

import inference
from ernie.outcome import Outcome
from inference.operation import Prepared
from serving.app import make_app
from serving.logs import write_logs
from serving.models import serve_model
from serving.service import Service

ANSWER: Outcome[Any] = Outcome({"label": "dull", "probability": 0.5})


def nothing(batch: Sequence[Prepared]) -> list[Outcome[Any]]:
    """Answer without computing."""
    return [ANSWER] * len(batch)


if __name__ == "__main__":
    folder, port = sys.argv[1:3]
    sys.setswitchinterval(0.0005)
    log = write_logs("text")
    service = Service()
    model = serve_model("model", folder, inference.load(folder, precision="fp32"), 16384)
    model.work["predict"].compute = nothing
    service.models["model"] = model
    print(f"ready at {time.time()}", flush=True)
    uvicorn.run(make_app(service), host="127.0.0.1", port=int(port), log_config=None, access_log=False)
    log.stop()
