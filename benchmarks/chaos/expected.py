"""What is promised: for each fault, mode and number of restarts, what follows and what the message names.

One table. A cell that deviates is marked, and the command fails.
"""

from dataclasses import dataclass

from benchmarks.chaos.modes import Mode

GOES_ON, ENDS = "goes on", "ends"
RESUMES = "ends, and can be resumed"


@dataclass(frozen=True)
class Expected:
    """What follows, and expressions of what the message has to name."""

    outcome: str
    names: tuple[str, ...] = ()


def on(*names: str) -> Expected:
    return Expected(GOES_ON, names)


def resumes(*names: str) -> Expected:
    return Expected(RESUMES, names)


def ends(*names: str) -> Expected:
    return Expected(ENDS, names)


HIT = r"(trainer-|worker ){hit}\b"  # the worker that faults happen to
HOST = r"\bh3\b"
HIT_IS_STOPPED, HIT_LACKS_MEMORY = r"trainer-{hit} on \S+ is stopped", r"trainer-{hit} on .*(memory|OOM)"
SERVER_IS_STOPPED = r"server-0 on \S+ is stopped"
SERVER = r"(server-|parameter server )0\b"
# The most specific key counts: "MODE RESTARTS", "MODE", "RESTARTS", "".
TABLE: dict[str, dict[str, Expected]] = {
    "none": {"": on()},
    "none, JPEGs": {"": on()},
    "Ctrl-C": {"": resumes("SIGINT")},
    "kill -9 of a worker": {"0": resumes(HIT, "SIGKILL"), "1": on(HIT, "SIGKILL")},
    "kill -9 of a server": {"0": resumes(SERVER, "SIGKILL"), "1": on(SERVER, "SIGKILL")},
    "kill -9 of the launcher": {"": resumes()},
    "kill -9 of a data server": {"": on("data-0", "SIGKILL")},
    "kill -9 of an agent": {"0": resumes(HIT, HOST), "1": on(HIT, HOST)},
    "SIGSTOP of a worker, 5 s": {"": on()},
    "SIGSTOP of a worker, 60 s": {
        "0": resumes(HIT_IS_STOPPED),
        "1": on(HIT_IS_STOPPED),
        "local": on(),
        "async": on(HIT),
        "ssp": on(HIT),
    },
    "SIGSTOP of a worker, for ever": {
        "0": resumes(HIT_IS_STOPPED),
        "1": on(HIT_IS_STOPPED),
        "local": on(),
        "async": on(HIT),
        "ssp": on(HIT),
    },
    "SIGSTOP of a server, 5 s": {"": on()},
    "SIGSTOP of a server, 60 s": {"0": resumes(SERVER_IS_STOPPED), "1": on(SERVER_IS_STOPPED)},
    "SIGSTOP of a server, for ever": {"0": resumes(SERVER_IS_STOPPED), "1": on(SERVER_IS_STOPPED)},
    "partition, both ways": {"0": resumes(HIT, HOST), "1": on(HIT, HOST)},
    "partition, one way": {"0": resumes(HIT, HOST), "1": on(HIT, HOST)},
    "link cut": {"0": resumes(HIT, HOST), "1": on(HIT, HOST)},
    "delay of 40 to 60 ms": {"": on()},
    "loss of 3 % of packets": {"": on()},
    "disk full": {"": resumes("[Nn]o space left")},
    "truncated checkpoint": {"": on(), "0": on("damaged"), "local": on("damaged")},
    "bit flip in a record": {"": on("checksum|CRC|crc")},
    "corrupt JPEG": {"": on(r"(0700|0900|1100)\.jpg")},
    "out of memory": {"0": resumes(HIT_LACKS_MEMORY), "1": on(HIT_LACKS_MEMORY)},
    "NaN": {"": resumes("not finite|nan|NaN")},
    "clock jumps": {"": on()},
    "some ports are busy": {"": on()},
    "all ports are busy": {"": ends("17000-17011"), "local": on()},
    "stranger on each port": {"": on()},
    "version skew": {"": ends(HOST, "version|differ")},
}


def expected(fault: str, mode: Mode, restarts: int) -> Expected:
    rules = TABLE[fault]
    keys = (f"{mode.name} {restarts}", mode.name, str(restarts), "")
    found = next(rules[key] for key in keys if key in rules)
    rank = mode.hit.rpartition("-")[2]
    return Expected(found.outcome, tuple(name.replace("{hit}", rank) for name in found.names))
