"""What training sets for a whole process, set back to what it was when the call returns."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def restored() -> Iterator[None]:
    """Restore torch's random state, threads, deterministic mode, cuDNN and TF32 settings, and sys.stderr."""
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    random = torch.random.get_rng_state()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    cudnn = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32
    matmul = torch.backends.cuda.matmul.allow_tf32
    device = torch.cuda.current_device() if torch.cuda.is_initialized() else None
    on_device = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    stderr = sys.stderr  # --log-dir copies it to a log
    try:
        yield
    finally:
        sys.stderr = stderr
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)
        torch.random.set_rng_state(random)
        torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = cudnn
        torch.backends.cuda.matmul.allow_tf32 = matmul
        if device is not None and on_device is not None:
            torch.cuda.set_device(device)
            torch.cuda.set_rng_state_all(on_device)
