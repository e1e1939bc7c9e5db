"""From a launcher's numbers to the job's: how many workers and servers, and which of them this process is."""

from collections.abc import Sequence
from dataclasses import replace

from phalanx.config.flags import last_value
from phalanx.config.resolve import Layer
from phalanx.config.schema import ExchangeConfig
from phalanx.errors import UserError
from phalanx.launch.role import Role


def job_layer(role: Role | None, layers: Sequence[Layer]) -> list[Layer]:
    """What the launcher has decided, as settings; `layers` are the recipe's and the user's, which may name a method."""
    if role is None or role.launcher == "phalanx":
        return []
    if role.servers:
        workers = {"workers": role.world} if role.kind == "trainer" else {}
        decided = {"method": "pserver", "servers": len(role.servers), **workers}
    elif role.world == 1:
        return []
    elif last_value(layers, "exchange.method", "local") == "pserver":
        servers = last_value(layers, "exchange.servers", ExchangeConfig().servers)
        decided = {"method": "pserver", "workers": _trainers(role, servers)}
    else:
        decided = {"method": "collective", "workers": role.world}
    return [Layer(role.launcher, {"exchange": decided})]


def seat(role: Role, exchange: ExchangeConfig) -> Role:
    """The role of a process whose launcher only counts: where servers are asked for, the last ranks are servers."""
    if role.servers or role.launcher == "phalanx" or exchange.method != "pserver":
        return role
    trainers, servers = _trainers(role, exchange.servers), ("",) * exchange.servers
    if role.rank < trainers:
        return replace(role, world=trainers, servers=servers)
    return replace(role, kind="server", rank=role.rank - trainers, world=exchange.servers, servers=servers)


def _trainers(role: Role, servers: object) -> int:
    if not isinstance(servers, int) or role.world - servers < 1:
        raise UserError(
            f"{role.launcher} started {role.world} processes, and {servers} of them are to be servers",
            why="nobody is left to train",
            remedy=f"have {role.launcher} start as many processes as trainers and servers together",
        )
    return role.world - servers
