"""Moving files of a run between hosts that share no disk, piece by piece through the agents: nothing is held whole."""

import asyncio
import base64
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from phalanx.errors import UserError
from phalanx.launch.agent_handle import AgentHandle
from phalanx.launch.messages import Message
from phalanx.launch.run_files import NEEDED, Saved, read_piece, saved_checkpoint, verify_step, write_piece
from phalanx.runs.checkpoint import FOLDER
from phalanx.runs.rewind import put_aside_after

_PIECE_S = 30.0  # for one piece
_VERIFY_S = 1800.0  # for the checksums of a checkpoint of any size

Until = Callable[[Callable[[], bool], float], Awaitable[bool]]


class Transfer:
    """`until` waits for something that stations say; `run` is the folder on this host."""

    def __init__(self, run: Path, until: Until) -> None:
        self._run, self._until = run, until

    async def saved(self, agent: AgentHandle | None, step: int | None = None) -> Saved:
        """The checkpoint of a step, or the newest, on a station or on this host."""
        if agent is None:
            return saved_checkpoint(self._run, step)
        answer = await self._ask(agent, {"do": "saved", "step": step}, "saved")
        return Saved(*answer["saved"])

    async def read_text(self, agent: AgentHandle, name: str) -> str | None:
        """A small file of the run, as text; None where there is none."""
        content, offset = b"", 0
        while piece := await self._read(agent, name, offset):
            content += base64.b64decode(piece)
            offset = len(content)
        return None if piece is None else content.decode()

    async def fetch(self, agent: AgentHandle, names: Sequence[str]) -> None:
        """Bring files here. Those that are not there are left out."""
        for name in names:
            await self._copy(name, agent, [None])

    async def go_back(self, first: AgentHandle, agents: Sequence[AgentHandle], step: int) -> None:
        """See that the checkpoint of a step is every station's newest: what was saved later is put aside everywhere."""
        places: list[AgentHandle | None] = [first, None, *(one for one in agents if one is not first)]
        holders = [place for place in places if (await self.saved(place, step)).files]
        holder = holders[0] if holders else first  # which then says what it has instead
        if holder is None:
            await asyncio.to_thread(verify_step, self._run, step)
        else:
            await self._ask(holder, {"do": "verify", "step": step}, "verified", _VERIFY_S)
        await self.spread(first, agents, step)
        when = time.strftime("%Y%m%d-%H%M%S")
        for place in places:  # one after the other: some may share a disk
            if place is None:
                put_aside_after(self._run / FOLDER, step, when)
            else:
                await self._ask(place, {"do": "put aside", "after": step, "when": when}, "put aside")

    async def spread(self, first: AgentHandle, agents: Sequence[AgentHandle], step: int | None = None) -> bool:
        """See that every station has a step's or the newest checkpoint, whoever has that. False where there is none.

        Trainers that lost another one each save where they stand, on disks of their own: what they saved may be newer
        than what the first station has, and of the same step without being the same. The first station's counts then.
        """
        others: list[AgentHandle | None] = [None, *(one for one in agents if one is not first)]
        saved = {place: await self.saved(place, step) for place in (first, *others)}
        source = max(saved, key=lambda place: saved[place].step)
        if not saved[source].files:
            return False
        keeper = first if source is not None else None  # of the run's other files
        far = [one for one in agents if one is not keeper and not (one.shared and (keeper is None or keeper.shared))]
        for name in NEEDED if far else []:
            await self._copy(name, keeper, far)
        lacking = [one for one in agents if saved[one] != saved[source]]
        for name in saved[source].files if lacking else []:
            await self._copy(name, source, lacking)
        return True

    async def reaching(self, first: AgentHandle, agents: Sequence[AgentHandle]) -> list[AgentHandle]:
        """Those of the stations that have the first one's folder of the run, on a disk that they share with it."""
        name = secrets.token_hex(8)
        await self._ask(first, {"do": "mark", "name": name, "how": "make"}, "marked")
        try:
            return [one for one in agents if one is first or await self._sees(one, name)]
        finally:
            first.send({"do": "mark", "name": name, "how": "drop"})

    async def _sees(self, agent: AgentHandle, name: str) -> bool:
        return bool((await self._ask(agent, {"do": "mark", "name": name, "how": "look"}, "marked"))["there"])

    async def _copy(self, name: str, source: AgentHandle | None, targets: Sequence[AgentHandle | None]) -> None:
        offset = 0
        while True:
            piece = await self._read(source, name, offset)
            if piece is None:
                return
            for target in targets:
                if target is not None:
                    target.said.pop("stored", None)
                    target.send({"do": "put", "path": name, "offset": offset, "bytes": piece})
                else:
                    write_piece(self._run, name, offset, piece)
            far = [target for target in targets if target is not None]
            if far:
                await self._hear(far, "stored", f"sending {name}")
            if not piece:
                return
            offset += 3 * len(piece) // 4 - piece.count("=", -2)

    async def _read(self, source: AgentHandle | None, name: str, offset: int) -> str | None:
        if source is None:
            return read_piece(self._run, name, offset)
        answer = await self._ask(source, {"do": "get", "path": name, "offset": offset}, "piece")
        piece: str | None = answer["bytes"]
        return piece

    async def _ask(self, agent: AgentHandle, message: Message, answer: str, limit_s: float = _PIECE_S) -> Message:
        agent.said.pop(answer, None)
        agent.send(message)
        await self._hear([agent], answer, str(message["do"]), limit_s)
        return agent.said[answer]

    async def _hear(self, agents: Sequence[AgentHandle], kind: str, doing: str, limit_s: float = _PIECE_S) -> None:
        await self._until(lambda: all(kind in s.said or s.trouble or not s.live for s in agents), limit_s)
        for agent in agents:
            if agent.trouble is not None or kind not in agent.said:
                trouble = agent.trouble
                raise UserError(
                    f"{agent.name}: {doing} failed",
                    why=f"{trouble.what}: {trouble.why}" if trouble else "the host does not answer",
                    remedy=trouble.remedy if trouble else "see that it is up, then go on with --resume",
                )
