"""Failed allocations, real ones, and errors that are none."""

import errno

import numpy as np
import pytest
import torch

from phalanx.config.resolve import parse_override, resolve
from phalanx.config.role import Role
from phalanx.errors import UserError
from phalanx.roles.out_of_memory import OutOfMemory, is_out_of_memory, naming_out_of_memory
from tests.data.samples import assert_helpful


@pytest.mark.parametrize(
    "allocate", [lambda: torch.empty(1 << 50), lambda: np.empty(1 << 50), lambda: b"x" * (1 << 60)]
)
def test_allocations_of_torch_numpy_and_python(allocate: object) -> None:
    config = resolve([parse_override("train.global_batch_size=64"), parse_override("optim.accumulate=2")]).config
    with pytest.raises(OutOfMemory) as caught, naming_out_of_memory(Role("trainer", 3, 4), config):
        allocate()  # type: ignore[operator]
    assert_helpful(caught.value, "trainer-3 on ", "is out of memory", "MB left", "optim.accumulate=4")


def test_other_errors() -> None:
    assert is_out_of_memory(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert not is_out_of_memory(OSError(errno.ENOENT, "no such file"))
    assert not is_out_of_memory(RuntimeError("shapes differ"))
    assert not is_out_of_memory(ValueError("out of memory"))
    assert not is_out_of_memory(UserError("out of memory"))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_a_full_gpu(error: RuntimeError) -> None:
    config = resolve([parse_override("train.batch_size=64")]).config
    with pytest.raises(OutOfMemory) as caught, naming_out_of_memory(Role("trainer", 0, 1), config):
        raise error
    assert_helpful(caught.value, "has no GPU memory left", "train.batch_size=32 optim.accumulate=2", "nvidia-smi")
    assert "MB left" not in caught.value.why  # of the host
