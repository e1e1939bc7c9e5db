"""Writing datasets: any source into shards that are whole, checksummed and the same whoever makes them."""
