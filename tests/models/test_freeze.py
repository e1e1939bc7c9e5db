import copy

import pytest
import torch
from torch import nn

from phalanx.errors import UserError
from phalanx.models.freeze import freeze


def network() -> nn.Module:
    backbone = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    return nn.ModuleDict({"backbone": backbone, "norm": nn.BatchNorm2d(4), "head": nn.Linear(4, 2)})


def test_frozen_parameters_have_no_gradient_and_frozen_norms_stay_in_eval_mode() -> None:
    model = network()
    freeze(model, ["backbone"])
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {
        *("norm.weight", "norm.bias", "head.weight", "head.bias")
    }
    model.train()
    assert not model.get_submodule("backbone.1").training
    assert model.get_submodule("norm").training
    before = model.get_submodule("backbone.1").running_mean.clone()  # type: ignore[operator]
    model.get_submodule("backbone")(torch.randn(2, 1, 8, 8))
    assert torch.equal(before, model.get_submodule("backbone.1").running_mean)  # type: ignore[arg-type]
    assert not copy.deepcopy(model).train().get_submodule("backbone.1").training


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(UserError, match="nothing would be left to train"):
        freeze(network(), ["*"])
    with pytest.raises(UserError, match="selects no parameter"):
        freeze(network(), ["stem"])
