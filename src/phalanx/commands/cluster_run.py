"""Runs on a volume of a cluster: a copy of one for `launch --resume`, and `phalanx get`."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.errors import UserError
from phalanx.launch.launchers.kubernetes_options import KubernetesOptions
from phalanx.launch.launchers.kubernetes_volume import fetch_job, fetch_run, on_volume
from phalanx.launch.launchers.submitted import submitted_job
from phalanx.runs.checkpoint import FOLDER as CHECKPOINTS


@contextmanager
def copied_run(
    run: Path, options: KubernetesOptions, python: str | None, *, dry_run: bool = False
) -> Iterator[tuple[Path, KubernetesOptions]]:
    """A copy of a run on the volume, with its settings and the names of its checkpoints; and options that say so.

    `run` may be one of its checkpoints. Pods find the run at that path on the volume.
    """
    if not options.claim:
        raise UserError(
            "--resume needs --volume-claim",
            why="the run is on that volume",
            remedy="--volume-claim NAME, as in its launch",
        )
    if dry_run:
        raise UserError(
            f"--dry-run cannot show how {run} is resumed",
            why="its settings are on the volume, and only a pod can read them there",
            remedy="leave --dry-run out; or copy the run to this path here",
        )
    inside = on_volume(run)
    at_step = inside.parent.name == CHECKPOINTS
    folder = inside.parent.parent if at_step else inside
    with tempfile.TemporaryDirectory(prefix="phalanx-") as temporary:
        copy = Path(temporary) / folder.name
        fetch_run(options, str(folder), copy, python or "python3")
        yield (copy / CHECKPOINTS / inside.name if at_step else copy), replace(options, resume=str(folder))


def get_run(console: Console, run: Path, into: Path | None) -> None:
    """Copy what is small of a job's run to this host: events, summary, curves, configuration, logs."""
    submitted = submitted_job(run)
    job = submitted.in_cluster if submitted is not None else None
    if job is None:
        raise UserError(
            f"{run} is not a job in a cluster",
            why="only the runs of --launcher k8s are on a volume elsewhere",
            remedy="phalanx get k8s:JOB; kubectl get jobs lists them",
        )
    here = fetch_job(job, into)
    console.print(Text(f"{here}: see phalanx plot {here}; its checkpoints are on the volume"), soft_wrap=True)
