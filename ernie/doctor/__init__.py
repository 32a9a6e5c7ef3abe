"""What this machine has, what the library makes of it, how fast that is, and what could be better."""
