"""Paddle's variables: of dist_train.py and fluid scripts, paddle.distributed.launch, and Paddle's clouds."""

from phalanx.config.role import AllowedHosts, Environment, Role, RoleKind, RoleVariables
from phalanx.errors import UserError
from phalanx.launch.env.variables import bad_variable, number, refuse_rank
from phalanx.net.key import key_of

_LAUNCHER = "Paddle"
_PORT = "6174"  # Paddle's own default
_KINDS: dict[str, RoleKind] = {"TRAINER": "trainer", "PSERVER": "server"}
_SERVERS = ("PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_PSERVER_ENDPOINTS", "PADDLE_PSERVER_IPS", "PADDLE_PSERVERS")
_TRAINERS = ("PADDLE_TRAINER_ENDPOINTS", "PADDLE_TRAINER_IPS", "PADDLE_TRAINERS")


def role(environment: Environment) -> Role | None:
    """A trainer or a server. Scripts without parameter servers set no role, only PADDLE_TRAINER_ID."""
    if not any(name.startswith("PADDLE_") for name in environment):
        return None  # TRAINING_ROLE alone may belong to another program
    kind = _first(environment, "PADDLE_TRAINING_ROLE", "TRAINING_ROLE")
    if (not kind and "PADDLE_TRAINER_ID" not in environment) or environment.get("PADDLE_IS_LOCAL", "0") != "0":
        return None
    if kind and kind not in _KINDS:
        raise bad_variable("PADDLE_TRAINING_ROLE", kind, f"is none of {', '.join(_KINDS)}", _LAUNCHER)
    servers = _servers(environment) if kind else []
    return _server(environment, servers) if kind == "PSERVER" else _trainer(environment, servers)


def _trainer(environment: Environment, servers: list[str]) -> Role | None:
    endpoints = _endpoints(environment)
    world, world_variable = _trainers(environment, endpoints)
    rank = number("PADDLE_TRAINER_ID", environment, _LAUNCHER)
    refuse_rank(rank, world, "PADDLE_TRAINER_ID", world_variable)
    if world == 1 and not servers:
        return None  # a single process
    if not servers:
        _refuse_other_endpoint(rank, world, endpoints, environment)
    host = _host(endpoints[rank]) if rank < len(endpoints) else ""
    return Role(
        rank=rank,
        world=world,
        local_rank=[_host(endpoint) for endpoint in endpoints[:rank]].count(host),
        local_world=[_host(endpoint) for endpoint in endpoints].count(host) or 1,
        master=endpoints[0] if endpoints else "",
        servers=tuple(f"tcp://{address}" for address in servers),
        key=key_of(environment),
        launcher=_LAUNCHER,
        allowed_hosts=_peers(environment, servers),
        variables=_variables(environment, world, world_variable),
    )


def _server(environment: Environment, servers: list[str]) -> Role:
    """A server. Its own address gives its rank."""
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
    counted = any(name in environment for name in ("PADDLE_TRAINERS_NUM", *_TRAINERS))
    return Role(
        kind="server",
        rank=servers.index(mine),
        world=len(servers),
        master="",
        servers=tuple(f"tcp://{address}" for address in servers),
        key=key_of(environment),
        launcher=_LAUNCHER,
        allowed_hosts=_peers(environment, servers),
        variables=_variables(
            environment, *(_trainers(environment, _endpoints(environment)) if counted else (None, ""))
        ),
    )


def _variables(environment: Environment, workers: int | None, workers_variable: str) -> RoleVariables:
    kind = _first_set(environment, "PADDLE_TRAINING_ROLE", "TRAINING_ROLE", "PADDLE_TRAINER_ID")
    return RoleVariables(kind, _first_set(environment, workers_variable), workers, _first_set(environment, *_SERVERS))


def _first_set(environment: Environment, *variables: str) -> str:
    """The first of the variables that is set, as NAME=VALUE."""
    return next((f"{name}={environment[name]}" for name in variables if environment.get(name)), "")


def _peers(environment: Environment, servers: list[str]) -> AllowedHosts:
    """The hosts in the variables, for jobs without a key. Most scripts give servers only the number of trainers."""
    if not servers or key_of(environment):
        return AllowedHosts()
    trainers = _endpoints(environment)
    return AllowedHosts(tuple(dict.fromkeys(map(_host, [*servers, *trainers]))), first_come=not trainers)


def _endpoints(environment: Environment) -> list[str]:
    """The trainers' addresses, if they are listed. PADDLE_TRAINERS is a number or a list of hosts."""
    listed = next((items for name in _TRAINERS if (items := _list(environment, name))), [])
    return [_with_port(item, environment) for item in listed if not item.isdecimal()]


def _host(endpoint: str) -> str:
    return endpoint.rpartition(":")[0].strip("[]")


def _servers(environment: Environment) -> list[str]:
    given = next((items for name in _SERVERS if (items := _list(environment, name))), [])
    listed = [_with_port(item, environment, own=False) for item in given]
    if not listed and _first(environment, "PADDLE_TRAINING_ROLE", "TRAINING_ROLE") == "PSERVER":
        raise UserError(
            "this process is a parameter server, but there is no list of servers",
            why="PADDLE_TRAINING_ROLE=PSERVER without PADDLE_PSERVER_IPS or PADDLE_PSERVERS_IP_PORT_LIST",
            remedy="set PADDLE_PSERVERS_IP_PORT_LIST=HOST:PORT,HOST:PORT for all processes of the job",
        )
    if len(set(listed)) != len(listed):
        raise UserError(
            f"two parameter servers have the same address: {', '.join(listed)}",
            why="each needs its own address",
            remedy="give them ports: PADDLE_PSERVERS_IP_PORT_LIST=HOST:PORT,HOST:PORT",
        )
    return listed


def _with_port(address: str, environment: Environment, own: bool = True) -> str:
    if ":" in address:
        return address
    port = (environment.get("PADDLE_PORT") if own else None) or environment.get("PADDLE_PSERVER_PORT", _PORT)
    return f"{address}:{port}"


def _trainers(environment: Environment, endpoints: list[str]) -> tuple[int, str]:
    """The number of trainers, and the variable that has it."""
    if "PADDLE_TRAINERS_NUM" in environment:
        return number("PADDLE_TRAINERS_NUM", environment, _LAUNCHER), "PADDLE_TRAINERS_NUM"
    if environment.get("PADDLE_TRAINERS", "").strip().isdecimal():
        return int(environment["PADDLE_TRAINERS"]), "PADDLE_TRAINERS"
    if endpoints:
        return len(endpoints), next(name for name in _TRAINERS if environment.get(name))
    raise bad_variable("PADDLE_TRAINERS", "", "does not give the number of trainers", _LAUNCHER)


def _refuse_other_endpoint(rank: int, world: int, endpoints: list[str], environment: Environment) -> None:
    """Without servers, trainers connect to the first trainer's address, so all need the same list."""
    if len(endpoints) != world:
        listed = _first_set(environment, *_TRAINERS) or "no variable"
        raise UserError(
            f"{world} trainers, but {listed} lists {len(endpoints)} of them",
            why="no variable names a parameter server, so trainers connect to the first trainer's address",
            remedy="set PADDLE_TRAINER_IPS=HOST,HOST with one entry a trainer, or name servers in PADDLE_PSERVER_IPS",
        )
    mine = environment.get("PADDLE_CURRENT_ENDPOINT", endpoints[rank])
    if mine != endpoints[rank]:
        raise UserError(
            f"PADDLE_TRAINER_ID={rank} contradicts PADDLE_CURRENT_ENDPOINT={mine}",
            why=f"entry {rank} of PADDLE_TRAINER_ENDPOINTS is {endpoints[rank]}",
            remedy="correct one of them",
        )


def _list(environment: Environment, variable: str) -> list[str]:
    return [item.strip() for item in environment.get(variable, "").split(",") if item.strip()]


def _first(environment: Environment, *variables: str) -> str:
    return next((environment[name] for name in variables if environment.get(name)), "")
