"""Launchers that set only ranks: torchrun, OpenMPI's mpirun, Slurm's srun, MPICH's mpiexec."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from phalanx.config.role import Environment, Role
from phalanx.errors import UserError
from phalanx.launch.env.variables import bad_variable, number, refuse_rank
from phalanx.launch.launchers.nodelist import counts, expand
from phalanx.net.interfaces import LOOPBACK, allowed_ports
from phalanx.net.key import key_of

_PORTS = range(20000, 30000)  # below the ephemeral ports
_NO_STEP = 0xFFFFFFF0  # larger step ids are batch scripts and interactive shells


@dataclass(frozen=True)
class RankVariables:
    """The names of a launcher's variables."""

    launcher: str
    rank: str
    world: str
    local_rank: str
    local_world: str = ""

    def numbers(self, environment: Environment) -> tuple[int, int]:
        """Rank and world size."""
        rank, world = (number(name, environment, self.launcher) for name in (self.rank, self.world))
        refuse_rank(rank, world, self.rank, self.world)
        return rank, world

    def several(self, environment: Environment) -> bool:
        """Whether there is more than one process. A single one may start others itself."""
        return self.rank in environment and self.numbers(environment)[1] > 1

    def role(self, environment: Environment, master: str = "") -> Role:
        rank, world = self.numbers(environment)
        return Role(
            rank=rank,
            world=world,
            local_rank=number(self.local_rank, environment, self.launcher, 0),
            local_world=number(self.local_world, environment, self.launcher, 1),
            master=master,
            key=key_of(environment),
            launcher=self.launcher,
        )


TORCHRUN = RankVariables("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_OPENMPI = "OMPI_COMM_WORLD_"
OPENMPI = RankVariables("mpirun", *(_OPENMPI + name for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")))
PMI = RankVariables("mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
# The only one of Slurm's task counts that always belongs to the step, and never to the job around it.
SLURM = RankVariables("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")


def torchrun(environment: Environment) -> Role | None:
    if TORCHRUN.rank not in environment:
        return None
    return TORCHRUN.role(environment, master_from_env(environment))


def master_from_env(environment: Environment) -> str:
    return f"{environment.get('MASTER_ADDR', LOOPBACK)}:{environment.get('MASTER_PORT', '0')}"


def openmpi(environment: Environment) -> Role | None:
    if not OPENMPI.several(environment):
        return None
    role = OPENMPI.role(environment)
    job = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid", "")
    return _with_master(role, environment, job, lambda: _head_node(role, environment))


def _head_node(role: Role, environment: Environment) -> str:
    """The address of mpirun's own host, where rank 0 runs unless mpirun's options exclude that host."""
    head = environment.get("OMPI_MCA_orte_hnp_uri", "")
    if not head or (role.rank == 0 and environment.get("OMPI_MCA_orte_local_daemon_uri") != head):
        raise UserError(
            "the ranks of this job do not know rank 0's address",
            why="mpirun runs on another host than rank 0" if head else "mpirun does not give its address",
            remedy="add -x MASTER_ADDR=HOST to mpirun: the address of the job's first host",
        )
    # 1879834624.0;tcp://10.0.0.1,192.168.0.1:41589;tcp6://[fe80::1]:47349
    for address in head.split(";")[1:]:
        scheme, _, rest = address.partition("://")
        if scheme == "tcp":
            return rest.rpartition(":")[0].split(",")[0]
    raise bad_variable("OMPI_MCA_orte_hnp_uri", head, "holds no address", OPENMPI.launcher)


def in_step(environment: Environment) -> bool:
    """Whether srun started this process. Batch scripts and shells of salloc are no steps."""
    step = environment.get("SLURM_STEP_ID", "")
    return SLURM.rank in environment and step.isdecimal() and int(step) < _NO_STEP


def slurm(environment: Environment) -> Role | None:
    """A task of a step with several. Batch scripts and interactive shells are single processes."""
    step = environment.get("SLURM_STEP_ID", "")
    environment = {SLURM.world: environment.get("SLURM_NTASKS", ""), **environment}  # for old versions of Slurm
    if not in_step(environment) or not SLURM.several(environment):
        return None
    rank, world = SLURM.numbers(environment)
    if PMI.rank in environment and PMI.numbers(environment) != (rank, world):
        return None  # Slurm started MPICH's proxies, one on each host, and these started us
    nodes = expand(environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", ""))
    tasks = counts(environment.get("SLURM_STEP_TASKS_PER_NODE", str(world)))
    node = number("SLURM_NODEID", environment, SLURM.launcher, 0)
    if sum(tasks) != world or len(tasks) != len(nodes) or node >= len(nodes):
        raise UserError(
            f"{SLURM.world}={world} does not match Slurm's lists of tasks and nodes",
            why=f"SLURM_STEP_TASKS_PER_NODE={environment.get('SLURM_STEP_TASKS_PER_NODE')}, {len(nodes)} nodes",
            remedy="start the job with srun, and do not set these variables yourself",
        )
    role = replace(SLURM.role(environment), local_world=tasks[node])
    return _with_master(role, environment, f"{environment.get('SLURM_JOB_ID')}.{step}", lambda: nodes[0])


def pmi(environment: Environment) -> Role | None:
    """MPICH and its derivatives. Without MASTER_ADDR and MASTER_PORT, ranks exchange the address through mpiexec."""
    if not PMI.several(environment):
        return None
    known = "MASTER_ADDR" in environment and "MASTER_PORT" in environment
    return PMI.role(environment, master_from_env(environment) if known else "")


def _port_of(job: str, environment: Environment) -> int:
    allowed = allowed_ports(environment)
    ports = range(allowed[0], allowed[1] + 1) if allowed else _PORTS
    return ports[zlib.crc32(job.encode()) % len(ports)]


def _with_master(role: Role, environment: Environment, job: str, first_host: Callable[[], str]) -> Role:
    """Set the rendezvous: MASTER_ADDR and MASTER_PORT, or the first host and a port from the job's number."""
    host = environment.get("MASTER_ADDR") or (LOOPBACK if role.local_world == role.world else first_host())
    port = environment.get("MASTER_PORT") or _port_of(job, environment)
    return replace(role, master=f"{host}:{port}")
