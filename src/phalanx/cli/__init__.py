"""The commands: thin, they turn words into a configuration and call the functions that Python users call."""
