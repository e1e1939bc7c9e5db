"""The faults of the table: what each does, where, and how long it is watched."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from benchmarks.chaos import file_faults as files
from benchmarks.chaos import network_faults as network
from benchmarks.chaos import process_faults as processes
from benchmarks.chaos.cell import Cell
from benchmarks.chaos.modes import Mode
from benchmarks.chaos.process_faults import FOR_EVER_S

Act = Callable[[Cell], None]
SILENT_S = 15.0  # a launcher takes a host for lost after 10 s


def nothing(cell: Cell) -> None:
    pass


@dataclass(frozen=True)
class Fault:
    """`prepare` comes before the job, `act` in the middle of it; with `at_start` nothing happens in the middle.

    `watch_s`: how long the job has to go on before it counts as going on. `lasts_s`: how long the fault stays at work.
    `jpegs`: the run is compared with an undisturbed one of the same images.
    """

    name: str
    act: Act = nothing
    prepare: Act = nothing
    on_hosts: bool = False
    needs_server: bool = False
    at_start: bool = False
    watch_s: float = 3.0
    lasts_s: float = 0.0
    words: tuple[str, ...] = field(default=())
    jpegs: bool = False

    def why_not(self, mode: Mode) -> str:
        """Why it does not exist in a mode; empty where it does."""
        if self.needs_server and not mode.servers:
            return f"{mode.name} has no parameter server"
        return ""


def _stop(what: str, act: Callable[[float, Cell], None], *, server: bool = False) -> list[Fault]:
    spans = {"5 s": 5.0, "60 s": 60.0, "for ever": FOR_EVER_S}
    return [
        Fault(
            f"SIGSTOP of {what}, {said}",
            partial(act, seconds),
            needs_server=server,
            watch_s=SILENT_S if seconds == FOR_EVER_S else 3.0,
            lasts_s=seconds,
        )
        for said, seconds in spans.items()
    ]


NONE = Fault("none")
NONE_JPEG = Fault("none, JPEGs", prepare=files.whole_jpegs, jpegs=True)
FAULTS = {
    fault.name: fault
    for fault in [
        Fault("Ctrl-C", processes.interrupt),
        Fault("kill -9 of a worker", processes.kill_worker),
        Fault("kill -9 of a server", processes.kill_server, needs_server=True),
        Fault("kill -9 of the launcher", processes.kill_launcher),
        Fault("kill -9 of a data server", processes.kill_data_server, words=("--data-servers", "1")),
        Fault("kill -9 of an agent", processes.kill_agent, on_hosts=True),
        *_stop("a worker", processes.stop_worker),
        *_stop("a server", processes.stop_server, server=True),
        Fault("partition, both ways", network.partition, on_hosts=True, watch_s=SILENT_S),
        Fault("partition, one way", network.one_way, on_hosts=True, watch_s=SILENT_S),
        Fault("link cut", network.cut, on_hosts=True, watch_s=SILENT_S),
        Fault("delay of 40 to 60 ms", network.delay, on_hosts=True),
        Fault("loss of 3 % of packets", network.loss, on_hosts=True),
        Fault("disk full", files.fill_disk, prepare=files.own_disk),
        Fault("truncated checkpoint", files.truncate_checkpoint),
        Fault("bit flip in a record", prepare=files.flip_bit, at_start=True, jpegs=True),
        Fault("corrupt JPEG", prepare=files.corrupt_jpeg, at_start=True, jpegs=True),
        Fault("out of memory", processes.out_of_memory),
        Fault("NaN", files.not_a_number),
        Fault("clock jumps", files.jump_clock, prepare=files.shim_clock),
        Fault("some ports are busy", prepare=network.take_some_ports, on_hosts=True, at_start=True),
        Fault("all ports are busy", prepare=network.take_all_ports, on_hosts=True, at_start=True),
        Fault(
            "stranger on each port",
            network.strangers,
            on_hosts=True,
            watch_s=6.0,
            words=("--data-servers", "1"),
        ),
        Fault("version skew", prepare=network.skew, on_hosts=True, at_start=True),
    ]
}
