"""Datasets by format, and how a path is recognised as one of them."""
