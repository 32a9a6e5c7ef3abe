"""Waveforms and the feature frames that an encoder gets.  Needs no Paddle."""
