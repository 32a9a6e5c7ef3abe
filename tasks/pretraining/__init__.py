"""Pretraining tasks, one file each.  Importing this package registers them all."""

from tasks.pretraining import (
    capitalization,
    discourse_relation,
    ir_relevance,
    knowledge_masking,
    next_sentence,
    replaced_token_detection,
    sentence_distance,
    sentence_reordering,
    token_document,
)

__all__ = [
    "capitalization",
    "discourse_relation",
    "ir_relevance",
    "knowledge_masking",
    "next_sentence",
    "replaced_token_detection",
    "sentence_distance",
    "sentence_reordering",
    "token_document",
]
