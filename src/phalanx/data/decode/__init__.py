"""Compressed bytes to pixels."""
