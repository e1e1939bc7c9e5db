"""A trainer's connection to one teacher process: asking for the logits of views. Nothing here waits."""

import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Any

import zmq
from torch import Tensor

from phalanx.engine.distill.service.body import unpack_logits
from phalanx.engine.distill.service.wire import WIRE, Header, TeacherMessage, TeacherMessageKind
from phalanx.errors import UserError
from phalanx.net.control import Refused, as_json
from phalanx.net.encryption import Encrypt
from phalanx.net.messages import Buffer, unpack_error
from phalanx.net.request_link import RequestLink


class Link(RequestLink[Header, Tensor]):
    """A connection to a teacher process."""

    server, other, units = "teacher", "compute other logits", "micro-batches"

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: str,
        key: str,
        terms: Mapping[str, Any],
        notify: Callable[[str], None],
        encrypt: Encrypt = "auto",
    ) -> None:
        """`terms` say which teachers and what views: what a JOIN has."""
        self._terms = terms
        self.owed: set[int] = set()  # numbers of the requests that the process has not answered
        self.loading = False  # whether the process loads the teachers, which may take long
        super().__init__(context, address, key, WIRE, notify, encrypt)

    def ask(self, number: int, control: bytes, body: Buffer) -> bool:
        """Ask for the logits of a view. False if the process cannot be reached."""
        if not self._request(self._header("VIEW", number), control, body):
            return False
        self.owed.add(number)
        return True

    @property
    def _owed(self) -> Collection[int]:
        return self.owed

    @property
    def _may_join(self) -> bool:
        return not (self.joined or self.loading)

    @property
    def _awaits_reply(self) -> bool:
        return self.loading or super()._awaits_reply

    def _at_work(self) -> str:
        if self.joined:
            return "answers"
        return "loads the teachers" if self.loading else ""

    def _handle(self, message: TeacherMessage) -> Tensor | UserError | None:
        header = message.header
        match header.kind:
            case TeacherMessageKind.WELCOME:
                self.joined, self.loading = True, False
                self._notify(f"the teacher at {self.address} joined")
            case TeacherMessageKind.UNFIT:
                self.loading = False
                self._not_used(message)
            case TeacherMessageKind.UNKNOWN:
                self._lose("was started anew")
            case TeacherMessageKind.PONG:
                pass
            case TeacherMessageKind.LOGITS | TeacherMessageKind.TROUBLE:
                if header.number not in self.owed:
                    raise Refused("number")
                self.owed.remove(header.number)
                if header.kind is TeacherMessageKind.TROUBLE:
                    return unpack_error(message.control)
                return unpack_logits(message.control, message.body)
            case _:
                raise Refused("kind")
        return None

    def _join(self) -> None:
        self._session, self.loading, self._quiet_s, self._asked_s = secrets.randbits(62) + 1, True, 0.0, 0.0
        self._send(self._header("JOIN"), as_json(dict(self._terms)))

    def _end_session(self) -> None:
        self.loading = False
        self.owed.clear()
