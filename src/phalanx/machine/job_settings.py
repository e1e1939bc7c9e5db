"""Settings that change numbers are chosen once per job, from the machines of all workers: precision, layout, kernels.

Every worker reports what its machine can do (`MachineReport`). All workers get the same list and choose the same
settings from it. The choice is written into the run's configuration, so that a resumed run keeps it.
"""

import json
import socket
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import PIL
import torch

from phalanx.config.schema import MachineConfig
from phalanx.errors import UserError
from phalanx.machine.cores import cpu_name
from phalanx.machine.gpus import why_no_compile
from phalanx.native.build import find_library
from phalanx.native.compiler import PARALLEL_SOURCES
from phalanx.native.features import NATIVE_BF16, cpu_features

# The settings that are chosen for the whole job: they change numbers, so a run keeps them.
JOB_WIDE = ("precision", "channels_last", "compile", "fast_path", "deterministic")
SET_BY_USER = "as you set it"
KEPT = "kept from the run's beginning"
_NO_BF16 = "neither AMX nor AVX512-BF16"


@dataclass(frozen=True)
class Decision:
    """A value and why: printed as `bf16 (AMX present)`."""

    value: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.value} ({self.reason})"


@dataclass(frozen=True)
class MachineReport:
    """What one worker's machine can do."""

    worker: int
    host: str
    cpu: str
    device: str  # device type: as set, or the best present
    bf16: str  # the unit that computes bf16 natively; empty if there is none
    no_native_code: str  # why the compiled fast path cannot be used; empty if it can
    libraries: str  # versions of the libraries that compute and decode
    asked: dict[str, Any] = field(default_factory=dict)  # the worker's values of the job-wide settings
    no_compile: str = ""  # why torch.compile cannot be used on its GPU; empty if it can

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "MachineReport":
        return cls(**json.loads(text))


@dataclass(frozen=True)
class JobSettings:
    """The choice for a job: `machine` has no `auto` left where it would change numbers."""

    machine: MachineConfig
    device: str  # the device type of all workers
    decisions: dict[str, Decision]
    warnings: list[str]
    both_precisions: bool = False  # chosen by the CPUs' flags alone: the other precision may be faster for a model

    def with_precision(self, decision: Decision) -> "JobSettings":
        """The same with a precision that was measured."""
        machine = self.machine.model_copy(update={"precision": decision.value})
        return replace(self, machine=machine, decisions={**self.decisions, "precision": decision})


def report_machine(config: MachineConfig, worker: int = 0) -> MachineReport:
    """What this machine can do. Compiles native code where the fast path needs it."""
    device = "cuda" if config.gpus is not None else device_type(config.device)
    wanted = device == "cpu" and config.fast_path in ("auto", "native")
    missing = [library for name in PARALLEL_SOURCES if wanted and (library := find_library(name)).handle is None]
    return MachineReport(
        worker=worker,
        host=socket.gethostname(),
        cpu=cpu_name(),
        device=device,
        bf16=_native_bf16(device),
        no_native_code=missing[0].reason if missing else "",
        libraries=f"torch {torch.__version__}, Pillow {PIL.__version__}",
        asked={name: getattr(config, name) for name in JOB_WIDE},
        no_compile=why_no_compile() if device == "cuda" and torch.cuda.is_available() else "",
    )


def device_type(name: str) -> str:
    """The type of a device that a user names; for `auto`, the best one present."""
    if name != "auto":
        return name.partition(":")[0]
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _native_bf16(device: str) -> str:
    if device == "cpu":
        return next((name for name in NATIVE_BF16 if name in cpu_features()), "")
    if device == "cuda" and torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False):
        return "the GPU"
    return ""


def choose_for_job(config: MachineConfig, reports: Sequence[MachineReport], kept: Collection[str] = ()) -> JobSettings:
    """The settings of all workers of a job, from the first worker's configuration and all machines.

    `kept` names the settings that a resumed run had from its start.
    """
    config = config.model_copy(update=reports[0].asked)
    device = _device(config, reports)
    decisions = _decide(config, device.value, reports, kept)
    machine = config.model_copy(update={name: decision.value for name, decision in decisions.items()})
    warnings = [note for report in _one_per_host(reports) if (note := slow_warning(machine, device.value, report))]
    if device.value != "cpu":  # settings that a run kept from CPUs may be slow here
        now = _decide(config, device.value, reports, kept, auto=kept)
        warnings += [
            f"{name}={decisions[name].value} is {KEPT}; on this GPU it would be {now[name]}: "
            f"machine.{name}=auto chooses again (and changes the numbers)"
            for name in kept
            if name in now and now[name].value != decisions[name].value
        ]
    by_flags = config.precision == "auto" and device.value == "cpu" and machine.precision == "bf16"
    job_settings = JobSettings(
        *(machine, device.value, {"device": device, **decisions}, warnings + _unequal_libraries(reports)),
        both_precisions=by_flags and not machine.compile,
    )
    for report in reports:
        refuse_unable(job_settings, report)
    return job_settings


def _decide(
    config: MachineConfig,
    device: str,
    reports: Sequence[MachineReport],
    kept: Collection[str],
    auto: Collection[str] = (),
) -> dict[str, Decision]:
    """Each job-wide setting: as given, or chosen where it is `auto` or named in `auto`."""

    def given_or(name: str, decided: Decision) -> Decision:
        value = getattr(config, name)
        if value == "auto" or name in auto:
            return decided
        return Decision(value, KEPT if name in kept else SET_BY_USER)

    cpu = device == "cpu"
    compiled = given_or("compile", _compile(device, reports))
    layout = given_or("channels_last", Decision(True, "faster for convolutions"))
    cannot = _why_no_fast_path(device, compiled.value, layout.value)
    fast_path = given_or("fast_path", _fast_path(reports))
    return {
        "precision": given_or("precision", _precision(device, reports)),
        "channels_last": layout,
        "compile": compiled,
        "fast_path": Decision("off", cannot) if cannot and fast_path.value != "off" else fast_path,
        "deterministic": given_or("deterministic", Decision(cpu, "nearly free on a CPU" if cpu else "slower on a GPU")),
    }


def refuse_unable(job_settings: JobSettings, report: MachineReport) -> None:
    """Refuse a worker whose machine cannot run the job's settings, such as one that joins later."""
    if job_settings.device == "cuda" and report.device != "cuda":
        raise UserError(
            f"worker {report.worker} on {report.host} cannot take part: the job computes on GPUs",
            why=f"{report.host} has none that torch can use",
            remedy="leave that host out, or start the job with --device cpu",
        )
    if job_settings.machine.fast_path == "native" and report.no_native_code:
        raise _no_native_code(report)


def slow_warning(machine: MachineConfig, device: str, report: MachineReport) -> str:
    """A warning where a machine runs the settings slowly; empty otherwise."""
    if machine.precision == "bf16" and device == "cpu" and not report.bf16:
        return f"bf16 is slow on {report.host}: its CPU has {_NO_BF16}; --precision fp32 changes it (and the numbers)"
    return ""


def _one_per_host(reports: Sequence[MachineReport]) -> list[MachineReport]:
    return list({report.host: report for report in reversed(reports)}.values())[::-1]


def _unequal_libraries(reports: Sequence[MachineReport]) -> list[str]:
    first = reports[0]
    other = next((report for report in reports if report.libraries != first.libraries), None)
    if other is None:
        return []
    return [
        f"{first.host} has {first.libraries}, but {other.host} has {other.libraries}: their results may differ in "
        "rounding; the same versions everywhere avoid it"
    ]


def _device(config: MachineConfig, reports: Sequence[MachineReport]) -> Decision:
    types = {report.device for report in reports}
    if len(types) == 1:
        return Decision(types.pop(), "the same for all workers")
    other = next(report for report in reports if report.device != "cuda")
    return Decision("cpu", f"{other.host} has no NVIDIA GPU, and all workers compute on the same kind of device")


def _precision(device: str, reports: Sequence[MachineReport]) -> Decision:
    lacking = [report for report in reports if not report.bf16]
    if device == "cuda":
        if not lacking:
            return Decision("bf16", "the GPU computes in it")
        return Decision("fp32", f"{_where(lacking[0], reports, 'GPU')} has no bf16; --precision fp16 may be faster")
    if device != "cpu":
        return Decision("fp32", f"the safe choice on {device}")
    if lacking:
        return Decision("fp32", f"{_where(lacking[0], reports, 'CPU')} has {_NO_BF16}")
    units = " or ".join(sorted({report.bf16 for report in reports}))
    return Decision("bf16", f"{units} present" if len(reports) == 1 else f"all {len(reports)} workers have {units}")


def _where(report: MachineReport, reports: Sequence[MachineReport], part: str) -> str:
    return f"this {part}" if len(reports) == 1 else f"the {part} of {report.host} (worker {report.worker})"


def _compile(device: str, reports: Sequence[MachineReport]) -> Decision:
    lacking = next((report for report in reports if report.no_compile), None)
    if device == "cuda" and lacking is not None:
        where = "" if len(reports) == 1 else f" on {lacking.host}"
        return Decision(False, f"torch.compile cannot be used{where}: {lacking.no_compile}")
    if device == "cuda":
        return Decision(True, "pays on a GPU after a minute")
    return Decision(False, "measured no faster for convolutions on a CPU, see docs/log.md")


def _why_no_fast_path(device: str, compiled: bool, channels_last: bool) -> str:
    if device != "cpu":
        return "it is for CPUs"
    if compiled:
        return "torch.compile has its own"
    return "" if channels_last else "it is for channels_last"


def _fast_path(reports: Sequence[MachineReport]) -> Decision:
    lacking = next((report for report in reports if report.no_native_code), None)
    if lacking is None:
        return Decision("native", "the fastest algorithm for each convolution, fused batch norm")
    where = "" if len(reports) == 1 else f" on {lacking.host}"
    why = f"no native code{where}: {lacking.no_native_code}"
    return Decision("products", f"convolution gradients as matrix products; {why}")


def _no_native_code(report: MachineReport) -> UserError:
    return UserError(
        f"{report.host} (worker {report.worker}) cannot compute with machine.fast_path=native",
        why=f"there is no compiled code there: {report.no_native_code}",
        remedy="install a C compiler there; or machine.fast_path=auto, which uses what all workers have (and rounds "
        "differently)",
    )
