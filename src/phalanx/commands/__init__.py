"""The smaller commands, one file each."""
