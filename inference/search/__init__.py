"""Search: an index of passages by their vectors and by their words, and what is asked of it."""
