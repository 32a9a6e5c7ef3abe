"""interrupted.py HANDLER: runs every kernel again and again while signals arrive, which the library HANDLER counts.

Prints, as JSON, whether all results were the same, how many signals were handled, and how many of them off the stack.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys

import paddle
from support.kernels.families import digests

from ernie.kernels.cpu.call import product

MANY = 2000
EVERY = 0.0002  # seconds between two signals

if __name__ == "__main__":
    expected = digests()
    handler = ctypes.CDLL(sys.argv[1])
    handler.install(signal.SIGALRM)
    handled, off_stack = (ctypes.c_long.in_dll(handler, name) for name in ("handled", "off_stack"))
    x, y = paddle.randn([512, 512]), paddle.randn([512, 512])  # a width for which oneDNN takes a buffer
    same = True
    signal.setitimer(signal.ITIMER_REAL, EVERY, EVERY)
    while handled.value < MANY:
        same = same and digests() == expected
        for _ in range(100):
            product(x, y)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(json.dumps([same, handled.value, off_stack.value]))
