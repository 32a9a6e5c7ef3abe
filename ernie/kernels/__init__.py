"""Kernels behind one interface: what each computes is defined by its reference body in plain Paddle."""
