"""The kinds of CPU that a wheel has compiled code for, and which of them this CPU can run."""

import platform
from dataclasses import dataclass

from phalanx.native.features import cpu_features, cpu_flags, hiding_level

_V3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

_TUNED = ("-mtune=haswell",)  # measured better than gcc's choices for all and for AVX512's first (docs/log.md)


@dataclass(frozen=True)
class Level:
    """A kind of CPU. Its name is in the names of its libraries: `winograd.x86-64-v3.so`."""

    name: str
    machine: str  # as platform.machine() has it
    flags: tuple[str, ...] = ()  # of the compiler
    needs: frozenset[str] = frozenset()  # flags in /proc/cpuinfo, all of them
    feature: str = ""  # what PHALANX_CPU may hide, one of `features.FEATURES`
    macro: str = ""  # only sources that mention it are compiled for this level: others would not differ

    def can_run(self) -> bool:
        """Whether this CPU can, and PHALANX_CPU lets it."""
        if self.machine != platform.machine() or not self.needs <= (cpu_flags() or frozenset()):
            return False
        return not (self.feature and hiding_level()) or self.feature in cpu_features()


# From the least to the most of each machine.
LEVELS = (
    Level("x86-64", "x86_64", ("-march=x86-64",)),
    Level("x86-64-v3", "x86_64", ("-march=x86-64-v3", *_TUNED), _V3, "AVX2"),
    Level("x86-64-v4", "x86_64", ("-march=x86-64-v4", *_TUNED), _V4, "AVX512"),
    Level(
        "avx512-bf16",
        "x86_64",
        ("-march=x86-64-v4", "-mavx512vnni", "-mavx512bf16", *_TUNED),
        _V4 | {"avx512_vnni", "avx512_bf16"},
        "AVX512-BF16",
        macro="__AVX512BF16__",
    ),
    Level("aarch64", "aarch64", ("-march=armv8-a",)),  # has NEON
    Level("arm64", "arm64"),  # macOS
)


def runnable_levels() -> list[Level]:
    """The best first."""
    return [level for level in reversed(LEVELS) if level.can_run()]
