"""Count the models that come with a profile: `python -m phalanx.plan.make_profiles`, some minutes.

These are the models of the recipes, and what users of the field train most. A plan of another one counts it first.
"""

from rich.console import Console

from phalanx.config.schema import ModelConfig
from phalanx.observe.progress import progress
from phalanx.plan.count_layers import count_layers
from phalanx.plan.profile import SHIPPED, ModelProfile, profile_key, write_profiles

PHOTOGRAPHS = (
    *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnet50d", "resnext50_32x4d", "wide_resnet50_2"),
    *("alexnet", "vgg16", "googlenet", "inception_v3", "inception_bn", "densenet121", "squeezenet1_1"),
    *("mobilenetv2_100", "mobilenetv3_large_100", "mobilenetv3_small_100", "efficientnet_b0", "regnety_016"),
    *("convnext_atto", "convnext_tiny", "convnext_base", "deit_tiny_patch16_224", "deit_small_patch16_224"),
    *("vit_base_patch16_224", "swin_tiny_patch4_window7_224", "PPLCNet_x0_25", "PPLCNet_x1_0", "hgnetv2_b0"),
    *("hgnet_base", "hgnet_small", "mobilenetv1_100"),
)
SMALL: tuple[str, ...] = (
    "cifar_resnet8",
    "cifar_resnet18",
    "cifar_resnet20",
    "cifar_resnet32",
    "cifar_resnet44",
    "cifar_resnet50",
)
SMALL += ("cifar_resnet56", "cifar_resnet110", "cifar_fast", "wrn28_10")


def shipped_cases() -> list[tuple[ModelConfig, int, int, int]]:
    """(model, classes, channels, image size) of each."""
    cases = [(ModelConfig(name=name), 1000, 3, 224) for name in PHOTOGRAPHS]
    cases += [(ModelConfig(name=name), 10, 3, 32) for name in SMALL]
    cases += [(ModelConfig(name="wrn28_10"), 100, 3, 32), (ModelConfig(name="cifar_resnet8"), 10, 1, 16)]
    cases += [(ModelConfig(name="cifar_resnet8"), 10, 1, 28), (ModelConfig(name="lenet"), 10, 1, 28)]
    for options in ({"width": 0.5}, {"edge": True}):  # of the recipes cifar10-91 and cifar10-fast
        cases.append((ModelConfig(name="cifar_fast", options=options), 10, 3, 32))
    return cases


def main() -> None:
    console, found = Console(), list[tuple[str, ModelProfile]]()
    cases = shipped_cases()
    with progress(console, "models counted", len(cases)) as advance:
        for config, classes, channels, size in cases:
            profile = count_layers(config, num_classes=classes, channels=channels, image_size=size)
            found.append((profile_key(config, classes, channels, size), profile))
            advance(1)
    write_profiles(SHIPPED, found)
    console.print(f"{SHIPPED}: {len(found)} profiles")


if __name__ == "__main__":
    main()
