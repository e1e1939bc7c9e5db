"""Settings chosen for the user's machine, each with its reason: device, precision, layout, threads, allocator."""

import contextlib
import ctypes
import os
import platform
from dataclasses import dataclass, replace
from typing import Any

import torch

from phalanx.config.schema import FastPath, MachineConfig
from phalanx.errors import UserError
from phalanx.machine.contention import watch_contention
from phalanx.machine.cores import cores
from phalanx.machine.gpus import gpu_of, own_gpu
from phalanx.machine.job_settings import SET_BY_USER, Decision, JobSettings, choose_for_job, device_type, report_machine
from phalanx.machine.openmp import idle_threads

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# FLOPs of a micro-batch: with fewer, threads gain little, and lose much on shared cores (`phalanx bench threads`).
WORTH_THREADS = 2e9


@dataclass(frozen=True)
class Settings:
    """The settings that a process runs with, and the reason for each."""

    device: torch.device
    dtype: torch.dtype
    channels_last: bool
    threads: int
    compile: bool
    fast_path: FastPath
    deterministic: bool
    decisions: dict[str, Decision]

    @property
    def gpu(self) -> torch.device | None:
        """The NVIDIA GPU, if that is the device: what is copied there is pinned, and copied ahead."""
        return self.device if self.device.type == "cuda" else None

    def for_work(self, flops: float | None) -> "Settings":
        """The same for micro-batches of so many FLOPs: one thread where more gain little. Call `apply` again."""
        given = self.decisions["threads"].reason == SET_BY_USER
        if self.device.type != "cpu" or self.threads == 1 or given:
            return self
        if flops is None or flops >= WORTH_THREADS:
            return self
        why = (
            f"{flops / 1e9:.2g} GFLOP a micro-batch: {self.threads} gain little, and on shared cores they wait for "
            "each other"
        )
        one = Decision(1, why)
        return replace(self, threads=1, decisions={**self.decisions, "threads": one})

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    @property
    def memory_format(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def apply(self) -> None:
        """Set up this process. Call it before the model is built."""
        if self.decisions["allocator"].value == "keep":
            keep_freed_memory()
        torch.set_num_threads(self.threads)
        watch_contention()
        if self.compile:
            torch.use_deterministic_algorithms(self.deterministic)
        else:  # the same, without importing torch's compiler
            torch.set_deterministic_debug_mode("error" if self.deterministic else "default")
        # Deterministic mode also fills new memory with NaN, to find bugs. That takes 15 % of a step.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # before NCCL's set-up, which takes the current one
            torch.backends.cudnn.benchmark = not self.deterministic
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.dtype != torch.float32


def choose(config: MachineConfig, workers_here: int = 1, local_rank: int = 0) -> Settings:
    """Settings for a single process, chosen from this machine alone."""
    return settings_for(choose_for_job(config, [report_machine(config)]), workers_here, local_rank)


def settings_for(job_settings: JobSettings, workers_here: int = 1, local_rank: int = 0) -> Settings:
    """Settings for one of this machine's workers, in a job whose settings are chosen."""
    config = job_settings.machine
    device = _device(config, job_settings, workers_here, local_rank)
    threads = _threads(workers_here) if config.threads == "auto" else Decision(config.threads, SET_BY_USER)
    if device.value.type == "cuda" and config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS refuses determinism without it
    return Settings(
        device=device.value,
        dtype=DTYPES[config.precision],
        channels_last=bool(config.channels_last),
        threads=threads.value,
        compile=bool(config.compile),
        fast_path=config.fast_path,
        deterministic=bool(config.deterministic),
        decisions={
            **job_settings.decisions,
            "device": device,
            "threads": threads,
            "idle threads": Decision(*idle_threads()),
            "allocator": _allocator_decision(config.allocator, device.value),
        },
    )


def _device(config: MachineConfig, job_settings: JobSettings, workers_here: int, local_rank: int) -> Decision:
    """A GPU always has a number here. Nothing is done with any other: that alone takes some of its memory."""
    name, which = config.device, f"worker {local_rank} of this machine"
    if config.gpus is not None:
        gpu = gpu_of(config.gpus, local_rank, workers_here, _gpus_here(), _why_no_gpu())
        return Decision(torch.device("cuda", gpu), f"--gpus, {which}")
    if name == "auto" and job_settings.device != device_type("auto"):  # another worker has no GPU
        return Decision(torch.device(job_settings.device), job_settings.decisions["device"].reason)
    if name == "auto" and job_settings.device != "cuda":
        found = {"mps": "Apple GPU present", "cpu": "no GPU found"}[job_settings.device]
        return Decision(torch.device(job_settings.device), found)
    if name in ("auto", "cuda") and torch.cuda.is_available():
        gpu = own_gpu(local_rank, workers_here, torch.cuda.device_count())
        reason = f"found {torch.cuda.get_device_name(gpu)}" if name == "auto" else SET_BY_USER
        return Decision(torch.device("cuda", gpu), f"{reason}; {which}" if workers_here > 1 else reason)
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"the device {name!r} cannot be used",
            why=str(error).split("\n")[0],
            remedy="machine.device=auto, cpu, cuda or cuda:1; `phalanx doctor` shows what is here",
        ) from error
    return Decision(device, SET_BY_USER)


def _gpus_here() -> list[str]:
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def _why_no_gpu() -> str:
    if torch.version.cuda is None:
        return "this torch was built without CUDA"
    return "torch finds no NVIDIA GPU: no driver, or CUDA_VISIBLE_DEVICES hides them"


def _threads(workers_here: int) -> Decision:
    here = cores()
    plural = "" if workers_here == 1 else "s"
    return Decision(max(1, here // workers_here), f"{here} cores, {workers_here} worker{plural}")


def _allocator_decision(choice: str, device: torch.device) -> Decision:
    if choice == "system":
        return Decision("system", SET_BY_USER)
    if not _has_mallopt():
        return Decision("system", "only glibc's allocator can be tuned")
    if choice == "keep":
        return Decision("keep", SET_BY_USER)
    if device.type != "cpu":
        return Decision("system", "activations live on the device")
    return Decision("keep", "freed memory is reused, not returned to the kernel")


def _has_mallopt() -> bool:
    return platform.libc_ver()[0] == "glibc"


def keep_freed_memory() -> None:
    """Make glibc keep freed memory, so that activations are not returned to the kernel and faulted in at each step.

    It holds for all later allocations. The price: the process keeps its peak memory.
    """
    if not _has_mallopt():
        return
    mmap_max, mmap_threshold, trim_threshold, top_pad = -4, -3, -1, -2
    libc = ctypes.CDLL(None)
    libc.mallopt(mmap_max, 0)
    libc.mallopt(mmap_threshold, 1 << 30)
    libc.mallopt(trim_threshold, -1)  # glibc reads it as unsigned: never
    libc.mallopt(top_pad, 64 << 20)
