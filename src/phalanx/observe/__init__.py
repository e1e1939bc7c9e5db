"""What a user sees of a run: the screen, log.txt, tables, curves and confusion matrices."""
