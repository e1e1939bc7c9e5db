"""The launcher's end of lines that agents open to it: whoever dials in and says the word is as if ssh had led there."""

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

import zmq
import zmq.asyncio
from zmq.utils import z85

from phalanx.errors import UserError
from phalanx.launch.addresses import hold_ports, join_address
from phalanx.launch.channel import Channel, Loss
from phalanx.launch.launchers.callback_agent import GREET, Invitation, harden
from phalanx.launch.messages import PING_S, Message, decode, encode


@dataclass(eq=False)
class Caller:
    """An agent that dialed in. It has a channel as soon as the conductor opens one."""

    identity: bytes
    address: str
    hear: Callable[[Message], None] | None = None
    lose: Callable[[Loss], None] | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class CallbackServer:
    """Listens at an address of this host, for `expected` callers; more are sent away."""

    def __init__(self, address: str, expected: int, ports: tuple[int, int] | None = None) -> None:
        self.callers: list[Caller] = []
        self._expected = expected
        self._changed = asyncio.Event()
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        public, secret = zmq.curve_keypair()
        self._socket.curve_server = True
        self._socket.curve_publickey, self._socket.curve_secretkey = public, secret
        (held,) = hold_ports(address, 1, ports)
        place = f"tcp://{join_address(address, held.getsockname()[1])}"
        held.close()
        harden(self._socket, place)
        try:
            self._socket.bind(place)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise UserError(
                f"the launcher cannot listen at {place}",
                why=error.strerror or str(error),
                remedy="choose ports with --port-range, or the network with --iface",
            ) from error
        self.invitation = Invitation(place, z85.decode(public), secrets.token_hex(32))
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._ping())]

    async def wait(self, timeout_s: float) -> bool:
        """Whether all have dialed in, after so long at most."""
        if len(self.callers) < self._expected:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout_s)
        return len(self.callers) >= self._expected

    def channel(self, caller: Caller, hear: Callable[[Message], None], lose: Callable[[Loss], None]) -> Channel:
        caller.hear, caller.lose = hear, lose
        self.send(caller, {"do": GREET})
        return _CallbackChannel(self, caller)

    def send(self, caller: Caller, message: Message) -> None:
        self._socket.send_multipart([caller.identity, encode(message)])

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._context.destroy(linger=1000)

    async def _listen(self) -> None:
        while True:
            frames = await self._socket.recv_multipart()
            message = decode(frames[-1])
            caller = next((one for one in self.callers if one.identity == frames[0]), None)
            if message is None or len(frames) != 2:
                continue
            if caller is None:
                self._admit(frames[0], message)
            elif message.get("say") == "bye":
                caller.gone.set()
                if caller.hear is None:
                    self.callers.remove(caller)
                elif caller.lose is not None:
                    caller.lose(Loss(None, ("the cluster told it to end",)))
            elif caller.hear is not None and "say" in message:
                caller.hear(message)

    def _admit(self, identity: bytes, message: Message) -> None:
        """Who does not know the word is not answered."""
        if not hmac.compare_digest(str(message.get("dial")), self.invitation.word):
            return
        caller = Caller(identity, str(message.get("address")))
        if len(self.callers) >= self._expected:
            self.send(caller, {"do": "bye"})
            return
        self.callers.append(caller)
        self.send(caller, {"do": "ping"})
        self._changed.set()

    async def _ping(self) -> None:
        """Those who wait for the others would take silence for the launcher's end; the conductor pings the rest."""
        while True:
            for caller in self.callers:
                if caller.hear is None:
                    self.send(caller, {"do": "ping"})
            await asyncio.sleep(PING_S)


class _CallbackChannel:
    def __init__(self, bridge: CallbackServer, caller: Caller) -> None:
        self._bridge, self._caller = bridge, caller

    def send(self, message: Message) -> None:
        self._bridge.send(self._caller, message)

    async def close(self) -> None:
        self._caller.lose = None
        self.send({"do": "bye"})
        await self._caller.gone.wait()

    def cut(self) -> None:
        """It hears nothing more, and ends by itself."""
        self._caller.lose = None
