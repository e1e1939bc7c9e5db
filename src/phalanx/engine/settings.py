"""Settings chosen for the user's machine, each with its reason: device, precision, layout, threads, allocator."""

import contextlib
import ctypes
import os
import platform
from dataclasses import dataclass
from typing import Any

import torch

from phalanx.config.schema import MachineConfig
from phalanx.cores import cores
from phalanx.engine.company import look_out
from phalanx.engine.gpus import gpu_of
from phalanx.errors import UserError
from phalanx.native.build import find_library
from phalanx.openmp import waiting

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Decision:
    """A value and why: printed as `bf16 (AMX present)`."""

    value: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.value} ({self.reason})"


@dataclass(frozen=True)
class Settings:
    """What the engine runs with."""

    device: torch.device
    dtype: torch.dtype
    channels_last: bool
    threads: int
    compile: bool
    fast_path: bool
    deterministic: bool
    decisions: dict[str, Decision]

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    @property
    def memory_format(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def apply(self) -> None:
        """Make this process run with them. Comes before the model is made."""
        if self.decisions["allocator"].value == "keep":
            keep_freed_memory()
        torch.set_num_threads(self.threads)
        look_out()
        if self.compile:
            torch.use_deterministic_algorithms(self.deterministic)
        else:  # the same, without importing the compiler to tell it
            torch.set_deterministic_debug_mode("error" if self.deterministic else "default")
        # Otherwise determinism also fills new memory with NaN, to find bugs that we do not have: 15 % of a step.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        if self.device.type == "cuda":
            if self.device.index is not None:
                torch.cuda.set_device(self.device)
            torch.backends.cudnn.benchmark = not self.deterministic
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.dtype != torch.float32


def choose(config: MachineConfig, workers_here: int = 1, local_rank: int = 0) -> Settings:
    """Decide what `auto` leaves open, from the machine that this process runs on, as one of the workers there."""
    device = _device(config.device)
    if config.gpus is not None:
        gpu = gpu_of(config.gpus, local_rank, workers_here, _gpus_here(), _why_no_gpu())
        device = Decision(torch.device("cuda", gpu), f"--gpus, worker {local_rank} of this machine")
    elif device.value == torch.device("cuda") and workers_here > 1:
        device = Decision(torch.device("cuda", local_rank), f"{device.reason}; worker {local_rank} of this machine")
    precision = _precision(config.precision, device.value)
    layout = _given_or(config.channels_last, Decision(True, "convolutions read memory in that order"))
    threads = _given_or(config.threads, _threads(workers_here))
    deterministic = _given_or(
        config.deterministic,
        Decision(
            device.value.type == "cpu", "nearly free on a CPU" if device.value.type == "cpu" else "slower on a GPU"
        ),
    )
    compiled = _given_or(config.compile, _compile(device.value))
    fast_path = _fast_path(config.fast_path, device.value, compiled.value, layout.value)
    if device.value.type == "cuda" and deterministic.value:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS refuses determinism without it
    return Settings(
        device=device.value,
        dtype=_DTYPES[precision.value],
        channels_last=layout.value,
        threads=threads.value,
        compile=compiled.value,
        fast_path=fast_path.value,
        deterministic=deterministic.value,
        decisions={
            "device": device,
            "precision": precision,
            "channels_last": layout,
            "threads": threads,
            "idle threads": Decision(*waiting()),
            "allocator": _allocator_decision(config.allocator, device.value),
            "compile": compiled,
            "fast path": fast_path,
            "deterministic": deterministic,
        },
    )


def _given_or(given: Any, decided: Decision) -> Decision:
    return decided if given == "auto" else Decision(given, "as you set it")


def _device(name: str) -> Decision:
    if name == "auto":
        if torch.cuda.is_available():
            return Decision(torch.device("cuda"), f"found {torch.cuda.get_device_name()}")
        if torch.backends.mps.is_available():
            return Decision(torch.device("mps"), "Apple GPU present")
        return Decision(torch.device("cpu"), "no GPU found")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"the device {name!r} cannot be used",
            why=str(error).split("\n")[0],
            remedy="machine.device=auto, cpu, cuda or cuda:1; `phalanx doctor` shows what is here",
        ) from error
    return Decision(device, "as you set it")


def _gpus_here() -> list[str]:
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def _why_no_gpu() -> str:
    if torch.version.cuda is None:
        return "this torch was built without CUDA"
    return "torch finds no NVIDIA GPU: no driver, or CUDA_VISIBLE_DEVICES hides them"


def cpu_features() -> dict[str, bool]:
    """Which of the instructions that matter for training this CPU has."""
    capability = torch.backends.cpu.get_cpu_capability()
    return {
        "AVX2": capability in ("AVX2", "AVX512"),
        "AVX512": capability == "AVX512",
        "AVX512-BF16": bool(getattr(torch.cpu, "_is_avx512_bf16_supported", bool)()),
        "AMX": bool(getattr(torch.cpu, "_is_amx_tile_supported", bool)()),
        "ARM-BF16": bool(getattr(torch.cpu, "_is_arm_bf16_supported", bool)()),
    }


def _precision(name: str, device: torch.device) -> Decision:
    if name != "auto":
        return Decision(name, "as you set it")
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Decision("bf16", "the GPU computes in it")
        return Decision("fp32", "this GPU has no bf16; machine.precision=fp16 may be faster")
    if device.type != "cpu":
        return Decision("fp32", f"the safe choice on {device.type}")
    native = [name for name in ("AMX", "AVX512-BF16") if cpu_features()[name]]
    if native:
        return Decision("bf16", f"{native[0]} present")
    return Decision("fp32", "this CPU has neither AMX nor AVX512-BF16")


def _threads(workers_here: int) -> Decision:
    here = cores()
    plural = "" if workers_here == 1 else "s"
    return Decision(max(1, here // workers_here), f"{here} cores, {workers_here} worker{plural}")


def _fast_path(name: str, device: torch.device, compiled: bool, channels_last: bool) -> Decision:
    if name == "off":
        return Decision(False, "as you set it")
    if device.type != "cpu":
        return Decision(False, "it is for CPUs")
    if compiled or not channels_last:
        return Decision(False, "torch.compile has its own" if compiled else "it is for channels_last")
    compiled_code = find_library("winograd")
    if compiled_code.handle is None:
        return Decision(True, f"only gradients of convolutions as matrix products: {compiled_code.reason}")
    return Decision(True, "convolutions in the form that is fastest here, batch norm together with what follows")


def _compile(device: torch.device) -> Decision:
    if device.type == "cuda":
        return Decision(True, "pays on a GPU after a minute")
    return Decision(False, "measured no faster for convolutions on a CPU, see docs/log.md")


def _allocator_decision(choice: str, device: torch.device) -> Decision:
    if choice == "system":
        return Decision("system", "as you set it")
    if not _has_mallopt():
        return Decision("system", "not glibc, which is where it can be tuned")
    if choice == "keep":
        return Decision("keep", "as you set it")
    if device.type != "cpu":
        return Decision("system", "activations live on the device")
    return Decision("keep", "freed memory is reused instead of faulted in anew")


def _has_mallopt() -> bool:
    return platform.libc_ver()[0] == "glibc"


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory: activations are then not returned to and fetched from the kernel each step.

    Works for all later allocations. Costs that the process keeps its peak memory.
    """
    if not _has_mallopt():
        return
    mmap_max, mmap_threshold, trim_threshold, top_pad = -4, -3, -1, -2
    libc = ctypes.CDLL(None)
    libc.mallopt(mmap_max, 0)
    libc.mallopt(mmap_threshold, 1 << 30)
    libc.mallopt(trim_threshold, -1)  # glibc reads it as unsigned: never
    libc.mallopt(top_pad, 64 << 20)
