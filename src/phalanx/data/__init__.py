"""From files to batches: source → order → decode and augment → batch. README.md here tells the stages."""
