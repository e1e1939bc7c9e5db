"""A job on four hosts under random faults, and what it costs it: the result, growth, and what is left behind."""
