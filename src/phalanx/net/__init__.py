"""How processes of a job communicate: addresses, messages, proof of the key, shared memory, waiting."""
