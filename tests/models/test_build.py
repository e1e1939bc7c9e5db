"""Models by name: adapted to the data, refused with a reason where they cannot be, and never a silent wish."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import huggingface_hub
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from phalanx.config.schema import ModelConfig
from phalanx.errors import UserError
from phalanx.models.build import build_model
from phalanx.models.zoo import constructor_names, misfit


def build(name: str, *, classes: int = 10, channels: int = 3, size: int = 32, **settings: Any) -> nn.Module:
    config = ModelConfig.model_validate({"name": name, **settings})
    return build_model(config, num_classes=classes, channels=channels, image_size=size)


def refusal(name: str, **arguments: Any) -> UserError:
    with pytest.raises(UserError) as raised:
        build(name, **arguments)
    return raised.value


@pytest.mark.parametrize(
    ("name", "size", "channels"),
    [
        ("cifar_resnet8", 28, 1),
        ("wrn10_1", 16, 3),
        ("resnet18", 32, 3),
        ("resnet18", 16, 1),
        ("vit_tiny_patch16_224", 32, 3),
        ("convnext_atto", 32, 1),
        ("mobilenetv3_small_050", 28, 3),
    ],
)
def test_forward_and_backward(name: str, size: int, channels: int) -> None:
    model = build(name, classes=7, channels=channels, size=size)
    assert model.training
    scores = model(torch.randn(2, channels, size, size))
    assert scores.shape == (2, 7)
    scores.square().sum().backward()
    assert all(not p.is_meta for p in model.parameters())


def test_our_names_do_not_import_timm() -> None:
    program = """if True:
        import sys
        from phalanx.config.schema import ModelConfig
        from phalanx.models.build import build_model
        build_model(ModelConfig(name="cifar_resnet8"), num_classes=2, channels=1, image_size=8)
        assert "timm" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", program], check=True)


def test_trying_a_model_out_does_not_disturb_the_random_state() -> None:
    torch.manual_seed(3)
    ours = build("resnet18", classes=5)
    torch.manual_seed(3)
    theirs = timm.create_model("resnet18", num_classes=5)
    assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True))


# names


def test_unknown_name_gets_the_nearest() -> None:
    assert "resnet50" in refusal("reznet50").remedy
    assert "cifar_resnet20" in refusal("cifar_resnet_20").remedy
    assert refusal("convnext_tiny_in22ft1k").remedy == "model.name=convnext_tiny.fb_in22k_ft_in1k"


def test_a_tag_belongs_to_pretrained_weights_and_must_exist() -> None:
    assert build("test_resnet.r160_in1k", classes=3)
    error = refusal("resnet50.a1_in2k")
    assert "resnet50.a1_in1k" in error.why
    assert "resnet50.a1_in1k" in error.remedy


def test_a_constructor_that_passes_arguments_on_is_seen_through() -> None:
    assert {"img_size", "drop_rate"} <= constructor_names("deit_tiny_distilled_patch16_224")
    assert "img_size" not in constructor_names("resnet18")


# options and rates


@pytest.mark.parametrize("name", ["cifar_resnet20", "resnet18"])
def test_unknown_option(name: str) -> None:
    error = refusal(name, options={"wobble": 3})
    assert "wobble" in str(error)
    assert error.remedy


def test_options_reach_the_constructor() -> None:
    assert build("cifar_resnet8", options={"width": 2}).get_submodule("fc").in_features == 128
    assert build("resnet18", options={"stem_width": 32, "stem_type": "deep"}).get_submodule("conv1.0")


@pytest.mark.parametrize("option", ["num_classes", "in_chans", "pretrained", "checkpoint_path", "features_only"])
def test_what_is_decided_elsewhere_is_no_option(option: str) -> None:
    assert option in refusal("resnet18", options={option: 3}).what


@pytest.mark.parametrize("rates", [{"drop": 0.5}, {"drop_path": 0.5}])
@pytest.mark.parametrize("name", ["cifar_preact8", "test_resnet"])
def test_rates_reach_the_model(name: str, rates: dict[str, Any]) -> None:
    torch.manual_seed(0)
    images = torch.randn(4, 3, 32, 32)
    model = build(name, zero_init_last=False, **rates)
    assert not torch.equal(model(images), model(images))


def test_a_rate_that_a_model_lacks_is_refused() -> None:
    assert "drop_path" in refusal("vgg11", drop_path=0.1).what


# sizes


@pytest.mark.parametrize(
    ("name", "size", "why", "remedy"),
    [
        ("vit_tiny_patch16_224", 8, "Kernel size", "data.image_size=32"),
        ("vit_tiny_patch16_224", 30, "patches of 16 pixels do not divide 30", "data.image_size=32"),
        ("convnext_atto", 16, "Kernel size", "data.image_size=32"),
        ("efficientformer_l1", 32, "Expected size", "data.image_size=224, the size that it was designed for"),
        ("qwen3_vit_88m_enc", 32, "does not classify", "another model"),
    ],
)
def test_a_size_that_cannot_be_is_told_before_training(name: str, size: int, why: str, remedy: str) -> None:
    error = refusal(name, size=size)
    assert f"{size}×{size}" in error.what
    assert why in error.why
    assert remedy in error.remedy


class LooksAtValues(nn.Module):
    """A model whose forward needs values, which a model without memory does not have."""

    def __init__(self, num_classes: int, in_chans: int) -> None:
        super().__init__()
        self.fc = nn.Linear(in_chans, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        assert images.sum().item() == 0
        return cast(torch.Tensor, self.fc(images.mean((2, 3))))


def looks_at_values(pretrained: bool, num_classes: int, in_chans: int, **_: Any) -> nn.Module:
    return LooksAtValues(num_classes, in_chans)


def test_a_model_that_cannot_be_tried_without_memory_is_tried_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(timm.models._registry._model_entrypoints, "looks_at_values", looks_at_values)
    state = torch.get_rng_state()
    assert misfit("looks_at_values", {"num_classes": 3, "in_chans": 1}, 8) == ""
    assert torch.equal(torch.get_rng_state(), state)


# how weights start


@pytest.mark.parametrize("initializer", ["kaiming", "xavier", "orthogonal", "truncated-normal"])
@pytest.mark.parametrize("name", ["cifar_preact8", "test_resnet"])
def test_initializers_fill_convolutions_and_linears(name: str, initializer: str) -> None:
    torch.manual_seed(0)
    default = build(name, zero_init_last=False).state_dict()
    torch.manual_seed(0)
    model = build(name, zero_init_last=False, initializer=initializer)
    for path, module in model.named_modules():
        for kind, tensor in module.named_parameters(recurse=False):
            filled = isinstance(module, nn.Conv2d | nn.Linear) and kind == "weight"
            assert torch.equal(tensor, default[f"{path}.{kind}"]) != filled, f"{path}.{kind}"


def test_initializers_have_their_scale() -> None:
    def std(initializer: str, layer: str) -> float:
        model = build("cifar_resnet8", classes=100, initializer=initializer)
        return model.get_parameter(layer).std().item()

    torch.manual_seed(0)
    assert std("kaiming", "blocks.2.conv2.weight") == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
    assert std("kaiming", "fc.weight") == pytest.approx(0.01, rel=0.05)
    assert std("xavier", "blocks.2.conv2.weight") == pytest.approx((2 / (2 * 64 * 9)) ** 0.5, rel=0.02)
    assert std("truncated-normal", "fc.weight") == pytest.approx(0.0176, rel=0.05)  # 0.02 cut at two deviations
    rows = build("cifar_resnet8", initializer="orthogonal").get_parameter("fc.weight")
    torch.testing.assert_close(rows @ rows.T, torch.eye(10), atol=1e-5, rtol=0)


def zero_gammas(model: nn.Module) -> int:
    return sum(not m.weight.any() for m in model.modules() if isinstance(m, nn.BatchNorm2d | nn.GroupNorm))


@pytest.mark.parametrize(
    ("name", "blocks"), [("cifar_resnet20", 9), ("resnet18", 8), ("test_byobnet", 4), ("regnetx_002", 13)]
)
def test_zero_init_is_on_by_default_and_can_be_turned_off(name: str, blocks: int) -> None:
    assert zero_gammas(build(name)) == blocks
    assert zero_gammas(build(name, zero_init_last=False)) == 0


def test_zero_init_survives_an_initializer() -> None:
    model = build("cifar_preact8", initializer="orthogonal")
    assert not model.get_parameter("blocks.0.conv2.weight").any()


def test_zero_init_can_be_turned_off_where_timm_already_does() -> None:
    assert zero_gammas(build("regnetz_005", size=64, zero_init_last=False)) == 0


# pretrained weights


@pytest.fixture
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A hub behind a closed port, and an empty cache for its files."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    huggingface_hub.close_session()  # it read the proxy when it was opened
    yield tmp_path
    huggingface_hub.close_session()


def test_offline_pretrained_is_told_at_once(no_network: Path) -> None:
    started = time.monotonic()
    error = refusal("resnet18", pretrained=True)
    assert time.monotonic() - started < 10
    assert "resnet18" in error.what
    assert "offline" in error.why
    assert "--init-from" in error.remedy


def test_cached_weights_need_no_network(no_network: Path) -> None:
    published = timm.create_model("test_resnet").state_dict()
    repository = no_network / "models--timm--test_resnet.r160_in1k"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    save_file(published, snapshot / "model.safetensors")

    # not even zero_init_last=False may touch fetched weights
    model = build("test_resnet", classes=3, channels=1, pretrained=True, zero_init_last=False)
    loaded = model.state_dict()
    same = [name for name in loaded if loaded[name].shape == published[name].shape]
    assert len(same) == len(loaded) - 3  # the first convolution (one channel) and the classifier (two) are adapted
    assert all(torch.equal(loaded[name], published[name]) for name in same)


def test_weights_that_nobody_published(no_network: Path) -> None:
    error = refusal("botnet50ts_256", size=256, pretrained=True)
    assert "none" in error.why
    assert "botnet26t_256.c1_in1k" in error.remedy
    assert "--init-from" in refusal("cifar_resnet20", pretrained=True).remedy


def test_an_initializer_does_not_overwrite_pretrained_weights() -> None:
    assert "overwrite" in refusal("resnet18", pretrained=True, initializer="xavier").what
