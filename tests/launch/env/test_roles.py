"""Each launcher's variables, as its own examples have them, give the right role; contradictions are refused."""

from pathlib import Path

import pytest

from phalanx.config.flags import flag_layers, last_value
from phalanx.config.recipes import load_recipe
from phalanx.config.resolve import Layer, parse_override, resolve
from phalanx.config.role import UNRANKED, AllowedHosts, Role, environment_of
from phalanx.config.schema import ExchangeConfig
from phalanx.errors import UserError
from phalanx.launch.env.assign_role import assign_role, settings_from_role
from phalanx.launch.env.roles import role_from_env


def env(text: str) -> dict[str, str]:
    """Variables as a shell line has them."""
    return dict(word.partition("=")[::2] for word in text.split())


# What a task of `srun -n 4 -N 2` sees, from Slurm 22.05.
SRUN = env(
    "SLURM_JOB_ID=771 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[07-08] SLURM_JOB_NODELIST=n[07-08] SLURM_NNODES=2 "
    "SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2) "
    "SLURM_PROCID=3 SLURM_NODEID=1 SLURM_LOCALID=1"
)
# What a batch script sees that asked for four tasks and starts none: no step.
SBATCH = env(
    "SLURM_JOB_ID=771 SLURM_JOB_NODELIST=n[07-08] SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_NODEID=0 SLURM_LOCALID=0"
)
# What the second of `mpirun -np 2 -H h1,h2` sees, from OpenMPI 4.1.
MPIRUN = env(
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
    "OMPI_COMM_WORLD_NODE_RANK=0 PMIX_NAMESPACE=489684993 PMIX_RANK=1 "
    "OMPI_MCA_orte_hnp_uri=489684992.0;tcp://10.0.0.1,192.168.1.1:33929;tcp6://[fd00::2]:47349 "
    "OMPI_MCA_orte_local_daemon_uri=489684992.1;tcp://10.0.0.2:36455"
)
MPIEXEC = env("PMI_RANK=1 PMI_SIZE=2 PMI_FD=6 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2")
TORCHRUN = env(
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=n07 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none"
)
# Fluid's benchmark, its cluster guide, dist_train.py's local script, and fleet's tests.
FLUID_SERVER = env(
    "PADDLE_TRAINING_ROLE=PSERVER PADDLE_PSERVER_PORT=7164 PADDLE_PSERVER_IPS=127.0.0.1 PADDLE_TRAINERS=1 "
    "PADDLE_CURRENT_IP=127.0.0.1 PADDLE_TRAINER_ID=0"
)
FLUID_TRAINER = {**FLUID_SERVER, "PADDLE_TRAINING_ROLE": "TRAINER"}
GUIDE = env("PADDLE_PSERVER_IPS=ps0.paddlepaddle.com,ps1.paddlepaddle.com PADDLE_TRAINERS=2 PADDLE_PSERVER_PORT=6174")
DIST_TRAIN = env("PADDLE_PSERVER_ENDPOINTS=127.0.0.1:7160,127.0.0.1:7161 PADDLE_TRAINERS_NUM=2")
FLEET = env("PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:4001,127.0.0.1:4002 PADDLE_TRAINERS_NUM=2 POD_IP=127.0.0.1")
NCCL2 = env("PADDLE_PSERVER_PORT=7164 PADDLE_TRAINER_IPS=192.168.0.2,192.168.0.3 PADDLE_CURRENT_IP=192.168.0.3")
PADDLE_LAUNCH = env(
    "PADDLE_TRAINER_ID=2 PADDLE_TRAINERS_NUM=4 PADDLE_CURRENT_ENDPOINT=10.0.0.2:6170 PADDLE_TRAINER_ENDPOINTS="
    "10.0.0.1:6170,10.0.0.1:6171,10.0.0.2:6170,10.0.0.2:6171"
)
GUIDE_SERVERS = ("tcp://ps0.paddlepaddle.com:6174", "tcp://ps1.paddlepaddle.com:6174")
GUIDE_PEERS = AllowedHosts(("ps0.paddlepaddle.com", "ps1.paddlepaddle.com"), first_come=True)
HERE = AllowedHosts(("127.0.0.1",), first_come=True)
DIST_TRAIN_SERVERS = ("tcp://127.0.0.1:7160", "tcp://127.0.0.1:7161")
FLEET_SERVERS = ("tcp://127.0.0.1:4001", "tcp://127.0.0.1:4002")
# MXNet's own launcher starts each role with these.
DMLC = env("DMLC_PS_ROOT_URI=10.10.1.8 DMLC_PS_ROOT_PORT=9092 DMLC_NUM_SERVER=2 DMLC_NUM_WORKER=6")

TABLE: dict[str, tuple[dict[str, str], Role | None]] = {
    "nobody": ({"HOME": "/root", "TRAINING_ROLE": "intern"}, None),
    "torchrun": (TORCHRUN, Role("trainer", 5, 8, 1, 4, "n07:29500", launcher="torchrun")),
    "torchrun, started by srun with one task a host": (
        {**TORCHRUN, **SRUN, **env("SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_PROCID=1")},
        Role("trainer", 5, 8, 1, 4, "n07:29500", launcher="torchrun"),
    ),
    "torchrun gives ranks in the order of arrival": (
        {**TORCHRUN, **SRUN, **env("RANK=0 WORLD_SIZE=4")},
        Role("trainer", 0, 4, 1, 4, "n07:29500", launcher="torchrun"),
    ),
    "RANK exported from Slurm's": (
        {**SRUN, **env("RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=n07 MASTER_PORT=29500")},
        Role("trainer", 3, 4, 1, 1, "n07:29500", launcher="torchrun"),
    ),
    "srun": (SRUN, Role("trainer", 3, 4, 1, 2, "n07:28868", launcher="srun")),
    "srun, the user says where to meet": (
        {**SRUN, "MASTER_ADDR": "10.1.0.7", "MASTER_PORT": "7000"},
        Role("trainer", 3, 4, 1, 2, "10.1.0.7:7000", launcher="srun"),
    ),
    "srun on one node": (
        {**SRUN, **env("SLURM_STEP_NODELIST=n07 SLURM_STEP_TASKS_PER_NODE=4 SLURM_NODEID=0 SLURM_LOCALID=3")},
        Role("trainer", 3, 4, 3, 4, "127.0.0.1:28868", launcher="srun"),
    ),
    "srun, nodes with unequal numbers of tasks": (
        {
            **SRUN,
            **env("SLURM_STEP_NODELIST=a1,b[1-2],c SLURM_STEP_TASKS_PER_NODE=2,1(x2),3 SLURM_STEP_NUM_TASKS=7"),
            **env("SLURM_PROCID=6 SLURM_NODEID=3 SLURM_LOCALID=2"),
        },
        Role("trainer", 6, 7, 2, 3, "a1:28868", launcher="srun"),
    ),
    "srun --mpi=pmi2": (
        {**SRUN, **env("PMI_RANK=3 PMI_SIZE=4 PMI_FD=9")},
        Role("trainer", 3, 4, 1, 2, "n07:28868", launcher="srun"),
    ),
    "srun with one task": ({**SRUN, **env("SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0")}, None),
    "a batch script": (SBATCH, None),
    "a batch step of newer Slurms": ({**SBATCH, "SLURM_STEP_ID": "4294967291"}, None),
    "salloc's shell": (env("SLURM_JOB_ID=771 SLURM_JOB_NODELIST=n[07-08] SLURM_NTASKS=4"), None),
    "salloc's shell on a node": ({**SRUN, "SLURM_STEP_ID": "4294967290", "SLURM_PROCID": "0"}, None),
    "mpirun on two hosts": (MPIRUN, Role("trainer", 1, 2, 0, 1, "10.0.0.1:24075", launcher="mpirun")),
    "mpirun on one host": (
        {**MPIRUN, **env("OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1")},
        Role("trainer", 1, 2, 1, 2, "127.0.0.1:24075", launcher="mpirun"),
    ),
    "mpirun, the user says where to meet": (
        {**MPIRUN, "MASTER_ADDR": "h1"},
        Role("trainer", 1, 2, 0, 1, "h1:24075", launcher="mpirun"),
    ),
    "mpirun inside a Slurm job, whose daemons srun started": (
        {**MPIRUN, **SRUN, **env("SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_STEP_TASKS_PER_NODE=1")},
        Role("trainer", 1, 2, 0, 1, "10.0.0.1:24075", launcher="mpirun"),
    ),
    "mpirun -np 1": ({**MPIRUN, **env("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1")}, None),
    "mpiexec": (MPIEXEC, Role("trainer", 1, 2, 1, 2, "", launcher="mpiexec")),
    "mpiexec inside a Slurm job, whose helpers srun started": (
        {**SRUN, **env("SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_PROCID=1 PMI_RANK=3 PMI_SIZE=4")},
        Role("trainer", 3, 4, 0, 1, "", launcher="mpiexec"),
    ),
    "mpiexec, the user says where to meet": (
        {**MPIEXEC, **env("MASTER_ADDR=h1 MASTER_PORT=7000")},
        Role("trainer", 1, 2, 1, 2, "h1:7000", launcher="mpiexec"),
    ),
    "fluid's benchmark: server": (
        FLUID_SERVER,
        Role("server", 0, 1, master="", servers=("tcp://127.0.0.1:7164",), launcher="Paddle", allowed_hosts=HERE),
    ),
    "fluid's benchmark: trainer": (
        FLUID_TRAINER,
        Role("trainer", 0, 1, master="", servers=("tcp://127.0.0.1:7164",), launcher="Paddle", allowed_hosts=HERE),
    ),
    "fluid's guide: server": (
        {**GUIDE, **env("PADDLE_TRAINING_ROLE=PSERVER PADDLE_CURRENT_IP=ps1.paddlepaddle.com")},
        Role("server", 1, 2, master="", servers=GUIDE_SERVERS, launcher="Paddle", allowed_hosts=GUIDE_PEERS),
    ),
    "fluid's guide: trainer": (
        {**GUIDE, **env("PADDLE_TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID=1")},
        Role("trainer", 1, 2, master="", servers=GUIDE_SERVERS, launcher="Paddle", allowed_hosts=GUIDE_PEERS),
    ),
    "fluid's guide, the older name of the servers": (
        env(
            "PADDLE_PSERVERS=ps0.paddlepaddle.com,ps1.paddlepaddle.com PADDLE_TRAINERS=2 PADDLE_TRAINING_ROLE=TRAINER "
            "PADDLE_TRAINER_ID=1"
        ),
        Role("trainer", 1, 2, master="", servers=GUIDE_SERVERS, launcher="Paddle", allowed_hosts=GUIDE_PEERS),
    ),
    "dist_train: server": (
        {**DIST_TRAIN, **env("PADDLE_TRAINING_ROLE=PSERVER PADDLE_CURRENT_ENDPOINT=127.0.0.1:7161")},
        Role("server", 1, 2, master="", servers=DIST_TRAIN_SERVERS, launcher="Paddle", allowed_hosts=HERE),
    ),
    "dist_train: trainer": (
        {
            **DIST_TRAIN,
            **env("PADDLE_TRAINING_ROLE=TRAINER PADDLE_CURRENT_ENDPOINT=127.0.0.1:7160 PADDLE_TRAINER_ID=1"),
        },
        Role("trainer", 1, 2, master="", servers=DIST_TRAIN_SERVERS, launcher="Paddle", allowed_hosts=HERE),
    ),
    "dist_train, with a key of the job's own": (
        {
            **DIST_TRAIN,
            **env("PADDLE_TRAINING_ROLE=PSERVER PADDLE_CURRENT_ENDPOINT=127.0.0.1:7161 PHALANX_KEY=secret"),
        },
        Role("server", 1, 2, master="", servers=DIST_TRAIN_SERVERS, key="secret", launcher="Paddle"),
    ),
    "dist_train: a server that knows the trainers' hosts": (
        {**GUIDE, **env("PADDLE_TRAINING_ROLE=PSERVER PADDLE_CURRENT_IP=ps1.paddlepaddle.com PADDLE_TRAINER_IPS=a,b")},
        Role(
            *("server", 1, 2),
            master="",
            servers=GUIDE_SERVERS,
            launcher="Paddle",
            allowed_hosts=AllowedHosts((*GUIDE_PEERS.hosts, "a", "b")),
        ),
    ),
    "fleet: server": (
        {**FLEET, **env("TRAINING_ROLE=PSERVER PADDLE_PORT=4002")},
        Role("server", 1, 2, master="", servers=FLEET_SERVERS, launcher="Paddle", allowed_hosts=HERE),
    ),
    "nccl2": (
        {**NCCL2, "PADDLE_TRAINER_ID": "1"},
        Role("trainer", 1, 2, master="192.168.0.2:7164", launcher="Paddle"),
    ),
    "nccl2 of dist_train, two trainers on the second host": (
        env("PADDLE_TRAINING_ROLE=TRAINER PADDLE_TRAINERS=3 PADDLE_TRAINER_IPS=a,b,b PADDLE_TRAINER_ID=2"),
        Role("trainer", 2, 3, 1, 2, "a:6174", launcher="Paddle"),
    ),
    "paddle.distributed.launch": (PADDLE_LAUNCH, Role("trainer", 2, 4, 0, 2, "10.0.0.1:6170", launcher="Paddle")),
    "paddle.distributed.launch, its last": (
        {**PADDLE_LAUNCH, **env("PADDLE_TRAINER_ID=3 PADDLE_CURRENT_ENDPOINT=10.0.0.2:6171")},
        Role("trainer", 3, 4, 1, 2, "10.0.0.1:6170", launcher="Paddle"),
    ),
    "paddle.distributed.launch with one process": (
        env("PADDLE_TRAINER_ID=0 PADDLE_TRAINERS_NUM=1 PADDLE_TRAINER_ENDPOINTS=127.0.0.1:6170"),
        None,
    ),
    "Paddle's cloud lists hosts": (
        {**GUIDE, **env("PADDLE_TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID=1 PADDLE_TRAINERS=10.0.0.1,10.0.0.2,10.0.0.3")},
        Role(
            *("trainer", 1, 3, 0, 1, "10.0.0.1:6174", GUIDE_SERVERS),
            launcher="Paddle",
            allowed_hosts=AllowedHosts((*GUIDE_PEERS.hosts, "10.0.0.1", "10.0.0.2", "10.0.0.3")),
        ),
    ),
    "Paddle's cloud, run locally": ({**GUIDE, **env("PADDLE_TRAINING_ROLE=TRAINER PADDLE_IS_LOCAL=1")}, None),
    "DMLC worker": (
        {**DMLC, "DMLC_ROLE": "worker"},
        Role("trainer", UNRANKED, 6, master="10.10.1.8:9092", servers=("", ""), launcher="DMLC"),
    ),
    "DMLC worker with a number": (
        {**DMLC, **env("DMLC_ROLE=worker DMLC_WORKER_ID=5")},
        Role("trainer", 5, 6, master="10.10.1.8:9092", servers=("", ""), launcher="DMLC"),
    ),
    "DMLC server": (
        {**DMLC, "DMLC_ROLE": "server"},
        Role("server", UNRANKED, 2, master="10.10.1.8:9092", servers=("", ""), launcher="DMLC"),
    ),
    "DMLC scheduler": (
        {**DMLC, "DMLC_ROLE": "scheduler"},
        Role("scheduler", 0, 8, master="10.10.1.8:9092", servers=("", ""), launcher="DMLC"),
    ),
}


@pytest.mark.parametrize(("variables", "expected"), TABLE.values(), ids=TABLE)
def test_each_launcher_is_read(variables: dict[str, str], expected: Role | None) -> None:
    assert role_from_env(variables) == expected


REFUSED = {
    "rank without a world": (env("RANK=0"), "WORLD_SIZE=''"),
    "rank beyond the world": (env("RANK=2 WORLD_SIZE=2"), "RANK=2 does not fit WORLD_SIZE=2"),
    "a rank in words": (env("RANK=first WORLD_SIZE=2"), "RANK='first'"),
    "a negative rank": (env("OMPI_COMM_WORLD_RANK=-1 OMPI_COMM_WORLD_SIZE=2"), "OMPI_COMM_WORLD_RANK='-1'"),
    "RANK is not Slurm's": ({**SRUN, **env("RANK=2 WORLD_SIZE=4")}, "contradict srun says trainer 3 of 4"),
    "fewer than Slurm started": ({**SRUN, **env("RANK=1 WORLD_SIZE=2")}, "contradict srun"),
    "RANK is not OpenMPI's": ({**MPIRUN, **env("RANK=0 WORLD_SIZE=2")}, "contradict mpirun"),
    "Slurm's task beyond the step": ({**SRUN, "SLURM_PROCID": "4"}, "SLURM_PROCID=4 does not fit"),
    "Slurm's tasks do not add up": ({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "2,3"}, "does not match Slurm's lists"),
    "Slurm's nodes are broken": ({**SRUN, "SLURM_STEP_NODELIST": "n[07-"}, "not a list of hosts"),
    "mpirun elsewhere than rank 0": ({**MPIRUN, "OMPI_COMM_WORLD_RANK": "0"}, "do not know rank 0"),
    "mpirun of another kind": ({**MPIRUN, "OMPI_MCA_orte_hnp_uri": ""}, "do not know rank 0"),
    "an unknown Paddle role": ({**FLEET, "TRAINING_ROLE": "HETER_TRAINER"}, "none of TRAINER, PSERVER"),
    "a Paddle trainer too many": (
        {**FLEET, **env("TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID=2")},
        "PADDLE_TRAINERS_NUM=2",
    ),
    "a Paddle trainer without a number": ({**FLEET, "TRAINING_ROLE": "TRAINER"}, "PADDLE_TRAINER_ID=''"),
    "Paddle trainers uncounted": (env("PADDLE_TRAINER_ID=0"), "the number of trainers"),
    "a Paddle server elsewhere": (
        {**FLEET, **env("TRAINING_ROLE=PSERVER POD_IP=10.0.0.9")},
        "10.0.0.9:6174 is none of",
    ),
    "a Paddle server without servers": (env("TRAINING_ROLE=PSERVER PADDLE_TRAINERS=1"), "no list of servers"),
    "two Paddle servers in one place": (
        {**GUIDE, **env("PADDLE_PSERVER_IPS=a,a PADDLE_TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID=0")},
        "same address",
    ),
    "Paddle's own address is another's": ({**PADDLE_LAUNCH, "PADDLE_TRAINER_ID": "1"}, "contradicts PADDLE_CURRENT"),
    "Paddle's addresses are too few": ({**PADDLE_LAUNCH, "PADDLE_TRAINERS_NUM": "8"}, "8 trainers, but"),
    "an unknown DMLC role": ({**DMLC, "DMLC_ROLE": "joint"}, "none of worker, server, scheduler"),
    "a DMLC worker too many": ({**DMLC, **env("DMLC_ROLE=worker DMLC_WORKER_ID=6")}, "DMLC_NUM_WORKER=6"),
    "no DMLC server": ({**DMLC, **env("DMLC_ROLE=worker DMLC_NUM_SERVER=0")}, "nothing to do"),
    "DMLC without a scheduler's address": ({**DMLC, **env("DMLC_ROLE=worker DMLC_PS_ROOT_URI=")}, "DMLC_PS_ROOT_URI"),
    "torchrun and Paddle": (
        {**TORCHRUN, **PADDLE_LAUNCH},
        "trainer 5 of 8, and Paddle says trainer 2 of 4",
    ),
    "Paddle and DMLC": ({**PADDLE_LAUNCH, **DMLC, "DMLC_ROLE": "worker"}, "two launchers contradict each other"),
    "an unknown role of ours": (env("PHALANX_RANK=0 PHALANX_WORLD=1 PHALANX_ROLE=boss"), "PHALANX_ROLE='boss'"),
    "a key that is not there": ({**TORCHRUN, "PHALANX_KEY_FILE": "/nowhere/key"}, "/nowhere/key"),
}


@pytest.mark.parametrize(("variables", "said"), REFUSED.values(), ids=REFUSED)
def test_contradictions_are_refused(variables: dict[str, str], said: str) -> None:
    with pytest.raises(UserError) as refused:
        role_from_env(variables)
    assert said in str(refused.value)
    assert refused.value.why
    assert refused.value.remedy


def test_our_own_role_comes_back_whatever_stands_around_it() -> None:
    servers = ("tcp://h1:8", "tcp://h2:8")
    role = Role("server", 1, 2, 0, 1, "h1:7", servers, key="secret", run=Path("/a b/run"), launcher="phalanx")
    assert role_from_env({**SRUN, **MPIRUN, **TORCHRUN, **environment_of(role)}) == role


def test_a_key_comes_from_a_file_unless_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-file\n")
    (tmp_path / "key").chmod(0o600)
    variables = {**TORCHRUN, "PHALANX_KEY_FILE": str(tmp_path / "key")}
    read, given = role_from_env(variables), role_from_env({**variables, "PHALANX_KEY": "given"})
    assert read is not None
    assert given is not None
    assert (read.key, given.key) == ("from-file", "given")


def decided(role: Role | None, *given: str) -> tuple[ExchangeConfig, str]:
    """What becomes of the user's settings, and what is said about it. Flags begin with dashes."""
    base = load_recipe("digits").layers
    flags = {word.partition("=")[0][2:]: word.partition("=")[2] for word in given if word.startswith("--")}
    typed = {name: int(text) if text.isdecimal() else text for name, text in flags.items()}
    tail = [*flag_layers(typed), *(parse_override(word) for word in given if not word.startswith("--"))]
    layers, note = settings_from_role(role, base, tail)
    return resolve([*base, *layers]).config.exchange, note


def test_launchers_that_only_count_make_the_last_ranks_servers() -> None:
    roles = [Role(rank=rank, world=6, master="h1:7", launcher="srun") for rank in range(6)]
    exchange, note = decided(roles[0], "exchange.method=pserver", "exchange.servers=2")
    assert (exchange.method, exchange.workers, exchange.servers, note) == ("pserver", 4, 2, "")
    names = [assign_role(role, exchange).name for role in roles]
    assert names == ["trainer-0", "trainer-1", "trainer-2", "trainer-3", "server-0", "server-1"]
    assert {assign_role(role, exchange).servers for role in roles} == {("", "")}
    with pytest.raises(UserError, match="started 2 processes, and the job needs 2 of them as servers"):
        decided(Role(world=2, launcher="srun"), "exchange.method=pserver", "exchange.servers=2")


def test_the_method_follows_from_what_was_launched() -> None:
    assert decided(Role(world=4, launcher="srun"))[0].method == "collective"
    for kind in ("worker", "server", "scheduler"):
        exchange, _ = decided(role_from_env({**DMLC, "DMLC_ROLE": kind}), "--update_method=pserver")
        assert (exchange.method, exchange.workers, exchange.servers) == ("pserver", 6, 2)


# As the README of Paddle's dist_train has it: two trainers, no server anywhere.
DIST_TRAIN_NCCL2 = env("PADDLE_TRAINING_ROLE=TRAINER PADDLE_TRAINERS=2 PADDLE_TRAINER_IPS=host1,host2")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--update_method=pserver"], "--update-method pserver"),
        (["exchange.method=pserver"], "exchange.method=pserver"),
    ],
)
def test_a_declared_trainer_never_becomes_a_server(given: list[str], named: str) -> None:
    for rank in ("0", "1"):
        role = role_from_env({**DIST_TRAIN_NCCL2, "PADDLE_TRAINER_ID": rank})
        assert role is not None
        exchange, note = decided(role, *given)
        assert (exchange.method, exchange.workers) == ("collective", 2)
        assert note.startswith(f"note: {named} is ignored: PADDLE_TRAINING_ROLE=TRAINER and PADDLE_TRAINERS=2 are set")
        assert assign_role(role, exchange) == role
        assert decided(role)[1] == decided(role, "--update_method=collective")[1] == ""


def test_a_recipe_that_wants_servers_is_overruled_too() -> None:
    role = role_from_env({**DIST_TRAIN_NCCL2, "PADDLE_TRAINER_ID": "0"})
    layers, note = settings_from_role(role, [Layer("mine.yaml", {"exchange": {"method": "pserver"}})], [])
    assert last_value(layers, "exchange.method", None) == "collective"
    assert note.startswith("note: exchange.method=pserver of mine.yaml is ignored")


NCCL2_TRAINER = {**DIST_TRAIN_NCCL2, "PADDLE_TRAINER_ID": "0"}
GUIDE_TRAINER = {**GUIDE, **env("PADDLE_TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID=1")}
GUIDE_SERVER = {**GUIDE, **env("PADDLE_TRAINING_ROLE=PSERVER PADDLE_CURRENT_IP=ps1.paddlepaddle.com")}
GUIDE_IPS = "PADDLE_PSERVER_IPS=ps0.paddlepaddle.com,ps1.paddlepaddle.com"
WORKER = {**DMLC, "DMLC_ROLE": "worker"}
CONTRADICTIONS = {
    "servers in the variables, collective typed": (
        *(GUIDE_TRAINER, ["--update_method=collective"]),
        f"{GUIDE_IPS} contradicts --update-method collective",
    ),
    "… to a server": ((GUIDE_SERVER), ["exchange.method=local"], f"{GUIDE_IPS} contradicts exchange.method=local"),
    "… by DMLC": (WORKER, ["--update_method=local"], "DMLC_NUM_SERVER=2 contradicts --update-method local"),
    "other servers": (GUIDE_TRAINER, ["--servers=3"], f"{GUIDE_IPS} contradicts --servers 3"),
    "other servers, DMLC": (WORKER, ["exchange.servers=3"], "DMLC_NUM_SERVER=2 contradicts exchange.servers=3"),
    "other workers": (GUIDE_TRAINER, ["--workers=4"], "PADDLE_TRAINERS=2 contradicts --workers 4"),
    "other workers, for a server": (GUIDE_SERVER, ["--workers=4"], "PADDLE_TRAINERS=2 contradicts --workers 4"),
    "other workers, DMLC": (WORKER, ["--workers=4"], "DMLC_NUM_WORKER=6 contradicts --workers 4"),
    "other workers, collective": (NCCL2_TRAINER, ["--workers=4"], "PADDLE_TRAINERS=2 contradicts --workers 4"),
    "other workers, pserver typed": (
        *(NCCL2_TRAINER, ["--update_method=pserver", "--workers=4"]),
        "PADDLE_TRAINERS=2 contradicts --workers 4",
    ),
    "several trainers, local typed": (
        *(NCCL2_TRAINER, ["--update_method=local"]),
        "PADDLE_TRAINERS=2 contradicts --update-method local",
    ),
    "servers that nobody named": (
        *(NCCL2_TRAINER, ["--update_method=pserver", "--servers=1"]),
        "--servers 1 needs parameter servers, and no variable names one",
    ),
    "a mode that nobody can have": (
        *(NCCL2_TRAINER, ["--update_method=pserver", "--mode=async"]),
        "--mode async needs parameter servers",
    ),
}


@pytest.mark.parametrize(("variables", "given", "said"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_flags_that_contradict_variables_are_refused_by_both_names(
    variables: dict[str, str], given: list[str], said: str
) -> None:
    with pytest.raises(UserError) as refused:
        decided(role_from_env(variables), *given)
    assert said in refused.value.what
    assert refused.value.why
    assert refused.value.remedy
