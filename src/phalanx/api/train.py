"""`phalanx.train`: the command `phalanx train` as a function."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.api.arguments import call_text, given_flags, refuse_unknown, settings_layers
from phalanx.api.flags import Named, PathText
from phalanx.api.recipe import Recipe
from phalanx.api.request import LATEST, make_request
from phalanx.api.run import Run
from phalanx.api.session import train_request
from phalanx.config.flags import flag_layers
from phalanx.roles.request import Request

if TYPE_CHECKING:
    from torch import nn


@refuse_unknown
def train(
    recipe: "str | PathLike[str] | Recipe | None" = None,
    *,
    settings: Mapping[str, Any] | None = None,
    model: "str | Callable[..., nn.Module] | None" = None,
    pretrained: bool | None = None,
    initializer: str | None = None,
    data: PathText | Callable[..., object] | None = None,
    folds: int | None = None,
    teacher: Sequence[PathText] | PathText | None = None,
    batch_size: int | None = None,
    global_batch_size: int | None = None,
    epochs: float | None = None,
    lr: float | None = None,
    optimizer: Named | None = None,
    momentum: float | None = None,
    weight_decay: float | None = None,
    lr_schedule: Named | None = None,
    lr_step_epochs: Sequence[float] | str | None = None,
    lr_factor: float | None = None,
    warmup_epochs: float | None = None,
    label_smoothing: float | None = None,
    top_k: int | None = None,
    precision: str | None = None,
    fast_path: str | None = None,
    device: str | None = None,
    gpus: Sequence[int] | str | None = None,
    seed: int | None = None,
    monitor: int | None = None,
    log_every: int | None = None,
    log_dir: PathText | None = None,
    log: Sequence[str] | str | None = None,
    notify: str | None = None,
    update_method: str | None = None,
    workers: int | None = None,
    servers: int | None = None,
    mode: str | None = None,
    compress: str | None = None,
    evaluator: bool | None = None,
    max_restarts: int | None = None,
    min_workers: int | None = None,
    data_service: Sequence[str] | str | None = None,
    data_servers: int | None = None,
    teacher_service: Sequence[str] | str | None = None,
    teachers: int | None = None,
    out: PathText | None = None,
    resume: "str | PathLike[str] | Run | bool | None" = None,
    at: str | None = None,
    init_from: "str | PathLike[str] | Run | None" = None,
    accept_code: str | None = None,
    progress: bool | None = None,
) -> Run:
    """Train an image classifier on this machine, as `phalanx train` does. Returns the run.

    One worker trains in this process. With several workers, parameter servers, data servers or an evaluator, the job
    runs in processes of its own, which end with this one. Ctrl-C or a notebook's stop button saves a checkpoint and
    returns the unfinished run; `run.resume()` continues it. Random state, thread count and deterministic mode of torch
    are restored afterwards. glibc keeps freed memory for the rest of the process (machine.allocator=system: it does
    not).

    >>> run = phalanx.train("digits", epochs=1, settings={"model.name": "wrn10_1"})
    >>> run.finished
    True
    >>> 0 <= run.best.top1 <= 1
    True

    Args:
        recipe: the name of a recipe, a YAML file, or a Recipe. Default: digits, or images where `data` is given.
        settings: any setting, by dotted key {"optim.lr": 0.2} or nested {"optim": {"lr": 0.2}}.
        model: a name that `phalanx models` lists, or your own class or function that makes an nn.Module.
        pretrained: start from timm's published weights.
        initializer: default, kaiming, xavier, orthogonal or truncated-normal.
        data: digits, synthetic, a path, or FORMAT:PATH.
        folds: cross-validation: so many runs, each validated on another part of the training data. The result is then a
            `phalanx.CrossValidation`.
        teacher: distillation: a run, a .safetensors file or a timm name to learn from, or several.
        batch_size: samples per worker and micro-batch.
        global_batch_size: samples per step over all workers, instead.
        epochs: length of training.
        lr: peak learning rate.
        optimizer: sgd, adamw, lars, lamb, lion, muon-sgd and others of torch and timm.
        momentum: of sgd and its relatives.
        weight_decay: L2 penalty, or decoupled decay where the optimizer has it.
        lr_schedule: constant, step, cosine, polynomial or one-cycle.
        lr_step_epochs: epochs after which the rate drops, such as [30, 60, 80].
        lr_factor: factor by which it drops.
        warmup_epochs: epochs in which the rate rises.
        label_smoothing: share of the target that is spread over all classes.
        top_k: k of the second accuracy; 0 or 1: top-1 alone.
        precision: auto, fp32, bf16 or fp16.
        fast_path: auto, native, products or off: faster layers on a CPU.
        device: auto, cpu, cuda, cuda:1 or mps.
        gpus: one worker for each GPU listed, such as [0, 1, 2, 3].
        seed: of the initial weights, the order and the augmentation.
        monitor: log norms every so many steps.
        log_every: steps between log lines.
        log_dir: folder for the log of each process. Default: logs/ in the run folder.
        log: where else to report: tensorboard, wandb, mlflow, trackio, csv.
        notify: at the end, a failure and a new best: a command such as "say {event} {run}", or an http address.
        update_method: local, collective or pserver.
        workers: trainer processes on this machine.
        servers: parameter servers on this machine.
        mode: of parameter servers: sync, async or ssp:S.
        compress: none, fp16, bf16, 2bit, 1bit, topk:R or powersgd:R.
        evaluator: evaluate checkpoints in a process of its own.
        max_restarts: how often lost workers are restarted.
        min_workers: continue with as few workers when no restarts are left.
        data_service: addresses of data servers that make batches, such as ["node1:7000"].
        data_servers: data servers on this machine.
        teacher_service: addresses of processes that compute the teachers' logits, such as ["node1:7400"].
        teachers: such processes on this machine.
        out: the run folder. Default: runs/NAME-TIME.
        resume: a run, its folder or one of its checkpoints to continue; True is the latest run in runs/.
        at: with `resume`: from the checkpoint there, such as "30ep", "5000st" or "50%".
        init_from: start from the weights of a run, a checkpoint or a file.
        accept_code: with `resume`, if your own code has changed: "run" (the run's copy) or "new".
        progress: show progress. Default: in a terminal and in a notebook, but nowhere else.

    Raises:
        phalanx.Error: for what the caller can correct: an unknown flag or setting, missing data, a full disk.
        KeyboardInterrupt: at Ctrl-C before the first step, when there is nothing to save, or at a second Ctrl-C.
    """
    arguments = {name: value for name, value in locals().items() if name not in ("recipe", "progress")}
    return train_request(request_of("train", recipe, arguments), progress=progress)


def request_of(function: str, recipe: "str | PathLike[str] | Recipe | None", arguments: Mapping[str, Any]) -> Request:
    """What the arguments of `train` mean. `function` was called."""
    named = recipe.name if isinstance(recipe, Recipe) else None if recipe is None else fspath(recipe)
    flags = given_flags(arguments)
    resume = arguments["resume"]
    return make_request(
        named,
        [*flag_layers(flags, spelled="{}="), *settings_layers(arguments["settings"])],
        {},
        out=_path(arguments["out"]),
        resume=LATEST if resume is True else None if resume in (None, False) else fspath(resume),
        at=arguments["at"],
        init_from=_path(arguments["init_from"]),
        accept_code=arguments["accept_code"],
        command=call_text(function, named, {**arguments, **flags}),
    )


def _path(given: "str | PathLike[str] | None") -> Path | None:
    return None if given is None else Path(given)
