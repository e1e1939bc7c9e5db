"""CUDA paths without a GPU: what `rehearse.py` finds in a process that has a CUDA runtime without kernels preloaded."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
COMPILER = shutil.which("gcc") or shutil.which("cc")
HEADERS = sorted(Path(torch.__file__).parents[1].glob("nvidia/*/include/driver_types.h"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or COMPILER is None or not HEADERS or (torch.version.cuda or "").split(".")[0] != "13",
        reason="the rehearsal is for Linux, a C compiler, and torch's wheel with CUDA 13",
    ),
    pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU: phalanx selftest tries the real one"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("stub")
    library = folder / "libcuda.so.1"
    include = ["-I", str(HERE / "include"), "-I", str(HEADERS[0].parent)]
    command = [str(COMPILER), "-shared", "-fPIC", "-w", *include, "-o", str(library), str(HERE / "stub.c")]
    subprocess.run([*command, "-Wl,-soname,libcuda.so.1"], check=True, timeout=60)
    environment = {**os.environ, "LD_PRELOAD": str(library), "LD_LIBRARY_PATH": str(folder), "PHALANX_COLD": "1"}
    root = HERE.parents[1]
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.cuda.rehearse"],
        env=environment,
        cwd=root,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    everything: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return everything


@pytest.mark.parametrize(
    ("name", "waits", "skipped"),
    [
        ("fp32", 1, False),  # for the loss, before the update
        ("bf16, all of it", 1, False),  # whatever the number of micro-batches
        ("fp16", 2, False),  # and for whether all gradients are finite
        ("fp16, overflow", 2, True),
        ("clipped", 2, False),  # and for the norm, which is reported
        ("timm's optimizer", 1, False),
        ("muon", 1, False),
        ("bce", 1, False),
    ],
)
def test_a_step_stays_on_the_gpu_and_hardly_waits(found: dict[str, Any], name: str, waits: int, skipped: bool) -> None:
    step = found[name]
    assert "failed" not in step, step["failed"]
    assert step["devices"] == ["cuda:0"]
    assert step["waits"] == waits
    assert step["first_wait_is_after_backward"]
    assert step["skipped"] == skipped
    if waits == 1:
        assert step["update_follows"]


def test_evaluation_waits_once_a_batch(found: dict[str, Any]) -> None:
    assert found["evaluation"] == {"waits": 1, "samples": 8, "device": "cuda:0", "dtype": "torch.bfloat16"}


def test_a_rehearsal_shows_a_tensor_in_the_wrong_place(found: dict[str, Any]) -> None:
    assert "cuda:0 and cpu" in found["mismatch"]["error"]


def test_an_optimizer_goes_on_where_its_parameters_are(found: dict[str, Any]) -> None:
    for state in found["resume"].values():
        assert state == {"devices": ["cuda:0"], "same_layout": True, "same_slots": True}


def test_each_worker_has_its_gpu_and_asks_about_no_other(found: dict[str, Any]) -> None:
    settings = found["settings"]
    for rank in range(2):
        assert settings[f"worker {rank}"] == [
            f"cuda:{rank} (found a GPU without kernels; worker {rank} of this machine)",
            rank,
        ]
    assert settings["alone"] == "cuda:0"
    assert settings["precision"] == "bf16 (the GPU computes in it)"
    assert settings["figures"] == [1]  # the current one


def test_a_copy_runs_on_its_own_stream_and_the_computing_stream_waits_for_it(found: dict[str, Any]) -> None:
    own, computing = "its own stream", "the computing stream"
    assert found["copies"] == [
        *[f"copy on {own}"] * 2,
        f"event recorded on {own}",
        "used",
        f"{computing} waits for the event",
        *[f"memory kept for {computing}"] * 2,
    ]


def test_nccl_is_set_up_on_the_workers_own_gpu_and_an_aborted_sum_is_refused(found: dict[str, Any]) -> None:
    nccl = found["nccl"]
    assert nccl["log"][:3] == ["set_device cuda:1", "gpu", "init nccl on cuda:1, current 1"]
    assert all(each.startswith("sum cuda:1 ") for each in nccl["log"][3:])
    assert nccl["aborts"]
    assert nccl["refused"]
    assert nccl["kept"]  # an aborted group is still there: calls fail as those of a lost worker do
