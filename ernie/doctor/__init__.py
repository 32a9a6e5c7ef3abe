"""Diagnosis of this machine: hardware, installed packages, kernels, speed, and advice."""
