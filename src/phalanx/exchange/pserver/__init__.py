"""pserver: parameters and optimizer state live on servers; trainers push gradients and pull parameters."""
