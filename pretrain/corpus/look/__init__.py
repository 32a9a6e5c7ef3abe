"""Looking at a corpus: its documents with what is marked in them, its statistics, and how two corpora differ."""
