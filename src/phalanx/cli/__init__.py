"""The command line: turns arguments into a configuration, and calls the functions of the Python interface."""
