"""This machine: its cores, GPUs and threads, and the settings chosen for it."""
