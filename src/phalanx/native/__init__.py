"""C and C++ sources of the few loops that PyTorch is slow at, compiled on first use."""
