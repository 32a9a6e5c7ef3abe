"""Our server, for benchmarks/serving_load.py: `serving_ours.py WORDS` is `ernie serve WORDS`, but for the heartbeat.

That of its event loop beats every millisecond and forgets nothing, so that `ernie_loop_lag_seconds` is the largest gap
since the start.
"""

from __future__ import annotations

import math
import sys
from functools import partial

from ernie.cli import main
from serving import heartbeat

if __name__ == "__main__":
    setattr(heartbeat, "Heartbeat", partial(heartbeat.Heartbeat, 0.001, math.inf))  # noqa: B010 - it is a class
    sys.exit(main(["serve", *sys.argv[1:]]))
