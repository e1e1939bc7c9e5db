"""From a model's name to a model: timm's zoo, and the CIFAR networks that it lacks."""
