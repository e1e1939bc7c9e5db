"""What launchers leave open is found when all meet: real stores, real mpirun and mpiexec."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from phalanx.config.role import AllowedHosts, Role
from phalanx.config.schema import ExchangeConfig
from phalanx.errors import UserError
from phalanx.launch.env.complete_role import complete
from phalanx.launch.env.roles import role_from_env
from phalanx.net.interfaces import free_port
from phalanx.runs.events import read_events
from tests.conftest import LEAN
from tests.lab.mpi import MPICH, OPENMPI

STEPS = ["digits", "model.name=wrn10_1", "train.length=4st", *LEAN, "train.log_every=2"]
STEPS += ["--global-batch-size", "96"]
PSERVER = ExchangeConfig(method="pserver", timeout_s=20)


def sync_step(environments: Sequence[dict[str, str]], exchange: ExchangeConfig = PSERVER) -> list[Role]:
    """All processes of a job, as threads of this one: a rank is only a connection to the store."""

    def one(environment: dict[str, str]) -> Role:
        role = role_from_env(environment)
        assert role is not None
        return complete(role, exchange, environment)

    with ThreadPoolExecutor(len(environments)) as pool:
        return list(pool.map(one, environments))


def dmlc(port: int, *roles: str, **more: str) -> list[dict[str, str]]:
    counts = {"DMLC_NUM_WORKER": str(roles.count("worker")), "DMLC_NUM_SERVER": str(roles.count("server"))}
    place = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port)}
    return [{"DMLC_ROLE": role, **counts, **place, **more} for role in roles]


def test_a_dmlc_job_finds_its_ranks_and_servers_at_the_scheduler() -> None:
    roles = sync_step(dmlc(free_port("127.0.0.1"), "worker", "server", "worker", "scheduler", "server"))
    assert sorted(role.name for role in roles) == ["scheduler-0", "server-0", "server-1", "trainer-0", "trainer-1"]
    met = [role for role in roles if role.kind != "scheduler"]
    assert len({role.servers for role in met}) == 1
    assert len(set(met[0].servers)) == 2
    assert all(address.startswith("tcp://127.0.0.1:") for address in met[0].servers)


def test_a_job_without_a_key_takes_one_and_the_hosts_of_its_processes_where_it_meets() -> None:
    roles = sync_step(dmlc(free_port("127.0.0.1"), "worker", "server", "worker", "scheduler"))
    met = [role for role in roles if role.kind != "scheduler"]
    assert len({role.key for role in met}) == 1
    assert len(met[0].key) == 64
    assert {role.allowed_hosts for role in roles} == {AllowedHosts(("127.0.0.1",))}


def test_a_job_with_a_key_keeps_it() -> None:
    roles = sync_step(dmlc(free_port("127.0.0.1"), "worker", "server", "scheduler", PHALANX_KEY="secret"))
    assert {role.key for role in roles} == {"secret"}
    assert {role.allowed_hosts for role in roles if role.kind != "scheduler"} == {AllowedHosts()}


@pytest.mark.parametrize(("with_key", "said"), [(0, "have none, and a trainer has a key"), (2, "has none")])
def test_a_key_that_not_all_processes_have_is_refused(with_key: int, said: str) -> None:
    job = dmlc(free_port("127.0.0.1"), "worker", "server", "scheduler")
    job[with_key]["PHALANX_KEY"] = "secret"
    with pytest.raises(UserError, match=said):
        sync_step(job, ExchangeConfig(method="pserver", timeout_s=1))


def test_two_with_one_number_are_told_so() -> None:
    """Whoever of them comes second; the others then wait for one that does not come."""
    job = dmlc(free_port("127.0.0.1"), "worker", "worker", "server", "scheduler", DMLC_WORKER_ID="0")
    with ThreadPoolExecutor(len(job)) as pool:
        ended = [pool.submit(sync_step, [one], ExchangeConfig(method="pserver", timeout_s=3)) for one in job]
        errors = [str(each.exception()) for each in ended]
    assert sum("one trainer too many" in error for error in errors) == 1, errors


def test_who_does_not_come_is_not_waited_for_for_ever() -> None:
    job = dmlc(free_port("127.0.0.1"), "worker", "server", "scheduler")
    with pytest.raises(UserError, match=r"trainer-0 on .* waited in vain for server-0"):
        sync_step([job[0], job[2]], ExchangeConfig(method="pserver", timeout_s=1))


def test_a_server_cannot_serve_a_job_without_servers() -> None:
    with pytest.raises(UserError, match="the update method is collective"):
        sync_step(dmlc(1, "server", "worker")[:1], ExchangeConfig(method="collective"))


def trained(run: Path) -> tuple[int, float]:
    """How many workers took part in the last step, and its loss."""
    last = [record for record in read_events(run) if record["kind"] == "step"][-1]
    return len(last["ranks"]), last["loss"]


@contextmanager
def ending(command: Sequence[str]) -> "Iterator[subprocess.Popen[str]]":
    """A process that does not outlive its test: mpirun and mpiexec take their ranks along."""
    environment = {**os.environ, **OPENMPI.root}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@pytest.mark.lab
def test_mpirun_and_mpiexec_by_themselves_just_work(tmp_path: Path) -> None:
    """OpenMPI with a parameter server, MPICH collective: both are two workers, and learn the same."""
    train = [sys.executable, "-m", "phalanx", "train", *STEPS]
    pserver = ["--update-method", "pserver", "--servers", "1", "--out", str(tmp_path / "openmpi")]
    commands = (
        [*OPENMPI.command(3), *train, *pserver],
        [*MPICH.command(2), *train, "--out", str(tmp_path / "mpich")],
    )
    with ExitStack() as stack:
        started = [stack.enter_context(ending(command)) for command in commands]
        for process in started:
            said, _ = process.communicate(timeout=300)
            assert process.returncode == 0, said
            assert said.count("run: digits, ") == 1, said
    assert trained(tmp_path / "openmpi")[0] == trained(tmp_path / "mpich")[0] == 2
    assert trained(tmp_path / "openmpi")[1] == pytest.approx(trained(tmp_path / "mpich")[1], rel=1e-4)
