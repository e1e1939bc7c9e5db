"""From a model's name to a model: timm's zoo, the CIFAR networks and the classics that it lacks."""
