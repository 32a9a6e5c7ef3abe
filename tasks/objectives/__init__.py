"""Pretraining tasks, one file each."""
