"""Filters that clean a corpus: each is small, named in the recipe, and counted in the report."""

from __future__ import annotations

from pretrain.corpus.clean import (
    address,
    c4,
    contamination,
    duplicates,
    fineweb,
    gopher,
    language,
    mix,
    passages,
    perplexity,
    personal,
    repair,
)

__all__ = [
    "address",
    "c4",
    "contamination",
    "duplicates",
    "fineweb",
    "gopher",
    "language",
    "mix",
    "passages",
    "perplexity",
    "personal",
    "repair",
]
