"""From a launcher's numbers to the job's: how many workers and servers, and which of them this process is."""

from collections.abc import Sequence
from dataclasses import replace

from phalanx.config.flags import last_value
from phalanx.config.resolve import Layer, flatten
from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig
from phalanx.errors import UserError


def settings_from_role(role: Role | None, base: Sequence[Layer], given: Sequence[Layer]) -> tuple[list[Layer], str]:
    """What is given, with what the launcher has decided beneath it; and what the user is to be told, if anything.

    `base` is the recipe's or the run's, `given` the user's. Launchers that only count leave the method to the user;
    variables that declare roles do not, and a flag that contradicts them is refused, with one exception: Paddle's own
    example of NCCL2 says `pserver` to trainers and names no server. There the variables win.
    """
    decided = _decided(role, [*base, *given])
    if role is None or decided is None:
        return list(given), ""
    note = ""
    if role.told.kind and not role.servers and last_value([*base, *given], "exchange.method", None) == "pserver":
        _refuse_wish_for_servers(role, given)
        wish = next(layer for layer in reversed([*base, *given]) if "exchange.method" in flatten(layer.values))
        note = (
            f"note: {_spelled(wish, 'exchange.method', 'pserver')} is overruled: {role.told.kind} and "
            f"{role.told.workers} are set and no variable names a parameter server, so the job is collective"
        )
        given = [_without_method(layer) for layer in given]
    if role.told.kind:
        _refuse_contradiction(role, decided, given)
    return [Layer(role.launcher, {"exchange": decided}), *given], note


def _decided(role: Role | None, layers: Sequence[Layer]) -> dict[str, object] | None:
    """The settings that follow from how the job was launched."""
    if role is None or role.launcher == "phalanx":
        return None
    if role.servers:
        workers = role.world if role.kind == "trainer" else role.told.num_workers
        counted = {} if workers is None else {"workers": workers}
        return {"method": "pserver", "servers": len(role.servers), **counted}
    if role.world == 1:
        return None
    if not role.told.kind and last_value(layers, "exchange.method", "local") == "pserver":
        servers = last_value(layers, "exchange.servers", ExchangeConfig().servers)
        return {"method": "pserver", "workers": _trainers(role, servers)}
    return {"method": "collective", "workers": role.world}


def _refuse_contradiction(role: Role, decided: dict[str, object], given: Sequence[Layer]) -> None:
    """Flags that say something else than the variables that declare the roles."""
    said_by = {"method": role.told.servers or role.told.workers, "workers": role.told.workers}
    for layer in given:
        for key, value in flatten(layer.values).items():
            section, _, name = key.partition(".")
            if section == "exchange" and name in decided and value != decided[name]:
                variable = said_by.get(name, role.told.servers)
                raise UserError(
                    f"{variable} contradicts {_spelled(layer, key, value)}",
                    why=f"by its variables this is a job with exchange.{name}={decided[name]}",
                    remedy=f"leave {_option(layer)} out, or mend {variable.partition('=')[0]}",
                )


def _refuse_wish_for_servers(role: Role, given: Sequence[Layer]) -> None:
    """Who asks for more than the method of servers means them, and would not get what the collective method does."""
    for layer in given:
        for key, value in flatten(layer.values).items():
            if key == "exchange.servers" or (key == "exchange.mode" and value != "sync"):
                raise UserError(
                    f"{_spelled(layer, key, value)} needs parameter servers, and no variable names one",
                    why=f"{role.told.kind} and {role.told.workers} are set, so {role.launcher} started trainers only",
                    remedy=f"name the servers in PADDLE_PSERVER_IPS, or leave {_option(layer)} out",
                )


def _spelled(layer: Layer, key: str, value: object) -> str:
    """A setting as the user wrote it: by a flag, as KEY=VALUE, or in a file."""
    if layer.origin.startswith("--"):
        return f"{layer.origin} {value}"
    return layer.origin if "=" in layer.origin else f"{key}={value} of {layer.origin}"


def _option(layer: Layer) -> str:
    return layer.origin.partition("=")[0]


def _without_method(layer: Layer) -> Layer:
    exchange = {name: value for name, value in layer.values.get("exchange", {}).items() if name != "method"}
    return replace(layer, values={**layer.values, "exchange": exchange})


def assign_role(role: Role, exchange: ExchangeConfig) -> Role:
    """The role of a process whose launcher only counts: where servers are asked for, the last ranks are servers."""
    if role.servers or role.told.kind or role.launcher == "phalanx" or exchange.method != "pserver":
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
