"""Workers that were started with different settings, or see different data, do not train together."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from phalanx.config.resolve import parse_override, resolve
from phalanx.engine.agreement import refuse_other_settings
from phalanx.errors import UserError
from phalanx.native.build import find_library
from phalanx.net.interfaces import free_port
from tests.conftest import LEAN


class Met:
    """A meeting whose other workers have spoken before."""

    def __init__(self, *before: str) -> None:
        self.before = before

    def gather(self, topic: str, text: str) -> list[str]:
        return list(self.before) or [text]


def start_two(tmp_path: Path, *words: tuple[str, ...], second: dict[str, str] | None = None) -> list[tuple[int, str]]:
    """Two processes, or more, as torchrun's variables have them, each with words of its own.

    Returns their exit codes and last words. `second` are variables of the second one alone.
    """
    world = str(len(words))
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port("127.0.0.1")), "WORLD_SIZE": world}
    started = []
    for rank, own in enumerate(words):
        ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": world}
        train = [sys.executable, "-m", "phalanx", "train", "digits", *LEAN, "train.length=2st", "model.name=wrn10_1"]
        command = [*train, *own, "--out", str(tmp_path / "run")]
        environment = {**os.environ, **place, **ranks, **((second or {}) if rank == 1 else {})}
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL))
    try:
        ended = [process.communicate(timeout=300)[1].decode() for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [(process.returncode, said) for process, said in zip(started, ended, strict=True)]


def test_another_setting_is_refused_by_name_and_host(tmp_path: Path) -> None:
    for code, said in start_two(tmp_path, ("--lr", "0.1"), ("--lr", "0.2")):
        assert code == 2
        assert "the workers of this job differ in optim.lr: 0.1 for worker 0 on" in said
        assert "; 0.2 for worker 1 on" in said
    assert not (tmp_path / "run" / "events.jsonl").exists()


@pytest.mark.skipif(find_library("winograd").handle is None, reason=find_library("winograd").reason)
def test_a_worker_that_cannot_compute_as_asked_ends_the_job(tmp_path: Path) -> None:
    words, without = ("machine.fast_path=native",), {"PHALANX_NATIVE": "0"}
    for code, said in start_two(tmp_path, words, words, second=without):
        assert code == 2
        assert f"{socket.gethostname()} (worker 1) cannot compute with machine.fast_path=native" in said
        assert "install a C compiler there; or machine.fast_path=auto" in said
    auto = ("machine.fast_path=auto",)
    assert [code for code, _ in start_two(tmp_path, auto, auto, second=without)] == [0, 0]
    assert "fast_path: products" in (tmp_path / "run" / "config.yaml").read_text()


def test_other_data_are_refused(tmp_path: Path) -> None:
    for name, count in (("one", 6), ("two", 7)):
        for split in ("train", "val"):
            for label in ("cat", "dog"):
                folder = tmp_path / name / split / label
                folder.mkdir(parents=True)
                for number in range(count):
                    Image.fromarray(np.full((16, 16, 3), 9 * number, np.uint8)).save(folder / f"{number}.png")
    own = [("--data", str(tmp_path / name), "--global-batch-size", "4") for name in ("one", "two")]
    for code, said in start_two(tmp_path, *own):
        assert code == 2
        assert "do not have the same data: training images: 12 for worker 0 on" in said
    same = [own[0], (*own[0], "data.threads=1")]  # where it lies and who reads it is each host's own
    assert [code for code, _ in start_two(tmp_path, *same)] == [0, 0]


def test_who_joins_later_is_compared_with_who_began() -> None:
    config = resolve([parse_override("optim.lr=0.3")]).config
    other = resolve([parse_override("optim.lr=0.4"), parse_override("machine.threads=3")]).config
    spoken: list[str] = []

    class Heard(Met):
        def gather(self, topic: str, text: str) -> list[str]:
            spoken.append(text)
            return super().gather(topic, text)

    refuse_other_settings(Heard(), config, 0)
    refuse_other_settings(Met(spoken[0]), config, 1)
    job_settings = resolve([parse_override("optim.lr=0.3"), parse_override("machine.precision=bf16")]).config
    refuse_other_settings(Met(spoken[0]), job_settings, 1)  # what was settled since is in the run's file
    for heard in (config, job_settings):  # but those who begin a job are all asked for the same
        refuse_other_settings(Heard(), heard, 1)
    with pytest.raises(UserError, match=r"machine.precision: auto for worker 0 on .*; bf16 for worker 1 on"):
        refuse_other_settings(Met(spoken[0], spoken[-1]), config, 0)
    with pytest.raises(UserError, match=r"optim.lr: 0.3 for worker 0 on .*; 0.4 for worker 1 on"):
        refuse_other_settings(Met(spoken[0]), other, 1)
