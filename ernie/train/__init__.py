"""One training step and what surrounds it: optimizer, learning rate, checkpoints, log."""
