"""The numbers of a checkpoint, checked before anything is changed by them."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from phalanx.errors import UserError
from phalanx.runs.checkpoint import Loaded
from phalanx.runs.event_schema import check_record

_Count = Annotated[int, Field(ge=0, lt=1 << 62)]
_Number = Annotated[float, Field(allow_inf_nan=False)]


class _Saved(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")  # fields of later versions do no harm


class _Totals(_Saved):
    model_config = ConfigDict(strict=True, extra="forbid")
    samples: _Count
    loss_sum: _Number
    correct1: _Count
    correctk: _Count
    label_hits: _Count = 0
    label_marks: _Count = 0


class _Best(_Saved):
    model_config = ConfigDict(strict=True, extra="forbid")
    top1: _Number | None
    topk: _Number | None
    step: _Count
    epoch: _Number
    metrics: dict[str, _Number | None] = {}
    metric: str = "top1"


class _LossScale(_Saved):
    model_config = ConfigDict(strict=True, extra="forbid")
    scale: Annotated[float, Field(gt=0)]
    calm: _Count
    patience: Annotated[int, Field(ge=1)]


class _Training(_Saved):
    step: _Count
    epoch: _Count
    start: _Count
    epoch_totals: _Totals
    interval: _Totals
    used: list[Annotated[list[_Count], Field(min_length=3, max_length=3)]] = []
    lr_first: float | None = None
    best: _Best | None
    evaluated_step: _Count
    loss_scale: _LossScale | None
    train_s: _Number
    wall_s: _Number
    callbacks: dict[str, Any] = {}


class _Optimizer(_Saved):
    name: str
    slots: dict[Annotated[str, Field(pattern="/")], Any]
    groups: list[dict[str, Any]]


class _Identity(_Saved):
    model: str
    classes: list[str]


class _State(_Saved):
    training: _Training
    optimizer: _Optimizer
    identity: _Identity
    config: dict[str, Any]
    samples_per_step: Annotated[int, Field(ge=1, lt=1 << 62)]
    events: list[dict[str, Any]] = []


def refuse_malformed(loaded: Loaded) -> None:
    """Refuse a checkpoint whose bytes are as they were written, and whose numbers cannot be."""
    try:
        state = _State.model_validate(loaded.state)
        for record in state.events:
            check_record(record)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])[:200]
        raise malformed(loaded, f"{place}: {first['msg']}") from error
    except ValueError as error:
        raise malformed(loaded, f"an event: {error}") from error


def malformed(loaded: Loaded, why: str) -> UserError:
    """The error for a checkpoint with numbers that no run writes."""
    return UserError(
        f"{loaded.path} cannot be resumed",
        why=f"its state.json has something that no run writes ({why[:300]})",
        remedy="use an earlier checkpoint, or a backup",
    )
