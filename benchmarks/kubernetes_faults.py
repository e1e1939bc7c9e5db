"""The table of faults on Kubernetes: what is left of a job after each, when, what was saved, what the launcher said.

    python -m benchmarks.kubernetes_faults --image IMAGE --claim CLAIM --volume PATH

kubectl's current context is the cluster. PATH is where this machine sees the claim's volume: what was saved is read
there. Every cell is a job of two trainers, and one server for pserver, hit when it has taken some steps; or a job that
cannot begin. What only the cluster's owner can do are commands with {node}: `--cut` and `--heal` for the network of a
node's pods, `--kill-kubelet` and `--start-kubelet`. With `--here` the pods' processes are on this machine, as in a
cluster for tests: then these are counted, also where a node does not answer any more.
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

STEPS, WAIT_S, FIRST_STEPS, LAUNCHER_S = 100_000, 400.0, 20, 240.0
METHODS = {
    "collective": ([], []),
    "pserver": (["-s", "1"], []),
    "async": (["-s", "1"], ["--mode", "async"]),
    "ssp": (["-s", "1"], ["--mode", "ssp"]),
}
KILL = """
import os, signal
for entry in os.listdir("/proc"):
    if entry.isdecimal() and entry != str(os.getpid()):
        words = open(f"/proc/{entry}/cmdline", "rb").read().split(bytes(1))
        if b"phalanx" in words and b"train" in words:
            os.kill(int(entry), signal.SIGKILL)
"""
AWAY_S = 60.0  # of a kubelet: longer than the cluster waits for it, or nothing follows
QUOTA = "phalanx-faults"


def kubectl(*words: str, given: str | None = None, check: bool = True) -> str:
    done = subprocess.run(["kubectl", *words], input=given, capture_output=True, text=True)
    if check and done.returncode:
        raise SystemExit(f"kubectl {shlex.join(words)}: {done.stderr}")
    return done.stdout


@dataclass
class Job:
    """A job, and the launcher that follows it."""

    name: str
    launcher: "subprocess.Popen[str]"
    run: Path
    said: Path
    here: bool  # whether its pods' processes are on this machine

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
        """Processes of pods that are here, or pods with a container that runs."""
        if self.here:
            return sum(_is_of(path, self.run.name) for path in Path("/proc").glob("[0-9]*/cmdline"))
        found = json.loads(kubectl("get", "pods", "-l", selector(self.name), "-o", "json"))["items"]
        return sum(
            one["status"].get("phase") in ("Pending", "Running")
            and not all("terminated" in each["state"] for each in one["status"].get("containerStatuses", []))
            for one in found
        )

    @property
    def message(self) -> str:
        lines = self.said.read_text(errors="replace").splitlines()
        telling = [line for line in lines if line.startswith(("cause:", "error:", "job ", "  why:", "  its time"))]
        return " / ".join(line.strip() for line in telling[-2:]).replace("|", "/")

    def wait(self) -> int:
        try:
            return self.launcher.wait(timeout=LAUNCHER_S)
        except subprocess.TimeoutExpired:
            self.launcher.kill()
            return -9


def _is_of(path: Path, name: str) -> bool:
    try:
        words = path.read_bytes().split(b"\0")
    except OSError:
        return False
    return f"runs/{name}".encode() in words and b"launch" not in words


def launch(options: argparse.Namespace, method: str, *words: str) -> Job:
    name = f"fault-{int(time.time()) % 1_000_000}"
    said = Path(options.logs) / f"{name}.log"
    cluster, train = METHODS[method]
    image = [] if "--image" in words else ["--image", options.image]
    cpus = [] if "--cpus-per-worker" in words else ["--cpus-per-worker", "1"]
    asked = ["-n", "2", *cluster, "--launcher", "k8s", *image, "--volume-claim", options.claim, *cpus, *words]
    asked += [*options.options, "--", "train", "digits", "model.name=wrn10_1", "--out", f"runs/{name}", *train]
    asked += [f"train.length={STEPS}st", f"checkpoint.every={STEPS}st", "train.log_every=5"]
    asked += [f"eval.every={STEPS}st", "train.curves=false"]
    with said.open("w") as out:
        launcher = subprocess.Popen(
            [sys.executable, "-m", "phalanx", "launch", *asked], stdout=out, stderr=subprocess.STDOUT, text=True
        )
    return Job(name, launcher, Path(options.volume) / "runs" / name, said, options.here)


def kill(job: Job, index: int, options: argparse.Namespace) -> None:
    kubectl("exec", job.pod(index), "--", "python3", "-c", KILL, check=False)


def delete(job: Job, index: int, options: argparse.Namespace) -> None:
    kubectl("delete", "pod", job.pod(index), "--wait=false")


def drain(job: Job, index: int, options: argparse.Namespace) -> None:
    kubectl("cordon", job.node(index))
    pod = job.pod(index)
    namespace = kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.namespace}")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction))


def interrupt(job: Job, index: int, options: argparse.Namespace) -> None:
    job.launcher.send_signal(2)


def stop(job: Job, index: int, options: argparse.Namespace) -> None:
    subprocess.run([sys.executable, "-m", "phalanx", "stop", f"k8s:{job.name}"], check=True, capture_output=True)


def cut(job: Job, index: int, options: argparse.Namespace) -> None:
    _run(options.cut, job.node(index))


def kill_kubelet(job: Job, index: int, options: argparse.Namespace) -> None:
    _run(options.kill_kubelet, job.node(index))


def lose(job: Job, index: int, options: argparse.Namespace) -> None:
    node = job.node(index)
    _run(options.kill_kubelet, node)
    _run(options.cut, node)


def _run(command: str, node: str) -> None:
    subprocess.run(shlex.split(command.format(node=node)), check=True, stdout=subprocess.DEVNULL)


Inject = Callable[[Job, int, argparse.Namespace], None]
FAULTS: dict[str, tuple[Inject, int]] = {
    "Ctrl-C": (interrupt, 0),
    "phalanx stop": (stop, 0),
    "delete trainer 1's pod": (delete, 1),
    "drain trainer 1's node (eviction)": (drain, 1),
    "kill -9 trainer 1": (kill, 1),
    "delete the server's pod": (delete, 2),
    "kill -9 the server": (kill, 2),
    "cut the network of trainer 1's node": (cut, 1),
    "cut the network of the server's node": (cut, 2),
    "kill the kubelet of trainer 1's node, start it again": (kill_kubelet, 1),
    "lose trainer 1's node (network and kubelet)": (lose, 1),
}
NEEDS: dict[Inject, tuple[str, ...]] = {
    cut: ("cut", "heal"),
    kill_kubelet: ("kill_kubelet", "start_kubelet"),
    lose: ("cut", "heal", "kill_kubelet", "start_kubelet"),
}


def measure(options: argparse.Namespace, method: str, fault: str) -> str:
    """One cell of a job that runs, as a line of the table."""
    job = launch(options, method)
    deadline = time.monotonic() + WAIT_S
    while job.step < FIRST_STEPS:
        if time.monotonic() > deadline or job.launcher.poll() is not None:
            job.launcher.kill()
            return f"| {fault} | {method} | | | did not begin: {job.message} |"
        time.sleep(0.5)
    inject, index = FAULTS[fault]
    node = job.node(index)
    begin = time.monotonic()
    inject(job, index, options)
    if (
        inject is kill_kubelet
    ):  # what it ran goes on; when it is back, it is told to end a pod that was given up meanwhile
        time.sleep(AWAY_S)
        _run(options.start_kubelet, node)
        begin = time.monotonic()
    time.sleep(0.5)
    while job.alive and time.monotonic() < begin + WAIT_S:
        time.sleep(0.25)
    gone = time.monotonic() - begin
    code = job.wait()
    told = time.monotonic() - begin
    if inject in (cut, lose):
        _run(options.heal, node)
    if inject is lose:
        _run(options.start_kubelet, node)
    if inject is drain:
        kubectl("uncordon", node, check=False)
    last = checkpoint.latest_path(job.run / "checkpoints")
    saved = f"step {checkpoint.step_of(last)} of {job.step}" if last else "nothing"
    kubectl("delete", "job", job.name, "--ignore-not-found", "--wait=false")
    return f"| {fault} | {method} | {gone:.0f} s | {told:.0f} s | {saved} | {code}: {job.message} |"


def unplaced(options: argparse.Namespace, method: str, fault: str) -> str:
    """One cell of a job that cannot begin."""
    begin = time.monotonic()
    if fault == "a quota that takes one pod":
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": QUOTA},
            "spec": {"hard": {"pods": "1"}},
        }
        kubectl("create", "-f", "-", given=json.dumps(quota))
        job = launch(options, method)
    elif fault == "a quota for memory, and none is asked for":
        hard = {"limits.memory": "1G"}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": QUOTA}, "spec": {"hard": hard}}
        kubectl("create", "-f", "-", given=json.dumps(quota))
        job = launch(options, method)
    elif fault == "an image that does not exist":
        job = launch(options, method, "--image", f"{options.image}-missing")
    else:
        return _crowded(options, method, fault)
    code = job.wait()
    told = time.monotonic() - begin
    kubectl("delete", "resourcequota", QUOTA, "--ignore-not-found")
    return f"| {fault} | {method} | {_left(job)} | {told:.0f} s | | {code}: {job.message} |"


def _crowded(options: argparse.Namespace, method: str, fault: str) -> str:
    """Three trainers where two have room; then Ctrl-C."""
    gang = ["--gang"] if "gang" in fault else []
    job = launch(options, method, "-n", "3", "--cpus-per-worker", str(options.cpus), *gang)
    deadline = time.monotonic() + WAIT_S
    while not (said := _waiting(job)) and job.launcher.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(5)
    pods = len(kubectl("get", "pods", "-l", selector(job.name), "-o", "name").split())
    begin = time.monotonic()
    job.launcher.send_signal(2)
    code = job.wait()
    left, after = _left(job), time.monotonic() - begin
    return f"| {fault}, then Ctrl-C | {method} | {left} | {after:.0f} s | | {code}: {said} ({pods} pods) |"


def _waiting(job: Job) -> str:
    """The line that says what has no room."""
    lines = job.said.read_text(errors="replace").splitlines()
    return next((line for line in lines if "room for" in line or "Insufficient" in line), "")


def _left(job: Job) -> str:
    """What there is of a job a moment after its launcher has ended."""
    deadline = time.monotonic() + 30
    while True:
        left = kubectl("get", "jobs,pods,secrets,services,configmaps", "-l", selector(job.name), "-o", "name").split()
        if not left or time.monotonic() > deadline:
            return f"left: {', '.join(left)}" if left else "nothing left"
        time.sleep(0.5)


UNPLACED = (
    "a quota that takes one pod",
    "a quota for memory, and none is asked for",
    "an image that does not exist",
    "more CPUs than there are",
    "more CPUs than there are, --gang",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("image", "claim", "volume"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--cut", help="a command that cuts the network of {node}'s pods")
    parser.add_argument("--heal", help="a command that mends it")
    parser.add_argument("--kill-kubelet", help="a command that kills the kubelet of {node}")
    parser.add_argument("--start-kubelet", help="a command that starts it again")
    parser.add_argument("--cpus", type=int, default=2, help="per pod, of which two have room and three have not")
    parser.add_argument("--here", action="store_true", help="the pods' processes are on this machine")
    parser.add_argument("--logs", default="/tmp", help="folder for what launchers print")
    parser.add_argument("--only", nargs="*", help="parts of faults' names")
    parser.add_argument("--methods", nargs="*", default=["collective", "pserver"], choices=METHODS)
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="further options of the launch")
    options = parser.parse_args()
    print(
        "| fault | method | no process left after | launcher ended after | saved | exit code, last lines of launcher |"
    )
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for fault in (*FAULTS, *UNPLACED):
        needed = NEEDS.get(FAULTS[fault][0], ()) if fault in FAULTS else ()
        if not all(getattr(options, name) for name in needed):
            continue
        for method in options.methods:
            if "server" in fault and method == "collective":
                continue
            if options.only is None or any(part in fault for part in options.only):
                print((measure if fault in FAULTS else unplaced)(options, method, fault), flush=True)


if __name__ == "__main__":
    main()
