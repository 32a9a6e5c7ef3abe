"""Import and export of published checkpoints: Hugging Face, PaddleNLP, official ERNIE releases, and original BERT.

Each format is a table of weight names (`names`) and a few settings (`shape`), used for both reading and writing.
"""
