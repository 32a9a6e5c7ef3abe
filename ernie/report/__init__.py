"""Building blocks of run reports: figures, curves, tables, number formatting, and a self-contained HTML page."""
