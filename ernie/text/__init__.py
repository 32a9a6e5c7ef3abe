"""From characters to tokens: sentence splitting, tokenizers, and the segmenters that mark words, phrases, entities."""
