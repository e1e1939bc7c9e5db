"""Settings chosen for a machine: each with its reason, and what cannot be had is refused."""

import platform
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from phalanx.config.schema import MachineConfig
from phalanx.errors import UserError
from phalanx.machine.cores import cores
from phalanx.machine.job_settings import Decision
from phalanx.machine.settings import WORTH_THREADS, Settings, choose
from tests.data.samples import assert_helpful

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is tuned")


def chosen(workers_here: int = 1, local_rank: int = 0, **machine: object) -> Settings:
    return choose(MachineConfig.model_validate({"fast_path": "off", **machine}), workers_here, local_rank)


def test_cores_are_shared_by_the_workers_of_the_machine() -> None:
    here = cores()
    assert chosen().threads == here
    assert str(chosen().decisions["threads"]) == f"{here} ({here} cores, 1 worker)"
    assert chosen(workers_here=2).threads == max(1, here // 2)
    assert chosen(workers_here=2).decisions["threads"].reason == f"{here} cores, 2 workers"
    assert chosen(workers_here=1000).threads == 1
    assert chosen(workers_here=2, threads=5).decisions["threads"] == Decision(5, "as you set it")


def test_a_small_step_has_one_thread() -> None:
    two = replace(chosen(device="cpu"), threads=2)
    small = two.for_work(0.1 * WORTH_THREADS)
    assert small.threads == small.decisions["threads"].value == 1
    assert "GFLOP a micro-batch: 2 gain little" in small.decisions["threads"].reason
    assert two.for_work(WORTH_THREADS) == two.for_work(None) == two  # enough, or nobody knows
    given = chosen(device="cpu", threads=2)
    assert given.for_work(1.0) == given


@no_gpu
def test_the_device_is_what_is_there_or_what_is_set() -> None:
    if not torch.backends.mps.is_available():
        assert str(chosen().decisions["device"]) == "cpu (no GPU found)"
    assert str(chosen(device="cpu").decisions["device"]) == "cpu (as you set it)"
    for device in ("cuda:77", "tpux"):
        with pytest.raises(UserError) as caught:
            chosen(device=device, precision="fp32")
        assert_helpful(caught.value, f"the device '{device}' cannot be used", "machine.device=auto", "phalanx doctor")
    with pytest.raises(UserError) as caught:
        chosen(gpus=[0], precision="fp32")
    assert_helpful(caught.value, "there is no GPU for --gpus 0", "leave it out")


@glibc
def test_freed_memory_is_kept_where_activations_are() -> None:
    assert str(chosen(device="cpu").decisions["allocator"]) == (
        "keep (freed memory is reused, not returned to the kernel)"
    )
    for choice in ("keep", "system"):
        assert chosen(allocator=choice).decisions["allocator"] == Decision(choice, "as you set it")
    assert chosen(device="meta", precision="fp32").decisions["allocator"].value == "system"


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_autocast_computes_in_the_chosen_precision(precision: str, dtype: torch.dtype) -> None:
    settings = chosen(device="cpu", precision=precision)
    assert settings.dtype == dtype
    assert settings.decisions["precision"].reason == "as you set it"
    with settings.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


def test_layout_and_every_reason_are_there() -> None:
    assert chosen().memory_format == torch.channels_last
    assert chosen(channels_last=False).memory_format == torch.contiguous_format
    decisions = chosen().decisions
    names = ("device", "precision", "channels_last", "compile", "fast_path", "deterministic", "threads", "allocator")
    assert set(names) <= decisions.keys()
    assert all(decision.reason for decision in decisions.values())


@pytest.fixture
def process_settings() -> Iterator[None]:
    """Gives back what `apply` changes for the whole process."""
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    yield
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode(mode)


def test_a_process_runs_with_what_is_applied(process_settings: None) -> None:
    chosen(threads=1, allocator="system", deterministic=True).apply()
    assert torch.get_num_threads() == 1
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    chosen(threads=2, allocator="system", deterministic=False).apply()
    assert torch.get_num_threads() == 2
    assert not torch.are_deterministic_algorithms_enabled()
