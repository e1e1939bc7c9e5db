"""The training engine: state, step, loop, evaluation, loss, and the settings chosen for the machine."""
