"""Text to tokens: sentence splitting, tokenizers, and segmenters that mark words, phrases and entities."""
