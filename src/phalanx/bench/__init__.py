"""Benchmarks that anyone can rerun: each measures beside a peer in the same run, since machines are noisy."""
