"""Curves from the logs of other systems: one module for each, and `read.py` to recognise them."""
