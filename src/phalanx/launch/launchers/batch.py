"""`--launcher slurm`, `sge`, `pbs`: writes a script into the run's folder, submits it, and follows the job."""

import contextlib
import re
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.errors import UserError
from phalanx.launch.launchers.batch_script import LOG, BatchJob, Resources, parse_time, refuse_lines, script, share
from phalanx.launch.launchers.follow import follow
from phalanx.launch.launchers.scheduler import Scheduler
from phalanx.launch.launchers.submitted import SCHEDULERS, Submitted
from phalanx.launch.local_job import wanted_roles
from phalanx.launch.plan import LAST, LaunchPlan
from phalanx.launch.run_files import CONFIG, verify_step
from phalanx.observe.tables import print_line
from phalanx.roles.request import resume_words
from phalanx.runs.folder import RUNS, create_run, write_run_file
from phalanx.runs.rewind import put_aside_after


def start(plan: LaunchPlan, console: Console) -> int:
    """Submit the job, or show the script that would be submitted. Returns the job's exit code."""
    scheduler = SCHEDULERS[plan.launcher]()
    resources = _resources(plan)
    if plan.dry_run:
        name = f"{plan.request.resolved.config.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        run = (plan.request.resume.path if plan.request.resume else plan.request.out or RUNS / name).absolute()
        path = run / f"job.{scheduler.name}"
        print_line(console, f"would write {path}:")
        if plan.request.resume is None:
            print_line(console, f"would write {run / CONFIG}: all settings")
        for line in script(scheduler.dialect, batch_job(plan, run, resources, scheduler), path).splitlines():
            print_line(console, f"  {line}")
        print_line(console, f"would run: {scheduler.dialect.submit} {path}")
        return 0
    folder = plan.request.resume or create_run(plan.request.out, plan.request.resolved.config.name)
    if plan.request.at_step is not None:  # now: the script goes on from the newest, however often it is queued
        verify_step(folder.path, plan.request.at_step)
        put_aside_after(folder.checkpoints, plan.request.at_step)
    run = folder.path.absolute()
    path = run / f"job.{scheduler.name}"
    (run / LOG).parent.mkdir(exist_ok=True)
    if plan.request.resume is None:  # the job reads its settings from there, whenever it runs
        folder.write_config(plan.request.resolved)
    write_run_file(path, script(scheduler.dialect, batch_job(plan, run, resources, scheduler), path))
    try:
        number = scheduler.submit(str(path))
    except UserError:
        _forget(run, path, made=plan.request.resume is None)
        raise
    Submitted(scheduler.name, number).write(run)
    _say(console, f"job {number} is submitted: {path}")
    if plan.batch.detach:
        _say(console, f"its log is {run / LOG}; phalanx status {run}, phalanx stop {run}")
        return 0
    return follow(scheduler, number, run, run / LOG, console, sys.stdout)


def _forget(run: Path, path: Path, *, made: bool) -> None:
    """A job that was refused leaves no folder, unless there is something else in it."""
    path.unlink()
    if made:
        (run / CONFIG).unlink()
    with contextlib.suppress(OSError):
        (run / LOG).parent.rmdir()
        run.rmdir()


def batch_job(plan: LaunchPlan, run: Path, resources: Resources, scheduler: Scheduler) -> BatchJob:
    """The job inside the allocation: this same launch with another launcher, into this folder."""
    options = {
        "--launcher": scheduler.inside,
        "--evaluator-on": plan.evaluator_on,
        "--setup": plan.setup or None,
        "--iface": plan.iface,
        "--port-range": f"{plan.ports[0]}-{plan.ports[1]}" if plan.ports else None,
        "--max-restarts": plan.max_restarts,
        "--min-workers": plan.min_workers,
        "--python": plan.python,
        "--hostfile": run / "hosts" if scheduler.inside == "ssh" else None,
        "--nodes": plan.batch.nodes if scheduler.inside == "qrsh" else None,
    }
    given = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    request = plan.request
    train = resume_words(request, str(run)) if request.resume else [str(run / CONFIG), "--out", str(run)]
    if request.init_from is not None:
        train += ["--init-from", str(request.init_from.absolute())]
    return BatchJob(
        name=re.sub(r"\s", "-", plan.request.resolved.config.name),
        run=run,
        cwd=Path.cwd(),
        command=plan.command,
        launch=(sys.executable, "-m", "phalanx", "launch", *given),
        train=tuple(train),
        resources=resources,
    )


def _resources(plan: LaunchPlan) -> Resources:
    if plan.hosts or plan.sync or plan.servers_on:
        raise UserError(
            f"--launcher {plan.launcher} chooses the hosts",
            why="hosts are named, or a directory is to be sent to them",
            remedy="leave -H, --ips, --servers-on and --sync-dst-dir out; say how many with --nodes",
        )
    asked, wanted = plan.batch, wanted_roles(plan.request.resolved.config)
    nodes, apart = asked.nodes or 1, int(plan.evaluator_on is not None)
    if nodes - apart > wanted["trainer"]:
        raise UserError(
            f"--nodes {nodes} is more than the job's {wanted['trainer']} workers",
            why="a node without a trainer would stand idle",
            remedy=f"ask for {wanted['trainer'] + apart} nodes, or for more workers with -n",
        )
    if plan.launcher != "slurm" and plan.evaluator_on not in (None, LAST):
        raise UserError(
            f"--evaluator-on {plan.evaluator_on} cannot be asked for",
            why=f"--launcher {plan.launcher} gives hosts of its own choice",
            remedy=f"--evaluator-on {LAST}: the last one that it gives",
        )
    if apart and nodes == 1:
        raise UserError(
            "--evaluator-on needs a node for the evaluator alone",
            why="the job asks for one node",
            remedy="ask for one more: --nodes 2",
        )
    if (asked.pe is None) == (plan.launcher == "sge"):
        raise UserError(
            "--launcher sge needs --pe" if asked.pe is None else f"--launcher {plan.launcher} has no --pe",
            why="Grid Engine gives several slots only to jobs with a parallel environment",
            remedy="--pe NAME; qconf -spl lists them" if asked.pe is None else "leave it out",
        )
    refuse_lines([*asked.directives, asked.partition or "", asked.account or "", asked.pe or ""], "--directive")
    refuse_lines([plan.evaluator_on or ""], "--evaluator-on")
    refuse_lines([str(plan.request.out or ""), str(Path.cwd())], "the folder")
    return Resources(
        nodes=nodes,
        roles_per_node=share(sum(wanted.values()) - apart, nodes - apart),
        time_s=parse_time(asked.time) if asked.time else None,
        partition=asked.partition,
        account=asked.account,
        gpus_per_node=asked.gpus_per_node,
        pe=asked.pe,
        slots=asked.nodes or wanted["trainer"],
        directives=asked.directives,
        node=plan.evaluator_on if plan.evaluator_on != LAST else None,
    )


def _say(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)
