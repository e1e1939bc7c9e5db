"""LeNet and the multilayer perceptron: networks for images like MNIST's, made for one size of image."""

from typing import cast

from torch import Tensor, nn


def build_lenet(*, num_classes: int, channels: int, image_size: int, drop: float = 0.0) -> "ImageNetwork":
    """LeCun et al. 1998 as the first frameworks shipped it: 20 and 50 maps, 500 hidden units, tanh."""
    side = ((image_size - 4) // 2 - 4) // 2
    body = nn.Sequential(
        nn.Conv2d(channels, 20, kernel_size=5),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, kernel_size=5),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(50 * side * side, 500),
        nn.Tanh(),
    )
    return ImageNetwork(body, 500, num_classes, drop)


def build_mlp(*, num_classes: int, channels: int, image_size: int, drop: float = 0.0) -> "ImageNetwork":
    """Two hidden layers, of 128 and 64 units."""
    body = nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * image_size * image_size, 128),
        nn.ReLU(inplace=True),
        nn.Linear(128, 64),
        nn.ReLU(inplace=True),
    )
    return ImageNetwork(body, 64, num_classes, drop)


class ImageNetwork(nn.Module):
    """From images to a vector each, and to one score per class; the classifier is called `fc`."""

    def __init__(self, body: nn.Module, width: int, num_classes: int, drop: float) -> None:
        super().__init__()
        self.body = body
        self.drop = nn.Dropout(drop)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return cast(Tensor, self.fc(self.drop(self.body(images))))
