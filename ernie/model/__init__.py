"""The encoder, its embeddings and heads, and the losses: single-device code only."""
