"""Agents may connect with the launcher's key and the token, as many as expected, encrypted."""

import asyncio
import contextlib
import socket as sockets

import pytest
import zmq
import zmq.asyncio
from zmq.utils import z85

from phalanx.errors import UserError
from phalanx.launch.channel import Disconnect
from phalanx.launch.launchers.callback_agent import Callback, parse_callback
from phalanx.launch.launchers.callback_server import CallbackServer
from phalanx.launch.messages import Message, decode, encode

SHORT_S = 0.5  # nothing happens in that time


async def connect(context: zmq.asyncio.Context, callback: Callback, *, encrypted: bool = True) -> zmq.asyncio.Socket:
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    if encrypted:
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        socket.curve_serverkey = callback.public_key
    socket.connect(callback.address)
    await socket.send(encode({"token": callback.token, "address": "10.0.0.9"}))
    return socket


async def received(socket: zmq.asyncio.Socket) -> Message:
    return decode(await asyncio.wait_for(socket.recv(), 10)) or {}


def test_key_and_token_are_required() -> None:
    async def main() -> None:
        server = CallbackServer("127.0.0.1", 1)
        good = server.callback
        assert parse_callback(str(good)) == good
        public, _ = zmq.curve_keypair()
        with zmq.asyncio.Context() as context:
            refused = [
                await connect(context, Callback(good.address, good.public_key, "0" * 64)),
                await connect(context, Callback(good.address, z85.decode(public), good.token)),
                await connect(context, good, encrypted=False),
            ]
            await refused[0].send(encode({"token": "ключ"}))  # text that is not ASCII ended the listener
            assert not await server.wait(SHORT_S)
            agent = await connect(context, good)
            assert await server.wait(10)
            assert await received(agent) == {"request": "ping"}
            late = await connect(context, good)
            assert await received(late) == {"request": "bye"}
            assert len(server.connections) == 1
            for socket in (*refused, agent, late):
                socket.close()
        server.close()

    asyncio.run(main())


def test_a_connection_without_the_key_is_cut_off() -> None:
    """It sends frames of a message that never ends, and one that is announced as large."""
    curve = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(47)
    endless = b"\x03" + (60_000).to_bytes(8, "big") + bytes(60_000)
    announced = b"\x06" + (900 << 20).to_bytes(8, "big") + bytes(1 << 20)

    def sent_to(place: tuple[str, int], part: bytes) -> int:
        sent = 0
        with contextlib.suppress(OSError), sockets.create_connection(place, timeout=2) as stranger:
            stranger.sendall(curve)
            for _ in range(64):
                stranger.sendall(part)
                sent += len(part)
        return sent

    async def main() -> None:
        server = CallbackServer("127.0.0.1", 1)
        host, _, port = server.callback.address.removeprefix("tcp://").rpartition(":")
        for part in (endless, announced):
            assert await asyncio.to_thread(sent_to, (host, int(port)), part) < 40 << 20
        with zmq.asyncio.Context() as context:
            agent = await connect(context, server.callback)
            assert await server.wait(10)
            agent.close()
        server.close()

    asyncio.run(main())


def test_a_connection_is_a_channel() -> None:
    async def main() -> None:
        server = CallbackServer("127.0.0.1", 1)
        messages: list[Message] = []
        lost: list[Disconnect] = []
        with zmq.asyncio.Context() as context:
            first = await connect(context, server.callback)
            assert await server.wait(10)
            await first.send(encode({"event": "bye"}))  # it ends before the job begins: another may connect
            while server.connections:
                await asyncio.sleep(0.01)
            second = await connect(context, server.callback)
            assert await server.wait(10)
            channel = server.channel(server.connections[0], messages.append, lost.append)
            while await received(second) != {"request": "hello"}:
                pass
            await second.send(encode({"event": "hello"}))
            while not messages:
                await asyncio.sleep(0.01)
            await second.send(encode({"event": "bye"}))
            while not lost:
                await asyncio.sleep(0.01)
            await asyncio.wait_for(channel.close(), 10)
            first.close()
            second.close()
        server.close()
        assert messages == [{"event": "hello"}]
        assert lost[0].printed == ("the cluster ended it",)

    asyncio.run(main())


def test_a_missing_callback() -> None:
    with pytest.raises(UserError, match="PHALANX_CALLBACK is not set"):
        parse_callback("")
