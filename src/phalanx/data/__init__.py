"""From files to batches: source → order → decode and augment → batch. README.md in this folder describes the stages."""
