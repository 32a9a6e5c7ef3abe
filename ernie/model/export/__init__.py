"""Export of models to other runtimes, in plain operators, with a comparison against the original."""
