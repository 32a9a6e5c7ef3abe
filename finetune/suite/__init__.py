"""Suites of tasks, as leaderboards have them."""
