"""Measurements that no test waits for; each prints what docs/results.md quotes."""
