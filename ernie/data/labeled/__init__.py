"""Labeled data: rows with named columns, from many file formats."""
