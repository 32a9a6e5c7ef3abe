"""From files of text to a corpus on disk: what `ernie data build` runs."""
