"""CUDA paths, rehearsed: real code of Phalanx with tensors of `cuda:0` that have no data. A device or dtype that does
not fit shows without a GPU; numbers do not. `python -m tests.cuda.rehearse` prints what each rehearsal found, as JSON.
"""

import json
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from phalanx.config.role import Role
from phalanx.config.schema import MachineConfig
from phalanx.data.base import Batch
from phalanx.data.gpu_copies import GpuCopies
from phalanx.data.order import Share
from phalanx.engine.evaluate import evaluate
from phalanx.engine.state import LossScale
from phalanx.engine.step import Measurements, train_step
from phalanx.exchange.base import LostWorker
from phalanx.exchange.collective.group import CollectiveGroup, join_group
from phalanx.exchange.collective.peer_watch import abort_nccl
from phalanx.exchange.make import make_exchange
from phalanx.exchange.rendezvous import LocalRendezvous
from phalanx.machine.settings import choose
from phalanx.machine.system import SystemMeter
from phalanx.optim.schedule import make_schedule
from tests.cuda.fake_gpu import GPU, fake_gpu, on_gpu
from tests.engine.tiny import TinyRun, network, tiny_run

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def gpu_run(*settings: str, precision: str = "fp32", model: nn.Module | None = None) -> tuple[TinyRun, Batch]:
    """A tiny run on the GPU, and its first batch. Call it where tensors have data."""
    tiny = tiny_run(*settings, model=model or network(norm=True, drop=0.1))
    machine = replace(tiny.engine.settings, device=GPU, dtype=DTYPES[precision])
    tiny.engine = replace(tiny.engine, settings=machine, inputs=replace(tiny.engine.inputs, settings=machine))
    tiny.state.loss_scale = LossScale() if precision == "fp16" else None
    return tiny, tiny.batch()


def move(tiny: TinyRun) -> None:
    """Its models to the GPU, and an optimizer for them."""
    on_gpu(tiny.state.model)
    if tiny.state.ema is not None:
        on_gpu(tiny.state.ema.model)
    config, plan = tiny.config, tiny.plan
    schedule = make_schedule(config.schedule, peak=config.optim.lr, total=plan.total_steps, in_steps=plan.in_steps)
    tiny.exchange = make_exchange(config, tiny.state.model, schedule, Role(), tiny.engine.settings, LocalRendezvous())


def steps(
    *settings: str, precision: str = "fp32", model: nn.Module | None = None, finite: bool = True
) -> dict[str, Any]:
    """Two steps: what the second one waited for, and where its tensors are."""
    tiny, batch = gpu_run(*settings, precision=precision, model=model)
    with fake_gpu(finite) as waits:
        move(tiny)
        train_step(tiny.state, batch, tiny.exchange, tiny.engine)
        waits.log.clear()
        measured: Measurements = train_step(tiny.state, batch, tiny.exchange, tiny.engine)
        log = waits.log.copy()
        last_backward = len(log) - 1 - log[::-1].index("backward")
        tensors, _ = tiny.exchange.state.optimizer_state()
        held = [*tensors.values(), *tiny.state.model.state_dict().values()]
        if tiny.state.ema is not None:
            held += tiny.state.ema.model.state_dict().values()
    return {
        "waits": waits.count,
        "devices": sorted({str(each.device) for each in held}),
        "skipped": measured.skipped,
        "first_wait_is_after_backward": log.index("read") > last_backward,
        "update_follows": log[-1] == "work",
    }


def evaluation() -> dict[str, Any]:
    tiny, batch = gpu_run(precision="bf16")
    with fake_gpu() as waits:
        on_gpu(tiny.state.model)
        seen: list[Tensor] = []
        for _ in range(2):
            waits.log.clear()
            totals = evaluate(
                tiny.state.model, (each for each in [batch]), tiny.engine, watch=lambda _, logits: seen.append(logits)
            )
    return {"waits": waits.count, "samples": totals.samples, "device": str(seen[0].device), "dtype": str(seen[0].dtype)}


class Forgetful(nn.Module):
    """A user's network whose constant is no buffer: it stays on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = network(), torch.ones(1, 4)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.inner(images) * self.scale
        return out


def mismatch() -> dict[str, Any]:
    try:
        steps(model=Forgetful())
    except RuntimeError as error:
        return {"error": str(error)}
    return {}


def resume() -> dict[str, Any]:
    """The optimizer's state of a run on a CPU, as a checkpoint has it, goes to the parameters' device and layout."""
    found: dict[str, Any] = {}
    for name in ("sgd", "adamw"):
        before = tiny_run(f"optim.name={name}", "optim.momentum=0.9", model=network(norm=True))
        train_step(before.state, before.batch(), before.exchange, before.engine)
        tensors, scalars = before.exchange.state.optimizer_state()
        saved = {key: value.contiguous() for key, value in tensors.items()}
        tiny, batch = gpu_run(f"optim.name={name}", "optim.momentum=0.9")
        with fake_gpu():
            move(tiny)
            tiny.exchange.state.load(saved, scalars)
            train_step(tiny.state, batch, tiny.exchange, tiny.engine)
            loaded, _ = tiny.exchange.state.optimizer_state()
            params = dict(tiny.state.model.named_parameters())
            found[name] = {
                "devices": sorted({str(each.device) for each in loaded.values()}),
                "same_layout": all(
                    value.stride() == params[key.rpartition("/")[0]].stride()
                    for key, value in loaded.items()
                    if value.ndim
                ),
                "same_slots": loaded.keys() == saved.keys(),
            }
    return found


def settings() -> dict[str, Any]:
    """Which GPU each worker gets, and that it is the current one before anything is set up on it."""
    found: dict[str, Any] = {}
    for rank in range(2):
        chosen = choose(MachineConfig(device="auto", deterministic=True), 2, rank)
        chosen.apply()
        found[f"worker {rank}"] = str(chosen.decisions["device"]), torch.cuda.current_device()
    found["alone"] = str(choose(MachineConfig(device="cuda"), 1, 0).device)
    found["precision"] = str(choose(MachineConfig()).decisions["precision"])
    found["figures"] = [each["gpu"] for each in SystemMeter().read().gpus]
    torch.set_deterministic_debug_mode("default")
    torch.cuda.set_device(0)
    return found


def copies() -> list[str]:
    """The order of copies and events of a batch, and of its use on the computing stream."""
    log: list[str] = []
    inside: list[Any] = []
    real = torch.cuda.Stream, torch.cuda.Event, torch.cuda.current_stream, torch.cuda.stream

    class Stream(torch.cuda.Stream):
        def wait_event(self, event: Any) -> None:
            log.append(f"{called(self)} waits for the event")

    class Event(torch.cuda.Event):
        def record(self, stream: Any = None) -> None:
            log.append(f"event recorded on {called(stream)}")

    class Within:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            inside.append(self.stream)

        def __exit__(self, *error: Any) -> None:
            inside.pop()

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func is torch.ops.aten._to_copy.default:
                log.append(f"copy on {called(current())}{'' if kwargs.get('non_blocking') else ', which waits'}")
            if func is torch.ops.aten.record_stream.default:
                log.append(f"memory kept for {called(current())}")
                return None
            return func(*args, **kwargs)

    computing = Stream(GPU)

    def called(stream: Any) -> str:
        return "the computing stream" if stream is computing else "its own stream"

    def current(device: Any = None) -> Any:
        return inside[-1] if inside else computing

    cuda: Any = torch.cuda
    cuda.Stream, cuda.Event, cuda.current_stream, cuda.stream = Stream, Event, current, Within
    try:
        images, labels = torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)
        with FakeTensorMode(allow_non_fake_inputs=True), Log():
            started = GpuCopies(GPU).start(images, labels)
            log.append("used")
            started.arrived()
    finally:
        cuda.Stream, cuda.Event, cuda.current_stream, cuda.stream = real
    return log


class OwnWatch:
    """A watch over workers of which one is lost, or none."""

    aborts_nccl = False

    def __init__(self, loss: LostWorker | None = None) -> None:
        self.loss = loss

    def lost(self) -> LostWorker | None:
        return self.loss

    def known(self) -> LostWorker | None:
        return self.loss


class TwoWorkers:
    """The rendezvous of worker 1 of two: the other one has said the same of itself, but for its GPU."""

    def __init__(self, log: list[str]) -> None:
        self.role, self.peers, self.store, self._log = (
            Role("trainer", 1, 2),
            OwnWatch(),
            SimpleNamespace(plain=None),
            log,
        )

    def gather(self, topic: str, text: str) -> list[str]:
        self._log.append(topic)
        host, _, name = json.loads(text)
        return [json.dumps([host, "another", name]), text]


def nccl() -> dict[str, Any]:
    """Setting up NCCL and sums over workers: what is called, in which order, and where."""
    log: list[str] = []
    real_init, real_set, real_sum = dist.init_process_group, torch.cuda.set_device, dist.all_reduce

    def init(backend: str, **given: Any) -> None:
        log.append(f"init {backend} on {given['device_id']}, current {torch.cuda.current_device()}")
        real_init("fake", store=FakeStore(), rank=given["rank"], world_size=given["world_size"])

    def set_device(device: Any) -> None:
        log.append(f"set_device {device}")
        real_set(device)

    def all_reduce(tensor: Tensor, **given: Any) -> Any:
        log.append(f"sum {tensor.device} {tensor.dtype}")
        return real_sum(tensor, **given)

    replaced: Any = dist
    replaced.init_process_group, replaced.all_reduce = init, all_reduce
    torch.cuda.set_device = set_device
    second = torch.device("cuda", 1)
    watch = OwnWatch()
    try:
        peers: Any = join_group(TwoWorkers(log), second, 60.0)  # type: ignore[arg-type]
        with fake_gpu():
            group = CollectiveGroup(Share(1, 2), second, watch)  # type: ignore[arg-type]
            group.sum([1.0, 2.0])
            group.mean(torch.zeros(3, device=second))
            gathered = group.gather(torch.zeros(3))
            watch.loss = LostWorker("gone")
            try:
                group.sum([1.0])
                refused = False
            except LostWorker:
                refused = True
        abort_nccl()
        kept = dist.is_initialized()
    finally:
        replaced.init_process_group, replaced.all_reduce = real_init, real_sum
        torch.cuda.set_device = real_set
        torch.cuda.set_device(0)
        if dist.is_initialized():
            dist.destroy_process_group()
    return {"log": log, "aborts": peers.aborts_nccl, "gathered": len(gathered), "refused": refused, "kept": kept}


REHEARSALS: dict[str, Callable[[], Any]] = {
    "fp32": steps,
    "bf16, all of it": lambda: steps(
        "optim.ema=0.9",
        "optim.momentum=0.9",
        "train.micro_batches=2",
        "augment={mixup: 0.2, cutmix: 1.0, erase: 0.5}",
        precision="bf16",
    ),
    "fp16": lambda: steps("optim.ema=0.9", "optim.accumulate=2", precision="fp16"),
    "fp16, overflow": lambda: steps("optim.ema=0.9", precision="fp16", finite=False),
    "clipped": lambda: steps("optim.clip_norm=1", "optim.name=adamw"),
    "timm's optimizer": lambda: steps("optim.name=lamb"),
    "muon": lambda: steps("optim.name=muon-sgd"),
    "bce": lambda: steps("loss.name=bce"),
    "evaluation": evaluation,
    "mismatch": mismatch,
    "resume": resume,
    "settings": settings,
    "copies": copies,
    "nccl": nccl,
}


def main(names: list[str]) -> None:
    found = {}
    for name in names or REHEARSALS:
        try:
            found[name] = REHEARSALS[name]()
        except Exception:
            found[name] = {"failed": traceback.format_exc()}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
