"""Roles from the environment variables of launchers: torchrun, Slurm, MPI, Paddle, DMLC and our own."""
