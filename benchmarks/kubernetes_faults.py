"""The table of faults on Kubernetes: what is left of a job after each, when, what was saved, what the launcher said.

    python -m benchmarks.kubernetes_faults --image IMAGE --claim CLAIM --volume PATH

kubectl's current context is the cluster. PATH is where this machine sees the claim's volume: what was saved is read
there. `--cut 'CMD {node}'` and `--heal 'CMD {node}'` cut a node's network, and mend it.
Every cell is a job of two trainers, and one server for pserver, hit when it has taken some steps.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from phalanx.launch.launchers.manifests import selector
from phalanx.runs import checkpoint
from phalanx.runs.events import EVENTS_FILE, read_events

STEPS, WAIT_S, FIRST_STEPS = 100_000, 400.0, 20
KILL = """
import os, signal
for entry in os.listdir("/proc"):
    if entry.isdecimal() and entry != str(os.getpid()):
        words = open(f"/proc/{entry}/cmdline", "rb").read().split(bytes(1))
        if b"phalanx" in words and b"train" in words:
            os.kill(int(entry), signal.SIGKILL)
"""


def kubectl(*words: str, given: str | None = None, check: bool = True) -> str:
    done = subprocess.run(["kubectl", *words], input=given, capture_output=True, text=True)
    if check and done.returncode:
        raise SystemExit(f"kubectl {shlex.join(words)}: {done.stderr}")
    return done.stdout


@dataclass
class Job:
    """A job that runs, and the launcher that follows it."""

    name: str
    launcher: "subprocess.Popen[str]"
    run: Path
    said: Path

    def pod(self, index: int) -> str:
        found = json.loads(kubectl("get", "pods", "-l", selector(self.name), "-o", "json"))["items"]
        names: list[str] = [one["metadata"]["name"] for one in found]
        return next(name for name in names if name.startswith(f"{self.name}-{index}-"))

    def node(self, index: int) -> str:
        return kubectl("get", "pod", self.pod(index), "-o", "jsonpath={.spec.nodeName}")

    @property
    def step(self) -> int:
        if not (self.run / EVENTS_FILE).exists():
            return 0
        return max((one["step"] for one in read_events(self.run) if one["kind"] == "step"), default=0)

    @property
    def alive(self) -> int:
        """Pods with a container that runs."""
        found = json.loads(kubectl("get", "pods", "-l", selector(self.name), "-o", "json"))["items"]
        return sum(
            one["status"].get("phase") in ("Pending", "Running")
            and not all("terminated" in each["state"] for each in one["status"].get("containerStatuses", []))
            for one in found
        )

    @property
    def message(self) -> str:
        lines = self.said.read_text(errors="replace").splitlines()
        telling = [line for line in lines if line.startswith(("cause:", "error:", "job ", "  why:"))]
        return " / ".join(line for line in telling[-2:])


def kill(job: Job, index: int) -> None:
    kubectl("exec", job.pod(index), "--", "python3", "-c", KILL, check=False)


def delete(job: Job, index: int) -> None:
    kubectl("delete", "pod", job.pod(index), "--wait=false")


def drain(job: Job, index: int) -> None:
    node = job.node(index)
    kubectl("cordon", node)
    pod = job.pod(index)
    namespace = kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.namespace}")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction))


def interrupt(job: Job, index: int) -> None:
    job.launcher.send_signal(2)


def stop(job: Job, index: int) -> None:
    subprocess.run([sys.executable, "-m", "phalanx", "stop", f"k8s:{job.name}"], check=True, capture_output=True)


FAULTS: dict[str, tuple[Callable[[Job, int], None], int]] = {
    "Ctrl-C": (interrupt, 0),
    "phalanx stop": (stop, 0),
    "delete trainer 1's pod": (delete, 1),
    "drain trainer 1's node (eviction)": (drain, 1),
    "kill -9 trainer 1": (kill, 1),
    "delete the server's pod": (delete, 2),
    "kill -9 the server": (kill, 2),
}


def measure(options: argparse.Namespace, method: str, fault: str) -> str:
    """One cell, as a line of the table."""
    name = f"fault-{int(time.time()) % 1_000_000}"
    said = Path(options.logs) / f"{name}.log"
    servers = ["-s", "1"] if method == "pserver" else []
    words = ["-n", "2", *servers, "--launcher", "k8s", "--image", options.image, "--volume-claim", options.claim]
    words += ["--cpus-per-worker", "1", *options.options, "--", "train", "digits", "model.name=wrn10_1"]
    words += ["--out", f"runs/{name}", f"train.length={STEPS}st", f"checkpoint.every={STEPS}st", "train.log_every=5"]
    words += [f"eval.every={STEPS}st", "train.curves=false"]
    with said.open("w") as out:
        launcher = subprocess.Popen(
            [sys.executable, "-m", "phalanx", "launch", *words], stdout=out, stderr=subprocess.STDOUT, text=True
        )
    job = Job(name, launcher, Path(options.volume) / "runs" / name, said)
    deadline = time.monotonic() + WAIT_S
    while job.step < FIRST_STEPS:
        if time.monotonic() > deadline or launcher.poll() is not None:
            return f"| {fault} | {method} | | | did not begin: {job.message} |"
        time.sleep(0.5)
    inject, index = FAULTS.get(fault, (None, 1))
    begin = time.monotonic()
    node = job.node(index) if inject in (None, drain) else ""
    if inject is None:
        subprocess.run(shlex.split(options.cut.format(node=node)), check=True)
    else:
        inject(job, index)
    time.sleep(0.5)
    while job.alive and time.monotonic() < begin + WAIT_S:
        time.sleep(0.25)
    gone = time.monotonic() - begin
    try:
        code = launcher.wait(timeout=60)
    except subprocess.TimeoutExpired:
        launcher.kill()
        code = -9
    if inject is None:
        subprocess.run(shlex.split(options.heal.format(node=node)), check=True)
    if inject is drain:
        kubectl("uncordon", node, check=False)
    last = checkpoint.latest_path(job.run / "checkpoints")
    saved = f"step {checkpoint.step_of(last)} of {job.step}" if last else "nothing"
    kubectl("delete", "job", name, "--ignore-not-found", "--wait=false")
    return f"| {fault} | {method} | {gone:.0f} s | {saved} | {code}: {job.message.replace('|', '/')} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("image", "claim", "volume"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--cut", help="a command that cuts the network of {node}")
    parser.add_argument("--heal", help="a command that mends it")
    parser.add_argument("--logs", default="/tmp", help="folder for what launchers print")
    parser.add_argument("--only", nargs="*", help="parts of faults' names")
    parser.add_argument("--methods", nargs="*", default=["collective", "pserver"])
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="further options of the launch")
    options = parser.parse_args()
    faults = [*FAULTS, *(["cut trainer 1's network"] if options.cut else [])]
    print("| fault | method | until no process is left | saved | exit code, last lines of the launcher |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    for fault in faults:
        for method in options.methods:
            if "server" in fault and method == "collective":
                continue
            if options.only is None or any(part in fault for part in options.only):
                print(measure(options, method, fault), flush=True)


if __name__ == "__main__":
    main()
