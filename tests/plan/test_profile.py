"""Profiles: counted on the meta device, in the order of a real backward pass, and shipped for common models."""

from pathlib import Path

import pytest
import torch

from phalanx.config.schema import ModelConfig
from phalanx.models.build import build_model
from phalanx.plan.count_layers import count_layers
from phalanx.plan.make_profiles import shipped_cases
from phalanx.plan.profile import ModelProfile, model_profile, profile_key, shipped_profiles

SMALL = ModelConfig(name="cifar_resnet8")


def test_gradients_come_in_the_order_of_a_real_backward_pass() -> None:
    profile = count_layers(SMALL, num_classes=10, channels=3, image_size=32)
    model = build_model(SMALL, num_classes=10, channels=3, image_size=32).train()
    order: list[int] = []
    for place, param in enumerate(model.parameters()):
        param.register_post_accumulate_grad_hook(lambda _, place=place: order.append(place))
    model(torch.randn(2, 3, 32, 32)).sum().backward()
    assert [segment.param for segment in profile.backward] == order
    assert profile.sizes == tuple(param.numel() for param in model.parameters())


def test_backward_is_about_twice_forward() -> None:
    for name in ("resnet50", "mobilenetv3_large_100"):  # the second with grouped convolutions
        profile = shipped_profiles().get(profile_key(ModelConfig(name=name), 1000, 3, 224))
        assert profile is not None
        assert profile.flops / profile.forward[0].flops == pytest.approx(3.0, abs=0.05)


def test_resnet50_is_the_known_one() -> None:
    profile = shipped_profiles().get(profile_key(ModelConfig(name="resnet50"), 1000, 3, 224))
    assert profile is not None
    assert profile.values == 25_557_032
    assert profile.flops == pytest.approx(3 * 2 * 4.09e9, rel=0.02)
    assert 70e6 < profile.kept_bytes < 110e6  # 22 GB for 256 images, as is known of fp32


def test_every_shipped_case_is_in_the_file() -> None:
    known = set(shipped_profiles().keys())
    assert {profile_key(*case) for case in shipped_cases()} == known
    assert all(shipped_profiles().get(key) for key in known)


def test_other_models_are_counted_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = ModelConfig(name="cifar_resnet14")
    first = model_profile(config, num_classes=7, channels=3, image_size=24)
    (kept,) = (tmp_path / "phalanx" / "profiles").iterdir()
    assert model_profile(config, num_classes=7, channels=3, image_size=24) == ModelProfile.unpack(first.packed())
    kept.write_text("{")  # a damaged file is counted again
    assert model_profile(config, num_classes=7, channels=3, image_size=24).sizes == first.sizes
