"""One module per launcher; each has `start(plan, console) -> exit code`."""
