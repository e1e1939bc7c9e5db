"""Augmentation: crops, flips, colours, mixing. Pure functions of (seed, epoch, sample)."""
