"""Copying files of a run between hosts that share no disk, in chunks through the agents."""

import asyncio
import base64
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from phalanx.errors import UserError
from phalanx.launch.agent_handle import AgentHandle
from phalanx.launch.messages import Message
from phalanx.launch.run_files import NEEDED, Saved, read_chunk, saved_checkpoint, verify_step, write_chunk
from phalanx.runs.checkpoint import FOLDER
from phalanx.runs.rewind import put_aside_after

_CHUNK_S = 30.0  # for one chunk
_VERIFY_S = 1800.0  # for the checksums of a checkpoint of any size

WaitUntil = Callable[[Callable[[], bool], float], Awaitable[bool]]
Advance = Callable[[int], None]  # by bytes
ShowProgress = Callable[[str, int], AbstractContextManager[Advance]]  # of what, of how many bytes


class Transfer:
    """Copies between the run folders of agents and of this host (`run`). None instead of an agent means this host."""

    def __init__(self, run: Path, wait_until: WaitUntil, show_progress: ShowProgress) -> None:
        self._run, self._wait_until, self._show_progress = run, wait_until, show_progress

    async def saved(self, agent: AgentHandle | None, step: int | None = None) -> Saved:
        """The checkpoint of a step, or the newest, on a host."""
        if agent is None:
            return saved_checkpoint(self._run, step)
        reply = await self._request(agent, {"request": "checkpoint", "step": step}, "checkpoint")
        return Saved(*reply["saved"])

    async def read_text(self, agent: AgentHandle, name: str) -> str | None:
        """A small text file of the run; None if there is none."""
        content, offset = b"", 0
        while chunk := await self._read(agent, name, offset):
            content += base64.b64decode(chunk)
            offset = len(content)
        return None if chunk is None else content.decode()

    async def fetch(self, agent: AgentHandle, names: Sequence[str]) -> None:
        """Copy files to this host. Missing ones are skipped."""
        for name in names:
            await self._copy(name, agent, [None])

    async def rewind(self, first: AgentHandle, agents: Sequence[AgentHandle], step: int) -> None:
        """Make the checkpoint of a step the newest on every host: later ones are set aside everywhere."""
        hosts: list[AgentHandle | None] = [first, None, *(agent for agent in agents if agent is not first)]
        holders = [host for host in hosts if (await self.saved(host, step)).files]
        holder = holders[0] if holders else first  # if none has it, the first reports which ones it has
        if holder is None:
            await asyncio.to_thread(verify_step, self._run, step)
        else:
            await self._request(holder, {"request": "verify", "step": step}, "verified", _VERIFY_S)
        await self.spread(first, agents, step)
        when = time.strftime("%Y%m%d-%H%M%S")
        for host in hosts:  # one after the other: some may share a disk
            if host is None:
                await asyncio.to_thread(put_aside_after, self._run / FOLDER, step, when)
            else:
                await self._request(host, {"request": "set aside", "after": step, "when": when}, "set aside")

    async def spread(self, first: AgentHandle, agents: Sequence[AgentHandle], step: int | None = None) -> bool:
        """Copy the checkpoint of a step, or the newest of any host, to all hosts. False if there is none.

        Survivors of a lost worker each save on their own disk. Their checkpoint may be newer than the first host's, or
        of the same step with other bytes; of equal steps the first host's wins.
        """
        others: list[AgentHandle | None] = [None, *(agent for agent in agents if agent is not first)]
        saved = {host: await self.saved(host, step) for host in (first, *others)}
        source = max(saved, key=lambda host: saved[host].step)
        if not saved[source].files:
            return False
        owner = first if source is not None else None  # of the run's other files
        remote = [
            agent for agent in agents if agent is not owner and not (agent.shared and (owner is None or owner.shared))
        ]
        for name in NEEDED if remote else []:
            await self._copy(name, owner, remote)
        lacking = [agent for agent in agents if saved[agent] != saved[source]]
        if lacking:
            with self._show_progress("copying the checkpoint", saved[source].num_bytes) as advance:
                for name in saved[source].files:
                    await self._copy(name, source, lacking, advance)
        return True

    async def sharing(self, first: AgentHandle, agents: Sequence[AgentHandle]) -> list[AgentHandle]:
        """The agents that share the first one's run folder, on a common disk."""
        name = secrets.token_hex(8)
        await self._request(first, {"request": "marker", "name": name, "action": "create"}, "marker")
        try:
            return [agent for agent in agents if agent is first or await self._has_marker(agent, name)]
        finally:
            first.send({"request": "marker", "name": name, "action": "remove"})

    async def _has_marker(self, agent: AgentHandle, name: str) -> bool:
        reply = await self._request(agent, {"request": "marker", "name": name, "action": "check"}, "marker")
        return bool(reply["exists"])

    async def _copy(
        self,
        name: str,
        source: AgentHandle | None,
        targets: Sequence[AgentHandle | None],
        advance: Advance = lambda count: None,
    ) -> None:
        offset = 0
        while True:
            chunk = await self._read(source, name, offset)
            if chunk is None:
                return
            for target in targets:
                if target is not None:
                    target.events.pop("written", None)
                    target.send({"request": "write", "path": name, "offset": offset, "bytes": chunk})
                else:
                    await asyncio.to_thread(write_chunk, self._run, name, offset, chunk)
            remote = [target for target in targets if target is not None]
            if remote:
                await self._wait(remote, "written", f"sending {name}")
            if not chunk:
                return
            size = 3 * len(chunk) // 4 - chunk.count("=", -2)
            offset += size
            advance(size)

    async def _read(self, source: AgentHandle | None, name: str, offset: int) -> str | None:
        if source is None:
            return await asyncio.to_thread(read_chunk, self._run, name, offset)
        source.reading = (name, offset)
        reply = await self._request(source, {"request": "read", "path": name, "offset": offset}, "chunk")
        chunk: str | None = reply["bytes"]
        return chunk

    async def _request(self, agent: AgentHandle, message: Message, reply: str, limit_s: float = _CHUNK_S) -> Message:
        agent.events.pop(reply, None)
        agent.send(message)
        await self._wait([agent], reply, str(message["request"]), limit_s)
        return agent.events[reply]

    async def _wait(self, agents: Sequence[AgentHandle], kind: str, action: str, limit_s: float = _CHUNK_S) -> None:
        def all_replied() -> bool:
            return all(kind in agent.events or agent.error or not agent.live for agent in agents)

        await self._wait_until(all_replied, limit_s)
        for agent in agents:
            if agent.error is not None or kind not in agent.events:
                error = agent.error
                raise UserError(
                    f"{agent.name}: {action} failed",
                    why=f"{error.what}: {error.why}" if error else "the host does not answer",
                    remedy=error.remedy if error else "check that it is up, then continue with --resume",
                )
