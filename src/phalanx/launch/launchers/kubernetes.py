"""`--launcher k8s`: prints the manifests of a job, or has kubectl apply them."""

import re
import subprocess
import sys
import time
from pathlib import Path

import yaml
from rich.console import Console

from phalanx.errors import EXIT_OURS, UserError
from phalanx.launch.job import forwarded_variables, role_counts
from phalanx.launch.launchers.manifests import (
    MASTER_PORT,
    RECIPE,
    RECIPE_FOLDER,
    SERVER_PORT,
    Pods,
    job_name,
    manifests,
    refuse_name,
)
from phalanx.launch.multi_host import require
from phalanx.launch.plan import LaunchPlan
from phalanx.observe.tables import print_line
from phalanx.roles.request import resume_words
from phalanx.runs.checkpoint import FOLDER
from phalanx.runs.folder import config_text

_MOST_CODE_BYTES = 900 << 10  # a ConfigMap has at most 1 MiB


def start(plan: LaunchPlan, console: Console) -> int:
    """Print the manifests, or apply them. Returns an exit code."""
    _refuse(plan)
    pods = pods_of(plan)
    text = yaml.safe_dump_all(manifests(pods), sort_keys=False, allow_unicode=True, width=1000)
    if plan.dry_run or not plan.kubernetes.apply:
        sys.stdout.write(text)
        return 0
    require("kubectl", "kubernetes-client")
    code = subprocess.run(["kubectl", "apply", "-f", "-"], input=text.encode()).returncode
    if code != 0:
        return EXIT_OURS
    where = f" -n {plan.kubernetes.namespace}" if plan.kubernetes.namespace else ""
    label = f"app.kubernetes.io/instance={pods.name}"
    print_line(console, f"follow the job:  kubectl{where} logs -f job/{pods.name}-trainer")
    print_line(console, f"delete the job:  kubectl{where} delete job,svc,secret,cm -l {label}")
    return 0


def pods_of(plan: LaunchPlan) -> Pods:
    """The job as pods, which read the resolved configuration from a ConfigMap."""
    run = plan.request.out.name if plan.request.out else plan.request.resolved.config.name
    name = job_name(run if plan.request.out else f"{run}-{time.strftime('%Y%m%d-%H%M%S')}")
    job = plan.job(Path(name))
    request = plan.request
    if request.resume is not None:
        step = "" if request.at_step is None else f"/{FOLDER}/step-{request.at_step}"
        words = resume_words(request, f"{request.resume.path}{step}")
    else:
        words = [f"{RECIPE_FOLDER}/{RECIPE}", "--out", str(request.out or f"runs/{name}")]
    if request.init_from is not None:
        words += ["--init-from", str(request.init_from)]
    master = plan.ports[0] if plan.ports else MASTER_PORT
    return Pods(
        name=name,
        options=plan.kubernetes,
        num_trainers=job.counts["trainer"],
        num_servers=job.counts["server"],
        argv=[plan.python or "python3", "-m", "phalanx", "train", *words],
        key=job.key,
        variables={
            **{name: value for name, value in forwarded_variables().items() if not name.startswith("PHALANX_")},
            "PHALANX_COMMAND": plan.command,
        },
        recipe=None if request.resume else config_text(request.resolved),
        code={file.name: file.text for file in request.code},
        master_port=master,
        server_port=plan.ports[1] if plan.ports else SERVER_PORT,
        needs=plan.needs,
    )


def _refuse(plan: LaunchPlan) -> None:
    options = plan.kubernetes
    if not options.image or re.search(r"\s", options.image):
        raise UserError(
            "--launcher k8s needs --image" if not options.image else f"--image {options.image!r} is not an image",
            why="pods are started from an image that has Python and this Phalanx",
            remedy="--image REGISTRY/NAME:TAG",
        )
    refuse_name("--namespace", options.namespace)
    refuse_name("--volume-claim", options.claim)
    if plan.ports and plan.ports[0] == plan.ports[1]:
        raise UserError("--port-range has one port", why="k8s needs two", remedy="such as --port-range 17000-17001")
    unsupported = {
        "--evaluator-on": plan.evaluator_on,
        "-H, --ips, --servers-on": plan.hosts,
        "--sync-dst-dir": plan.sync,
        "--setup": plan.setup,
        "--iface": plan.iface,
        "--max-restarts": plan.max_restarts,
        "--min-workers": plan.min_workers,
    }
    given = [option for option, value in unsupported.items() if value]
    if given:
        raise UserError(
            f"--launcher k8s has no {given[0]}",
            why="Kubernetes chooses hosts and starts the roles, and no launcher stays to restart them",
            remedy="leave it out; put what a host needs into the image",
        )
    if sum(len(file.text.encode()) for file in plan.request.code) > _MOST_CODE_BYTES:
        raise UserError(
            "your code is too large for --launcher k8s",
            why=f"it travels in a ConfigMap, which holds at most {_MOST_CODE_BYTES >> 10} kB of it",
            remedy="install it as a package in the image, and name it package.module:name",
        )
    counts = role_counts(plan.request.config)
    if counts["data"] or counts["evaluator"]:
        raise UserError(
            "--launcher k8s starts trainers and servers only",
            why="the job has data servers or an evaluator",
            remedy="leave --data-servers and --evaluator out",
        )
