"""Turning a model's outputs into text while its input still comes in, or once it is all there."""
