"""Building a corpus on disk from text files: the implementation of `ernie data build`."""
