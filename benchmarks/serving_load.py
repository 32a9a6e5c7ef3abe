"""Serving under load: our server alone and beside others, offered more requests and sessions than it can answer.

  python benchmarks/serving_load.py --records benchmarks/records/serving
  python benchmarks/serving_load.py --records benchmarks/records/serving --peers PYTHON --infinity PYTHON --k6 PROGRAM
  python benchmarks/serving_load.py --arms overload --scale 0.1

An arm that has a record is not run again, so an interrupted command goes on where it stopped.  `--scale` multiplies
all times, for a trial.  Without the peer that it needs an arm is left out; `classify` and `embed` are run without
peers only if they are named.

Requests come by a Poisson process whose times are made beforehand, or in bursts; latency counts from these times
(offered_load.py).  Nine tenths of the texts have the lengths of SST-2 (lengths.json), one tenth 64 to 256 tokens.
Sessions are paced in real time (paced_streams.py).  All sides compute in float32 and share the cores with the
generator, whose processor time is told.  serving_models.py says what the models are.

`overhead`: processor time a request outside the engine, of a server whose engine computes nothing.
`saturated`: rows/s under more load than can be answered, beside packed batches of the same rows without a server.  Rows
count by their tokens, here and under overload.
`optimum`: latency at half and at 80 % of the capacity, beside that of a simulated engine at the same arrivals, which
takes exactly what the server has fitted (serving/simulation.py).
`overload`: half of the capacity for 10 s, 1.5 times as much as the capacity for 15 s, and half of it again.
`recognition`: sessions in real time until more than 1 % of the chunks take 100 ms; together, and one by one: the same
server with steps of a single stream; with `--sherpa` also sherpa-onnx's C++ server with a model of the same shape.
`translation`: 64 sessions together and one after another.
`voices`: voices until more than 1 % of the pieces of sound are late for who plays the first one at once.
`interpreter`: 8 people speak for 3 s each to a chain of a recognizer, a translator and a voice, as from the server's
page.  A first word is shown when it is tentative, or final; it counts from the end of its sound.  The first sound of
the translation counts from the end of the speech.
`cancels`: clients of requests and sessions that go away at random points.
`reloads`: reloads of a model under load; with `--nginx` also a rolling restart of two replicas.
`generator`: our generator beside k6.
`classify`: mosec, LitServe, BentoML, Ray Serve and PyTriton around the same engine.  A side's rate is the highest at
which 99 % of all requests are answered within 100 ms.
`embed`: the same for vectors of all-MiniLM-L6-v2 by OpenAI's protocol, beside infinity with torch.

Set before the first run: the targets in ARMS, and that no heartbeat of 1 ms in the event loop is 10 ms late.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from outcomes import report
from page_tables import (
    serving_arms,
    serving_costs,
    serving_faults,
    serving_interpreter,
    serving_optimum,
    serving_overload,
    serving_rates,
    serving_recognition,
    serving_translation,
    serving_voices,
)
from record_files import Records, cached_record, this_machine
from serving_faults import cancels, reloads
from serving_requests import classify, embed, generator, optimum, overhead, overload, saturated
from serving_sides import Bench, NoAnswer
from serving_streams import interpreter, recognition, translation, voices


class Arm(NamedTuple):
    """An arm: what runs it, about how many minutes it takes, its target, and the argument that it needs."""

    run: Callable[[Bench], dict[str, Any]]
    minutes: float
    target: str
    needs: str = ""


ARMS = {
    "overhead": Arm(overhead, 1.5, "0.3 ms of processor time a request"),
    "saturated": Arm(saturated, 3, "95 % of the offline packed batch"),
    "classify": Arm(classify, 13, "twice the requests/s of the best other side with a p99 of 100 ms", "peers"),
    "embed": Arm(embed, 5.5, "five times the requests/s of infinity with a p99 of 100 ms", "infinity"),
    "optimum": Arm(optimum, 5, "a p99 of 1.15 times the simulated optimum"),
    "overload": Arm(
        overload,
        4.5,
        "goodput of 95 %, 98 % of the admitted in time, refusals within 5 ms, memory +5 %, normal again within 2 s",
    ),
    "recognition": Arm(recognition, 6, "200 sessions with a p99 of 100 ms, and 4 times as many as one by one"),
    "translation": Arm(translation, 3.5, "6 times the tokens/s of one after another, and the same bits"),
    "voices": Arm(voices, 4.5, "18 voices in real time, and a p95 of the first sound of 150 ms with 8"),
    "interpreter": Arm(
        interpreter, 2.5, "with 8, p95: a first word within a chunk and 150 ms, a translated sound 1 s after the speech"
    ),
    "cancels": Arm(cancels, 1.5, "nothing left of 10,000, memory +1 %"),
    "reloads": Arm(reloads, 4, "no failed request in 50 reloads and a rolling restart"),
    "generator": Arm(generator, 1.5, "none: latencies near those that k6 sees", "k6"),
}
HEARTBEAT = "no gap of 10 ms in the event loop"
TABLES = (
    serving_arms,
    serving_costs,
    serving_rates,
    serving_optimum,
    serving_overload,
    serving_recognition,
    serving_translation,
    serving_voices,
    serving_interpreter,
    serving_faults,
)
TARGETS = (
    *("serving-overhead", "serving-saturated", "serving-classify", "serving-embed", "serving-optimum"),
    *("serving-overload", "serving-recognition", "serving-translation", "serving-voices", "serving-interpreter"),
    *("serving-cancels", "serving-reloads", "serving-heartbeat"),
)


def main() -> None:
    """Run the arms that have no record yet, and print their tables and outcomes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS))
    parser.add_argument("--peers", metavar="PYTHON", help="of an environment with mosec, litserve, bentoml, ray[serve]")
    parser.add_argument("--triton", metavar="PYTHON", help="of an environment with nvidia-pytriton, for `classify`")
    parser.add_argument("--infinity", metavar="PYTHON", help="of an environment with infinity-emb[torch,server]")
    parser.add_argument("--sherpa", metavar="PYTHON", help="of an environment with sherpa-onnx, -bin, -core, and onnx")
    parser.add_argument("--k6", metavar="PROGRAM", default=shutil.which("k6"), help="for `generator`")
    parser.add_argument("--nginx", metavar="PROGRAM", default=shutil.which("nginx"), help="for `reloads`")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies all times, for a trial")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--records", type=Path, default=Path("runs/benchmarks/serving"))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # which ends its servers, too
    wanted = arguments.arms or [name for name, arm in ARMS.items() if not arm.needs or getattr(arguments, arm.needs)]
    left = [name for name in wanted if not (arguments.records / f"{name}-0.json").exists()]
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        for number, arm in enumerate(left):
            minutes = arguments.scale * sum(ARMS[each].minutes for each in left[number:])
            print(f"{number + 1} of {len(left)}: {arm}; about {minutes:.0f} minutes left", file=sys.stderr)
            print(f"  target: {ARMS[arm].target}; {HEARTBEAT}", file=sys.stderr, flush=True)
            folder = Path(name) / arm
            folder.mkdir()
            bench = Bench(
                folder,
                arguments.peers,
                arguments.triton,
                arguments.infinity,
                arguments.sherpa,
                arguments.k6,
                arguments.nginx,
                arguments.scale,
                arguments.turns,
            )

            def record(arm: str = arm, bench: Bench = bench) -> dict[str, Any]:
                start = time.monotonic()
                found = ARMS[arm].run(bench)
                return {
                    **this_machine(),
                    "minutes": round((time.monotonic() - start) / 60, 1),
                    "largest gap": max(bench.gaps, default=None),
                    **found,
                }

            try:
                cached_record(arguments.records / f"{arm}-0.json", record)
            except (NoAnswer, OSError, subprocess.CalledProcessError) as error:
                failed.append(arm)
                print(f"{arm}: {error}", file=sys.stderr, flush=True)
    report(Records(arguments.records), *TABLES, targets=TARGETS)
    if failed:
        sys.exit(f"no record of {', '.join(failed)}")


if __name__ == "__main__":
    main()
