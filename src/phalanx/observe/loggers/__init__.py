"""Loggers: other places that a run's numbers go to. Each is a thin sink of the one event schema."""
