"""DMLC's variables, as MXNet's and ps-lite's launchers set them. Addresses and ranks are found when all have met."""

from phalanx.config.role import UNRANKED, Environment, Role, RoleKind, RoleVariables
from phalanx.errors import UserError
from phalanx.launch.env.variables import bad_variable, number, refuse_rank
from phalanx.net.key import key_of

_LAUNCHER = "DMLC"
_KINDS: dict[str, RoleKind] = {"worker": "trainer", "server": "server", "scheduler": "scheduler"}
_IDS = {"worker": "DMLC_WORKER_ID", "server": "DMLC_SERVER_ID"}


def role(environment: Environment) -> Role | None:
    """A worker, a server, or the scheduler, at whose address all meet."""
    told = environment.get("DMLC_ROLE")
    if told is None:
        return None
    if told not in _KINDS:
        raise bad_variable("DMLC_ROLE", told, f"is none of {', '.join(_KINDS)}", _LAUNCHER)
    workers = number("DMLC_NUM_WORKER", environment, _LAUNCHER)
    servers = number("DMLC_NUM_SERVER", environment, _LAUNCHER)
    if workers == 0 or servers == 0:
        raise UserError(
            f"a job of {workers} workers and {servers} servers has nothing to do",
            why="DMLC_NUM_WORKER and DMLC_NUM_SERVER are to be 1 or more",
            remedy="without servers, start the workers with torchrun, mpirun or phalanx launch",
        )
    host, port = environment.get("DMLC_PS_ROOT_URI", ""), number("DMLC_PS_ROOT_PORT", environment, _LAUNCHER)
    if not host:
        raise bad_variable("DMLC_PS_ROOT_URI", host, "is not the scheduler's address", _LAUNCHER)
    world = {"worker": workers, "server": servers, "scheduler": workers + servers}[told]
    rank = 0 if told == "scheduler" else UNRANKED
    if _IDS.get(told, "") in environment:
        rank = number(_IDS[told], environment, _LAUNCHER)
        refuse_rank(rank, world, _IDS[told], f"DMLC_NUM_{told.upper()}")
    return Role(
        kind=_KINDS[told],
        rank=rank,
        world=world,
        master=f"{host}:{port}",
        servers=("",) * servers,
        key=key_of(environment),
        launcher=_LAUNCHER,
        told=RoleVariables(f"DMLC_ROLE={told}", f"DMLC_NUM_WORKER={workers}", workers, f"DMLC_NUM_SERVER={servers}"),
    )
