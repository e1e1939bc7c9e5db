"""The checks of `phalanx selftest`. Each gives a sentence and its numbers, or raises `Wrong` or `LeftOut`."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phalanx.config.schema import MachineConfig, ModelConfig
from phalanx.machine.settings import choose
from phalanx.machine.skip_dynamo import skip_dynamo
from phalanx.models.build import build_model
from phalanx.runs import checkpoint
from phalanx.runs import events as ev
from phalanx.runs.events import read_events

Found = tuple[str, dict[str, Any]]
# The most that a number may be off, relative to the CPU's in float32: loss, gradients, weights after an update.
LIMITS: Mapping[str, tuple[torch.dtype, float, float, float]] = {
    "fp32": (torch.float32, 1e-4, 1e-2, 1e-4),
    "bf16": (torch.bfloat16, 2e-2, 2e-1, 1e-2),
    "fp16": (torch.float16, 1e-2, 1e-1, 1e-2),
}
_TIMEOUT_S = 600


class LeftOut(Exception):
    """A check that this machine has nothing for. The message says why."""


class Wrong(Exception):
    """A check that found a fault."""

    def __init__(self, text: str, numbers: dict[str, Any]) -> None:
        super().__init__(text)
        self.numbers = numbers


def choose_place(device: str) -> torch.device:
    """The device that is checked."""
    skip_dynamo()
    return choose(MachineConfig(device=device, fast_path="off")).device


def numbers(place: torch.device, folder: Path) -> Found:
    """Loss, gradients and update of a small network in each precision, beside the CPU's in float32."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    expected = _one_step(torch.device("cpu"), torch.float32)
    off: dict[str, list[float]] = {}
    for name, (dtype, *limits) in LIMITS.items():
        if place.type == "cuda" and name == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
            continue
        found = _one_step(place, dtype)
        off[name] = [float((one - other).norm() / other.norm()) for one, other in zip(found, expected, strict=True)]
        if not all(each <= limit for each, limit in zip(off[name], limits, strict=True)):  # NaN is not
            raise Wrong(f"{name} is off by {_listed(off[name])}; at most {_listed(limits)} is expected", off)
    text = "; ".join(f"{name} off by {_listed(each)}" for name, each in off.items())
    return f"loss, gradients, updated weights against float32 on the CPU: {text}", off


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.1e}" for value in values)


def _model(name: str = "cifar_resnet8") -> nn.Module:
    torch.manual_seed(1)
    return build_model(ModelConfig(name=name), num_classes=10, channels=3, image_size=32)


def _one_step(place: torch.device, dtype: torch.dtype) -> list[Tensor]:
    model = _model().to(place, memory_format=torch.channels_last)  # type: ignore[call-overload]
    images, labels = torch.randn(32, 3, 32, 32), torch.arange(32) % 10
    images = images.to(place, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    with torch.autocast(place.type, dtype, enabled=dtype != torch.float32):
        loss = F.cross_entropy(model(images).float(), labels.to(place))
    scale = 1024.0 if dtype == torch.float16 else 1.0
    (loss * scale).backward()
    grads = [param.grad.div_(scale) for param in model.parameters() if param.grad is not None]
    flat = torch.cat([grad.flatten().float().cpu() for grad in grads])
    optimizer.step()
    weights = torch.cat([param.detach().flatten().cpu() for param in model.parameters()])
    return [loss.detach().cpu().reshape(1), flat, weights]


def resume(place: torch.device, folder: Path) -> Found:
    """A run, and the same run again from its middle: the same bits."""
    settings = ["machine.deterministic=true", "machine.compile=false", "train.curves=false"]
    settings += ["train.length=2ep", "checkpoint.every=1ep"]
    _phalanx("train", "digits", "--device", str(place), "--out", str(folder / "run"), *settings)
    run = folder / "run"
    kept = checkpoint.steps_saved(run / checkpoint.FOLDER)
    before = checkpoint.load(kept[-1]).tensors
    _phalanx("train", "--resume", str(run), "--at", "1ep")
    after = checkpoint.load(checkpoint.path_of(run / checkpoint.FOLDER, checkpoint.step_of(kept[-1]))).tensors
    differ = [
        f"{group}/{name}"
        for group, named in before.items()
        for name, tensor in named.items()
        if not torch.equal(tensor, after[group][name])
    ]
    figures = {"tensors": sum(map(len, before.values())), "differ": differ}
    if differ:
        raise Wrong(f"{len(differ)} of {figures['tensors']} tensors differ after a resume, first {differ[0]}", figures)
    return f"bit for bit: {figures['tensors']} tensors", figures


def speed(place: torch.device, folder: Path) -> Found:
    """A training of Phalanx as it is set up here, beside a plain loop of PyTorch; and how much it waits for data."""
    gpu = place.type == "cuda"
    model, batch, steps = ("resnet18", 128, 120) if gpu else ("cifar_resnet8", 64, 12)
    size = 64 if gpu else 32
    data = f"data.synthetic={{samples: {8 * batch}, val_samples: 64, classes: 10, size: {size}}}"
    _phalanx(
        *("train", "--data", "synthetic", "--model", model, "--device", str(place), "--out", str(folder / "run")),
        *(data, f"train.batch_size={batch}", f"train.length={steps}st", f"train.log_every={steps // 4}"),
        *("eval.every=1000ep", "train.curves=false"),
    )
    events = read_events(folder / "run")
    records = [each for each in events if each["kind"] == ev.Step.kind][1:]  # the first ones compile and warm up
    start = next(each for each in events if each["kind"] == ev.Start.kind)
    ours = statistics.median(float(each["samples_per_s"]) for each in records)
    waits = statistics.median(
        each["data_s"] / (each["data_s"] + each["compute_s"] + each["exchange_s"] + each["update_s"])
        for each in records
    )
    plain = _plain_speed(place, model, batch, size, max(4, steps // 4))
    figures = {"ours": ours, "plain_fp32": plain, "waits_for_data": waits, "decisions": start["decisions"]}
    text = (
        f"{model}, batch {batch} of {size}²: {ours:,.0f} images/s, plain PyTorch in float32 {plain:,.0f}; "
        f"{waits:.1%} of its time it waits for data"
    )
    return text, figures


def _plain_speed(place: torch.device, name: str, batch: int, size: int, steps: int) -> float:
    torch.manual_seed(1)
    model = build_model(ModelConfig(name=name), num_classes=10, channels=3, image_size=size).to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(batch, 3, size, size).to(place), (torch.arange(batch) % 10).to(place)
    begin = 0.0
    for step in range(steps + 2):
        if step == 2:
            _wait(place)
            begin = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    _wait(place)
    return batch * steps / (time.perf_counter() - begin)


def _wait(place: torch.device) -> None:
    if place.type == "cuda":
        torch.cuda.synchronize(place)


def two_workers(place: torch.device, folder: Path) -> Found:
    """A job of two workers, on two GPUs where there are two, or else on two cores; and its workers agree."""
    gpu = place.type == "cuda"
    if gpu and torch.cuda.device_count() < 2:
        raise LeftOut("it needs two GPUs, and there is one")
    where = ["--gpus", "0,1"] if gpu else ["--workers", "2", "--device", "cpu"]
    words = ["train", "digits", *where, "--update-method", "collective", "--out", str(folder / "run")]
    _phalanx(*words, "train.length=4ep", "train.batch_size=16", "machine.compile=false", "train.curves=false")
    summary = json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))
    accuracy = summary["last"]["top1"]
    figures = {"workers": summary["workers"], "top1": accuracy, "samples_per_s": summary["samples_per_s"]}
    if summary["workers"] != 2 or accuracy < 0.3:  # guessing has 0.1
        raise Wrong(f"{summary['workers']} workers reach {accuracy:.1%} on the digits in four epochs", figures)
    return f"two workers train the digits to {accuracy:.1%} in four epochs", figures


def all_reduce(place: torch.device, folder: Path) -> Found:
    """The bandwidth of sums over two workers: NCCL's between GPUs, gloo's otherwise."""
    gpu = place.type == "cuda"
    if gpu and torch.cuda.device_count() < 2:
        raise LeftOut("it needs two GPUs, and there is one")
    megabytes = 256 if gpu else 16
    out = folder / "found.json"
    words = [str(folder / "store"), "nccl" if gpu else "gloo", str(megabytes), str(out)]
    ranks = [
        subprocess.Popen([sys.executable, "-m", "phalanx.commands.selftest_worker", str(rank), *words])
        for rank in range(2)
    ]
    try:
        codes = [each.wait(timeout=_TIMEOUT_S) for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    if any(codes):
        raise Wrong(f"its workers ended with {codes}", {})
    found = json.loads(out.read_text(encoding="utf-8"))
    if not found["right"]:
        raise Wrong("the sum is wrong", found)
    return f"{found['backend']}: {found['gb_per_s']:.1f} GB/s for a sum of {megabytes} MB over two workers", found


def _phalanx(*words: str) -> None:
    """Run the command. Its last lines are in the error."""
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        env={**os.environ, "TTY_COMPATIBLE": "0"},
    )
    if done.returncode:
        last = " / ".join(done.stdout.strip().splitlines()[-6:])
        raise Wrong(f"phalanx {' '.join(words[:2])} ended with {done.returncode}: {last}", {"words": list(words)})


CHECKS: Mapping[str, Callable[[torch.device, Path], Found]] = {
    "numbers": numbers,
    "resume": resume,
    "two workers": two_workers,
    "sums": all_reduce,
    "speed": speed,
}
