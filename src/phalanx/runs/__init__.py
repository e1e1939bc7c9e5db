"""A run is a folder: configuration, events, checkpoints, summary."""
