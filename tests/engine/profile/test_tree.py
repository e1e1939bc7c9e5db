from typing import Any

import pytest

from phalanx.engine.profile.kinds import COPIES, IDLE, PYTHON, kind_of
from phalanx.engine.profile.part import PARTS
from phalanx.engine.profile.tree import WAITING
from tests.engine.profile.made import parts, recording


def node(tree: dict[str, Any], *path: str) -> dict[str, Any]:
    for name in path:
        tree = next(child for child in tree["children"] if child["name"] == name)
    return tree


def check_sums(tree: dict[str, Any]) -> None:
    assert sum(child["ms"] for child in tree["children"]) <= tree["ms"] + 1e-5
    for child in tree["children"]:
        check_sums(child)


def test_each_moment_of_a_step_is_of_one_part_and_of_one_kind() -> None:
    (part,) = parts(recording(exchange_ms=20))
    assert part["ms"] == pytest.approx(120)
    assert part["parts"] == pytest.approx(
        {"data": 10, "inputs": 0, "forward": 30, "backward": 40, "exchange": 20, "update": 10, "other": 10}
    )
    assert all(sum(step[name] for name in PARTS) == pytest.approx(step["ms"]) for step in part["steps"])
    assert sum(one["ms"] for one in part["kinds"]) == pytest.approx(120)
    kinds = {one["kind"]: (one["ms"], one["calls"]) for one in part["kinds"]}
    assert kinds["convolution"] == pytest.approx((10 + 26, 2))
    assert kinds["matrix product"] == pytest.approx((1 + 4 + 8, 2))
    assert kinds[COPIES] == pytest.approx((3, 1))
    assert kinds["exchange"][0] == pytest.approx(20)
    check_sums(part["tree"])


def test_backward_is_shown_by_the_layers_that_made_its_nodes() -> None:
    (part,) = parts(recording(exchange_ms=20))
    layers = {one["path"]: (one["forward_ms"], one["backward_ms"]) for one in part["layers"]}
    assert layers == {"": (25, 38), "stage": (20, 28), "stage.conv": (15, 28), "fc": (5, 10)}
    tree = part["tree"]
    assert node(tree, "forward", "model", "stage", "conv", "_Convolve", "winograd_convolve")["ms"] == pytest.approx(10)
    assert node(tree, "backward", "model", "stage", "conv", "_ConvolveBackward")["ms"] == pytest.approx(28)
    assert node(tree, "backward", "model", "fc", "AddmmBackward0", "aten::mm")["calls"] == 1
    assert node(tree, "backward", WAITING)["kind"] == "exchange"


def test_on_a_gpu_layers_and_kinds_are_times_of_its_kernels() -> None:
    """Rehearsed: no GPU was there when this was written."""
    (part,) = parts(recording(gpu=True))
    kinds = {one["kind"]: one["ms"] for one in part["kinds"]}
    assert (kinds["convolution"], kinds["matrix product"], kinds["optimizer"]) == pytest.approx((10, 5, 1))
    assert kinds["data wait"] == pytest.approx(10)
    assert kinds[IDLE] == pytest.approx(100 - 10 - 10 - 5 - 1 - 1)
    assert {one["path"]: one["forward_ms"] for one in part["layers"]}["stage"] == pytest.approx(5)
    assert part["parts"]["forward"] == pytest.approx(30)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mkldnn_convolution", "convolution"),
        ("native:norm_forward_bf16", "normalization"),
        ("autograd::engine::evaluate_function: NativeBatchNormBackward0", "normalization"),
        ("aten::max_pool2d_with_indices", "pooling"),
        ("aten::threshold_backward", "activation"),
        ("aten::_to_copy", COPIES),
        ("aten::add_", "element-wise"),
        ("c10d::allreduce_", "exchange"),
        ("phalanx:update", "optimizer"),
        ("layer:conv1", None),
        ("DistributedDataParallel.forward", None),
    ],
)
def test_kinds_of_operators(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


def test_a_scope_is_python() -> None:
    (part,) = parts(recording())
    assert part["tree"]["kind"] == PYTHON
