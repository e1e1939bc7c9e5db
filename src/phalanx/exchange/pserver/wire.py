"""The protocol between workers and parameter servers: its kinds of messages, and their header."""

from dataclasses import dataclass
from enum import IntEnum

from phalanx.net.messages import BaseHeader, Message, Wire


class MessageKind(IntEnum):
    """What a message is. The first group goes from worker to server, the second from server to worker."""

    HELLO = 1  # are you there? → DONE
    JOIN = 2  # the job; shared memory → WELCOME
    VALUES = 3  # a slice's parameters, from rank 0 → DONE
    LOAD = 4  # a slice's optimizer state → DONE
    PUSH = 5  # a slice's gradient → UPDATED
    VOID = 6  # this step must not be applied → UPDATED
    ASK = 7  # what became of that push? → UPDATED, WAITING or MISSING
    PULL = 8  # → PARAMETERS
    STATE = 9  # a slice's optimizer state; with a step: as it was before it, with its parameters → STATES
    REDUCE = 10  # numbers to sum over workers → REDUCED, or SUMMING if it is repeated
    GOODBYE = 11  # with 1 for a slice where training is to go on later → DONE
    LOST = 12  # from the launcher: a worker is dead → DONE
    LEAVING = 13  # this worker pushes no more, but still saves → DONE
    GATHER = 14  # a text on a topic, before any worker joins → GATHERED

    WELCOME = 32
    DONE = 33
    UPDATED = 34
    WAITING = 35
    MISSING = 36
    PARAMETERS = 37
    STATES = 38
    REDUCED = 39
    FAILED = 40  # the request cannot be done, or the job cannot go on, and why
    GATHERED = 41  # every worker's text, or the ranks that are missing
    SUMMING = 42  # that sum still lacks other workers: the server lives
    GIVEN_UP = 43  # this worker was taken for lost, and why: it may join again, unless another one has its place
    STOPPING = 44  # this server was told to end: save, and leave


@dataclass(frozen=True, slots=True)
class Header(BaseHeader):
    """The fixed part of every message."""

    kind: MessageKind
    worker: int = 0
    incarnation: int = 0  # random, new each time that a worker starts
    sequence: int = 0  # counts a worker's steps or requests: a message sent twice is known by it
    step: int = -1
    slice: int = 0
    staleness: int = 0
    present: int = 0  # which pieces of the slice have a gradient, one bit each
    version: int = 0  # of the slice: the one that a push is based on, or the one that a reply brings
    rate: float = 0.0


WIRE = Wire(
    magic=b"PHLX",
    version=5,
    header=Header,
    kinds=MessageKind,
    own_fields="IQQqIIQQd",
    failed=MessageKind.FAILED,
)

ServerMessage = Message[Header]
