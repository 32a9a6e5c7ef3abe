"""The protocols that clients speak: thin adapters, each of which says what its clients expect to read."""
