"""Who may dial in: those with the launcher's key and the word, as many as are expected, over an encrypted line."""

import asyncio

import pytest
import zmq
import zmq.asyncio
from zmq.utils import z85

from phalanx.errors import UserError
from phalanx.launch.channel import Loss
from phalanx.launch.launchers.callback_agent import Invitation, parse_invitation
from phalanx.launch.launchers.callback_server import CallbackServer
from phalanx.launch.messages import Message, decode, encode

SHORT_S = 0.5  # in which nothing is to happen


async def caller(context: zmq.asyncio.Context, invitation: Invitation, *, encrypted: bool = True) -> zmq.asyncio.Socket:
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    if encrypted:
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        socket.curve_serverkey = invitation.key
    socket.connect(invitation.place)
    await socket.send(encode({"dial": invitation.word, "address": "10.0.0.9"}))
    return socket


async def said(socket: zmq.asyncio.Socket) -> Message:
    return decode(await asyncio.wait_for(socket.recv(), 10)) or {}


def test_only_who_knows_key_and_word_is_let_in() -> None:
    async def main() -> None:
        bridge = CallbackServer("127.0.0.1", 1)
        good = bridge.invitation
        assert parse_invitation(str(good)) == good
        public, _ = zmq.curve_keypair()
        with zmq.asyncio.Context() as context:
            strangers = [
                await caller(context, Invitation(good.place, good.key, "0" * 64)),
                await caller(context, Invitation(good.place, z85.decode(public), good.word)),
                await caller(context, good, encrypted=False),
            ]
            assert not await bridge.wait(SHORT_S)
            friend = await caller(context, good)
            assert await bridge.wait(10)
            assert await said(friend) == {"do": "ping"}
            late = await caller(context, good)
            assert await said(late) == {"do": "bye"}
            assert len(bridge.callers) == 1
            for socket in (*strangers, friend, late):
                socket.close()
        bridge.close()

    asyncio.run(main())


def test_a_caller_is_a_channel() -> None:
    async def main() -> None:
        bridge = CallbackServer("127.0.0.1", 1)
        heard: list[Message] = []
        lost: list[Loss] = []
        with zmq.asyncio.Context() as context:
            first = await caller(context, bridge.invitation)
            assert await bridge.wait(10)
            await first.send(encode({"say": "bye"}))  # it ends before the job begins: another may take its place
            while bridge.callers:
                await asyncio.sleep(0.01)
            second = await caller(context, bridge.invitation)
            assert await bridge.wait(10)
            channel = bridge.channel(bridge.callers[0], heard.append, lost.append)
            while await said(second) != {"do": "greet"}:
                pass
            await second.send(encode({"say": "hello"}))
            while not heard:
                await asyncio.sleep(0.01)
            await second.send(encode({"say": "bye"}))
            while not lost:
                await asyncio.sleep(0.01)
            await asyncio.wait_for(channel.close(), 10)
            first.close()
            second.close()
        bridge.close()
        assert heard == [{"say": "hello"}]
        assert lost[0].printed == ("the cluster told it to end",)

    asyncio.run(main())


def test_an_invitation_that_is_none() -> None:
    with pytest.raises(UserError, match="PHALANX_INVITATION is not set"):
        parse_invitation("")
