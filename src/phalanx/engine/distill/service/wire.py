"""The protocol between trainers and teacher processes: its kinds of messages, and their header."""

from enum import IntEnum

from phalanx.net.messages import Message, SessionHeader, Wire


class TeacherMessageKind(IntEnum):
    """What a message is. The first group goes from trainer to teacher, the second from teacher to trainer."""

    JOIN = 1  # which teachers and what views → WELCOME or UNFIT
    VIEW = 2  # a micro-batch → LOGITS, TROUBLE or UNKNOWN
    PING = 3  # → PONG or UNKNOWN
    GOODBYE = 4

    WELCOME = 32
    UNFIT = 33  # this process would compute other logits, and why
    LOGITS = 34
    TROUBLE = 35  # the logits of that view cannot be computed, and why
    PONG = 36
    UNKNOWN = 37  # that trainer has not joined: its JOIN was lost, or the process was started anew


Header = SessionHeader
WIRE = Wire(
    magic=b"PHLT",
    version=2,
    header=Header,
    kinds=TeacherMessageKind,
    own_fields="QQ",
    failed=TeacherMessageKind.TROUBLE,
)

TeacherMessage = Message[Header]
