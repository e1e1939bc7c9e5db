"""Paddle's variables: those of dist_train.py and fluid scripts, of paddle.distributed.launch and of Paddle's clouds."""

from phalanx.errors import UserError
from phalanx.launch.role import Kind, Role
from phalanx.launch.variables import Environment, bad_variable, key_of, number, refuse_rank

_LAUNCHER = "Paddle"
_PORT = "6174"  # Paddle's own default
_KINDS: dict[str, Kind] = {"TRAINER": "trainer", "PSERVER": "server"}


def role(environment: Environment) -> Role | None:
    """A trainer or a server. Scripts without parameter servers tell no role: PADDLE_TRAINER_ID is enough there."""
    if not any(name.startswith("PADDLE_") for name in environment):
        return None  # TRAINING_ROLE by itself may be anybody's
    told = _first(environment, "PADDLE_TRAINING_ROLE", "TRAINING_ROLE")
    if (not told and "PADDLE_TRAINER_ID" not in environment) or environment.get("PADDLE_IS_LOCAL", "0") != "0":
        return None
    if told and told not in _KINDS:
        raise bad_variable("PADDLE_TRAINING_ROLE", told, f"is none of {', '.join(_KINDS)}", _LAUNCHER)
    servers = _servers(environment) if told else []
    return _server(environment, servers) if told == "PSERVER" else _trainer(environment, servers)


def _trainer(environment: Environment, servers: list[str]) -> Role | None:
    endpoints = _list(environment, "PADDLE_TRAINER_ENDPOINTS") or [
        _with_port(address, environment) for address in _list(environment, "PADDLE_TRAINER_IPS")
    ]
    world, said_by = _trainers(environment, endpoints)
    rank = number("PADDLE_TRAINER_ID", environment, _LAUNCHER)
    refuse_rank(rank, world, "PADDLE_TRAINER_ID", said_by)
    if world == 1 and not servers:
        return None  # alone: nobody to meet
    if not servers:
        _refuse_other_endpoint(rank, world, endpoints, environment)
    host = endpoints[rank].rpartition(":")[0] if rank < len(endpoints) else ""
    beside = [endpoint for endpoint in endpoints if endpoint.rpartition(":")[0] == host]
    return Role(
        rank=rank,
        world=world,
        local_rank=beside.index(endpoints[rank]) if beside else 0,
        local_world=len(beside) or 1,
        master=endpoints[0] if endpoints else "",
        servers=tuple(f"tcp://{address}" for address in servers),
        key=key_of(environment),
        launcher=_LAUNCHER,
    )


def _server(environment: Environment, servers: list[str]) -> Role:
    """Which of the servers this is follows from its own address."""
    mine = environment.get("PADDLE_CURRENT_ENDPOINT", "")
    if not mine:
        address = _first(environment, "PADDLE_CURRENT_IP", "POD_IP")
        mine = _with_port(address, environment) if address else ""
    if not mine and len(servers) == 1:
        mine = servers[0]
    if mine not in servers:
        raise UserError(
            f"this parameter server's address {mine or '(not given)'} is none of the job's",
            why=f"the job has {', '.join(servers)}",
            remedy="set PADDLE_CURRENT_ENDPOINT to its own address, or PADDLE_CURRENT_IP and PADDLE_PORT",
        )
    return Role(
        kind="server",
        rank=servers.index(mine),
        world=len(servers),
        master="",
        servers=tuple(f"tcp://{address}" for address in servers),
        key=key_of(environment),
        launcher=_LAUNCHER,
    )


def _servers(environment: Environment) -> list[str]:
    listed = _list(environment, "PADDLE_PSERVERS_IP_PORT_LIST") or _list(environment, "PADDLE_PSERVER_ENDPOINTS")
    hosts = _list(environment, "PADDLE_PSERVER_IPS") or _list(environment, "PADDLE_PSERVERS")
    listed = listed or [_with_port(host, environment, own=False) for host in hosts]
    if not listed and _first(environment, "PADDLE_TRAINING_ROLE", "TRAINING_ROLE") == "PSERVER":
        raise UserError(
            "this process is to be a parameter server, but no list of servers is given",
            why="PADDLE_TRAINING_ROLE=PSERVER without PADDLE_PSERVER_IPS or PADDLE_PSERVERS_IP_PORT_LIST",
            remedy="set PADDLE_PSERVERS_IP_PORT_LIST=HOST:PORT,HOST:PORT for all processes of the job",
        )
    if len(set(listed)) != len(listed):
        raise UserError(
            f"two parameter servers have the same address: {', '.join(listed)}",
            why="each listens at an address of its own",
            remedy="give them ports: PADDLE_PSERVERS_IP_PORT_LIST=HOST:PORT,HOST:PORT",
        )
    return listed


def _with_port(address: str, environment: Environment, own: bool = True) -> str:
    if ":" in address:
        return address
    port = (environment.get("PADDLE_PORT") if own else None) or environment.get("PADDLE_PSERVER_PORT", _PORT)
    return f"{address}:{port}"


def _trainers(environment: Environment, endpoints: list[str]) -> tuple[int, str]:
    """How many trainers, and the variable that says so. PADDLE_TRAINERS is a number or a list of hosts."""
    if "PADDLE_TRAINERS_NUM" in environment:
        return number("PADDLE_TRAINERS_NUM", environment, _LAUNCHER), "PADDLE_TRAINERS_NUM"
    listed = _list(environment, "PADDLE_TRAINERS")
    if len(listed) == 1 and listed[0].isdecimal():
        return int(listed[0]), "PADDLE_TRAINERS"
    if listed:
        return len(listed), "PADDLE_TRAINERS"
    if endpoints:
        return len(endpoints), "PADDLE_TRAINER_ENDPOINTS"
    raise bad_variable("PADDLE_TRAINERS", "", "does not say how many trainers there are", _LAUNCHER)


def _refuse_other_endpoint(rank: int, world: int, endpoints: list[str], environment: Environment) -> None:
    """Without servers the trainers meet at the first one's address, so all must have the same list."""
    if len(endpoints) != world:
        raise UserError(
            f"{world} trainers, but PADDLE_TRAINER_ENDPOINTS lists {len(endpoints)}",
            why="they meet at the first one's address",
            remedy="set PADDLE_TRAINER_ENDPOINTS=HOST:PORT,HOST:PORT with one entry a trainer",
        )
    mine = environment.get("PADDLE_CURRENT_ENDPOINT", endpoints[rank])
    if mine != endpoints[rank]:
        raise UserError(
            f"PADDLE_TRAINER_ID={rank} contradicts PADDLE_CURRENT_ENDPOINT={mine}",
            why=f"entry {rank} of PADDLE_TRAINER_ENDPOINTS is {endpoints[rank]}",
            remedy="mend one of them",
        )


def _list(environment: Environment, variable: str) -> list[str]:
    return [item.strip() for item in environment.get(variable, "").split(",") if item.strip()]


def _first(environment: Environment, *variables: str) -> str:
    return next((environment[name] for name in variables if environment.get(name)), "")
