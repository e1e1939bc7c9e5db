"""Attacks on the launcher's listener for agents: raw bytes, and frames of peers with and without the token."""

import asyncio
import socket
from typing import Any
from urllib.parse import urlsplit

import zmq
import zmq.asyncio
from hypothesis import strategies as st

from phalanx.launch.launchers.callback_server import CallbackServer
from phalanx.launch.messages import Message, encode
from tests.fuzz.budget import fuzz
from tests.fuzz.guard import guarded
from tests.fuzz.mutate import damaged, wrong
from tests.launch.launchers.test_callback_server import connect, received

# What a ZeroMQ peer says first: its signature and version, the mechanism, and a frame that says how long it is.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15) + b"\x00" + bytes(31)
RAW = damaged([GREETING, GREETING + b"\x06" + (1 << 40).to_bytes(8, "big"), b"GET / HTTP/1.1\r\n\r\n"])
EVENTS = [encode({"event": "output", "role": "trainer-0", "text": "x"}), encode({"event": "exit", "code": 0})]
FRAMES = st.lists(damaged(EVENTS) | st.binary(max_size=100), min_size=1, max_size=4)


@fuzz(examples=15, raw=st.lists(RAW, max_size=3), frames=st.lists(FRAMES, max_size=5), admitted=st.booleans())
def test_a_listener_outlives_everything(raw: list[bytes], frames: list[list[bytes]], admitted: bool) -> None:
    """Afterwards an agent with the token is still admitted, and what it says arrives."""
    with guarded():
        asyncio.run(_attack(raw, frames, {"token": "guessed"}, admitted))


@fuzz(examples=15, first=wrong({"token": "0" * 64, "address": "10.0.0.9", "event": "bye"}))
def test_any_first_message(first: Any) -> None:
    with guarded():
        asyncio.run(_attack([], [], first, admitted=False))


async def _attack(raw: list[bytes], frames: list[list[bytes]], first: Any, admitted: bool) -> None:
    server = CallbackServer("127.0.0.1", 2)
    heard: list[Message] = []
    place = urlsplit(server.callback.address)
    with zmq.asyncio.Context() as context:
        for sent in raw:
            with socket.create_connection((place.hostname or "", place.port or 0)) as connection:
                connection.sendall(sent)
        attacker = context.socket(zmq.DEALER)
        attacker.linger = 0
        attacker.curve_publickey, attacker.curve_secretkey = zmq.curve_keypair()
        attacker.curve_serverkey = server.callback.public_key
        attacker.connect(server.callback.address)
        token = {"token": server.callback.token, "address": "10.0.0.8"}
        await attacker.send(encode(token if admitted else first))
        for each in frames:
            await attacker.send_multipart(each)
        agent = await connect(context, server.callback)
        assert await received(agent) == {"request": "ping"}
        mine = next(one for one in server.connections if one.address == "10.0.0.9")
        server.channel(mine, heard.append, lambda lost: None)
        await agent.send(encode({"event": "hello"}))
        while {"event": "hello"} not in heard:
            await asyncio.sleep(0.01)
        agent.close()
        attacker.close()
    server.close()
