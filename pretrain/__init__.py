"""Pretraining: the corpus builder, the schedule of stages, the training loop and its reports."""
