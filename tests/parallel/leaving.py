"""Run by each of two ranks: the first, where the store is, is at its very end when the other goes.

leaving.py lasting|stock, of the store.  What Paddle's library had is gone by then, but not the thread that serves it.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import sys
import time
from pathlib import Path

ALMOST_GONE = Path("almost-gone")  # removed once nothing of Paddle is left
OTHER = Path("other")  # locked until the other one is gone
FIRST = os.environ["PADDLE_TRAINER_ID"] == "0"

if FIRST:  # before Paddle is loaded, for the handlers of an exit are run from the last to the first
    ALMOST_GONE.touch()
    libc = ctypes.CDLL(None)
    libc.strdup.restype = ctypes.c_void_p

    def at_exit(function: str, word: str) -> None:
        kept = ctypes.c_void_p(libc.strdup(os.fsencode(word)))  # which nobody frees
        libc["__cxa_atexit"](ctypes.cast(libc[function], ctypes.c_void_p), kept, None)

    at_exit("system", f"flock --wait 60 {OTHER} sleep 1")  # time enough for the thread to see that it has gone
    at_exit("unlink", str(ALMOST_GONE))
else:
    fcntl.flock(os.open(OTHER, os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)

import paddle  # noqa: E402
import paddle.distributed as dist  # noqa: E402

from ernie.parallel import gloo  # noqa: E402

gloo.install()
if sys.argv[1] == "stock":
    paddle.set_flags({"FLAGS_tcp_store_using_libuv": True})
dist.init_parallel_env()
print(json.dumps("right"), flush=True)
while not FIRST and ALMOST_GONE.exists():
    time.sleep(0.01)
