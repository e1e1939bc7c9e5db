"""`--launcher yarn`: agents in containers of YARN, which dial this host."""

import json
import sys
import time
from urllib.parse import urlsplit

from rich.console import Console

from phalanx.errors import UserError
from phalanx.launch.launchers.batch_script import parse_time, share
from phalanx.launch.launchers.callback_hosts import places_of, refuse_foreign, supervise_callbacks
from phalanx.launch.launchers.manifests import job_name
from phalanx.launch.launchers.worker_resources import WorkerResources
from phalanx.launch.launchers.yarn_service import Yarn
from phalanx.launch.plan import LaunchPlan
from phalanx.observe.tables import print_line

MEMORY_MB = 4096  # of a worker, where none is asked for; YARN has no default of its own


def start(plan: LaunchPlan, console: Console) -> int:
    """Run the job in containers, or show what would be asked of YARN."""
    refuse_foreign(plan)
    cluster = _yarn(plan)
    if plan.dry_run:
        print_line(console, f"would post to {cluster.url}/app/v1/services:")
        for line in json.dumps(cluster.service("INVITATION"), indent=2).splitlines():
            print_line(console, f"  {line}")
        return 0
    return supervise_callbacks(plan, cluster, console)


def _yarn(plan: LaunchPlan) -> Yarn:
    parts = urlsplit(plan.resource_manager or "")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            f"--resource-manager {plan.resource_manager!r} is no address"
            if plan.resource_manager
            else "--launcher yarn needs --resource-manager",
            why="jobs are submitted through its web interface",
            remedy="--resource-manager http://HOST:8088",
        )
    config = plan.request.resolved.config
    places = places_of(plan)
    needs = WorkerResources(plan.needs.cpus or 1, plan.needs.gpus, plan.needs.memory_mb or MEMORY_MB)
    return Yarn(
        url=(plan.resource_manager or "").rstrip("/"),
        name=job_name(f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}"),
        num_places=places,
        needs=needs.times(share(config.exchange.workers, places)),
        python=plan.python or sys.executable,
        queue=plan.batch.partition,
        lifetime_s=parse_time(plan.batch.time) if plan.batch.time else None,
    )
