"""Labelled data: rows with named columns, from whatever people keep them in."""
