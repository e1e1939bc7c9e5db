"""Launching: places the roles of a job on hosts, starts their processes, watches them, and ends them."""
