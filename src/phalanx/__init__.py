"""Phalanx trains image classifiers on one machine or many: one recipe, one result."""

__version__ = "0.2.0"
