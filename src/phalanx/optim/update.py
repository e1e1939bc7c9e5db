"""The update: gradients and a step number in, next parameters out. Workers and parameter servers share it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from phalanx.config.patterns import factor_of
from phalanx.config.schema import OptimConfig
from phalanx.custom import is_reference
from phalanx.errors import UserError, nearest
from phalanx.machine.skip_dynamo import bare_step, skip_dynamo
from phalanx.optim.muon import MuonSGD
from phalanx.optim.own import make_own
from phalanx.optim.schedule import Schedule

Groups = list[dict[str, Any]]
GroupKey = tuple[bool, float]  # whether weight decay spares the group, and the factor of its learning rate


class Update:
    """Applies the gradients in `parameter.grad`, and owns the optimizer state by parameter name.

    torch's optimizers and muon-sgd keep momentum without the rate (u ← m·u + g, w ← w - rate·u: eq. 9 of arXiv
    1706.02677). So a new rate applies to all of it at once, and the momentum correction of that paper is not needed. Of
    timm's optimizers, rmsproptf keeps rate·u, unless lr_in_momentum is off.
    """

    def __init__(
        self,
        params: Mapping[str, Tensor],
        no_decay: Iterable[str],
        config: OptimConfig,
        schedule: Schedule,
        factors: Mapping[str, float] | None = None,
    ) -> None:
        """`factors` of the learning rate by name; default: as `optim.rates` says."""
        exempt = set() if config.decay_norm_and_bias else set(no_decay)
        by_group: dict[GroupKey, list[str]] = {}
        for name in params:
            factor = factor_of(name, config.rates) if factors is None else factors[name]
            by_group.setdefault((name in exempt, factor), []).append(name)
        keys = sorted(by_group)
        groups: Groups = [
            {
                "params": [params[name] for name in by_group[key]],
                "weight_decay": 0.0 if key[0] else config.weight_decay,
            }
            for key in keys
        ]
        self._factors = [factor for _, factor in keys]
        self.names = [name for key in keys for name in by_group[key]]  # in the optimizer's own order
        self._params = params
        self.schedule = schedule
        self._name = config.name if is_reference(config.name) else config.name.lower()
        skip_dynamo()
        self._optimizer = make_optimizer(groups, config, schedule(0))
        self._step = bare_step(self._optimizer)

    def __call__(self, step: int, scale: float = 1.0) -> float:
        """Update number `step`, at `scale` times the schedule's rate. Returns the rate."""
        lr = self.schedule(step) * scale
        for group, factor in zip(self._optimizer.param_groups, self._factors, strict=True):
            group["lr"] = lr * factor
        with torch.no_grad():
            self._step()
        return lr

    def clear(self) -> None:
        """Drop the gradients and their memory."""
        self._optimizer.zero_grad(set_to_none=True)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The optimizer state: tensors as `parameter/slot`, and everything else as JSON."""
        tensors: dict[str, Tensor] = {}
        scalars: dict[str, Any] = {}
        saved = self._optimizer.state_dict()
        for number, slots in saved["state"].items():
            for slot, value in slots.items():
                if isinstance(value, Tensor):
                    tensors[f"{self.names[number]}/{slot}"] = value
                elif value is not None:
                    scalars[f"{self.names[number]}/{slot}"] = value
        # Some optimizers keep counters in the group, such as timm's LAMB. Settings are not state: the config has them.
        settings = (*self._optimizer.defaults, "params", "initial_lr")
        counters = [
            {key: _plain(value) for key, value in group.items() if key not in settings}
            for group in saved["param_groups"]
        ]
        return tensors, {"name": self._name, "slots": scalars, "groups": counters}

    def load(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        """Load a saved state. The caller has checked that it is of the same model."""
        if scalars["name"] != self._name:
            raise UserError(
                f"the checkpoint was trained with the optimizer {scalars['name']}",
                why=f"this run uses {self._name}, which has another state",
                remedy="resume with the same optimizer, or start a new run with --init-from",
            )
        numbers = {name: number for number, name in enumerate(self.names)}
        state: dict[int, dict[str, Any]] = {}
        for key, value in [*tensors.items(), *scalars["slots"].items()]:
            name, slot = key.rsplit("/", 1)
            if name not in self._params:
                continue  # frozen since
            param = self._params[name]
            if isinstance(value, Tensor) and value.shape == param.shape:
                # Files are contiguous. Fused kernels need parameter and state in the same memory order.
                value = torch.empty_like(param, dtype=value.dtype).copy_(value)
            state.setdefault(numbers[name], {})[slot] = value
        groups = self._optimizer.state_dict()["param_groups"]
        for group, counters in zip(groups, scalars["groups"], strict=False):
            group.update({key: _restored(value) for key, value in counters.items()})
        self._optimizer.load_state_dict({"state": state, "param_groups": groups})


def _plain(value: Any) -> Any:
    """A counter as JSON. Some optimizers keep theirs in a tensor."""
    return {"tensor": value.item(), "dtype": str(value.dtype)} if isinstance(value, Tensor) else value


def _restored(value: Any) -> Any:
    if isinstance(value, dict) and "tensor" in value:
        return torch.tensor(value["tensor"], dtype=getattr(torch, value["dtype"].removeprefix("torch.")))
    return value


def make_optimizer(groups: Groups, config: OptimConfig, lr: float) -> torch.optim.Optimizer:
    """An optimizer by name: one of torch's, muon-sgd, or any of timm's, which is slow to import."""
    if is_reference(config.name):
        return make_own(groups, config, lr)
    name = config.name.lower()
    common: dict[str, Any] = {"lr": lr, "weight_decay": config.weight_decay}
    adaptive: dict[str, Any] = {"fused": _fusible(groups), "betas": (config.momentum, 0.999), **config.options}
    native: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "sgd": lambda: torch.optim.SGD(
            groups,
            **common,
            momentum=config.momentum,
            nesterov=config.nesterov and config.momentum > 0,
            **{"fused": _fusible(groups), **config.options},
        ),
        "adam": lambda: torch.optim.Adam(groups, **common, **adaptive),
        "adamw": lambda: torch.optim.AdamW(groups, **common, **adaptive),
        "rmsprop": lambda: torch.optim.RMSprop(groups, **common, momentum=config.momentum, **config.options),
        "muon-sgd": lambda: MuonSGD(
            groups, **common, momentum=config.momentum, nesterov=config.nesterov, **config.options
        ),
    }
    try:
        if name in native:
            return native[name]()
        return _from_timm(name, groups, config, lr, beside=native)
    except (TypeError, ValueError, AssertionError, ImportError) as error:
        raise UserError(
            f"the optimizer {config.name} cannot be made with these settings",
            why=str(error),
            remedy="check optim.options and the other settings under optim",
        ) from error


def _fusible(groups: Groups) -> bool:
    return all(
        param.is_floating_point() and param.device.type in ("cpu", "cuda") for g in groups for param in g["params"]
    )


def _from_timm(
    name: str, groups: Groups, config: OptimConfig, lr: float, beside: Iterable[str]
) -> torch.optim.Optimizer:
    from timm.optim import create_optimizer_v2, list_optimizers  # type: ignore[attr-defined]

    # Second-order optimizers need a graph of the gradient, or have state that a checkpoint cannot hold.
    known = [str(each) for each in list_optimizers() if not str(each).startswith(("adahessian", "kron"))]
    if name not in known:
        raise UserError(
            f"there is no optimizer {config.name!r}",
            why="neither torch nor timm has it, and it is not muon-sgd",
            remedy=nearest(name, sorted({*known, *beside})),
        )
    made: torch.optim.Optimizer = create_optimizer_v2(
        groups, opt=name, lr=lr, weight_decay=config.weight_decay, momentum=config.momentum, **config.options
    )
    return made
