"""The interpreter ends while daemon threads compute."""

from __future__ import annotations

import pytest
from support.helpers import python
from support.kernels.judging import needs_kernels

PROGRAM = """
import os, sys, threading, time
import paddle
from ernie.kernels.linear import linear

values = paddle.randn([300, 200]), paddle.randn([200, 300]), paddle.zeros([300])
computed = threading.Event()

def compute():
    while True:
        linear(*values, "gelu")
        computed.set()

for _ in range(3):
    threading.Thread(target=compute, daemon=True).start()
computed.wait()
print("done", flush=True)
{end}
"""


@needs_kernels
@pytest.mark.parametrize(("end", "status"), [("sys.exit(3)", 3), ("os._exit(4)", 4)])
def test_a_program_ends_with_its_status_while_other_threads_compute(end: str, status: int) -> None:
    done = python("-W", "ignore", "-c", PROGRAM.format(end=end))
    assert (done.returncode, done.stdout, done.stderr) == (status, "done\n", "")
