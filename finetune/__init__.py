"""Fine-tuning: one task at a time."""
