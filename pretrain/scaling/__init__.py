"""Learning curves: how much text and how large a model an error needs."""
