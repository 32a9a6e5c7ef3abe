"""Settings of all tests."""

from __future__ import annotations

import signal

from hypothesis import settings

# A shell that starts the tests in the background has them ignore Ctrl-C, and with them the programs that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # `nohup` does so with the end of the terminal: for us alone
    signal.signal(signal.SIGHUP, lambda number, frame: None)

# Machines that run other things as well may take any time for an example.
settings.register_profile("ernie", deadline=None)
settings.load_profile("ernie")
