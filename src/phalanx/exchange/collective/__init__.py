"""collective: every worker has all parameters; gradients are summed over the workers while backward runs."""
