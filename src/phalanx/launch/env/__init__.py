"""One table of environment variables per launcher: torchrun, Slurm, MPI, Paddle, DMLC and our own."""
