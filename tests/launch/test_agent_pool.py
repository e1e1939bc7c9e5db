"""The launcher's side of agents: who is silent, and who is not to blame."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.launch import agent_pool, messages
from phalanx.launch.agent_handle import AgentHandle
from phalanx.launch.agent_pool import AgentPool
from phalanx.launch.channel import Channel, OnDisconnect, OnMessage, ProcessChannel
from phalanx.launch.hosts import Host
from phalanx.launch.screen import Screen
from phalanx.launch.transfer import Transfer
from phalanx.machine.processes import run_loop

SILENCE_S = 3.0
# An agent that gives the launcher as much more time than itself gets as all do.
AGENT = f"""
from phalanx.launch import agent
agent.LAUNCHER_SILENCE_S = {SILENCE_S * messages.LAUNCHER_SILENCE_S / messages.SILENCE_S}
agent.main()
"""
# An agent whose chunk of another file, which the launcher has given up, comes right before and after the one asked for.
LATE = """
import base64, json, sys
from phalanx.launch.agent import Agent
from phalanx.launch.messages import encode

def send(**event):
    sys.stdout.buffer.write(encode(event))
    sys.stdout.buffer.flush()

Agent(lambda message: send(**message)).hello()
for line in sys.stdin:
    asked = json.loads(line)
    late = {"event": "chunk", "path": "checkpoints/model", "offset": 0, "bytes": base64.b64encode(b"late").decode()}
    send(**late)
    content = b"" if asked["offset"] else b"seed: 1"
    send(**{**late, "path": asked["path"], "offset": asked["offset"], "bytes": base64.b64encode(content).decode()})
    send(**late)
"""


async def open_late(agent: AgentHandle, on_message: OnMessage, on_disconnect: OnDisconnect) -> Channel:
    channel = ProcessChannel(on_message, on_disconnect)
    await channel.open([sys.executable, "-c", LATE])
    return channel


async def opener(agent: AgentHandle, on_message: OnMessage, on_disconnect: OnDisconnect) -> Channel:
    channel = ProcessChannel(on_message, on_disconnect)
    await channel.open([sys.executable, "-c", AGENT])
    return channel


@pytest.mark.slow
def test_a_launcher_that_stood_still_blames_no_host_and_a_silent_one_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_pool, "SILENCE_S", SILENCE_S)
    monkeypatch.setattr(agent_pool, "PING_S", 0.2)

    async def main() -> None:
        agent = AgentHandle(Host("localhost"))
        pool = AgentPool([agent], opener, Screen(Console(quiet=True)), lambda agent, message: None)
        await pool.open()
        watching = asyncio.create_task(pool.watch())
        assert await pool.wait_until(lambda: bool(agent.system), 60)  # it has answered a ping
        time.sleep(SILENCE_S + 1)
        assert await pool.wait_until(lambda: not agent.live, 1) is False, agent.disconnect
        pid = agent.events["hello"]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            assert await pool.wait_until(lambda: not agent.live, 60)
        finally:
            os.kill(pid, signal.SIGKILL)
            watching.cancel()
            assert agent.channel is not None
            await agent.channel.close()

    run_loop(main())


def test_a_chunk_that_was_given_up_does_not_become_part_of_another_file(tmp_path: Path) -> None:
    async def main() -> str | None:
        agent = AgentHandle(Host("localhost"))
        pool = AgentPool([agent], open_late, Screen(Console(quiet=True)), lambda agent, message: None)
        await pool.open()
        transfer = Transfer(tmp_path, pool.wait_until, lambda what, count: contextlib.nullcontext(lambda count: None))
        try:
            return await transfer.read_text(agent, "config.yaml")
        finally:
            assert agent.channel is not None
            await agent.channel.close()

    assert run_loop(main()) == "seed: 1"
