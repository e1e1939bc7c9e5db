"""The instruction sets of this CPU that matter here. PHALANX_CPU=avx2 makes all code assume another CPU.

The variable is for tests and for repeating another machine's run. If it names a lower level than the CPU has, PyTorch's
libraries and our compiled code are limited to it too, so that results are those of such a machine. If it names a higher
one, only our choices change: slower instructions do the work.
"""

import functools
import os
import platform
from pathlib import Path

from phalanx.errors import UserError, nearest

SWITCH = "PHALANX_CPU"
# The features of each level, by the names that users see.
LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": (),
    "avx2": ("AVX2",),
    "avx512": ("AVX2", "AVX512"),
    "avx512-bf16": ("AVX2", "AVX512", "AVX512-BF16"),
    "amx": ("AVX2", "AVX512", "AVX512-BF16", "AMX"),
    "arm": (),
    "arm-bf16": ("ARM-BF16",),
}
FEATURES = ("AVX2", "AVX512", "AVX512-BF16", "AMX", "ARM-BF16")
NATIVE_BF16 = ("AMX", "AVX512-BF16")  # with these, bf16 may be faster than fp32; ARM's has not been measured
# How PyTorch's kernels, oneDNN, MKL and our compiler are limited to a level.
_LIBRARIES = {
    "x86-64": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
    "avx512-bf16": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
}
# Only AMX can be more than avx512-bf16: such CPUs have all of Cooper Lake.
_ARCHITECTURES = {"x86-64": "x86-64", "avx2": "x86-64-v3", "avx512": "x86-64-v4", "avx512-bf16": "cooperlake"}
# Their flags in /proc/cpuinfo; all flags of a row are needed.
_FLAGS = {
    "AVX2": {"avx2", "fma"},
    "AVX512": {"avx512f", "avx512bw", "avx512vl", "avx512dq"},
    "AVX512-BF16": {"avx512_bf16"},
    "AMX": {"amx_tile", "amx_bf16"},
    "ARM-BF16": {"bf16"},
}


def cpu_features() -> tuple[str, ...]:
    """Those of FEATURES that the CPU has, or that PHALANX_CPU implies."""
    level = believed_level()
    return real_features() if level is None else LEVELS[level]


def believed_level() -> str | None:
    """The level in PHALANX_CPU; None if it is not set."""
    level = os.environ.get(SWITCH, "").lower()
    if not level:
        return None
    if level not in LEVELS:
        raise UserError(
            f"{SWITCH}={level} is not a known kind of CPU", why="unknown name", remedy=nearest(level, LEVELS)
        )
    return level


def hold_libraries_to_level() -> None:
    """Limit PyTorch's libraries to PHALANX_CPU. Call it before torch computes anything."""
    for name, value in _LIBRARIES.get(hiding_level() or "", {}).items():
        os.environ.setdefault(name, value)


def compiler_architecture() -> str:
    """The value of the compiler's -march."""
    if platform.machine() != "x86_64":
        return "native"
    return _ARCHITECTURES.get(hiding_level() or "", "native")


def hiding_level() -> str | None:
    """The level in PHALANX_CPU, if this CPU has more."""
    level = believed_level()
    return level if level is not None and set(LEVELS[level]) < set(real_features()) else None


def real_features() -> tuple[str, ...]:
    """The features that the CPU itself reports."""
    flags = cpu_flags()
    if flags is None:
        return _features_by_torch()
    x86 = "fpu" in flags  # "bf16" is a flag on ARM, and not one of x86
    return tuple(name for name in FEATURES if _FLAGS[name] <= flags and (name == "ARM-BF16") != x86)


@functools.cache
def cpu_flags() -> frozenset[str] | None:
    """The first core's flags; None without /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next(
        (frozenset(line.split(":", 1)[1].split()) for line in lines if line.startswith(("flags", "Features"))), None
    )


def _features_by_torch() -> tuple[str, ...]:
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    there = {
        "AVX2": capability in ("AVX2", "AVX512"),
        "AVX512": capability == "AVX512",
        "AVX512-BF16": bool(getattr(torch.cpu, "_is_avx512_bf16_supported", bool)()),
        "AMX": bool(getattr(torch.cpu, "_is_amx_tile_supported", bool)()),
        "ARM-BF16": bool(getattr(torch.cpu, "_is_arm_bf16_supported", bool)()),
    }
    return tuple(name for name in FEATURES if there[name])
