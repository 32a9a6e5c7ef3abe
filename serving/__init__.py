"""Serving: many users' requests and streams through loaded models, in batches under a latency bound."""
