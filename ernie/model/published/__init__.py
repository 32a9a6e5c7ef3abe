"""Published checkpoints in and out: Hugging Face's, PaddleNLP's, the official ERNIE releases, and BERT's original.

Each format is one table of names (`names`) and a few settings (`shape`); reading and writing use the same table.
"""
