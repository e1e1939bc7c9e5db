"""What one process of a job does: trainer, parameter server, data server, evaluator."""
