"""Export to other runtimes, compared with the original."""
