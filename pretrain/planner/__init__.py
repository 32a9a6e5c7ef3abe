"""Which parallel layout to train in: predicted, searched, and written down."""
