"""From words or arguments to what is planned: the recipe or run, the cluster, the data, and measurements."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phalanx.config.flags import flag_layers, imply_collective
from phalanx.config.recipes import default_recipe, load_recipe
from phalanx.config.resolve import Layer, flatten, parse_override, resolve
from phalanx.config.schema import RunConfig
from phalanx.errors import UserError
from phalanx.plan.cluster import Cluster, make_cluster, read_cluster
from phalanx.plan.data import save_plan
from phalanx.plan.goals import parse_goal
from phalanx.plan.known_data import data_of
from phalanx.plan.measured import Measurement, is_run, read_measurement, read_run
from phalanx.plan.plan import Plan, make_plan
from phalanx.plan.profile import model_profile
from phalanx.plan.setup import Setup

# The options of a cluster, and the flags of `phalanx train`, that `phalanx plan` has; `phalanx.plan` has the same.
CLUSTER_OPTIONS = ("device", "hosts", "per_host", "link", "inside", "cores", "server_hosts", "data_servers", "price")
RECIPE_FLAGS = (
    *("model", "data", "batch_size", "global_batch_size", "epochs", "optimizer", "precision"),
    *("update_method", "servers", "mode", "compress"),
)
CHOSEN = ("update_method", "servers", "mode", "compress")  # flags that the plan itself names in its command
HERE, HERE_BF16 = "cpu-avx2", "cpu-avx512-bf16"  # CPUs whose measured speed replaces the figures of the table


@dataclass(frozen=True)
class Asked:
    """A plan's inputs: `subject` is a recipe's name, its file, or a run's folder."""

    subject: str | None = None
    overrides: Sequence[str | Layer] = ()
    flags: Mapping[str, Any] | None = None
    cluster: Mapping[str, Any] | None = None  # the options: device, hosts, per_host, link …
    cluster_file: Path | None = None
    workers: tuple[int, ...] = ()
    samples: int | None = None
    measured: Sequence[Path] = ()
    measure: bool = False
    compared: Sequence[Path] = ()  # measurements that are only compared with
    out: Path | None = None  # the folder of the run that is planned: the plan is kept there


def plan_asked(asked: Asked, goals: Sequence[str]) -> Plan:
    """The plan; with goals, of what is to be rented."""
    wanted = [parse_goal(text) for text in goals]
    if wanted and asked.workers:
        raise UserError(
            "goals and numbers of workers exclude each other",
            why="with goals, the plan chooses how many workers to have",
            remedy="leave out the workers; --hosts is how many hosts may be rented at most",
        )
    plan = make_plan(*make_setup(asked), wanted)
    if asked.out is not None:
        save_plan(plan, asked.out)
    return plan


def make_setup(asked: Asked) -> tuple[Setup, tuple[int, ...]]:
    """What to plan, and for how many workers."""
    if asked.subject is None:
        asked = _with_subject(asked)
    flags = dict(asked.flags or {})
    given = [*flag_layers(flags), *(parse_override(one) if isinstance(one, str) else one for one in asked.overrides)]
    run = Path(asked.subject) if asked.subject and is_run(Path(asked.subject)) else None
    found: list[tuple[str, Measurement]] = []
    if run is not None:
        read = read_run(run)
        base = [Layer(f"the run {run}", read.config.model_dump(mode="json"))]
        found.append((f"the run {run}", read.found))
    else:
        base = load_recipe(asked.subject or default_recipe(given)).layers
    config = resolve([*base, *imply_collective(base, given)]).config
    data = data_of(config, asked.samples)
    if run is not None:
        data = replace(data, samples=asked.samples or read.samples, classes=read.classes)
    found += [(str(path), read_measurement(path)) for path in asked.measured]
    cluster, workers = _cluster(asked, config, found)
    profile = model_profile(config.model, num_classes=data.classes, channels=data.channels, image_size=data.image_size)
    words = _words(asked, flags, run)
    setup = _with_measured(Setup(config, cluster, profile, data, words=words), found)
    if asked.measure:
        setup = _measured_here(setup)
    return setup, workers


def _with_subject(asked: Asked) -> Asked:
    """Without a recipe, it is what was measured: a run itself, or the model that a benchmark trained."""
    for path in (*asked.measured, *asked.compared):
        if is_run(path):
            measured = [other for other in asked.measured if other != path]
            return replace(asked, subject=str(path), measured=measured)
        found = read_measurement(path)
        if found.model is not None:
            known = {
                "model.name": found.model,
                "data.synthetic.size": found.image_size,
                "train.batch_size": found.batch_size,
            }
            words = [f"{key}={value}" for key, value in known.items() if value]
            return replace(asked, subject="synthetic", overrides=[*words, *asked.overrides])
    return asked


def _words(asked: Asked, flags: Mapping[str, Any], run: Path | None) -> tuple[str, ...]:
    """How the recommended command names the recipe: as the user did."""
    subject = str(run / "config.yaml") if run is not None else asked.subject
    words = [subject] if subject else []
    for one in asked.overrides:
        words += [one] if isinstance(one, str) else [_word(*item) for item in flatten(one.values).items()]
    for flag, value in flags.items():
        if value is not None and flag not in CHOSEN:
            words += [f"--{flag.replace('_', '-')}", str(value)]
    if asked.out is not None:
        words += ["--out", str(asked.out)]
    return tuple(words)


def _word(key: str, value: object) -> str:
    """A setting as it is typed; JSON is YAML."""
    return f"{key}={value if isinstance(value, str) else json.dumps(value)}"


def _cluster(
    asked: Asked, config: RunConfig, found: Sequence[tuple[str, Measurement]]
) -> tuple[Cluster, tuple[int, ...]]:
    """The cluster file with options over it; and the numbers of workers to predict."""
    file = read_cluster(asked.cluster_file) if asked.cluster_file else {}
    options = {key: value for key, value in (asked.cluster or {}).items() if value is not None}
    given = {**file, **options}
    measured_here = asked.measure or any(one.images_per_s for _, one in found)
    if given.get("device") is None and measured_here:
        if config.machine.device.startswith("cuda") or config.machine.gpus:
            raise UserError(
                "a measured speed needs the device's name too",
                why="its memory and links are not in the measurement",
                remedy="--device v100, or another one of the table",
            )
        given["device"] = HERE_BF16 if config.machine.precision == "bf16" else HERE
    workers = asked.workers or (() if "hosts" in given else (config.exchange.workers,) * (config.exchange.workers > 1))
    if workers and "per_host" not in given and "hosts" not in given and given.get("link") is None:
        given["per_host"] = max(workers)  # one host
    if "hosts" not in given and workers:
        per_host = given.get("per_host", 1)
        given["hosts"] = -(-max(workers) // per_host) if isinstance(per_host, int) and per_host > 0 else 1
    cluster = make_cluster(given, str(asked.cluster_file) if asked.cluster_file else "the cluster")
    total = cluster.hosts * cluster.per_host
    if asked.workers and max(asked.workers) > total:
        raise UserError(
            f"{max(asked.workers)} workers do not fit on {cluster.hosts} hosts with {cluster.per_host} devices each",
            why=f"these have {total}",
            remedy=f"--hosts {-(-max(asked.workers) // cluster.per_host)}, or fewer --workers",
        )
    return cluster, asked.workers or tuple(sorted({1, cluster.per_host, total}))


def _with_measured(setup: Setup, found: Sequence[tuple[str, Measurement]]) -> Setup:
    """Measurements replace what the table says: speed, spread, input, codecs."""
    for origin, one in found:
        if one.model is not None and one.model != setup.config.model.name and one.images_per_s:
            raise UserError(
                f"{origin} measured {one.model}, and the recipe has {setup.config.model.name}",
                why="the speed of another model says little",
                remedy=f"--model {one.model}, or a measurement of {setup.config.model.name}",
            )
        changes: dict[str, Any] = {}
        if one.images_per_s and setup.cluster.speed is None:
            changes["speed"] = {"images_per_s": one.images_per_s, "batch": one.batch_size or setup.batch(1)}
        if one.spread is not None and setup.cluster.spread is None:
            changes["spread"] = one.spread
        if one.input_images_per_s and setup.cluster.input_images_per_s is None:
            changes["input_images_per_s"] = one.input_images_per_s
        if one.codecs:
            known = setup.cluster.table.software.codecs
            changes["codecs"] = {name: list(speeds) for name, speeds in one.codecs.items() if name in known}
        if changes:
            basis = f"measured: {origin}" if "speed" in changes else setup.basis
            setup = replace(setup.but(setup.cluster.but(**changes)), basis=basis)
    return setup


def _measured_here(setup: Setup) -> Setup:
    from phalanx.plan.measure import measure_worker

    batch = setup.batch(1)
    timed = measure_worker(setup.config, setup.data, batch)
    machine = setup.config.machine.model_copy(update={"precision": timed.precision})
    speed = {"images_per_s": timed.images_per_s, "batch": batch}
    cluster = setup.cluster.but(speed=speed, **({"spread": timed.spread} if setup.cluster.spread is None else {}))
    known = _of_precision(cluster, timed.precision)
    config = setup.config.model_copy(update={"machine": machine})
    return replace(setup, config=config, cluster=known, times=timed.times, basis="measured on this machine, now")


def _of_precision(cluster: Cluster, precision: str) -> Cluster:
    """A CPU that computes in this precision: its speed is measured, so only its name matters."""
    if precision in cluster.table.device(cluster.device).flops:
        return cluster
    return cluster.but(device=HERE_BF16)
