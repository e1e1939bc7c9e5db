"""What this machine's CPU can do."""
