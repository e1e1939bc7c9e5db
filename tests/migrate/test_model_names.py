"""Networks under the names that other systems gave them: each leads to one that exists here."""

import pytest
import timm

from phalanx.config.recipes import load_recipe
from phalanx.config.resolve import parse_override, resolve
from phalanx.config.schema import ModelConfig
from phalanx.errors import UserError
from phalanx.migrate import model_names
from phalanx.migrate.model_names import FAMILIES, SHORT_NAMES, our_name
from phalanx.models.build import is_ours


def named(name: str, **options: object) -> str:
    return ModelConfig(name=name, options=options).name


def exists(name: str) -> bool:
    return is_ours(name) or bool(timm.is_model(name))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("inception-bn", "inception_bn"),
        ("inception-bn-28-small", "inception_bn_small"),
        ("inception-v3", "inception_v3"),
        ("inception-resnet-v2", "inception_resnet_v2"),
        ("mobilenet", "mobilenetv1_100"),
        ("squeezenet", "squeezenet1_0"),
        ("squeezenet1.1", "squeezenet1_1"),
        ("AlexNet", "alexnet"),
        ("GoogLeNet", "googlenet"),
        ("VGG16", "vgg16"),
        ("ResNet50", "resnet50"),
        ("ResNet50_vd", "resnet50d"),
        ("SE_ResNeXt50_32x4d", "seresnext50_32x4d"),
        ("MobileNetV3_large_x1_0", "mobilenetv3_large_100"),
        ("PPLCNet_x0_25", "PPLCNet_x0_25"),
        ("PPHGNetV2_B4", "hgnetv2_b4"),
        ("DistResNet", "resnet50"),
        ("SwinTransformer_tiny_patch4_window7_224", "swin_tiny_patch4_window7_224"),
        ("resnet50.a1_in1k", "resnet50.a1_in1k"),
        ("mine.py:Net", "mine.py:Net"),
    ],
)
def test_a_name_of_another_system(theirs: str, ours: str) -> None:
    assert named(theirs) == ours
    assert exists(ours.partition(".")[0]) or ":" in ours


def test_every_renamed_network_exists() -> None:
    for name in [*model_names._RENAMED, *SHORT_NAMES]:
        assert exists(named(name)), name
    for family, (depths, usual) in FAMILIES.items():
        assert all(exists(name) for name in depths.values()), family
        assert usual in depths


def test_no_name_of_timm_is_taken_for_another() -> None:
    assert [name for name in timm.list_models() if our_name(name) != name] == []


@pytest.mark.parametrize(
    ("family", "layers", "ours"),
    [
        ("resnet", 50, "resnetv2_50"),
        ("resnet", 110, "cifar_preact110"),
        ("resnet-v1", 18, "resnet18"),
        ("resnet-v1", 20, "cifar_resnet20"),
        ("resnext", 101, "resnext101_32x4d"),
        ("vgg", 19, "vgg19"),
    ],
)
def test_a_family_with_its_number_of_layers(family: str, layers: int, ours: str) -> None:
    config = ModelConfig(name=family, options={"num_layers": layers, "other": 1})
    assert (config.name, config.options) == (ours, {"other": 1})
    assert exists(ours)


def test_vgg_with_batch_norm() -> None:
    assert named("vgg", num_layers=11, batch_norm=True) == "vgg11_bn"


@pytest.mark.parametrize(("family", "layers"), [("resnet", 200), ("resnet", 164), ("resnext", 20), ("vgg", "deep")])
def test_a_depth_that_does_not_exist(family: str, layers: object) -> None:
    with pytest.raises(UserError, match="there is no") as raised:
        named(family, num_layers=layers)
    assert raised.value.remedy


def test_the_resolved_configuration_has_our_name() -> None:
    words = ["model.name=resnet", "model.options.num_layers=20"]
    resolved = resolve([*load_recipe("digits").layers, *map(parse_override, words)])
    assert resolved.config.model.name == "cifar_preact20"
    assert resolved.config.model.options == {}
