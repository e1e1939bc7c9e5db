"""Settings that change numbers are chosen from the machines of all workers."""

from dataclasses import replace

import pytest

from phalanx.config.schema import MachineConfig
from phalanx.errors import UserError
from phalanx.machine.job_settings import KEPT, MachineReport, choose_for_job, refuse_unable, report_machine
from phalanx.machine.settings import choose, settings_for
from phalanx.native.features import LEVELS, SWITCH

BF16 = MachineReport(0, "h1", "EPYC", "cpu", "AVX512-BF16", "", "torch 2")
AMX = replace(BF16, worker=1, host="h2", cpu="Xeon", bf16="AMX")
PLAIN = replace(BF16, worker=2, host="h3", cpu="Core", bf16="")
NO_COMPILER = replace(PLAIN, worker=3, host="h4", no_native_code="PyTorch (none of the compilers is installed)")
GPU = replace(BF16, device="cuda", bf16="the GPU")


def config(**settings: object) -> MachineConfig:
    return MachineConfig.model_validate(settings)


@pytest.mark.parametrize(
    ("reports", "precision", "why"),
    [
        ([BF16], "bf16", "AVX512-BF16 present"),
        ([PLAIN], "fp32", "this CPU has neither AMX nor AVX512-BF16"),
        ([BF16, AMX], "bf16", "all 2 workers have AMX or AVX512-BF16"),
        ([BF16, AMX, PLAIN], "fp32", "the CPU of h3 (worker 2) has neither AMX nor AVX512-BF16"),
        ([GPU], "bf16", "the GPU computes in it"),
        ([GPU, replace(GPU, host="h9", worker=1, bf16="")], "fp32", "the GPU of h9 (worker 1) has no bf16"),
    ],
)
def test_precision_is_the_best_that_all_have(reports: list[MachineReport], precision: str, why: str) -> None:
    job_settings = choose_for_job(config(), reports)
    assert job_settings.machine.precision == job_settings.decisions["precision"].value == precision
    assert why in job_settings.decisions["precision"].reason


def test_nothing_that_changes_numbers_stays_open() -> None:
    machine = choose_for_job(config(), [BF16, PLAIN]).machine
    assert "auto" not in (
        *(machine.precision, machine.channels_last, machine.compile),
        *(machine.fast_path, machine.deterministic),
    )
    assert (machine.threads, machine.allocator, machine.device) == ("auto", "auto", "auto")  # each host's own


def test_every_worker_chooses_the_same() -> None:
    reports = [BF16, AMX, PLAIN, NO_COMPILER]
    arrived = [MachineReport.from_json(report.to_json()) for report in reports]
    assert arrived == reports
    assert choose_for_job(config(), arrived) == choose_for_job(config(), reports)


@pytest.mark.parametrize("level", LEVELS)
def test_each_kind_of_cpu_has_its_choice(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setenv(SWITCH, level)
    expected = "bf16" if level in ("avx512-bf16", "amx") else "fp32"
    assert choose_for_job(config(device="cpu"), [report_machine(config(device="cpu"))]).machine.precision == expected
    assert choose(config(device="cpu")).decisions["precision"].value == expected


def test_without_a_compiler_somewhere_nobody_uses_compiled_code() -> None:
    job_settings = choose_for_job(config(), [BF16, NO_COMPILER])
    assert job_settings.machine.fast_path == "products"
    assert "no native code on h4" in job_settings.decisions["fast_path"].reason
    with pytest.raises(UserError, match=r"h4 \(worker 3\) cannot compute with machine.fast_path=native") as caught:
        choose_for_job(config(fast_path="native"), [BF16, NO_COMPILER])
    assert "install a C compiler" in caught.value.remedy


def test_a_run_keeps_what_it_began_with_and_says_where_that_is_slow() -> None:
    began = choose_for_job(config(), [BF16]).machine
    job_settings = choose_for_job(began, [PLAIN, replace(PLAIN, worker=4)], kept=["precision", "fast_path"])
    assert job_settings.machine == began
    assert job_settings.decisions["precision"].reason == KEPT
    (note,) = job_settings.warnings
    assert "bf16 is slow on h3" in note
    assert "--precision fp32" in note
    again = began.model_copy(update={"precision": "auto"})
    assert choose_for_job(again, [PLAIN]).machine.precision == "fp32"


def test_a_run_of_cpus_that_goes_on_on_a_gpu_says_what_it_keeps() -> None:
    began = choose_for_job(config(), [PLAIN]).machine
    job_settings = choose_for_job(began, [GPU], kept=["precision", "compile", "deterministic", "fast_path"])
    assert job_settings.machine.precision == "fp32"
    assert len(job_settings.warnings) == 3  # the fast path is for CPUs alone
    assert "precision=fp32 is kept from the run's beginning; on this GPU it would be bf16" in job_settings.warnings[0]
    assert "machine.precision=auto chooses again" in job_settings.warnings[0]


def test_all_compute_as_the_first_was_asked_to() -> None:
    """A worker that joins later may have its settings from the run's file, where all are chosen."""
    first = replace(BF16, asked={"precision": "auto", "fast_path": "off"})
    assert (
        choose_for_job(config(precision="fp32"), [first, AMX]).machine
        == choose_for_job(config(fast_path="off"), [first]).machine
    )


def test_a_worker_that_joins_later_takes_part_or_is_refused() -> None:
    job_settings = choose_for_job(config(), [BF16, AMX])
    refuse_unable(job_settings, PLAIN)  # slow at it, but able
    with pytest.raises(UserError, match="h4"):
        refuse_unable(job_settings, NO_COMPILER)
    with pytest.raises(UserError, match="worker 2 on h3 cannot take part: the job computes on GPUs"):
        refuse_unable(choose_for_job(config(), [GPU]), PLAIN)


def test_one_host_without_a_gpu_keeps_all_on_cpus() -> None:
    job_settings = choose_for_job(config(), [GPU, PLAIN])
    assert job_settings.device == "cpu"
    assert "h3 has no NVIDIA GPU" in job_settings.decisions["device"].reason
    assert job_settings.machine.precision == "fp32"
    assert not job_settings.machine.compile


def test_other_versions_of_libraries_are_warned_of() -> None:
    (note,) = choose_for_job(config(), [BF16, replace(AMX, libraries="torch 3")]).warnings
    assert "h1 has torch 2, but h2 has torch 3" in note


def test_what_each_process_has_of_its_own_is_decided_there() -> None:
    job_settings = choose_for_job(config(threads=3), [BF16])
    settings = settings_for(job_settings, workers_here=2)
    assert settings.threads == 3
    assert str(settings.decisions["threads"]) == "3 (as you set it)"


def test_a_gpu_without_what_compiling_needs_does_not_compile() -> None:
    able = choose_for_job(config(), [GPU, replace(GPU, worker=1)]).decisions["compile"]
    assert able.value
    without = choose_for_job(config(), [GPU, replace(GPU, worker=1, host="h9", no_compile="triton needs a C compiler")])
    assert not without.machine.compile
    assert str(without.decisions["compile"]) == (
        "False (torch.compile cannot be used on h9: triton needs a C compiler)"
    )
