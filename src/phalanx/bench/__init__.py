"""Benchmarks. Each measures peers in the same run, since machines are noisy."""
