"""What processes of a job need to talk: addresses, proof of the key, shared memory, waiting."""
