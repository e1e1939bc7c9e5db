"""`--launcher slurm`, `sge`, `pbs`: writes a script to the run folder, submits it, and follows the job."""

import contextlib
import re
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.errors import UserError
from phalanx.launch.job import role_counts
from phalanx.launch.launchers.batch_script import LOG, BatchJob, Resources, parse_time, refuse_lines, script, share
from phalanx.launch.launchers.follow import follow
from phalanx.launch.launchers.scheduler import Scheduler
from phalanx.launch.launchers.submitted import SCHEDULERS, Submitted
from phalanx.launch.plan import LAST, LaunchPlan
from phalanx.launch.run_files import CODE, CONFIG, verify_step
from phalanx.observe.tables import print_line
from phalanx.roles.request import accept_words, resume_words
from phalanx.runs.code import write_code
from phalanx.runs.folder import RUNS, RunFolder, create_run, write_run_file
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
        for line in script(scheduler.syntax, batch_job(plan, run, resources, scheduler), path).splitlines():
            print_line(console, f"  {line}")
        print_line(console, f"would run: {scheduler.syntax.submit} {path}")
        return 0
    folder = plan.request.resume or create_run(plan.request.out, plan.request.resolved.config.name)
    if plan.request.at_step is not None:  # now: the script always resumes from the newest
        verify_step(folder.path, plan.request.at_step)
        put_aside_after(folder.checkpoints, plan.request.at_step)
    run = folder.path.absolute()
    path = run / f"job.{scheduler.name}"
    (run / LOG).parent.mkdir(exist_ok=True)
    if plan.request.resume is None:  # the job reads its settings from there, whenever it runs
        write_code(run, plan.request.code)
        folder.write_config(plan.request.resolved)
    write_run_file(path, script(scheduler.syntax, batch_job(plan, run, resources, scheduler), path))
    try:
        number = scheduler.submit(str(path))
    except UserError:
        _forget(run, path, made=plan.request.resume is None)
        raise
    Submitted(scheduler.name, number).write(run)
    _say(console, f"submitted job {number}: {path}")
    if plan.batch.detach:
        _say(console, f"log: {run / LOG}; see also: phalanx status {run}, phalanx stop {run}")
        return 0
    return follow(scheduler, number, run, run / LOG, console, sys.stdout)


def _forget(run: Path, path: Path, *, made: bool) -> None:
    """Remove the files of a job that was refused, and its folder if that is empty."""
    path.unlink()
    if made:
        RunFolder(run).remove_config()
        shutil.rmtree(run / CODE, ignore_errors=True)
    with contextlib.suppress(OSError):
        (run / LOG).parent.rmdir()
        run.rmdir()


def batch_job(plan: LaunchPlan, run: Path, resources: Resources, scheduler: Scheduler) -> BatchJob:
    """The job inside the allocation: the same launch with another launcher."""
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
    words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    request = plan.request
    train = resume_words(request, str(run)) if request.resume else [str(run / CONFIG), "--out", str(run)]
    if request.init_from is not None:
        train += ["--init-from", str(request.init_from.absolute())]
    return BatchJob(
        name=re.sub(r"\s", "-", plan.request.resolved.config.name),
        run=run,
        cwd=Path.cwd(),
        command=plan.command,
        launch=(sys.executable, "-m", "phalanx", "launch", *words),
        train=tuple(train),
        resume=tuple(accept_words(request)),
        resources=resources,
    )


def _resources(plan: LaunchPlan) -> Resources:
    options, counts = plan.batch, role_counts(plan.request.resolved.config)
    nodes, evaluator_nodes = options.nodes or 1, int(plan.evaluator_on is not None)
    if nodes - evaluator_nodes > counts["trainer"]:
        raise UserError(
            f"--nodes {nodes} is more than the job's {counts['trainer']} workers",
            why="a node without a worker would be idle",
            remedy=f"request {counts['trainer'] + evaluator_nodes} nodes, or more workers with -n",
        )
    if plan.launcher != "slurm" and plan.evaluator_on not in (None, LAST):
        raise UserError(
            f"--evaluator-on {plan.evaluator_on} cannot be requested",
            why=f"--launcher {plan.launcher} chooses the hosts",
            remedy=f"--evaluator-on {LAST}: the last of its hosts",
        )
    if evaluator_nodes and nodes == 1:
        raise UserError(
            "--evaluator-on needs a node for the evaluator alone",
            why="the job requests one node",
            remedy="request one more: --nodes 2",
        )
    if plan.launcher == "sge" and options.pe is None:
        raise UserError(
            "--launcher sge needs --pe",
            why="Grid Engine gives several slots only to jobs with a parallel environment",
            remedy="--pe NAME; qconf -spl lists them",
        )
    refuse_lines([*options.directives, options.partition or "", options.account or "", options.pe or ""], "--directive")
    refuse_lines([plan.evaluator_on or ""], "--evaluator-on")
    refuse_lines([str(plan.request.out or ""), str(Path.cwd())], "the folder")
    return Resources(
        nodes=nodes,
        roles_per_node=share(sum(counts.values()) - evaluator_nodes, nodes - evaluator_nodes),
        time_s=parse_time(options.time) if options.time else None,
        partition=options.partition,
        account=options.account,
        gpus_per_node=options.gpus_per_node,
        pe=options.pe,
        slots=options.nodes or counts["trainer"],
        directives=options.directives,
        node=plan.evaluator_on if plan.evaluator_on != LAST else None,
    )


def _say(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)
