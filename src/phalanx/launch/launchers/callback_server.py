"""The launcher's end of connections that agents open: it admits agents with the token, and gives channels to them."""

import asyncio
import contextlib
import hmac
import secrets
from dataclasses import dataclass, field

import zmq
import zmq.asyncio
from zmq.utils import z85

from phalanx.errors import UserError
from phalanx.launch.addresses import hold_ports, join_address
from phalanx.launch.channel import Channel, Disconnect, OnDisconnect, OnMessage
from phalanx.launch.launchers.callback_agent import HELLO, Callback, from_frames, in_frames, set_options
from phalanx.launch.messages import PING_S, Message, decode


@dataclass(eq=False)
class Connection:
    """An agent that has connected. The handlers are set when the supervisor opens its channel."""

    identity: bytes
    address: str
    on_message: OnMessage | None = None
    on_disconnect: OnDisconnect | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event)


class CallbackServer:
    """Listens at an address of this host for `expected` agents, and refuses more."""

    def __init__(self, address: str, expected: int, ports: tuple[int, int] | None = None) -> None:
        self.connections: list[Connection] = []
        self._expected = expected
        self._changed = asyncio.Event()
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        public, secret = zmq.curve_keypair()
        self._socket.curve_server = True
        self._socket.curve_publickey, self._socket.curve_secretkey = public, secret
        (held,) = hold_ports(address, 1, ports)
        endpoint = f"tcp://{join_address(address, held.getsockname()[1])}"
        held.close()
        set_options(self._socket, endpoint)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise UserError(
                f"the launcher cannot listen at {endpoint}",
                why=error.strerror or str(error),
                remedy="choose ports with --port-range, or the network with --iface",
            ) from error
        self.callback = Callback(endpoint, z85.decode(public), secrets.token_hex(32))
        self._tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._ping())]

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a connection, at most this long. Returns whether all agents have connected."""
        if len(self.connections) < self._expected:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout_s)
        return len(self.connections) >= self._expected

    def channel(self, connection: Connection, on_message: OnMessage, on_disconnect: OnDisconnect) -> Channel:
        connection.on_message, connection.on_disconnect = on_message, on_disconnect
        self.send(connection, {"request": HELLO})
        return _CallbackChannel(self, connection)

    def send(self, connection: Connection, message: Message) -> None:
        self._socket.send_multipart([connection.identity, *in_frames(message)])

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._context.destroy(linger=1000)

    async def _receive(self) -> None:
        while True:
            identity, *frames = await self._socket.recv_multipart()
            message = decode(from_frames(frames))
            connection = next((one for one in self.connections if one.identity == identity), None)
            if message is None:
                continue
            if connection is None:
                self._admit(identity, message)
            elif message.get("event") == "bye":
                connection.closed.set()
                if connection.on_message is None:
                    self.connections.remove(connection)
                elif connection.on_disconnect is not None:
                    connection.on_disconnect(Disconnect(None, ("the cluster ended it",)))
            elif connection.on_message is not None and "event" in message:
                connection.on_message(message)

    def _admit(self, identity: bytes, message: Message) -> None:
        """Add a connection with the right token. Others get no answer."""
        sent = str(message.get("token")).encode(errors="replace")  # text that is not ASCII cannot be compared
        if not hmac.compare_digest(sent, self.callback.token.encode()):
            return
        connection = Connection(identity, str(message.get("address")))
        if len(self.connections) >= self._expected:
            self.send(connection, {"request": "bye"})
            return
        self.connections.append(connection)
        self.send(connection, {"request": "ping"})
        self._changed.set()

    async def _ping(self) -> None:
        """Ping agents that wait for the others, so that they do not time out. The supervisor pings those in use."""
        while True:
            for connection in self.connections:
                if connection.on_message is None:
                    self.send(connection, {"request": "ping"})
            await asyncio.sleep(PING_S)


class _CallbackChannel:
    def __init__(self, server: CallbackServer, connection: Connection) -> None:
        self._server, self._connection = server, connection

    def send(self, message: Message) -> None:
        self._server.send(self._connection, message)

    async def close(self) -> None:
        self._connection.on_disconnect = None
        self.send({"request": "bye"})
        await self._connection.closed.wait()

    def abort(self) -> None:
        """Stop pinging the agent. It times out and ends."""
        self._connection.on_disconnect = None
