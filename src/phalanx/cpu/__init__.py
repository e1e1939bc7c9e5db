"""All that makes CPUs fast: convolution algorithms, fused batch norm, tuning. Entry: `prepare(model)`."""
