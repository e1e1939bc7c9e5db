"""What is done to images: crops, flips, colours, mixing. Pure functions of (seed, epoch, sample)."""
