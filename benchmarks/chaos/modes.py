"""The update methods of the table, and the job that all of them run."""

from dataclasses import dataclass
from pathlib import Path

STEPS = 138  # three epochs of 46 steps
SAVE_EVERY, FAULT_AT = 20, 50
WORKER_SAMPLES = 16

# 1,442 digits in steps of 32. One thread and fp32: sums are the same wherever they are made.
_TRAINING = ["digits", "model.name=wrn10_1", "machine.threads=1", "machine.precision=fp32", "train.curves=false"]
_TRAINING += [f"train.length={STEPS}st", "train.global_batch_size=32", "train.log_every=1", "eval.every=100%"]
_TRAINING += [f"checkpoint.every={SAVE_EVERY}st", "exchange.timeout_s=60"]


@dataclass(frozen=True)
class Mode:
    """One update method. `lockstep`: all workers take every step together."""

    name: str
    workers: int
    servers: int
    words: tuple[str, ...] = ()
    lockstep: bool = True

    @property
    def launch(self) -> list[str]:
        """Options of `phalanx launch`."""
        return ["-n", str(self.workers), *(["-s", str(self.servers)] if self.servers else [])]

    @property
    def hit(self) -> str:
        """The worker that faults happen to: the last one."""
        return f"trainer-{self.workers - 1}"


MODES = {
    mode.name: mode
    for mode in (
        Mode("local", 1, 0, ("train.micro_batches=2",)),
        Mode("collective", 2, 0),
        Mode("sync", 2, 1),
        Mode("async", 2, 1, ("exchange.mode=async",), lockstep=False),
        Mode("ssp", 2, 1, ("exchange.mode=ssp:2",), lockstep=False),
    )
}


def training(mode: Mode, control: Path, silence_s: float) -> list[str]:
    """What comes after `train`."""
    loss = [f"loss.name={Path(__file__).with_name('paced.py')}:paced", f"loss.options={{control: {control}}}"]
    return [*_TRAINING, *mode.words, *loss, "loss.label_smoothing=0", f"exchange.silence_s={silence_s:g}"]
