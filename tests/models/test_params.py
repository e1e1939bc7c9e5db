"""Weight decay spares norms and biases; the classifier is found in ours and in timm's models."""

import timm
import torch
from torch import nn

from phalanx.models.cifar import build_cifar, plan_of
from phalanx.models.params import classifier_names, no_decay_names


def outline(name: str) -> nn.Module:
    plan = plan_of(name)
    with torch.device("meta"):
        model = build_cifar(plan, num_classes=5, channels=3) if plan else timm.create_model(name, num_classes=5)
    assert isinstance(model, nn.Module)
    return model


def test_norms_and_biases_escape_decay() -> None:
    model = outline("cifar_resnet20")
    spared = no_decay_names(model)
    assert {"fc.bias", "stem.1.weight", "stem.1.bias", "blocks.0.bn2.weight"} <= spared
    decayed = {name for name, _ in model.named_parameters()} - spared
    assert len(decayed) == 20  # one weight for each layer of the name
    assert "fc.weight" in decayed


def test_a_model_may_name_more() -> None:
    spared = no_decay_names(outline("vit_tiny_patch16_224"))
    assert {"pos_embed", "cls_token", "norm.weight", "blocks.0.attn.qkv.bias"} <= spared
    assert "head.weight" not in spared


def test_names_may_be_globs() -> None:
    class Globs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.body = nn.Embedding(3, 4), nn.Linear(4, 4, bias=False)

        def no_weight_decay(self) -> set[str]:
            return {"table.*", "no such name"}

    assert no_decay_names(Globs()) == {"table.weight"}


def test_classifier_of_ours_and_of_timm() -> None:
    heads = {
        "cifar_resnet20": {"fc.weight", "fc.bias"},
        "resnet18": {"fc.weight", "fc.bias"},
        "vit_tiny_patch16_224": {"head.weight", "head.bias"},
        "convnext_atto": {"head.fc.weight", "head.fc.bias"},
        "mobilenetv3_small_050": {"classifier.weight", "classifier.bias"},
        "volo_d1_224": {"head.weight", "head.bias", "aux_head.weight", "aux_head.bias"},
        "deit_tiny_distilled_patch16_224": {"head.weight", "head.bias", "head_dist.weight", "head_dist.bias"},
    }
    for name, expected in heads.items():
        assert classifier_names(outline(name)) == expected, name


def test_a_module_without_classifier_has_none() -> None:
    assert classifier_names(nn.Linear(2, 2)) == set()
