"""Attacks on what a resumed run takes from its checkpoint: the checksums are right, and the values are not."""

import contextlib
import functools
import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from phalanx.engine.step import train_step
from phalanx.engine.weights import restore
from phalanx.runs import checkpoint
from phalanx.runs.evaluations import EvaluatorResults
from phalanx.runs.events import EVALUATOR_EVENTS_FILE, EVENTS_FILE, Checkpoint, EventFile, read_events, record_of
from tests.engine.tiny import TinyRun, same, tiny_run
from tests.fuzz.budget import fuzz
from tests.fuzz.guard import guarded
from tests.fuzz.mutate import wrong

SETTINGS = ("optim.momentum=0.9", "optim.ema=0.9")


@functools.cache
def saved() -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors and the state of a run after three steps, as a trainer saves them."""
    tiny = tiny_run(*SETTINGS)
    for start in (0, 8, 16):
        batch = tiny.batch(0, start)
        train_step(tiny.state, batch, tiny.exchange, tiny.engine)
        tiny.state.advance(batch)
    assert tiny.state.ema is not None
    optimizer, scalars = tiny.exchange.state.optimizer_state()
    tensors = {"model": tiny.weights(), "optimizer": optimizer, "ema": tiny.state.ema.model.state_dict()}
    state = {
        **{"training": tiny.state.numbers(), "optimizer": scalars, "identity": tiny.spec.saved()},
        **{"config": tiny.config.model_dump(mode="json"), "samples_per_step": 8},
        "events": [record_of(Checkpoint(3, "checkpoints/step-00000003", 0.1, 100))],
    }
    return tensors, json.loads(json.dumps(state))


@contextlib.contextmanager
def written(state: Any) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as top:
        run = Path(top) / "run"
        folder = checkpoint.save(run / checkpoint.FOLDER, 3, saved()[0], saved()[1])
        changed = {**state, "format": checkpoint.FORMAT} if isinstance(state, dict) else state
        content = json.dumps(changed).encode()
        (folder / checkpoint.STATE).write_bytes(content)
        manifest = json.loads((folder / checkpoint.MANIFEST).read_text())
        manifest[checkpoint.STATE] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        (folder / checkpoint.MANIFEST).write_text(json.dumps(manifest))
        (run / EVENTS_FILE).write_text("")
        yield run


def restored(run: Path) -> TinyRun:
    tiny = tiny_run(*SETTINGS)
    restore(run / checkpoint.FOLDER, tiny.state, tiny.exchange, tiny.spec, tiny.plan)
    return tiny


def test_a_good_checkpoint_is_restored() -> None:
    tensors, state = saved()
    with written(state) as run:
        tiny = restored(run)
        assert (tiny.state.step, tiny.state.start) == (3, 24)
        assert same(tiny.weights(), tensors["model"])
        assert read_events(run)[0]["step"] == 3


@fuzz(examples=60, data=st.data())
def test_any_values(data: st.DataObject) -> None:
    """Whatever is not refused can be trained on from there."""
    state = data.draw(wrong(saved()[1]))
    with written(state) as run, guarded():
        tiny = restored(run)
        batch = tiny.batch(tiny.state.epoch, tiny.state.start)
        train_step(tiny.state, batch, tiny.exchange, tiny.engine)


def test_a_line_without_an_end_takes_bounded_memory(tmp_path: Path) -> None:
    """A gigabyte of zeros, as a disk leaves it after a crash; here as a hole in the file."""
    for name in (EVENTS_FILE, EVALUATOR_EVENTS_FILE):
        with (tmp_path / name).open("wb") as file:
            file.write(b"a whole line\n")
            file.truncate(1 << 30)
    with guarded():
        read_events(tmp_path)
    with guarded():
        EvaluatorResults(tmp_path, lambda event: None).poll()
    with guarded():
        EventFile(tmp_path).close()
    assert (tmp_path / EVENTS_FILE).read_bytes() == b"a whole line\n", "a run that goes on writes behind that"
