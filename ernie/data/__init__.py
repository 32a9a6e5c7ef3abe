"""Files to batches: documents, memory-mapped shards, packing, and resumable streams."""
