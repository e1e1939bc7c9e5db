"""`--launcher ray`: agents in actors of a Ray cluster, which dial this host."""

from dataclasses import replace

from rich.console import Console

from phalanx.launch.launchers.batch_script import share
from phalanx.launch.launchers.callback_hosts import places_of, refuse_foreign, supervise_callbacks
from phalanx.launch.launchers.ray_cluster import RayCluster
from phalanx.launch.plan import LaunchPlan
from phalanx.observe.tables import print_line


def start(plan: LaunchPlan, console: Console) -> int:
    """Run the job at places of the cluster, or say which would be asked for."""
    refuse_foreign(plan)
    places = places_of(plan)
    needs = replace(plan.needs, cpus=plan.needs.cpus or 1)
    cluster = RayCluster(
        plan.ray_address,
        places,
        needs.times(share(plan.request.resolved.config.exchange.workers, places)),
        strict=plan.batch.nodes is not None,
        python=plan.python,
    )
    if plan.dry_run:
        where = plan.ray_address or "the one that is found, or one started here"
        print_line(console, f"Ray cluster: {where}")
        print_line(console, f"placement group: {cluster.strategy}, {places} bundles of {cluster.bundle}")
        print_line(console, "each with an actor that runs: python -m phalanx.launch.launchers.callback_agent")
        return 0
    cluster.connect()
    return supervise_callbacks(plan, cluster, console)
