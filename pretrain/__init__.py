"""Pretraining: the corpus builder, the schedule of stages, the loop, its reports."""
