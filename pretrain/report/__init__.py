"""A run as figures and one HTML page."""
