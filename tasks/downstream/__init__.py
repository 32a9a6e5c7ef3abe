"""Kinds of fine-tuning task, one file each."""
