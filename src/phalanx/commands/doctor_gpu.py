"""`phalanx doctor --gpu`: everything about the GPUs that a question about them begins with."""

import os
from importlib.util import find_spec

import torch
import torch.distributed as dist
from rich.console import Console

from phalanx.machine.gpus import why_no_compile
from phalanx.observe.tables import print_rows

_VARIABLES = ("CUDA_", "NCCL_", "CUBLAS_", "CUDNN_", "TORCH_NCCL_", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def examine_gpus(console: Console) -> None:
    """Print the rows."""
    print_rows(console, gpu_rows())


def gpu_rows() -> dict[str, str]:
    """Libraries, variables, and each GPU; or why there is none."""
    rows = {
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda or 'none: a build without it'}",
        "NCCL": ".".join(map(str, torch.cuda.nccl.version())) if _has_nccl() else "none in this build of torch",
        "triton": "is installed" if find_spec("triton") is not None else "is not installed",
        **{name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)},
    }
    if not torch.cuda.is_available():
        reason = "torch finds none: no driver, no GPU, or CUDA_VISIBLE_DEVICES hides it"
        return {**rows, "GPU": "this torch was built without CUDA" if torch.version.cuda is None else reason}
    rows["cuDNN"] = str(torch.backends.cudnn.version())
    rows["compile"] = why_no_compile() or "can be used"
    count = torch.cuda.device_count()
    for number in range(count):
        about = torch.cuda.get_device_properties(number)
        free, total = torch.cuda.mem_get_info(number)
        bf16 = "bf16" if about.major >= 8 else "no bf16"
        rows[f"cuda:{number}"] = (
            f"{about.name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free, compute capability "
            f"{about.major}.{about.minor}, {bf16}, {about.multi_processor_count} multiprocessors"
        )
        others = [other for other in range(count) if other != number]
        direct = [str(other) for other in others if torch.cuda.can_device_access_peer(number, other)]
        if others:
            rows[f"cuda:{number} reaches directly"] = ", ".join(direct) or "no other"
    return rows


def _has_nccl() -> bool:
    return dist.is_available() and dist.is_nccl_available()
