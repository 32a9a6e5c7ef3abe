"""Replay of a training step: what every tensor of it held, which went wrong first, and how two steps differ."""
