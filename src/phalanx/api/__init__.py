"""What the command line and `import phalanx` share: from words or arguments to a request, and from that to a run."""
