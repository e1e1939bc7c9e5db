"""The flags of `phalanx train` as keyword arguments with types, for functions that take them beside their own."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from torch import nn

PathText = str | PathLike[str]
Named = str | Callable[..., object]  # a name, or the user's own class or function


class TrainFlags(TypedDict, total=False):
    """Each flag of `phalanx train`, by the same name with _ for -. `phalanx.train` says what each means."""

    model: "str | Callable[..., nn.Module] | None"
    pretrained: bool | None
    initializer: str | None
    data: PathText | Callable[..., object] | None
    folds: int | None
    teacher: Sequence[PathText] | PathText | None
    batch_size: int | None
    global_batch_size: int | None
    epochs: float | None
    lr: float | None
    optimizer: Named | None
    momentum: float | None
    weight_decay: float | None
    lr_schedule: Named | None
    lr_step_epochs: Sequence[float] | str | None
    lr_factor: float | None
    warmup_epochs: float | None
    label_smoothing: float | None
    top_k: int | None
    precision: str | None
    fast_path: str | None
    device: str | None
    gpus: Sequence[int] | str | None
    seed: int | None
    monitor: int | None
    log_every: int | None
    log_dir: PathText | None
    log: Sequence[str] | str | None
    notify: str | None
    update_method: str | None
    workers: int | None
    servers: int | None
    mode: str | None
    compress: str | None
    evaluator: bool | None
    max_restarts: int | None
    min_workers: int | None
    data_service: Sequence[str] | str | None
    data_servers: int | None
    teacher_service: Sequence[str] | str | None
    teachers: int | None
