"""However a job over ssh ends: how long until nothing of it is alive on any host, and what the launcher says.

    python -m benchmarks.faults [FAULT]... [--rounds 1]

Needs root and Debian's openssh-server: the hosts are network namespaces with a real sshd. Two trainers and a server run
on two of them, launched from a third, and share no disk. Prints a Markdown table.
"""

import argparse
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.lab.hosts import Lab, Process, hosts_up
from tests.waiting import until

TRAINING = ["train", "digits", "model.name=wrn10_1", "machine.threads=1", "train.log_every=1", "checkpoint.every=20st"]
TRAINING += ["train.global_batch_size=32"]
LAUNCHER, HIT = "h1", "h3"  # where the launcher is, and the host that faults happen to
ENDLESS, SHORT = "train.length=100000st", "train.length=30st"
TROUBLE_AT = " step 25: "
GIVE_UP_S = 60.0


class Job:
    """A job that runs: its launcher, what that prints, and everything on the hosts that was not there before."""

    def __init__(self, lab: Lab, name: str, length: str) -> None:
        self._lab = lab
        self._before = {one.pid for one in lab.processes("")}
        launch = ["launch", "--ssh", f"ssh -F {lab.ssh_config}", "-n", "2", "-s", "1", "--ips", "h2,h3"]
        words = [sys.executable, "-m", "phalanx", *launch, "--", *TRAINING, length, "--out", name]
        self.launcher = lab.start(LAUNCHER, words, cwd=lab.own, env={"COLUMNS": "1000"})
        self.pid = lab.inner(self.launcher)
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.launcher.stdout is not None
        for line in self.launcher.stdout:
            self.lines.append(line.rstrip())

    def alive(self) -> list[Process]:
        """Roles, agents, ssh clients and whatever they started. A host's own sshd is not the job's."""
        new = [one for one in self._lab.processes("") if one.pid not in self._before | {self.pid}]
        return [one for one in new if not one.words[0].startswith("sshd")]

    def wait_for(self, text: str) -> None:
        def seen() -> bool:
            assert self.launcher.poll() is None, "\n".join(self.lines)
            return any(text in line for line in self.lines)

        until(seen, timeout_s=GIVE_UP_S, why=lambda: "\n".join(self.lines))

    def own_words(self, since: int) -> str:
        """What the launcher itself said from that line on: roles' lines have their name in front, quotes a margin."""
        self._reading.join(timeout=5)
        return " / ".join(line for line in self.lines[since:] if not re.match(r"\S+@\S+ \||  ", line))


def kill_role(lab: Lab, job: Job) -> None:
    trainers = [one for one in job.alive() if one.host == HIT and b"PHALANX_NAME=trainer-" in _environment(one)]
    os.kill(trainers[0].pid, signal.SIGKILL)


def kill_agent(lab: Lab, job: Job) -> None:
    os.kill(next(one.pid for one in job.alive() if one.host == HIT and one.words[-1] == "agent"), signal.SIGKILL)


def _environment(process: Process) -> bytes:
    return Path(f"/proc/{process.pid}/environ").read_bytes()


FAULTS: dict[str, Callable[[Lab, Job], None]] = {
    "normal end": lambda lab, job: job.wait_for("| done"),
    "Ctrl-C": lambda lab, job: os.kill(job.pid, signal.SIGINT),
    "kill -9 of the launcher": lambda lab, job: os.kill(job.pid, signal.SIGKILL),
    "kill -9 of one role": kill_role,
    "kill -9 of an agent": kill_agent,
    "a host's link cut": lambda lab, job: lab.cut(HIT),
}


@dataclass(frozen=True)
class Measured:
    gone_s: float
    ended_s: float
    code: int
    said: str


def measure(lab: Lab, fault: str, name: str) -> Measured:
    """One job and one fault. Times count from the fault, or from the trainer's last word where there is none."""
    job = Job(lab, name, SHORT if fault == "normal end" else ENDLESS)
    try:
        job.wait_for(TROUBLE_AT)
        FAULTS[fault](lab, job)
        began, heard = time.monotonic(), len(job.lines)
        seconds: dict[str, float] = {}
        while len(seconds) < 2:
            elapsed = time.monotonic() - began
            assert elapsed < GIVE_UP_S, f"{fault}: still alive are {job.alive()}"
            if not job.alive():
                seconds.setdefault("gone", elapsed)
            if job.launcher.poll() is not None:
                seconds.setdefault("ended", elapsed)
            time.sleep(0.05)
        return Measured(seconds["gone"], seconds["ended"], job.launcher.returncode, job.own_words(heard))
    finally:
        if job.launcher.poll() is None:
            os.kill(job.pid, signal.SIGKILL)
        lab.mend(HIT)


def row(fault: str, results: Iterable[Measured], folder: Path) -> str:
    """A line of the table: the slowest of the rounds, and what was said in the last."""
    measured = list(results)
    gone, ended = (max(times) for times in zip(*((one.gone_s, one.ended_s) for one in measured), strict=True))
    code = "killed" if measured[-1].code == -signal.SIGKILL else str(measured[-1].code)
    said = shortened(measured[-1].said, folder)
    return f"| {fault} | {gone:.1f} | {ended:.1f} | {code} | {said or 'none: it is gone'} |"


def shortened(said: str, folder: Path) -> str:
    """Without what this script alone makes long: the folder of the hosts, ssh's configuration, the whole command."""
    said = re.sub(r"phalanx launch .* -- train", "phalanx launch … -- train", said.replace(f"{folder}/", ""))
    return re.sub(r"ssh -F \S+", "ssh", said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fault", nargs="*", choices=[*FAULTS, []], help=f"one of {', '.join(map(repr, FAULTS))}; all")
    parser.add_argument("--rounds", type=int, default=1)
    asked = parser.parse_args()
    try:
        with hosts_up(3) as lab:
            print("| what happens | nothing alive after, s | launcher ended after, s | code | its message |")
            print("| --- | ---: | ---: | ---: | --- |")
            for number, fault in enumerate(asked.fault or FAULTS):
                results = [measure(lab, fault, f"fault-{number}-{round_}") for round_ in range(asked.rounds)]
                print(row(fault, results, lab.own), flush=True)
    except pytest.skip.Exception as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main()
