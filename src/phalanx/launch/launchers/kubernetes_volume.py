"""Reads a run's small files from a volume of the cluster: by a pod that mounts it, for a moment."""

import io
import secrets
import subprocess
import tarfile
from pathlib import Path

from phalanx.errors import UserError, parse_error
from phalanx.launch.launchers.kubectl import Kubectl, KubectlError
from phalanx.launch.launchers.kubernetes_job import KubernetesJob
from phalanx.launch.launchers.kubernetes_options import KubernetesOptions, refuse_options
from phalanx.launch.launchers.manifests import FOLDER, Manifest, Pods, pod_spec

_READY = "120s"
_LIVES_S = 600  # should nobody delete it
_NEEDS = {"cpu": "500m", "memory": "500M"}
_KEPT = ("name", "image", "workingDir", "securityContext")  # of the container of a job's pod


def fetch_run(options: KubernetesOptions, run: str, into: Path, python: str) -> None:
    """Copy the configuration, events, curves, logs and code of a run on the volume into a folder of this host."""
    refuse_options(options, ())
    spec = pod_spec(Pods("reader", options, 1, 0, (), "", {}))
    _fetch(Kubectl(options.namespace), spec, run, into, python)


def on_volume(run: Path) -> Path:
    """A run's path in the pods, as it is on the volume."""
    return run.relative_to(FOLDER) if run.is_relative_to(FOLDER) else run


def fetch_job(job: KubernetesJob, into: Path | None) -> Path:
    """The same for a job's run, with its image and volume. Returns the folder: by default as it is on the volume."""
    found = job.kubectl.objects(f"looking at job {job}", "job", job.name)[0]
    spec = found["spec"]["template"]["spec"]
    command = spec["containers"][0]["command"]
    folder: Manifest = next((one for one in spec["volumes"] if one["name"] == "folder"), {})
    if "persistentVolumeClaim" not in folder:
        raise UserError(
            f"job {job} has no volume",
            why="it was launched without --volume-claim, so its run folder goes with the first trainer's pod",
            remedy=f"phalanx logs k8s:{job}; next time --volume-claim NAME",
        )
    run = command[command.index("--") - 1]
    here = into or on_volume(Path(run))
    _fetch(job.kubectl, spec, run, here, command[0])
    return here


def _fetch(kubectl: Kubectl, spec: Manifest, run: str, into: Path, python: str) -> None:
    name = f"phalanx-reader-{secrets.token_hex(4)}"
    try:
        kubectl.create("creating a pod that reads the volume", [_reader(name, spec, python)])
        try:
            ready = ("wait", f"pod/{name}", "--for=condition=Ready", f"--timeout={_READY}")
            kubectl.run("waiting for the pod that reads the volume", *ready, timeout="")
        except KubectlError as error:
            raise UserError(
                "the volume cannot be read", why=error.said, remedy="see why: kubectl get events; and try again"
            ) from error
        command = kubectl.argv("exec", name, "--", python, "-m", "phalanx.launch.launchers.volume_reader", run)
        done = subprocess.run(command, capture_output=True)
    finally:
        kubectl.run("removing the pod", "delete", "pod", name, "--now", "--wait=false", "--ignore-not-found")
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace")
        there = parse_error([line for line in said.splitlines() if not line.startswith("command terminated")])
        raise there or KubectlError(f"reading {run}", said.strip()[-500:])
    try:
        into.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(done.stdout), mode="r:gz") as archive:
            archive.extractall(into, filter="data")
    except OSError as error:
        raise UserError(
            f"the run cannot be copied to {into}",
            why=error.strerror or str(error),
            remedy="name another folder, or free disk space",
        ) from error


def _reader(name: str, spec: Manifest, python: str) -> Manifest:
    """A pod like those of the job, which only sleeps and asks for little."""
    container = {field: value for field, value in spec["containers"][0].items() if field in _KEPT}
    container |= {
        "command": [python, "-c", f"import time; time.sleep({_LIVES_S})"],
        "resources": {"requests": _NEEDS, "limits": _NEEDS},
        "volumeMounts": [{"name": "folder", "mountPath": FOLDER}],
    }
    own = {field: value for field, value in spec.items() if field not in ("subdomain", "terminationGracePeriodSeconds")}
    volumes = [one for one in spec["volumes"] if one["name"] == "folder"]
    own |= {"activeDeadlineSeconds": _LIVES_S, "containers": [container], "volumes": volumes}
    metadata = {"name": name, "labels": {"app.kubernetes.io/name": "phalanx"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": own}
