"""Inference: loaded models of every kind, what they are asked for, and their export to other runtimes."""
