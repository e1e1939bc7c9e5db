"""Writing datasets: any source into shards, atomically, with checksums, and reproducibly."""
