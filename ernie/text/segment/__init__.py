"""Words, phrases and entities in running text: segmenters, one file each."""
