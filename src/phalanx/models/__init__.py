"""Models by name: timm's, and the CIFAR and classic networks that timm lacks."""
