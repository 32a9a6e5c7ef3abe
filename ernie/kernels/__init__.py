"""Kernels behind one interface: a reference implementation in plain Paddle defines what each of them computes."""
