"""The sub-commands of `ernie` that belong to pretraining, one module each."""
