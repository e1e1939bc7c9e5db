"""Attacks on the lines between launcher and agents, from both sides, and on the files that hosts name."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example
from hypothesis import strategies as st

from phalanx.launch.agent import Agent
from phalanx.launch.agent_handle import AgentHandle, check_versions
from phalanx.launch.hosts import Host
from phalanx.launch.launchers.callback_agent import parse_callback
from phalanx.launch.messages import Message, decode, encode, is_event
from phalanx.launch.run_files import Saved, read_chunk, write_chunk
from tests.fuzz.budget import fuzz
from tests.fuzz.guard import guarded
from tests.fuzz.mutate import damaged, wrong

EVENTS: list[Message] = [
    {"event": "hello", "protocol": 2, "version": "1", "digest": "d", "clock": 1.0, "address": None},
    {"event": "ready", "run": "/tmp/run", "shared": False},
    {"event": "listening", "addresses": {"master": "127.0.0.1:1"}, "iface": None},
    {"event": "error", "what": "a", "why": "b", "remedy": "c"},
    {"event": "checkpoint", "saved": [["checkpoints/step-1/state.json"], "{}"]},
    {"event": "chunk", "path": "log.txt", "offset": 0, "bytes": "aGk="},
]


def test_events_of_agents_are_events() -> None:
    assert all(is_event(json.loads(encode(event))) for event in EVENTS)


@fuzz(examples=60, line=damaged([encode(event) for event in EVENTS]) | st.binary(max_size=60))
@example(line=b"[" * 100_000)
@example(line=b'{"event": ' * 50_000)
@example(line=b'{"request": "\\ud800"}')
def test_any_line(line: bytes) -> None:
    with guarded():
        message = decode(line)
        assert message is None or isinstance(message, dict)


@fuzz(examples=60, event=st.sampled_from(EVENTS).flatmap(wrong))
def test_events_with_wrong_values(event: Any) -> None:
    """What passes can be used as the launcher does."""
    if not isinstance(event, dict) or not is_event(event):
        return
    with guarded():
        handle = AgentHandle(Host("h"), events={event["event"]: event})
        match event["event"]:
            case "hello":
                check_versions([handle])
            case "checkpoint":
                assert isinstance(Saved(*event["saved"]).step, str)
            case "listening":
                assert list(event["addresses"].items()) is not None


REQUESTS: list[Message] = [
    {"request": "ping"},
    {"request": "checkpoint", "step": 1},
    {"request": "verify", "step": 1},
    {"request": "set aside", "after": 1, "when": "now"},
    {"request": "marker", "name": "x", "action": "check"},
    {"request": "read", "path": "config.yaml", "offset": 0},
    {"request": "write", "path": "config.yaml", "offset": 0, "bytes": "aGk="},
]
HARMLESS = {request["request"] for request in REQUESTS}  # the others start programs, which is what they are for


@fuzz(examples=40, request=st.sampled_from(REQUESTS).flatmap(wrong))
def test_requests_with_wrong_values(request: Any) -> None:
    if not isinstance(request, dict) or (
        isinstance(request.get("request"), str) and request["request"] not in HARMLESS
    ):
        return
    sent: list[Message] = []

    async def handle(run: Path) -> None:
        agent = Agent(sent.append)
        agent._run = run
        await agent.handle(request)
        await asyncio.gather(*agent._tasks)

    with tempfile.TemporaryDirectory() as top:
        run = Path(top) / "deep" / "run"
        run.mkdir(parents=True)
        with guarded():
            asyncio.run(handle(run))
        assert [path.name for path in Path(top).iterdir()] == ["deep"]
        assert [path.name for path in run.parent.iterdir()] == ["run"]


NAMES = st.sampled_from(["../x", "/tmp/phalanx-fuzz", "a/../../x", "", ".", "a\0b", "x" * 5000, "\ud800", "ok"])


@fuzz(
    examples=30, name=NAMES, offset=st.sampled_from([0, 1, -1, 1 << 62]), chunk=st.sampled_from(["", "aGk=", "é", "="])
)
def test_names_of_files(name: str, offset: int, chunk: str) -> None:
    with tempfile.TemporaryDirectory() as top, guarded(OSError, ValueError):
        run = Path(top) / "run"
        run.mkdir()
        for use in (lambda: write_chunk(run, name, offset, chunk), lambda: read_chunk(run, name, offset)):
            with guarded(OSError, ValueError):
                use()
        assert [path.name for path in Path(top).iterdir()] == ["run"]


@fuzz(examples=20, text=st.text(max_size=20) | st.sampled_from(["a,b,c", "tcp://h:1,zz,t", ",,"]))
def test_callbacks(text: str) -> None:
    with guarded():
        parse_callback(text)
