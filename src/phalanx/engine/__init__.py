"""The training engine: state, inputs, loss, step, loop, evaluation, checkpoints."""
