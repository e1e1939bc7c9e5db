"""The views that an evaluation averages over."""

import pytest
import torch

from phalanx.engine.views import Views


@pytest.mark.parametrize(
    ("views", "count"), [(Views(), 1), (Views(True), 2), (Views(False, 1), 3), (Views(True, 2), 6)]
)
def test_weights_add_up_and_each_view_is_another(views: Views, count: int) -> None:
    images = torch.randn(2, 3, 9, 8).contiguous(memory_format=torch.channels_last)
    found = list(views.of(images))
    assert len(found) == count
    assert sum(weight for _, weight in found) == pytest.approx(1)
    assert torch.equal(found[0][0], images)
    assert all(view.shape == images.shape for view, _ in found)
    assert len({tuple(view.flatten().tolist()) for view, _ in found}) == count
    if views.mirror:
        assert torch.equal(found[1][0], images.flip(3))


def test_what_is_moved_and_what_comes_into_view() -> None:
    row = torch.arange(5.0).repeat(5, 1)[None, None]
    (_, whole), (right, first), (left, second) = Views(shift=2).of(row)
    assert (whole, first, second) == (0.5, 0.25, 0.25)
    assert right[0, 0, 0].tolist() == [2, 1, 0, 1, 2]
    assert left[0, 0, 0].tolist() == [2, 3, 4, 3, 2]
    assert all(view.shape == (1, 1, 2, 2) for view, _ in Views(True, 3).of(torch.zeros(1, 1, 2, 2)))
