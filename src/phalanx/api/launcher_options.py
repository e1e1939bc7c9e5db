"""Which launchers take which options of `phalanx launch`. The others refuse them: no option is ignored."""

from dataclasses import asdict

from phalanx.api.launch_options import LAUNCHERS, LaunchOptions
from phalanx.errors import UserError

_BATCH = ("slurm", "sge", "pbs")
_K8S = ("k8s",)
# Options that are not here belong to all launchers.
TAKEN_BY = {
    "ssh": ("ssh",),
    "mpirun": ("mpi",),
    "nodes": (*_BATCH, "qrsh", "yarn", "ray"),
    "time": (*_BATCH, "k8s", "yarn"),
    "partition": (*_BATCH, "yarn"),
    "account": _BATCH,
    "gpus_per_node": _BATCH,
    "pe": ("sge",),
    "directive": _BATCH,
    "detach": (*_BATCH, "k8s"),
    "cpus_per_worker": ("k8s", "yarn", "ray"),
    "gpus_per_worker": ("k8s", "yarn", "ray"),
    "memory_per_worker": ("k8s", "yarn", "ray"),
    "image": _K8S,
    "namespace": _K8S,
    "volume_claim": _K8S,
    "run_as": _K8S,
    "image_pull_secret": _K8S,
    "node_selector": _K8S,
    "toleration": _K8S,
    "env": _K8S,
    "label": _K8S,
    "queue": _K8S,
    "priority_class": _K8S,
    "patch": _K8S,
    "gang": _K8S,
    "resource_manager": ("yarn",),
    "address": ("ray",),
}
_HOST_OPTIONS = ("hostfile", "ips", "servers_on", "sync_dst_dir")
# Of the others, those that one launcher has no use for. (Where only some hosts cannot be named, the launcher says why.)
_NOT_BY = {
    "local": (*_HOST_OPTIONS, "evaluator_on", "python"),
    "mpi": ("sync_dst_dir",),
    **dict.fromkeys((*_BATCH, "srun", "qrsh"), _HOST_OPTIONS),
    **dict.fromkeys(("yarn", "ray"), (*_HOST_OPTIONS, "evaluator_on")),
    "k8s": (*_HOST_OPTIONS, "evaluator_on", "setup", "iface", "min_workers"),
}
_HOSTS_OF_ALLOCATION = "leave it out: the hosts are those of the allocation"
_CHOOSES_HOSTS = "leave it out: the cluster chooses the hosts; --nodes is their number"
_INSTEAD = {
    **{("local", name): "leave it out, or use --launcher ssh" for name in (*_HOST_OPTIONS, "evaluator_on")},
    **{
        (name, option): _CHOOSES_HOSTS
        for name in (*_BATCH, "yarn", "ray")
        for option in (*_HOST_OPTIONS, "evaluator_on")
    },
    ("local", "python"): "leave it out: processes here have the interpreter of this command",
    ("mpi", "sync_dst_dir"): "--launcher ssh sends it by rsync; or keep the code on a disk that all hosts share",
    **{(name, option): _HOSTS_OF_ALLOCATION for name in ("srun", "qrsh") for option in ("hostfile", "ips")},
    ("k8s", "hostfile"): "leave it out; --node-selector chooses nodes",
    ("k8s", "ips"): "leave it out; --node-selector chooses nodes",
    ("k8s", "servers_on"): "leave it out; --node-selector chooses nodes",
    ("k8s", "evaluator_on"): "leave it out: the first trainer evaluates",
    ("k8s", "sync_dst_dir"): "put your code into the image, or name it in the recipe: it travels along",
    ("k8s", "setup"): "put what a host needs into the image",
    ("k8s", "iface"): "leave it out; or --env GLOO_SOCKET_IFNAME=eth1",
    ("k8s", "min_workers"): "leave it out: a Job has as many pods as it began with",
    ("k8s", "nodes"): "leave it out: the cluster places pods; -n is their number",
    ("k8s", "partition"): "--queue NAME (of Kueue), or --node-selector",
    ("k8s", "account"): "--namespace NAME, or --label account=NAME",
    ("k8s", "gpus_per_node"): "--gpus-per-worker",
    ("k8s", "directive"): "--patch FILE changes the Job",
    **{(name, "gpus_per_worker"): "--gpus-per-node" for name in _BATCH},
    **{(name, "cpus_per_worker"): "--directive, such as --cpus-per-task=4 of Slurm" for name in _BATCH},
    **{(name, "memory_per_worker"): "--directive, such as --mem=8G of Slurm" for name in _BATCH},
    **{(name, "queue"): "--partition" for name in (*_BATCH, "yarn")},
}


def refuse_options(options: LaunchOptions, launcher: str) -> None:
    """Refuse the first option that was given and that this launcher does not take."""
    defaults = asdict(LaunchOptions())
    given = [name for name, value in asdict(options).items() if value not in (defaults[name], [])]  # a list from JSON
    for name in given:
        takers = TAKEN_BY.get(name, tuple(LAUNCHERS))
        if launcher in takers and name not in _NOT_BY.get(launcher, ()):
            continue
        others = [one for one in takers if name not in _NOT_BY.get(one, ())]
        flag = {"hostfile": "-H"}.get(name, f"--{name.replace('_', '-')}")
        raise UserError(
            f"--launcher {launcher} has no {flag}",
            why=f"it is an option of {', '.join(others)}",
            remedy=_INSTEAD.get((launcher, name), f"leave it out, or choose another --launcher: {', '.join(others)}"),
        )
