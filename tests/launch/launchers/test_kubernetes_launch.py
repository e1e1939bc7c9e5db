"""What the launcher asks of kubectl, with a stand-in that keeps objects as files: no cluster can be had in CI."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from phalanx.cli.main import app
from phalanx.commands.logs import print_logs
from phalanx.errors import UserError
from phalanx.launch.launchers import kubernetes_follow
from phalanx.launch.launchers.kubernetes_job import KubernetesJob
from tests.waiting import until

LAUNCH = ["launch", "--launcher", "k8s", "-n", "2", "--image", "x"]
TRAIN = ["--", "train", "digits", "--out", "runs/job"]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the objects."""
    objects = tmp_path / "objects"
    objects.mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    stand_in = Path(__file__).with_name("kubectl.py")
    (programs / "kubectl").write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {stand_in} "$@"\n')
    (programs / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("KUBECTL_FOLDER", str(objects))
    monkeypatch.delenv("PHALANX_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    return objects


def objects_in(cluster: Path) -> dict[str, Any]:
    return {path.name.removesuffix(".json"): json.loads(path.read_text()) for path in cluster.glob("*.json")}


def put(path: Path, one: Any) -> None:
    """Whole or not at all: the launcher reads it meanwhile."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(one))
    new.replace(path)


def run(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    return f"{done.exit_code}: {done.output}"


def test_without_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="kubectl: not found"):
        run(*LAUNCH, *TRAIN)


def test_a_job_from_its_creation_to_its_end(cluster: Path) -> None:
    """The test plays the cluster: a pod runs, then the job fails."""
    launcher = subprocess.Popen(
        [sys.executable, "-m", "phalanx", *LAUNCH, *TRAIN], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        until(lambda: objects_in(cluster).get("Job.job", {}).get("spec", {}).get("suspend") is False)
        made = objects_in(cluster)
        assert set(made) == {"Job.job", "Secret.job", "Service.job", "ConfigMap.job"}
        assert all(
            one["metadata"]["ownerReferences"][0]["uid"] == "uid-of-job"
            for name, one in made.items()
            if name != "Job.job"
        )
        key = made["Secret.job"]["stringData"]["key"]
        assert key not in (cluster / "said").read_text()
        assert "running" not in run("status", "k8s:job")
        pod = {
            "kind": "Pod",
            "metadata": {"name": "job-0-a", "annotations": {"batch.kubernetes.io/job-completion-index": "0"}},
            "spec": {"nodeName": "n1", "containers": [{"env": []}]},
            "status": {
                "phase": "Failed",
                "containerStatuses": [{"state": {"terminated": {"exitCode": 2, "message": "error: no images\n"}}}],
            },
        }
        put(cluster / "Pod.job-0-a.json", pod)
        failed = {"conditions": [{"type": "Failed", "status": "True", "message": "a rule matched"}]}
        put(cluster / "Job.job.json", {**made["Job.job"], "status": failed})
        said, _ = launcher.communicate(timeout=120)
    finally:
        launcher.kill()
        launcher.wait()
    assert launcher.returncode == 2, said
    assert "a line of job-0-a" in said
    assert "job job has failed: a rule matched" in said
    assert "cause: trainer-0 (pod job-0-a on n1) ended with code 2: no images" in said
    assert "trainer-0" in run("status", "runs/job")
    assert "trainer-0 | a line of job-0-a" in run("logs", "k8s:job")
    assert "cancelling k8s job job" in run("stop", "runs/job")
    assert set(objects_in(cluster)) == {"Pod.job-0-a"}
    (cluster / "Pod.job-0-a.json").unlink()
    with pytest.raises(UserError, match="job job is not in the cluster"):
        run("stop", "k8s:job")


class Left(io.StringIO):
    """Output that nobody reads."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_logs_end_when_nobody_reads_them_any_more(cluster: Path) -> None:
    (cluster / "Job.job.json").write_text(json.dumps({"kind": "Job", "metadata": {"name": "job"}, "spec": {}}))
    put_pod(cluster, 0, {"phase": "Running"})
    with pytest.raises(BrokenPipeError):
        print_logs(Path("k8s:job"), None, follow=True, out=Left())


def put_pod(cluster: Path, index: int, status: dict[str, Any]) -> None:
    metadata = {"name": f"job-{index}-a", "annotations": {"batch.kubernetes.io/job-completion-index": str(index)}}
    pod = {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{}]}, "status": status}
    put(cluster / f"Pod.job-{index}-a.json", pod)


def test_logs_of_a_job_whose_pods_have_not_all_begun(cluster: Path) -> None:
    (cluster / "Job.job.json").write_text(json.dumps({"kind": "Job", "metadata": {"name": "job"}, "spec": {}}))
    put_pod(cluster, 1, {"phase": "Pending"})
    put_pod(cluster, 2, {"phase": "Failed", "reason": "Evicted"})
    with pytest.raises(UserError, match="no pod of the job has begun"):
        print_logs(Path("k8s:job"), None, follow=False, out=io.StringIO())
    put_pod(cluster, 0, {"phase": "Running"})
    out = io.StringIO()
    print_logs(Path("k8s:job"), None, follow=False, out=out)
    assert out.getvalue() == "trainer-0 | a line of job-0-a\n"


def test_a_name_that_is_taken_and_what_a_quota_refuses_leave_nothing(cluster: Path) -> None:
    taken = json.dumps({"kind": "Job", "metadata": {"name": "job"}, "spec": {}})
    (cluster / "Job.job.json").write_text(taken)
    with pytest.raises(UserError, match="there is a job job already"):
        run(*LAUNCH, *TRAIN)
    assert (cluster / "Job.job.json").read_text() == taken
    (cluster / "Job.job.json").unlink()
    with pytest.raises(UserError, match="no such pvc"):
        run(*LAUNCH, "--volume-claim", "disk", *TRAIN)
    small = {"kind": "resourcequotas", "metadata": {"name": "small"}, "spec": {}, "status": {"hard": {"pods": "1"}}}
    (cluster / "resourcequotas.small.json").write_text(json.dumps(small))
    with pytest.raises(UserError, match="the namespace has room for 1 of this job's 2 pods"):
        run(*LAUNCH, *TRAIN)
    (cluster / "resourcequotas.small.json").unlink()
    (cluster / "refuse-Pod").touch()
    with pytest.raises(UserError, match="refuses the pods") as refused:
        run(*LAUNCH, *TRAIN)
    assert "exceeded quota" in refused.value.why
    (cluster / "refuse-Pod").unlink()
    (cluster / "refuse-ConfigMap").touch()
    with pytest.raises(UserError, match="failed"):
        run(*LAUNCH, *TRAIN)
    assert not objects_in(cluster)


@pytest.mark.parametrize(("end", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 130), (None, 143)])
def test_a_gang_holds_nothing_until_there_is_room_for_all(cluster: Path, end: int | None, code: int) -> None:
    node = {
        "metadata": {"name": "a"},
        "spec": {},
        "status": {"allocatable": {"cpu": "3", "pods": "9"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    (cluster / "nodes.a.json").write_text(json.dumps({"kind": "nodes", **node}))
    full = {"hard": {"pods": "2"}, "used": {"pods": "1"}}  # now: it refuses a pod of the dry run, and not the job
    quota = {"kind": "resourcequotas", "metadata": {"name": "small"}, "spec": {}, "status": full}
    (cluster / "resourcequotas.small.json").write_text(json.dumps(quota))
    (cluster / "refuse-Pod").touch()
    words = [*LAUNCH, "--gang", "--cpus-per-worker", "2", *TRAIN]
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # with nohup's, which it would inherit, it is not ended
    launcher = subprocess.Popen(
        [sys.executable, "-m", "phalanx", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    signal.signal(signal.SIGHUP, before)
    try:
        assert launcher.stdout is not None
        said = ""
        while "room" not in said:
            line = launcher.stdout.readline()
            assert line, said
            said += line
        assert "job job is waiting for room for 1 of 2 pods" in said
        assert objects_in(cluster)["Job.job"]["spec"]["suspend"] is True
        assert "until there is room for all pods (--gang)" in run("status", "k8s:job")
        if end is None:
            run("stop", "k8s:job")
        else:
            launcher.send_signal(end)
        rest, _ = launcher.communicate(timeout=60)
    finally:
        launcher.kill()
        launcher.wait()
    assert ("job job had not begun; it was removed" if end else "was stopped and deleted; it had not begun") in rest
    assert launcher.returncode == code
    assert set(objects_in(cluster)) == {"nodes.a", "resourcequotas.small"}


def test_a_job_whose_folder_here_cannot_be_written_is_removed(cluster: Path) -> None:
    Path("runs").write_text("no folder")
    with pytest.raises(OSError, match="runs"):
        run(*LAUNCH, *TRAIN)
    assert not objects_in(cluster)


def test_a_gang_needs_this_command_to_wait(cluster: Path) -> None:
    for other in ("--detach", "--queue=vision"):
        with pytest.raises(UserError, match="--gang does not go together"):
            run(*LAUNCH, "--gang", other, *TRAIN)


def test_a_launch_leaves_a_job_whose_node_does_not_answer(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_follow, "_OVERDUE_S", 0.0)
    ending = {"name": "job", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    put(cluster / "Job.job.json", {"kind": "Job", "metadata": ending, "spec": {}})
    lost = {"kind": "Pod", "metadata": {**ending, "name": "job-0-a"}, "spec": {"containers": [{}]}}
    put(cluster / "Pod.job-0-a.json", lost)
    said = io.StringIO()
    assert kubernetes_follow.follow(KubernetesJob("job"), None, Console(file=said), io.StringIO()) == 1
    assert "job job has not ended: the node of trainer-0 (pod job-0-a) does not answer" in said.getvalue()
