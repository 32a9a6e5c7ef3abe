"""Learning curves: how much text and how large a model a target error needs."""
