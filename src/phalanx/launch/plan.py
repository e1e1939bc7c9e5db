"""From what a user typed behind `phalanx launch` to a job and its hosts. What cannot work is refused at once."""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from phalanx.config.recipes import load_recipe
from phalanx.config.resolve import merge_layers
from phalanx.errors import UserError
from phalanx.launch.hosts import Host, parse_host, parse_hosts, read_hostfile, refuse_twice
from phalanx.launch.job import Job
from phalanx.launch.launchers.batch_script import BatchOptions
from phalanx.launch.launchers.manifests import KubernetesOptions
from phalanx.launch.launchers.worker_resources import WorkerResources
from phalanx.launch.local_job import TRAIN, policy_of, train_again, wanted_roles
from phalanx.launch.messages import Word
from phalanx.launch.placement import DedicatedHosts, Placement, place
from phalanx.launch.remote_shell import Sync
from phalanx.roles.request import Request

LAST = "last"  # --evaluator-on: the last of the hosts, whatever its name
# Launchers that find the hosts in an allocation.
ALLOCATED = ("slurm", "sge", "pbs", "srun", "qrsh")
Parse = Callable[[Sequence[str]], Mapping[str, Any]]  # the words of `train` → its parameters


@dataclass(frozen=True)
class LaunchPlan:
    """What `phalanx launch` was asked for. Launchers take what concerns them."""

    words: tuple[str, ...]  # of `train`; -n and -s are among them
    request: Request
    recipe_at: int | None  # which of the words is a recipe's file
    launcher: str
    command: str
    hosts: tuple[Host, ...] = ()
    servers_on: tuple[int, ...] = ()
    evaluator_on: str | None = None  # a host's name, or LAST
    python: str | None = None
    ssh: tuple[str, ...] = ("ssh",)
    sync: Sync | None = None
    setup: str = ""
    iface: str | None = None
    ports: tuple[int, int] | None = None
    max_restarts: int | None = None
    min_workers: int | None = None
    mpirun: tuple[str, ...] = ("mpirun",)
    batch: BatchOptions = field(default_factory=BatchOptions)
    needs: WorkerResources = field(default_factory=WorkerResources)
    kubernetes: KubernetesOptions = field(default_factory=KubernetesOptions)
    resource_manager: str | None = None  # of YARN
    ray_address: str | None = None
    dry_run: bool = False

    def job(self, run: Path) -> Job:
        """The job for a run's folder. A recipe's file goes along as text: hosts need not have it."""
        exchange = self.request.resolved.config.exchange
        words: list[Word] = list(self.words)
        files: dict[str, str] = {}
        if self.recipe_at is not None:
            path = self.words[self.recipe_at]
            name = Path(path).name
            words[self.recipe_at] = {"own": f"file:{name}"}
            files[name] = yaml.safe_dump(merge_layers(load_recipe(path).layers), sort_keys=False, allow_unicode=True)
        return Job(
            run=run,
            first=[*TRAIN, *words],
            again=train_again,
            wanted=wanted_roles(self.request.resolved.config),
            policy=policy_of(exchange, self.max_restarts, self.min_workers),
            command=self.command,
            launcher=self.launcher,
            resumes=self.request.resume is not None,
            at_step=self.request.at_step,
            files=files,
            log_dir=self.request.resolved.config.train.log_dir,
            cwd="." if self.sync else os.getcwd(),  # noqa: PTH109 - as the user spells it
            setup=self.setup,
            iface=self.iface,
            ports=self.ports,
            apart=self.apart,
        )

    @property
    def apart(self) -> DedicatedHosts:
        """The hosts without trainers, now that all are known."""
        if self.evaluator_on is None:
            return DedicatedHosts(self.servers_on)
        names = [host.name for host in self.hosts]
        last = self.evaluator_on == LAST and bool(names)
        wanted = names[-1] if last else parse_host(self.evaluator_on, "--evaluator-on").name
        if wanted not in names:
            raise UserError(
                f"--evaluator-on {wanted} is none of the job's hosts",
                why=f"they are: {', '.join(names[:8])}{' …' if len(names) > 8 else ''}" if names else "none is named",
                remedy=f"name one of them, or --evaluator-on {LAST}",
            )
        return DedicatedHosts(self.servers_on, names.index(wanted))

    def placements(self) -> list[Placement]:
        """Where each role will be, if every host answers."""
        wanted = wanted_roles(self.request.resolved.config)
        return place(self.hosts, wanted, self.apart)


def train_words(
    words: Sequence[str], parse: Parse, workers: int | None, servers: int | None, log_dir: str | None = None
) -> list[str]:
    """What follows `-- train`, with -n, -s and --log-dir added in train's own language; contradictions are refused."""
    if not words or words[0] != "train":
        raise UserError(
            f"{words[0]!r} cannot be launched" if words else "there is nothing to launch",
            why="what follows -- is the command that would run on one machine",
            remedy="phalanx launch -n 2 -- train digits",
        )
    given = parse(words[1:])
    added: list[str] = []
    options = {"workers": ("-n", workers), "servers": ("-s", servers), "log_dir": ("--log-dir", log_dir)}
    for flag, (option, value) in options.items():
        if value is None:
            continue
        spelled = f"--{flag.replace('_', '-')}"
        if given[flag] not in (None, value):
            raise UserError(
                f"{option} {value} contradicts {spelled} {given[flag]}",
                why="both say the same thing",
                remedy="give one",
            )
        added += [] if given[flag] == value else [spelled, str(value)]
    if servers:
        method = given["update_method"]
        if method not in (None, "pserver"):
            raise UserError(
                f"-s {servers} does not go together with --update-method {method}",
                why="only pserver has parameter servers",
                remedy="leave -s out, or --update-method pserver",
            )
        named = any(word.startswith("exchange.method=") for word in given["settings"] or [])
        added += [] if method or named else ["--update-method", "pserver"]
    return [*added, *words[1:]]


def with_evaluator(words: Sequence[str], parse: Parse) -> list[str]:
    """The words of `train` for a job whose evaluator is to have a place."""
    asked = parse(words)["evaluator"]
    if asked is False:
        raise UserError(
            "--evaluator-on does not go together with --no-evaluator",
            why="it says where the evaluator runs",
            remedy="leave one out",
        )
    return list(words) if asked else ["--evaluator", *words]


def recipe_position(words: Sequence[str], parse: Parse) -> int | None:
    """Which of the words is a recipe's file. The same text may also be an option's value, so each is tried."""
    settings = parse(words)["settings"] or []
    if not settings or "=" in settings[0] or not ("/" in settings[0] or settings[0].endswith((".yaml", ".yml"))):
        return None
    for position, word in enumerate(words):
        if word == settings[0]:
            tried = [*words[:position], word + "?", *words[position + 1 :]]
            if (parse(tried)["settings"] or [""])[0] == word + "?":
                return position
    return None


def find_hosts(
    hostfile: Path | None, ips: str | None, servers_on: str | None, evaluator_on: str | None = None
) -> tuple[list[Host], list[int]]:
    """The job's hosts, and which of them are for servers alone.

    Those of --servers-on and --evaluator-on may be new or of the list; where that is all, trainers run here.
    """
    if hostfile is not None and ips is not None:
        raise UserError("-H does not go together with --ips", why="both name the hosts", remedy="give one of them")
    hosts = read_hostfile(hostfile) if hostfile else parse_hosts(_split(ips), "--ips") if ips else []
    alone = [_number_of(host, hosts) for host in parse_hosts(_split(servers_on or ""), "--servers-on")]
    apart = set(alone)
    if evaluator_on is not None and evaluator_on != LAST:
        apart.add(_number_of(parse_host(evaluator_on, "--evaluator-on"), hosts))
    if hosts and len(apart) == len(hosts):
        hosts.insert(0, Host("localhost"))
        alone = [number + 1 for number in alone]
    return refuse_twice(hosts, "the hosts"), alone


def _number_of(host: Host, hosts: list[Host]) -> int:
    """Which of the hosts it is; one that is not among them joins them."""
    known = [number for number, one in enumerate(hosts) if one.name == host.name]
    if not known:
        hosts.append(host)
    return known[0] if known else len(hosts) - 1


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_program(text: str, option: str) -> tuple[str, ...]:
    """The command that an option names, which may have options of its own."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UserError(f"{option} {text!r} cannot be read", why=str(error), remedy="close the quotes") from error
    if not words:
        raise UserError(f"{option} names no program", why="it is empty", remedy=f"leave {option} out, or name one")
    return words


def command_line() -> str:
    """What was typed, for the record; inside a batch job that was when the job was submitted."""
    return os.environ.get("PHALANX_COMMAND") or shlex.join(["phalanx", *sys.argv[1:]])
