"""Figures and an HTML page, for whatever run: panels, curves, numbers in words, a page that needs nothing else."""
