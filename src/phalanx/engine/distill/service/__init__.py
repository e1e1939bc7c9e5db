"""The teacher as a service: other processes, here or on other machines, compute its logits. Remote looks local."""
