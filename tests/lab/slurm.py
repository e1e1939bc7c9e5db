"""A real Slurm on the hosts of a lab: slurmctld on the first, slurmd on all, one munged between them.

    with hosts_up(2) as lab, slurm_up(lab) as slurm:
        slurm.run(["srun", "-N2", "hostname"]).stdout

Daemons that run on hosts end with their host; munged, which runs beside them, is ended here.
"""

import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab.hosts import Lab, require_tools
from tests.waiting import until

_TOOLS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "setpriv": "util-linux",
}


@dataclass(frozen=True)
class Slurm:
    """A cluster that is up. Commands run on the first host."""

    lab: Lab
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
        check: bool = True,
    ) -> "subprocess.CompletedProcess[str]":
        everything = {**self.environment, **(env or {})}
        return self.lab.run(self.lab.names[0], argv, cwd=cwd, env=everything, timeout_s=timeout_s, check=check)

    def start(
        self, argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        return self.lab.start(self.lab.names[0], argv, cwd=cwd, env={**self.environment, **(env or {})})

    def state(self, job: str) -> str:
        """RUNNING, PENDING …; empty where Slurm has forgotten the job."""
        return self.run(["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"], check=False).stdout.strip()

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-2000:]}" for path in self.folder.glob("log/*"))


@contextmanager
def slurm_up(lab: Lab) -> Iterator[Slurm]:
    """Slurm for as long as this is entered. Skips the test where it cannot be had."""
    require_tools(_TOOLS)
    slurm = Slurm(lab, lab.folder / "slurm")
    for name in ("munge", "state", "spool", "log"):
        (slurm.folder / name).mkdir(parents=True)
    with ExitStack() as stack:
        stack.callback(_end, _munged(slurm))
        _write_settings(slurm)
        _daemon(slurm, lab.names[0], "slurmctld", "-D")
        for host in lab.names:
            (slurm.folder / "spool" / host).mkdir()
            _daemon(slurm, host, "slurmd", "-D", "-N", host)
        idle = ["sinfo", "-h", "-t", "idle", "-o", "%D"]
        until(lambda: slurm.run(idle, check=False).stdout.strip() == str(len(lab.names)), timeout_s=60, why=slurm.logs)
        yield slurm


def _munged(slurm: Slurm) -> "subprocess.Popen[bytes]":
    """munge proves who sent a message. It insists on a user of its own."""
    folder = slurm.folder / "munge"
    (folder / "key").write_bytes(secrets.token_bytes(128))
    (folder / "key").chmod(0o600)
    slurm.folder.chmod(0o755)
    folder.chmod(0o755)
    subprocess.run(["chown", "-R", "munge:munge", str(folder)], check=True)
    places = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    user = ["setpriv", "--reuid", "munge", "--regid", "munge", "--clear-groups"]
    with (slurm.folder / "log" / "munged").open("wb") as log:
        process = subprocess.Popen(
            [*user, "munged", "-F", *(f"--{name}={folder / place}" for name, place in places.items())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    until((folder / "sock").exists, why=slurm.logs)
    return process


def _write_settings(slurm: Slurm) -> None:
    lab, folder = slurm.lab, slurm.folder
    settings = {
        "ClusterName": "lab",
        "SlurmctldHost": f"{lab.names[0]}({lab.address(lab.names[0])})",
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/sock",
        "CredType": "cred/munge",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool/%n",
        "SlurmctldPidFile": folder / "state/ctld.pid",
        "SlurmdPidFile": folder / "state/%n.pid",
        "SlurmctldLogFile": folder / "log/ctld.log",
        "SlurmdLogFile": folder / "log/%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "SlurmdParameters": "config_overrides",
        "ReturnToService": 2,
        "SlurmdTimeout": 20,
        "KillWait": 30,  # Slurm's own default
        "MpiDefault": "none",
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    lines += [f"NodeName={name} NodeAddr={lab.address(name)} CPUs=4 RealMemory=2000" for name in lab.names]
    lines += ["PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"]
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")


def _daemon(slurm: Slurm, host: str, *argv: str) -> None:
    with (slurm.folder / "log" / f"{argv[0]}-{host}").open("wb") as log:
        command = slurm.lab.command(host, ["env", f"SLURM_CONF={slurm.folder / 'slurm.conf'}", *argv])
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait()
