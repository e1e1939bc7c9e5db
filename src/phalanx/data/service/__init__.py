"""The data service: other processes, here or on other machines, make a trainer's batches. Remote looks local."""
