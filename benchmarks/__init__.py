"""Benchmarks: each module is a program with --help and writes into benchmarks/results/."""
