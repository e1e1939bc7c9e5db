"""DMLC's variables, as MXNet's and ps-lite's launchers set them. Ranks and addresses follow at the rendezvous."""

from phalanx.config.role import UNRANKED, Environment, Role, RoleKind, RoleVariables
from phalanx.errors import UserError
from phalanx.launch.env.variables import bad_variable, number, refuse_rank
from phalanx.net.key import key_of

_LAUNCHER = "DMLC"
_KINDS: dict[str, RoleKind] = {"worker": "trainer", "server": "server", "scheduler": "scheduler"}
_IDS = {"worker": "DMLC_WORKER_ID", "server": "DMLC_SERVER_ID"}


def role(environment: Environment) -> Role | None:
    """A worker, a server, or the scheduler, whose address is the rendezvous."""
    kind = environment.get("DMLC_ROLE")
    if kind is None:
        return None
    if kind not in _KINDS:
        raise bad_variable("DMLC_ROLE", kind, f"is none of {', '.join(_KINDS)}", _LAUNCHER)
    workers = number("DMLC_NUM_WORKER", environment, _LAUNCHER)
    servers = number("DMLC_NUM_SERVER", environment, _LAUNCHER)
    if workers == 0 or servers == 0:
        raise UserError(
            f"a job of {workers} workers and {servers} servers has nothing to do",
            why="DMLC_NUM_WORKER and DMLC_NUM_SERVER must be 1 or more",
            remedy="without servers, start the workers with torchrun, mpirun or phalanx launch",
        )
    host, port = environment.get("DMLC_PS_ROOT_URI", ""), number("DMLC_PS_ROOT_PORT", environment, _LAUNCHER)
    if not host:
        raise bad_variable("DMLC_PS_ROOT_URI", host, "is not the scheduler's address", _LAUNCHER)
    world = {"worker": workers, "server": servers, "scheduler": workers + servers}[kind]
    rank = 0 if kind == "scheduler" else UNRANKED
    if _IDS.get(kind, "") in environment:
        rank = number(_IDS[kind], environment, _LAUNCHER)
        refuse_rank(rank, world, _IDS[kind], f"DMLC_NUM_{kind.upper()}")
    return Role(
        kind=_KINDS[kind],
        rank=rank,
        world=world,
        master=f"{host}:{port}",
        servers=("",) * servers,
        key=key_of(environment),
        launcher=_LAUNCHER,
        variables=RoleVariables(
            f"DMLC_ROLE={kind}", f"DMLC_NUM_WORKER={workers}", workers, f"DMLC_NUM_SERVER={servers}"
        ),
    )
