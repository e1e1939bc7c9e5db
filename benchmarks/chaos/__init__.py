"""Faults × update methods: what follows, after how long, what is lost, and what the message names."""
