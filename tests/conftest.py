"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# Machines that run other things as well may take any time for an example.
settings.register_profile("ernie", deadline=None)
settings.load_profile("ernie")
