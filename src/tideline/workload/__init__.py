"""Generators of workloads: for the demo, the benchmarks and the tests.

Everything here is made from a seed, and knows nothing of databases.
"""
