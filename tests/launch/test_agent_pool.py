"""The launcher's side of agents: who is silent, and who is not to blame."""

import asyncio
import os
import signal
import sys
import time

import pytest
from rich.console import Console

from phalanx.launch import agent_pool
from phalanx.launch.agent_handle import AgentHandle
from phalanx.launch.agent_pool import AgentPool
from phalanx.launch.channel import Channel, OnDisconnect, OnMessage, ProcessChannel
from phalanx.launch.hosts import Host
from phalanx.launch.screen import Screen
from phalanx.machine.processes import run_loop

SILENCE_S = 3.0


async def opener(agent: AgentHandle, on_message: OnMessage, on_disconnect: OnDisconnect) -> Channel:
    channel = ProcessChannel(on_message, on_disconnect)
    await channel.open([sys.executable, "-c", "from phalanx.launch.agent import main; main()"])
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
