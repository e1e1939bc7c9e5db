"""`python -m phalanx` is `phalanx`; torchrun and mpirun start it this way."""

from phalanx.cli.main import main

if __name__ == "__main__":
    main()
