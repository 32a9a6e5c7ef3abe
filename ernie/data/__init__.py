"""From files to batches: documents, memory-mapped shards, packing, and streams that resume where they stopped."""
