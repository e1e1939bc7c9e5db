"""One worker for each GPU that is listed. There is none here: what is there is given."""

import pytest

from phalanx.errors import UserError
from phalanx.machine.gpus import gpu_of

TWO = ["NVIDIA A", "NVIDIA B"]


def test_each_worker_has_its_own() -> None:
    assert [gpu_of([3, 1], rank, 2, [*TWO, "C", "D"], "") for rank in range(2)] == [3, 1]


@pytest.mark.parametrize(
    ("gpus", "workers", "present", "told"),
    [
        ([0, 2], 2, TWO, ["there is no GPU 2", "0 (NVIDIA A), 1 (NVIDIA B)"]),
        ([0, 1], 2, [], ["there is no GPU for --gpus 0,1", "built without CUDA", "leave it out to train on the CPU"]),
        ([0, 1], 4, TWO, ["4 workers run on this machine, but 2 GPUs are listed", "leave --workers out"]),
    ],
)
def test_what_cannot_be_is_refused(gpus: list[int], workers: int, present: list[str], told: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        gpu_of(gpus, 0, workers, present, "this torch was built without CUDA")
    assert all(part in str(caught.value) for part in told)
