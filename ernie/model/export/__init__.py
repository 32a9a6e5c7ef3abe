"""Models for other runtimes: written in plain operators, and compared with what they were made of."""
