"""Run by each of two ranks: the first, which hosts the store, is at the end of its exit handlers when the other exits.

leaving.py lasting|stock, the kind of store.  By then Paddle's globals are destroyed, but its server thread still runs.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import sys
import time
from pathlib import Path

EXITING = Path("almost-gone")  # removed once Paddle's globals are destroyed
OTHER_LOCK = Path("other")  # locked until the other process has exited
FIRST = os.environ["PADDLE_TRAINER_ID"] == "0"

if FIRST:  # before Paddle is loaded, since exit handlers run in reverse order
    EXITING.touch()
    libc = ctypes.CDLL(None)
    libc.strdup.restype = ctypes.c_void_p

    def at_exit(function: str, argument: str) -> None:
        pointer = ctypes.c_void_p(libc.strdup(os.fsencode(argument)))  # never freed
        libc["__cxa_atexit"](ctypes.cast(libc[function], ctypes.c_void_p), pointer, None)

    at_exit("system", f"flock --wait 60 {OTHER_LOCK} sleep 1")  # time for the thread to see that it has exited
    at_exit("unlink", str(EXITING))
else:
    fcntl.flock(os.open(OTHER_LOCK, os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)

import paddle  # noqa: E402
import paddle.distributed as dist  # noqa: E402

from ernie.parallel import gloo, store  # noqa: E402

gloo.install()
if sys.argv[1] == "stock":
    paddle.set_flags({"FLAGS_tcp_store_using_libuv": True})
else:
    store.global_store()
dist.init_parallel_env()
print(json.dumps("right"), flush=True)
while not FIRST and EXITING.exists():
    time.sleep(0.01)
