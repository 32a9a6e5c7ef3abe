"""The report of a run: figures and one HTML page."""
