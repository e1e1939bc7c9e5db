"""Turns a launcher's rank and world size into settings and a role: which ranks are workers, and which servers."""

from collections.abc import Sequence
from dataclasses import replace

from phalanx.config.flags import last_value
from phalanx.config.resolve import Layer, flatten
from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig
from phalanx.errors import UserError


def settings_from_role(role: Role | None, base: Sequence[Layer], given: Sequence[Layer]) -> tuple[list[Layer], str]:
    """The user's settings with the launcher's below them, and a note for the user or "".

    `base` has the settings of the recipe or the run, `given` the user's. Launchers that set only ranks leave the update
    method to the user. Variables that declare roles decide it, and a contradicting flag is an error, with one
    exception: Paddle's own NCCL2 example passes `pserver` to trainers and names no server. There the variables win.
    """
    decided = _decided(role, [*base, *given])
    if role is None or decided is None:
        return list(given), ""
    note = ""
    if role.variables.kind and not role.servers and last_value([*base, *given], "exchange.method", None) == "pserver":
        _refuse_server_settings(role, given)
        setting = next(layer for layer in reversed([*base, *given]) if "exchange.method" in flatten(layer.values))
        note = (
            f"note: {_as_written(setting, 'exchange.method', 'pserver')} is ignored: {role.variables.kind} and "
            f"{role.variables.workers} are set and no variable names a parameter server, so the job is collective"
        )
        given = [_without_method(layer) for layer in given]
    if role.variables.kind:
        _refuse_contradiction(role, decided, given)
    return [Layer(role.launcher, {"exchange": decided}), *given], note


def _decided(role: Role | None, layers: Sequence[Layer]) -> dict[str, object] | None:
    """The settings that follow from how the job was launched."""
    if role is None or role.launcher == "phalanx":
        return None
    if role.servers:
        workers = role.world if role.kind == "trainer" else role.variables.num_workers
        counts = {} if workers is None else {"workers": workers}
        return {"method": "pserver", "servers": len(role.servers), **counts}
    if role.world == 1:
        return None
    if not role.variables.kind and last_value(layers, "exchange.method", "local") == "pserver":
        servers = last_value(layers, "exchange.servers", ExchangeConfig().servers)
        return {"method": "pserver", "workers": _trainers(role, servers)}
    return {"method": "collective", "workers": role.world}


def _refuse_contradiction(role: Role, decided: dict[str, object], given: Sequence[Layer]) -> None:
    """Refuse flags that contradict the variables that declare roles."""
    variables = {"method": role.variables.servers or role.variables.workers, "workers": role.variables.workers}
    for layer in given:
        for key, value in flatten(layer.values).items():
            section, _, name = key.partition(".")
            if section == "exchange" and name in decided and value != decided[name]:
                variable = variables.get(name, role.variables.servers)
                raise UserError(
                    f"{variable} contradicts {_as_written(layer, key, value)}",
                    why=f"the variables mean exchange.{name}={decided[name]}",
                    remedy=f"leave {_option(layer)} out, or correct {variable.partition('=')[0]}",
                )


def _refuse_server_settings(role: Role, given: Sequence[Layer]) -> None:
    """Refuse settings that have a meaning only with servers: the job has none."""
    variables = role.variables
    for layer in given:
        for key, value in flatten(layer.values).items():
            if key == "exchange.servers" or (key == "exchange.mode" and value != "sync"):
                raise UserError(
                    f"{_as_written(layer, key, value)} needs parameter servers, and no variable names one",
                    why=f"{variables.kind} and {variables.workers} are set, so {role.launcher} started trainers only",
                    remedy=f"name the servers in PADDLE_PSERVER_IPS, or leave {_option(layer)} out",
                )


def _as_written(layer: Layer, key: str, value: object) -> str:
    """A setting as the user wrote it: a flag, KEY=VALUE, or in a file."""
    if layer.origin.startswith("--"):
        return f"{layer.origin} {value}"
    return layer.origin if "=" in layer.origin else f"{key}={value} of {layer.origin}"


def _option(layer: Layer) -> str:
    return layer.origin.partition("=")[0]


def _without_method(layer: Layer) -> Layer:
    exchange = {name: value for name, value in layer.values.get("exchange", {}).items() if name != "method"}
    return replace(layer, values={**layer.values, "exchange": exchange})


def assign_role(role: Role, exchange: ExchangeConfig) -> Role:
    """The role for a rank of a launcher that sets only ranks. With parameter servers, the last ranks are servers."""
    if role.servers or role.variables.kind or role.launcher == "phalanx" or exchange.method != "pserver":
        return role
    trainers, servers = _trainers(role, exchange.servers), ("",) * exchange.servers
    if role.rank < trainers:
        return replace(role, world=trainers, servers=servers)
    return replace(role, kind="server", rank=role.rank - trainers, world=exchange.servers, servers=servers)


def _trainers(role: Role, servers: object) -> int:
    if not isinstance(servers, int) or role.world - servers < 1:
        raise UserError(
            f"{role.launcher} started {role.world} processes, and the job needs {servers} of them as servers",
            why="none is left for training",
            remedy=f"start as many processes as workers and servers together with {role.launcher}",
        )
    return role.world - servers
