"""A small convolutional network."""

from torch import Tensor, nn


class TinyNet(nn.Module):
    """Three convolutions with batch norm, the mean over the image, a linear classifier."""

    def __init__(self, num_classes: int, channels: int, width: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            block(channels, width), block(width, 2 * width, stride=2), block(2 * width, 4 * width, stride=2)
        )
        self.head = nn.Linear(4 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images).mean((2, 3)))


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())
