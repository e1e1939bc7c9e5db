"""`--launcher k8s`: creates a job in a cluster with kubectl and follows it, or prints its manifests."""

import json
import secrets
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import yaml
from rich.console import Console
from rich.text import Text

from phalanx.config.resolve import DEFAULT
from phalanx.errors import UserError
from phalanx.launch.job import forwarded_variables, role_counts
from phalanx.launch.launchers.batch_script import parse_time
from phalanx.launch.launchers.follow import Cancelled, interruptible
from phalanx.launch.launchers.kubectl import Kubectl
from phalanx.launch.launchers.kubernetes_follow import follow
from phalanx.launch.launchers.kubernetes_gang import await_room
from phalanx.launch.launchers.kubernetes_job import PREFIX, KubernetesJob, check
from phalanx.launch.launchers.kubernetes_options import refuse_options
from phalanx.launch.launchers.manifests import (
    MASTER_PORT,
    RECIPE,
    RECIPE_FOLDER,
    SERVER_PORT,
    SET_FOR_PODS,
    Manifest,
    Pods,
    belongings,
    job,
    job_name,
)
from phalanx.launch.launchers.pod import JOB, TIMEOUT
from phalanx.launch.launchers.submitted import KUBERNETES, Submitted
from phalanx.launch.plan import LaunchPlan
from phalanx.roles.request import Request, resume_words
from phalanx.runs.checkpoint import FOLDER
from phalanx.runs.folder import LOGS, RUNS, config_text

_MOST_CODE_BYTES = 900 << 10  # a ConfigMap has at most 1 MiB
SILENCE_S = 15.0  # exchange.silence_s by default: when pods lose one another, all have saved and ended within 30 s
_MADE_S = 30.0  # for a detached job's pods to be made, or refused


def start(plan: LaunchPlan, console: Console) -> int:
    """Create the job and follow it, or print its manifests. Returns an exit code."""
    _refuse(plan)
    pods, run = pods_of(plan)
    manifest = _patched(job(pods), plan.kubernetes.patch)
    if plan.dry_run:
        everything = [*belongings(pods), manifest]
        sys.stdout.write(yaml.safe_dump_all(everything, sort_keys=False, allow_unicode=True, width=1000))
        return 0
    for note in _notes(plan, pods):
        _say(console, f"note: {note}")
    target = KubernetesJob(pods.name, plan.kubernetes.namespace)
    check(target, pods, manifest)
    here = RUNS / pods.name
    target.create(pods, manifest)
    if ended := _begin(target, pods, manifest, here, run, console):
        return ended
    if plan.batch.detach:
        return _detach(target, console)
    return follow(target, None if plan.kubernetes.claim else here / LOGS, console)


def _begin(
    target: KubernetesJob, pods: Pods, manifest: Manifest, here: Path, run: Path, console: Console
) -> int | None:
    """Start the Job; with --gang, once there is room. One that does not begin is removed; returns its exit code."""
    try:
        with interruptible(hangup=True):
            here.mkdir(parents=True, exist_ok=True)
            Submitted(KUBERNETES, str(target)).write(here)
            _say(console, f"created job {target}; from any terminal: phalanx status, logs or stop {PREFIX}{target}")
            if pods.options.claim:
                _say(console, f"run folder, on the volume: {run}")
            spec = manifest["spec"]["template"]["spec"]
            if pods.options.gang and not await_room(target.kubectl, target.name, spec, pods.count, console):
                _say(console, f"job {target} was stopped and deleted; it had not begun")
                return 128 + signal.SIGTERM
        if not pods.options.queue:
            target.begin()
    except Cancelled:
        target.remove()
        _say(console, f"job {target} had not begun; it was removed")
        return 128 + signal.SIGINT
    except BaseException:
        target.remove()
        raise
    return None


def _detach(target: KubernetesJob, console: Console) -> int:
    """Wait until the cluster has made the pods, or refused to."""
    deadline = time.monotonic() + _MADE_S
    while True:
        state = target.look()
        refused = [wait for wait in state.waits if not wait.pods]
        if len(state.pods) >= state.count or state.kind != "waiting" or (time.monotonic() > deadline and not refused):
            _say(console, f"job {target} is {state.text}")
            return 0
        if refused and time.monotonic() > deadline - _MADE_S / 2:
            target.stop()
            raise UserError(
                f"job {target} has no pods; it was removed",
                why=refused[0].why,
                remedy="ask for less, or wait until others have ended",
            )
        time.sleep(0.5)


def pods_of(plan: LaunchPlan) -> tuple[Pods, Path]:
    """The job as pods, which read the resolved configuration from a ConfigMap; and the run folder, in the pods."""
    request, options = _soon_noticed(plan.request), plan.kubernetes
    if request.resume is not None:
        run = Path(options.resume or request.resume.path)
        name = job_name(f"{run.name}-{time.strftime('%Y%m%d-%H%M%S')}")
        step = "" if request.at_step is None else f"/{FOLDER}/step-{request.at_step}"
        words = resume_words(request, f"{run}{step}")
    else:
        given = request.out.name if request.out else request.config.name
        name = job_name(given if request.out else f"{given}-{time.strftime('%Y%m%d-%H%M%S')}")
        run = request.out or RUNS / name
        words = [f"{RECIPE_FOLDER}/{RECIPE}", "--out", str(run)]
    if request.init_from is not None:
        words += ["--init-from", str(request.init_from)]
    if options.claim and request.config.train.log_dir is None:  # pods take their logs with them
        words += ["--log-dir", str(run / LOGS)]
    made = replace(plan, request=request).job(Path(name))
    master, server = plan.ports or (MASTER_PORT, SERVER_PORT)
    pods = Pods(
        name=name,
        options=options,
        num_trainers=made.counts["trainer"],
        num_servers=made.counts["server"],
        argv=[plan.python or "python3", "-m", "phalanx.launch.launchers.pod", str(run), "--", "train", *words],
        key=made.key,
        variables={
            **{name: value for name, value in forwarded_variables().items() if not name.startswith("PHALANX_")},
            "PHALANX_COMMAND": plan.command,
            JOB: secrets.token_hex(8),
            TIMEOUT: f"{request.config.exchange.timeout_s:g}",
        },
        recipe=None if request.resume else config_text(request.resolved),
        code={file.name: file.text for file in request.code},
        master_port=master,
        server_port=server,
        needs=plan.needs,
        max_restarts=plan.max_restarts or 0,
        time_s=parse_time(plan.batch.time) if plan.batch.time else None,
    )
    refuse_options(options, [*pods.environment, *SET_FOR_PODS])
    return pods, run


def _soon_noticed(request: Request) -> Request:
    """The request with a shorter silence, unless the user or the resumed run has set it."""
    if request.resume is not None or request.resolved.origins.get("exchange.silence_s", DEFAULT) != DEFAULT:
        return request
    exchange = request.config.exchange.model_copy(update={"silence_s": SILENCE_S})
    config = request.config.model_copy(update={"exchange": exchange})
    return replace(request, resolved=request.resolved.with_config(config))


def _patched(manifest: Manifest, patch: str | None) -> Manifest:
    """The Job with the user's changes, as kubectl merges them; no cluster is asked."""
    if patch is None:
        return manifest
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.json"
        file.write_text(json.dumps(manifest), encoding="utf-8")
        words = ("--local", "-f", str(file), "--type=strategic", "--patch-file", patch, "-o", "json")
        found: Manifest = json.loads(Kubectl().run(f"merging --patch {patch}", "patch", *words, timeout=""))
    return found


def _notes(plan: LaunchPlan, pods: Pods) -> list[str]:
    """What the user may not expect."""
    notes = []
    if plan.needs.cpus is None:
        notes.append(
            "without --cpus-per-worker each pod takes as many threads as its node has cores, also beside others"
        )
    if pods.options.claim is None:
        notes.append("without --volume-claim the run and its checkpoints go with the pods")
    if pods.num_servers and plan.needs.gpus:
        notes.append(f"each server asks for {plan.needs.gpus} GPUs, too: the pods of a Job are alike")
    return notes


def _refuse(plan: LaunchPlan) -> None:
    counts = role_counts(plan.request.config)
    if plan.ports and plan.ports[0] == plan.ports[1]:
        raise UserError("--port-range has one port", why="k8s needs two", remedy="such as --port-range 17000-17001")
    if plan.kubernetes.gang and (plan.batch.detach or plan.kubernetes.queue):
        other = "--queue" if plan.kubernetes.queue else "--detach"
        raise UserError(
            f"--gang does not go together with {other}",
            why="Kueue admits all pods or none by itself"
            if plan.kubernetes.queue
            else "this command waits until there is room for all pods",
            remedy="leave --gang out" if plan.kubernetes.queue else "leave one of them out; or --queue NAME (of Kueue)",
        )
    if plan.max_restarts and not plan.kubernetes.claim:
        raise UserError(
            "--max-restarts needs --volume-claim",
            why="a pod that starts again goes on from the newest checkpoint, which has to outlive the pods",
            remedy="--volume-claim NAME, a volume that all nodes can mount",
        )
    if plan.max_restarts and plan.request.at_step is not None:
        raise UserError(
            "--max-restarts does not go together with --at",
            why="each start would go back to that checkpoint",
            remedy="leave one of them out",
        )
    if plan.request.resume is not None and not plan.kubernetes.claim:
        raise UserError(
            "--resume needs --volume-claim",
            why="the run is on that volume",
            remedy="--volume-claim NAME, as in its launch",
        )
    if sum(len(file.text.encode()) for file in plan.request.code) > _MOST_CODE_BYTES:
        raise UserError(
            "your code is too large for --launcher k8s",
            why=f"it travels in a ConfigMap, which holds at most {_MOST_CODE_BYTES >> 10} kB of it",
            remedy="install it as a package in the image, and name it package.module:name",
        )
    if counts["data"] or counts["teacher"] or counts["evaluator"]:
        raise UserError(
            "--launcher k8s starts trainers and servers only",
            why="the job has data servers, teachers or an evaluator",
            remedy="leave --data-servers, --teachers and --evaluator out",
        )


def _say(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)
