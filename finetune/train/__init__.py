"""Training: trials, their checkpoints and the folder of a run."""
