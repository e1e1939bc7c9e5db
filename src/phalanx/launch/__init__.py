"""Launching: what a role is, how each environment tells it, and how processes are started and ended together."""
