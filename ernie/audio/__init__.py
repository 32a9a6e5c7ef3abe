"""Waveforms, and the frames of features that an encoder hears of them.  Needs no Paddle."""
