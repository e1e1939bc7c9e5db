"""The update: a learning rate that is a function of the step, and one optimizer for trainers and servers."""
