"""Load saved weights into a model: to resume a run, to start from another run, to use a checkpoint."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from phalanx.config.text import read_json
from phalanx.engine.classifier import fit_classifier, match_classes
from phalanx.engine.distill.extras import NAME as EXTRAS
from phalanx.engine.distill.extras import with_extras
from phalanx.engine.loop import StepPlan
from phalanx.engine.model_spec import ModelSpec
from phalanx.engine.saved_state import malformed, refuse_malformed
from phalanx.engine.state import Best, TrainState
from phalanx.engine.totals import Totals
from phalanx.errors import UserError
from phalanx.exchange.base import Exchange
from phalanx.models.params import classifier_names
from phalanx.runs import checkpoint, rewind
from phalanx.runs.checkpoint import Loaded
from phalanx.runs.evaluations import best_of, evaluations
from phalanx.runs.events import Eval, Resume, read_events, write_missing


def restore(
    folder: Path,
    state: TrainState,
    exchange: Exchange,
    spec: ModelSpec,
    plan: StepPlan,
    *,
    at_step: int | None = None,
    evaluator: bool = False,
    code: Mapping[str, str] | None = None,
) -> Resume:
    """Restore weights, optimizer, position and metrics from a checkpoint, by default the newest complete one.

    With a separate `evaluator`, results may be newer than the checkpoint, and the evaluator marks the best.
    `code` has the digests of the user's files.
    """
    warnings: list[str] = []
    if at_step is None:
        loaded, warnings = checkpoint.load_newest(folder)
    else:
        loaded = checkpoint.load(rewind.find_step(folder, at_step))
    refuse_malformed(loaded)
    warnings += refuse_other_identity(loaded, spec)
    own, place = loaded.tensors["model"], str(loaded.path)
    load_weights(state.model, with_extras(state.model, own, loaded.tensors.get(EXTRAS, {})), place)
    if state.ema is not None:
        load_weights(state.ema.model, with_extras(state.ema.model, loaded.tensors.get("ema", own)), place)
    if state.swa is not None and loaded.state["training"].get("swa") and "ema" in loaded.tensors:
        load_weights(state.swa.model, with_extras(state.swa.model, loaded.tensors["ema"]), place)
    try:
        exchange.state.load(loaded.tensors.get("optimizer", {}), loaded.state["optimizer"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # torch's, of slots that it does not have
        raise malformed(loaded, f"optimizer: {type(error).__name__} {error}") from error
    if exchange.residuals is not None:  # otherwise nothing is compressed: less than a step's worth of gradient is lost
        exchange.residuals.load(loaded.tensors.get("residuals", {}))
    state.restore(loaded.state["training"])
    group = exchange.group
    if group.share.rank > 0 and not group.lockstep:  # the sums are those of the worker that saved them
        state.epoch_totals, state.interval = Totals(), Totals()
    measured = False  # whether the evaluator has evaluated this step: the checkpoint does not know
    if group.share.rank == 0:
        if at_step is None:
            warnings += [f"{path} was set aside" for path in checkpoint.set_aside_after(loaded.path)]
        else:
            rewind.put_aside_after(folder, at_step)
        warnings += rewind.aside_warnings(folder, state.step)
        checkpoint.forget_claims(folder)
        write_missing(folder.parent, loaded.state.get("events", []))
        known = [one for one in evaluations(read_events(folder.parent)) if one.step <= state.step]
        _recall_best(state, known)
        if not evaluator:
            _mark_best(folder, state)
        measured = evaluator and any(one.step == state.step for one in known)
    before = loaded.state["config"].get("code", {}).get("files", {})
    changed = sorted(name for name, digest in (code or {}).items() if before.get(name) != digest)
    if changed:
        warnings.append(
            f"{', '.join(changed)} has changed since this checkpoint was saved, and the change was accepted"
        )
    if loaded.state["samples_per_step"] != plan.samples_per_step:
        warnings.append(
            f"a step now has {plan.samples_per_step} samples, {loaded.state['samples_per_step']} before: "
            "no sample is lost, but the result differs from an uninterrupted run"
        )
        state.rescale(plan.steps_per_epoch, plan.samples_per_step, plan.replays)
    if state.step >= plan.total_steps and (measured or not plan.evaluation_due(state)):
        raise UserError(
            f"{folder.parent} is finished: {state.step} of {plan.total_steps} steps are done",
            why="there is nothing to resume",
            remedy="train longer with --epochs, or start a new run",
        )
    return Resume(state.step, loaded.state["training"]["step"], str(loaded.path), warnings)


def _mark_best(folder: Path, state: TrainState) -> None:
    """Mark the best checkpoint: the run may have died just before, or gone back to before the best."""
    best = state.best
    if best is None or not checkpoint.path_of(folder, best.step).is_dir():
        return
    if best.step == state.step or checkpoint.best_path(folder) is None:
        checkpoint.mark_best(folder, best.step, best.score, best.metric)


def _recall_best(state: TrainState, known: list[Eval]) -> None:
    """Take the best from the events: an evaluator may have found it after the checkpoint was written."""
    best = best_of(known)
    if best is not None and (state.best is None or best.score > state.best.score):
        state.best = Best.of(best)


def initialize_from(place: Path, state: TrainState, spec: ModelSpec, *, new_head: bool) -> list[str]:
    """Load the weights of a run, a checkpoint or a safetensors file into a new run; notes for the user.

    The classifier is matched by the names of the classes. With `new_head`, classes without a match start anew.
    """
    if place.is_file():
        tensors, classes = read_weights(place), _classes_beside(place)
    else:
        loaded = checkpoint.load(checkpoint.find(place))
        if not new_head:
            refuse_other_model(loaded, spec)
        tensors = loaded.tensors.get("ema", loaded.tensors["model"])
        classes = [str(name) for name in loaded.state["identity"]["classes"]]
    if classes is None:
        tensors, notes = _unnamed(place, state.model, tensors, new_head=new_head)
    else:
        rows = match_classes(classes, spec.classes, str(place), new_head=new_head)
        tensors = fit_classifier(state.model, tensors, rows, len(classes))
        notes = [rows.note] if rows.note else []
    for model in [state.model, *([state.ema.model] if state.ema is not None else [])]:
        load_weights(model, with_extras(model, tensors), str(place))
    return notes


def _unnamed(
    place: Path, model: nn.Module, tensors: dict[str, Tensor], *, new_head: bool
) -> tuple[dict[str, Tensor], list[str]]:
    """Weights without names of classes: their classifier is matched by number, or starts anew if its shape differs."""
    current = model.state_dict()
    names = [name for name in classifier_names(model) if name in tensors]
    other = [name for name in names if tensors[name].shape != current[name].shape]
    if other and new_head:
        fresh = {name: current[name] for name in other}
        return tensors | fresh, [f"the classifier starts anew: that of {place} has another shape"]
    return tensors, [f"{place} does not name its classes: its classifier was matched by number"] if names else []


def _classes_beside(weights: Path) -> list[str] | None:
    """The class names in the config.json of `phalanx export` or timm, beside a file of weights."""
    try:
        found = read_json((weights.parent / "config.json").read_bytes())["label_names"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, list) and all(isinstance(name, str) for name in found) else None


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{path} cannot be read as weights",
            why=str(error),
            remedy="give a run, a checkpoint folder, or a .safetensors file (pickles such as .pth can run code)",
        ) from error


def refuse_other_identity(loaded: Loaded, spec: ModelSpec) -> list[str]:
    """Refuse to resume a checkpoint of another model, or of other classes; notes for the user."""
    refuse_other_model(loaded, spec)
    rows = match_classes(loaded.state["identity"]["classes"], spec.classes, str(loaded.path), new_head=False)
    if not rows.in_place:
        raise UserError(
            f"the classes of the data are in another order than in {loaded.path}",
            why="the classifier and the optimizer's state go by the numbers of the classes",
            remedy="use the data as it was; or start a new run, which matches them by name: --init-from",
        )
    return [rows.note] if rows.note else []


def refuse_other_model(loaded: Loaded, spec: ModelSpec) -> None:
    """Refuse a checkpoint of another model, or of another kind of labels."""
    saved = loaded.state["identity"]
    if saved["model"] != spec.model:
        raise UserError(
            f"{loaded.path} is a checkpoint of {saved['model']}, not of {spec.model}",
            why="weights fit only the model that they were trained for",
            remedy=f"--model {saved['model']}, or choose another checkpoint",
        )
    several = bool(saved.get("multi_label"))  # older checkpoints have one label a sample
    if several != spec.multi_label:
        kinds = ("one label a sample", "several labels a sample")
        raise UserError(
            f"{loaded.path} was trained on {kinds[several]}, and the data has {kinds[spec.multi_label]}",
            why="a classifier's answers are probabilities of all classes together, or of each class by itself",
            remedy=f"data.multi_label={str(several).lower()}; or fine-tune: --init-from with model.new_head=true",
        )


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Copy weights into the model, in place: layout and device do not change."""
    current = model.state_dict()
    missing = sorted(current.keys() - tensors.keys())
    unexpected = sorted(tensors.keys() - current.keys())
    reshaped = [name for name in current.keys() & tensors.keys() if current[name].shape != tensors[name].shape]
    complaints = []
    if missing:
        complaints.append(f"{len(missing)} tensors are missing ({', '.join(missing[:3])} …)")
    if unexpected:
        complaints.append(f"{len(unexpected)} are unexpected ({', '.join(unexpected[:3])} …)")
    for name in sorted(reshaped)[:3]:
        complaints.append(f"{name} is {list(tensors[name].shape)} and should be {list(current[name].shape)}")
    if complaints:
        raise UserError(
            f"the weights in {origin} do not fit the model",
            why="; ".join(complaints),
            remedy=_channels_remedy(current, tensors, reshaped)
            or "check --model, its options and the number of classes; for a new head: model.new_head=true",
        )
    model.load_state_dict(dict(tensors))


def _channels_remedy(mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor], names: list[str]) -> str:
    """What to write if the first layer takes grey images in one and colour images in the other."""
    for name in names:
        here, there = list(mine[name].shape), list(theirs[name].shape)
        same = len(here) == len(there) == 4 and here[0] == there[0] and here[2:] == there[2:]
        if same and {here[1], there[1]} == {1, 3}:
            kind = "colour" if there[1] == 3 else "grey"
            return f"data.channels={there[1]}: the weights are of a model for {kind} images, and it reads all images so"
    return ""
