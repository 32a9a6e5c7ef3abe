"""Two processes open their store; then the link between them goes down.  Run it in a network of its own.

Both ask for what is there, or, with the argument `waiting`, the second waits for what never comes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

PATIENCE, WAITED, TO_START = 2.0, 0.5, 60  # seconds

if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    first = os.fork() != 0
    os.environ.update(
        PADDLE_TRAINER_ID="0" if first else "1",
        PADDLE_TRAINERS_NUM="2",
        PADDLE_MASTER="127.0.0.1:6170",
        PADDLE_TRAINER_ENDPOINTS="127.0.0.1:6170,127.0.0.1:6171",
    )
    from ernie.parallel import store  # after the fork, which Paddle would not survive

    store.disable_libuv_store()
    opened, most = None, time.monotonic() + TO_START
    while opened is None and time.monotonic() < most:
        with contextlib.suppress(store.Unreached):  # the first process may start later than the second
            opened = store.global_store(PATIENCE)
    assert opened is not None, "the first process does not start"
    opened.set(f"first {first}", b"value")
    opened.get(f"first {not first}")
    opened.set(f"answered {first}", b"value")
    opened.get(f"answered {not first}")  # both have heard from each other, and the first one knows
    waiting = sys.argv[1:] == ["waiting"]
    if first:
        time.sleep(WAITED)  # until the other has its last answer, and its question has been acknowledged
        subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
    began = time.monotonic()
    while True:
        try:
            opened.get("never" if waiting and not first else "first True")
        except Exception as error:
            print(f"{type(error).__name__} after {time.monotonic() - began:.1f} s\n", end="", flush=True)
            break
    if first:
        os.wait()
    os._exit(0)
