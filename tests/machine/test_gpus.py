"""One worker for each GPU that is listed. There is none here: what is there is given."""

import pytest

from phalanx.errors import UserError
from phalanx.exchange.collective.group import refuse_shared_gpus
from phalanx.machine.gpus import gpu_of, own_gpu
from tests.data.samples import assert_helpful

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


def test_without_a_list_workers_share_out_what_they_see() -> None:
    assert [own_gpu(rank, 2, 4) for rank in range(2)] == [0, 1]
    assert own_gpu(3, 4, 1) == 0  # its own: Slurm and Ray hide the others
    with pytest.raises(UserError) as caught:
        own_gpu(2, 4, 2)
    assert_helpful(caught.value, "4 workers run on this machine, which has 2 GPUs", "--workers 2")


def test_two_workers_on_one_gpu_are_refused_before_nccl_is() -> None:
    refuse_shared_gpus([["a", "1", "cuda:0"], ["a", "2", "cuda:1"], ["b", "1", "cuda:0"]])
    with pytest.raises(UserError) as caught:
        refuse_shared_gpus([["a", "1", "cuda:0"], ["b", "1", "cuda:0"], ["a", "1", "cuda:0"]])
    assert_helpful(caught.value, "trainer-0 and trainer-2 have the same GPU, cuda:0 of a", "NCCL", "pserver")
